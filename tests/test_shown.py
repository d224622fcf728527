"""Foreign text in every place where it may be shown: it steers nothing, and honest text stays as it is."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedepd.shown import (
    FILE_NAME,
    LIMIT,
    SENTENCE,
    csv_text,
    drawn,
    html_text,
    latex_label,
    latex_text,
    listed,
    markdown_code,
    markdown_text,
    plain,
    sentence,
    shown,
    slug,
    whole,
)
from hostile_names import ALL, ESCAPES, PAYLOADS, STRANGE, unfit

hostile = pytest.mark.hostile
every = pytest.mark.parametrize("text", ALL.values(), ids=ALL)
bad = pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS)
honest = pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)


@hostile
@bad
def test_one_short_line_without_control_characters(text: str) -> None:
    for made in (shown(text), shown(text, 20), plain(text), sentence(text), drawn(text)):
        assert unfit(made) == []
        assert "\n" not in made
        made.encode("utf-8")
    assert len(shown(text)) <= LIMIT
    assert len(shown(text, 20)) <= 20
    assert len(sentence(text)) <= SENTENCE
    assert len(plain(text)) == len(text)


@hostile
@pytest.mark.parametrize("text", ESCAPES.values(), ids=ESCAPES)
def test_what_was_taken_out_is_seen(text: str) -> None:
    assert unfit(text), "the case itself is harmless"
    assert "?" in plain(text)


@honest
def test_honest_text_stays(text: str) -> None:
    assert (
        plain(text)
        == shown(text)
        == sentence(text)
        == html_text(text)
        == markdown_text(text)
        == drawn(text)
        == whole(text)
        == text
    )


def test_what_is_cut_says_so() -> None:
    assert shown("x" * 80) == "x" * 80
    assert shown("x" * 81) == "x" * 77 + "..."
    assert sentence("start" + "x" * 10_000 + "cure").startswith("startxxx")
    assert sentence("start" + "x" * 10_000 + "cure").endswith("xxxcure")
    assert sentence("a\nb") == "a b"
    assert plain("a\nb\r", newlines=True) == "a\nb?"


def test_a_list_is_short_whatever_is_in_it() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed(["x" * 100, *map(str, range(499_999))], 3) == "x" * 77 + "..., 0, 1 and 499,997 more"


# --- pages --------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


@hostile
@every
def test_html_holds_one_element_with_the_text_in_it(text: str) -> None:
    made = Tags(f'<p title="{html_text(text)}" class="ours">{html_text(text)}</p>')
    assert made.found == [("p", {"title": plain(text), "class": "ours"})]
    assert made.text == plain(text)


@hostile
@every
def test_a_slug_is_a_file_name_and_an_anchor(text: str) -> None:
    made = slug(text)
    assert re.fullmatch(r"[\w.-]+", made)
    assert html_text(made) == made
    assert made not in (".", "..")
    assert not made.startswith(".")
    assert Path(made).name == made
    assert len(made.encode()) <= FILE_NAME


@pytest.mark.parametrize("name", ["table2", "fig-convergence", "my_target.v2", "欺诈账户"])
def test_a_slug_stays(name: str) -> None:
    assert slug(name) == name


def test_a_name_that_a_legend_would_leave_out_is_moved() -> None:
    assert drawn("_x") == " _x"


# --- Markdown -----------------------------------------------------------------------------------------------


def rendered(line: str) -> str:
    """What CommonMark makes of backslash escapes."""
    return re.sub(r"\\([!-/:-@\[-`{-~])", r"\1", line)


@hostile
@bad
def test_markdown_shows_the_text_and_nothing_happens(text: str) -> None:
    made = markdown_text(text)
    assert rendered(made) == plain(text).lstrip()
    bare = re.sub(r"\\[!-/:-@\[-`{-~]", "", made)  # what is left has a meaning
    assert not re.search(r"[`*_|<>\[\]~&$\\]", bare)
    assert not re.search(r"(?<!\\)://|www\.", made)
    assert not re.match(r"\s|#{1,6}(\s|$)|[-+*](\s|$)|\d+[.)](\s|$)|---|===", made)


@hostile
@bad
def test_markdown_code_stays_closed(text: str) -> None:
    made = markdown_code(text)
    assert re.fullmatch(r"`[^`]+`", made)
    assert unfit(made) == []


@pytest.mark.parametrize(
    "text", ["FedEPD (printed)", "-0.5", "60/20/20 per client", "10 clients; gcn hidden 64", "#1", "3.5 s"]
)
def test_our_own_words_need_no_escape(text: str) -> None:
    assert markdown_text(text) == text


# --- LaTeX --------------------------------------------------------------------------------------------------


@hostile
@bad
def test_latex_has_no_command_of_the_text(text: str) -> None:
    made = latex_text(text)
    ours = r"\\text(backslash|asciitilde|asciicircum|less|greater)\{\}|\\[#$%&_{}]"
    rest = re.sub(ours, "", made)
    assert not re.search(r"[\\{}$%#&_~^<>]", rest)
    assert unfit(made) == []
    assert re.fullmatch(r"[A-Za-z0-9_.:-]*", latex_label(text))


# --- CSV ----------------------------------------------------------------------------------------------------


def back(cell: str) -> str:
    """As the documentation says that names are read back."""
    return cell[1:] if re.match(r"''*[=+\-@\t\r\n＝＋－＠]", cell) else cell


@hostile
@every
def test_csv_has_no_formula_and_can_be_read_back(text: str) -> None:
    rows = list(csv.reader(io.StringIO(csv_text([[text, 1.5, "end"]]), newline="")))
    assert len(rows) == 1
    assert not rows[0][0].startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
    assert back(rows[0][0]) == whole(text)
    assert rows[0][1:] == ["1.5", "end"]


@hostile
@pytest.mark.parametrize(
    "text",
    ["=1+1", "+1+1", "-1+1", "@x", "\t=1", "\r=1", "\n=1", "＝1+1", "'=1", "''=1", "-", "--1", "+a", "1e5x"],
)
def test_csv_formula_starts(text: str) -> None:
    cell = next(csv.reader(io.StringIO(csv_text([[text]]), newline="")))[0]
    assert cell == (text if text == "1e5x" else "'" + text)
    assert back(cell) == text


@pytest.mark.parametrize("number", [-1.5, -3, 1e-300, "-1.5", "+3", "-.5", "-1e-05", "7", None, True])
def test_csv_numbers_stay_numbers(number: object) -> None:
    assert csv_text([[number, "x"]]) == f"{'' if number is None else number},x\n"
