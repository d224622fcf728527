"""The owner's page: what it says, in which order, and that no name on it runs or fetches anything."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from chromium import check_fits_a_phone, check_nothing_leaves, needs_browser, visit
from deploy.ended import ended
from fedepd.deploy.taken import Taken, take
from fedepd.deploy.worth import NOT_WORTH, WORTH, Verdict, Worth, worth
from fedepd.deploy.worth_page import attack_sentences, attacks_table, classes_table, render, short_table
from hostile_names import PAYLOADS


@pytest.fixture(scope="module")
def taken(five_kits: Path, tmp_path_factory: pytest.TempPathFactory) -> Taken:
    """Class 2 has one training node at each site, so it is closed."""
    folder = tmp_path_factory.mktemp("ended") / "fed"
    ended(five_kits, folder, data={"one_node_class": True}, min_count=5, hidden=16)
    return take(folder / "a")


@pytest.fixture(scope="module")
def found(taken: Taken) -> Worth:
    return worth(taken)


@pytest.fixture(scope="module")
def page(found: Worth) -> str:
    return render(found)


@pytest.fixture(scope="module")
def hostile_page(found: Worth) -> str:
    return render(hostile(found))


def test_the_answer_comes_first(found: Worth, page: str) -> None:
    header = page[page.index("<header") : page.index("</header>")]
    assert f"<p>{found.verdict.sentence.replace(chr(39), '&#x27;')}</p>" in header
    places = [page.index(f'id="{place}"') for place in ("models", "classes", "left", "inferred", "protocol")]
    assert places == sorted(places)
    assert page.count("<svg") == 2


@pytest.mark.parametrize(
    ("answer", "title"), [(WORTH, "Joining was worth it: a"), (NOT_WORTH, "Joining was not worth it: a")]
)
def test_the_title_is_the_answer(found: Worth, page: str, answer: str, title: str) -> None:
    assert f"<h1>{title}</h1>" in render(replace(found, verdict=Verdict(answer, "So it is.")))
    assert "<h1>It cannot be told whether joining was worth it: a</h1>" in page


def test_classes_are_listed_with_counts_and_guard(found: Worth, taken: Taken) -> None:
    """Site a: 20 nodes of two classes and one node of class 2, which is a training node and closed."""
    rows = {row[0].text: row for row in classes_table(found).sections[0]}
    assert list(rows)[-1] == "class 2"
    assert [cell.text for cell in rows["class 2"][2:5]] == ["1", "0", "0"]
    assert rows["class 2"][-1].text == "closed, yours kept at home"
    assert rows["class 0"][-1].text == "open"
    assert sum(int(row[4].text) for row in rows.values()) == int(taken.data.test_mask.sum())


def test_without_test_nodes_the_page_says_so(taken: Taken) -> None:
    blind = replace(taken.data, test_mask=torch.zeros_like(taken.data.test_mask))
    page = render(worth(replace(taken, data=blind)))
    assert "There is no test node whose class is known, so there are no scores." in page
    assert page.count("<svg") == 1


def test_the_attacks_have_both_columns_and_membership_is_not_made_up(found: Worth, page: str) -> None:
    table = attacks_table(found)
    assert table.headers == ["Attack", "Without protection", "In this run", "Chance"]
    assert table.sections[0][0][1].text == "33.3"
    assert table.sections[0][0][2].text == "nothing sent"
    said = attack_sentences(found)
    assert said[0].startswith("The coordinator saw sums over 3 sites.")
    assert "1 of your 3 class rows would be rows of one node, and 1 of these would name" in said[1]
    assert "is not measured here" in page
    open_run = replace(found.audit.privacy["on"], secure=False, guard=False)
    seen = replace(found, audit=replace(found.audit, privacy={**found.audit.privacy, "on": open_run}))
    assert attack_sentences(seen)[0] == "The coordinator saw your answers alone, and nothing was withheld."


def test_a_terminal_of_80_columns_is_wide_enough(found: Worth) -> None:
    table = short_table(found)
    widths = [
        max(len(table.headers[n]), *(len(f"{row[n].text} {row[n].spread}") for row in table.sections[0]))
        for n in range(len(table.headers))
    ]
    assert sum(widths) + 3 * len(widths) <= 80


def test_the_same_site_has_the_same_page(page: str, taken: Taken) -> None:
    assert page == render(worth(taken))


def hostile(found: Worth) -> Worth:
    """The same with names of classes and fields that somebody made to do harm."""
    names = PAYLOADS["script"], PAYLOADS["image"], PAYLOADS["end of svg"]
    evil = [replace(each, field=PAYLOADS["attribute"], what=PAYLOADS["comment"]) for each in found.left]
    rounds = {n: {PAYLOADS["attribute"]: sum(sizes.values())} for n, sizes in found.rounds.items()}
    return replace(found, label_names=names, left=evil, rounds=rounds, facts={PAYLOADS["cdata"]: names[0]})


@pytest.mark.hostile
def test_names_are_text_and_nothing_is_fetched(page: str, hostile_page: str) -> None:
    for each in (page, hostile_page):
        assert "default-src 'none'" in each
        assert not re.search(r'(src|href)="(?!#|data:)', each)
        assert "<script>document" not in each
        assert "<img" not in each


class TestInABrowser:
    pytestmark = needs_browser

    @pytest.mark.hostile
    def test_the_page_works_whatever_the_names(self, browser: Any, hostile_page: str, tmp_path: Path) -> None:
        file = tmp_path / "worth.html"
        file.write_text(hostile_page, encoding="utf-8")
        visit(browser, file.as_uri())
        assert browser.title == "It cannot be told whether joining was worth it: a"
        sizes = browser.execute_script(
            "return [...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)"
        )
        assert len(sizes) == 2
        assert all(width > 600 for width in sizes)
        tables = browser.execute_script(
            "return [...document.querySelectorAll('table')]"
            ".map(t => [t.dataset.name, t.tBodies[0].rows.length])"
        )
        assert {name for name, _ in tables} >= {"worth-models", "worth-classes", "worth-left", "audit-worth"}
        assert all(count for _, count in tables)
        check_nothing_leaves(browser, file.as_uri())

    def test_nothing_sticks_out_on_a_phone(self, browser: Any, page: str, tmp_path: Path) -> None:
        file = tmp_path / "worth.html"
        file.write_text(page, encoding="utf-8")
        check_fits_a_phone(browser, file.as_uri())
