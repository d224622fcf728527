"""Pages: foreign text is text, and every link is one of the board's."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from fedepd.board import pages
from fedepd.board.catalogue import Entry
from hostile_names import PAYLOADS

SCORES = (0.9, None, 0.7)


class Tags(HTMLParser):
    """The tags of a page, and the text of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.hostile
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_name_adds_no_tag(payload: str) -> None:
    name = payload.encode("utf-8", "replace").decode()
    plain, strange = (
        pages.row_html(Entry(each, "finished", each, each, each, 1, 2, 3, SCORES)) for each in ("x", name)
    )
    assert Tags(strange).names == Tags(plain).names
    entries = [Entry(f"{each}/{n}", "stopped", each) for each in ("x",) for n in range(2)]
    others = [Entry(f"{name}/{n}", "stopped", name) for n in range(2)]
    assert (
        Tags(pages.list_page(others, name, {name: name})).names
        == Tags(pages.list_page(entries, "x", {"x": "x"})).names
    )


def test_a_row_says_all_of_a_run() -> None:
    found = Tags(
        f"<table>{pages.row_html(Entry('s/a', 'finished', 'FedAvg', 'own', 'toy', 5, 8, 9, SCORES))}</table>"
    )
    assert re.sub(r"\s", "", found.text) == "s/aFedAvg,owntoy58/990.0–70.0finished"


def test_only_finished_runs_can_be_ticked() -> None:
    assert "disabled" in pages.row_html(Entry("a", "running"))
    assert "disabled" not in pages.row_html(Entry("a", "finished", scores=SCORES))


def test_names_in_links_are_quoted() -> None:
    assert pages.address("/run", run="a b&c=d#e/é") == "/run?run=a+b%26c%3Dd%23e%2F%C3%A9"
    assert pages.address("/compare", run=["a", "b"]) == "/compare?run=a&amp;run=b"


def test_a_study_is_a_folder_with_two_runs() -> None:
    entries = [Entry("a", "finished"), Entry("s/a", "finished"), Entry("s/b", "running")]
    assert pages.studies_of(entries) == {"s": (1, 2)}


def test_an_empty_folder_says_what_to_do() -> None:
    assert "New run" in pages.list_page([], "runs", {})
