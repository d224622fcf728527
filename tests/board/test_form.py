"""The form and what it sends."""

from __future__ import annotations

import pytest

from fedepd.board import form
from fedepd.errors import BadConfig, UnknownName

ABOUT = {
    "methods": ["fedavg", "fedepd"],
    "presets": ["default", "<i>"],
    "groups": [
        {"title": "settings of <b>", "settings": [
            {"name": "mu", "switch": False, "choices": [], "default": "1.0", "help": 'a "weight" <x>'},
            {"name": "purify", "switch": True, "choices": [], "default": "True", "help": "prune"},
            {"name": "robust", "switch": False, "choices": ["off", "median"], "default": "off",
             "help": "rule"},
        ]},
        {"title": "empty", "settings": []},
    ],
}  # fmt: skip


def test_every_setting_has_a_field() -> None:
    page = form.form_page("fedepd", ABOUT, "secret", "fedepd-1")
    for name in ("method", "name", "data", "preset", "mu", "purify", "robust"):
        assert page.count(f'name="{name}"') == 1
    assert "<option selected>fedepd</option>" in page
    assert 'placeholder="1.0"' in page
    assert '<option value="">default: on</option><option>on</option><option>off</option>' in page
    assert '<option value="">default: off</option><option>off</option><option>median</option>' in page
    assert 'name="form" value="secret"' in page
    assert "<x>" not in page
    assert "<i>" not in page
    assert "empty" not in page.split("<form")[1]


def test_what_is_filled_in_becomes_options() -> None:
    sent = {
        "form": "s",
        "name": "a",
        "method": "fedepd",
        "mu": " 2 ",
        "purify": "off",
        "robust": "off",
        "data": "",
    }
    assert form.asked(sent, ABOUT) == ["--mu=2", "--no-purify", "--robust=off"]


@pytest.mark.hostile
@pytest.mark.parametrize("name", ["out", "config", "workers", "tuned", "clients-dir", "--out", "x\x1b"])
def test_what_is_no_setting_is_refused(name: str) -> None:
    with pytest.raises(UnknownName):
        form.asked({name: "/etc"}, ABOUT)


def test_a_switch_is_on_or_off() -> None:
    with pytest.raises(BadConfig):
        form.asked({"purify": "--out=x"}, ABOUT)


def test_a_run_that_starts_waits_and_a_failure_does_not() -> None:
    assert 'data-next="/run?run=a"' in form.starting_page("a", "")
    assert "data-next" not in form.starting_page("a", "rounds is -1")
    assert "rounds is -1" in form.starting_page("a", "rounds is -1")


def test_a_button_is_a_form() -> None:
    assert form.button("/stop", 'a"b', "Stop", "s").count('value="a&quot;b"') == 1
