"""Who is let in: no secret 403, another host 400, a form from another page 403."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from board.asking import HOST, PORT, Asker
from fedepd.board.guard import MOST_BODY, Secret, same

Ask = Callable[[], Asker]
PAGES = ("/", "/run?run=a", "/compare", "/study", "/figures?run=a", "/table.csv", "/events", "/new",
         "/board.js", "/plotly.js", "/page.css", "/nothing")  # fmt: skip
hostile = pytest.mark.hostile


@hostile
@pytest.mark.parametrize("path", PAGES)
@pytest.mark.parametrize(
    "cookie", [None, "", "fedepd-board-8123=", "fedepd-board-8123=wrong", "a=b; c", "\x00"]
)
def test_without_the_secret_nothing_is_answered(ask: Ask, path: str, cookie: str | None) -> None:
    assert ask().get(path, cookie=cookie).status == 403


@hostile
@pytest.mark.parametrize(
    "host",
    ["evil.example", f"evil.example:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}", f"127.0.0.1:{PORT}@evil",
     "", f"127.0.0.1.evil.example:{PORT}", f"[::1]:{PORT}", None],
)  # fmt: skip
def test_another_host_is_refused_even_with_the_secret(ask: Ask, host: str | None) -> None:
    """A name that an attacker's server points to 127.0.0.1 (DNS rebinding) does not help it."""
    asker = ask()
    assert asker.get(f"/?token={asker.secret.token}", host=host).status == 400
    assert asker.get("/", host=host).status == 400


def test_the_address_with_the_token_gives_the_cookie_and_hides_the_token(ask: Ask) -> None:
    asker = ask()
    answer = asker.get(f"/?token={asker.secret.token}", cookie=None)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    words = answer.headers["set-cookie"].lower().split("; ")
    assert words[0] == asker.cookie.lower()
    assert {"httponly", "samesite=strict"} <= set(words)
    assert asker.get("/", host=f"localhost:{PORT}").status == 200


@hostile
@pytest.mark.parametrize("token", ["", "x", "%00", "é" * 9, "&token=" * 300])
def test_a_wrong_token_is_no_key(ask: Ask, token: str) -> None:
    assert ask().get(f"/?token={token}", cookie=None).status == 403


def test_every_answer_says_what_a_browser_may_do(ask: Ask) -> None:
    asker = ask()
    for answer in (asker.get("/"), asker.get("/", cookie=None), asker.get("/", host="evil"), asker.get("/x")):
        policy = dict(
            part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert policy["form-action"] == "'self'"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "same-origin"
        assert answer.headers["cache-control"] == "no-store"
        assert "access-control-allow-origin" not in answer.headers


def test_no_page_has_a_script_of_its_own(ask: Ask) -> None:
    text = ask().get("/").text
    assert text.count("<script") == text.count("<script src=") == 3
    assert "onclick" not in text


@hostile
@pytest.mark.parametrize("path", ["/start", "/stop", "/resume"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": None}, 403),
        ({"origin": "null"}, 403),
        ({"origin": f"http://127.0.0.1:{PORT + 1}"}, 403),
        ({"origin": f"https://{HOST}"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"cookie": None}, 403),
        ({"host": "evil.example"}, 400),
        ({"content_length": str(MOST_BODY + 1)}, 413),
        ({"content_length": None}, 413),
        ({"content_length": "-1"}, 413),
        ({"content_length": "²"}, 413),
    ],
)
def test_a_form_from_elsewhere_is_refused(
    ask: Ask, path: str, headers: dict[str, str | None], status: int
) -> None:
    """Each has the right secret in its fields, so that it is the header alone that is refused."""
    asker = ask()
    assert (
        asker.post(path, f"form={asker.secret.form}&run=a&name=a&method=fedavg", **headers).status == status
    )


@hostile
@pytest.mark.parametrize("given", ["", "form=", "form=wrong", "form=%ff", "run=a"])
def test_a_form_needs_its_own_secret(ask: Ask, given: str) -> None:
    assert ask().post("/stop", given).status == 403


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_not_known(ask: Ask, method: str) -> None:
    assert ask().get("/", method).status == 405


def test_what_changes_something_cannot_be_fetched(ask: Ask) -> None:
    assert [ask().get(path).status for path in ("/start", "/stop", "/resume")] == [405, 405, 405]


def test_secrets_are_long_and_differ() -> None:
    one, other = Secret(1), Secret(1)
    assert one.token != other.token
    assert len(one.token) >= 40
    assert one.form != other.form
    assert one.token not in one.form
    assert same("é", "é")
    assert not same("é", "e")
