"""The page says what was measured, in words, in a table and in a figure, and trusts no name."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from fedepd.privacy.audit import Audit, audit
from fedepd.privacy.figures import Figure, auc_figure, share
from fedepd.privacy.page import chance_of, lead, number, percent, render, sentences, table
from fedepd.runs.simulation import Simulation

NAN = float("nan")


@pytest.fixture(scope="module")
def found(four: Callable[..., Simulation]) -> Audit:
    """Tests only read it."""
    simulation = four()
    return audit(simulation, simulation.clients, rounds=2, skip=("membership", "links"))


def test_the_first_sentences_say_what_could_be_learned(found: Audit) -> None:
    off, on, left = lead(found)
    assert off.startswith("With guard and secure sums off: 4 of 11 class rows are of fewer than 5 nodes; ")
    assert "1 of 1 rows of one node name their node" in off
    assert on == (
        "With guard and secure sums on: 0 of 3 class rows are of fewer than 5 nodes; no row is of one node; "
        "a client's classes are inferred from its update with AUC 0.50."
    )
    assert "in 1 of 1 cases" in left


def test_where_nothing_is_sent_the_sentences_say_so() -> None:
    figures = [
        share("rows.few", "all", 0, 0),
        share("reidentified.rank1", "all", 0, 0),
        auc_figure("classes.auc", "all", [], []),
    ]
    assert sentences(figures, 5) == [
        "no class rows are sent", "no row is of one node", "no update tells a client's classes"
    ]  # fmt: skip


def test_numbers() -> None:
    """36 of 38 with Wilson's interval, an area, nothing sent, and nothing measurable."""
    cell = number(share("reidentified.rank1", "all", 36, 38), False)
    assert (cell.text, cell.spread) == ("94.7", "[82.7, 98.5] of 38")
    area = number(Figure("classes.auc", "all", 0.5, 0.4, 0.6, 1420, 0.5), True)
    assert (area.text, area.spread) == ("0.50", "[0.40, 0.60] of 1,420")
    assert number(share("pairs.resolved", "all", 0, 0), False).text == "nothing sent"
    assert number(Figure("membership.auc", "all", NAN, NAN, NAN, 7, None), True).text == "–"
    assert number(None, True).text == "–"
    assert [percent(value) for value in (0.5, 0.0101, 0.0002)] == ["50.0", "1.0", "0.02"]


def test_chance_is_shown_once_if_it_is_the_same() -> None:
    half, third = (Figure("x", "all", 0.9, 0.8, 1, 9, chance) for chance in (0.5, 1 / 3))
    assert chance_of([half, half], False).text == "50.0"
    assert chance_of([half, third], False).text == "50.0 / 33.3"
    assert chance_of([None, share("x", "all", 1, 2)], False).text == ""


def test_the_table_leaves_out_what_nobody_measured(found: Audit) -> None:
    every, first = table(found), table(found, ("all",))
    assert every.headers == ["Attack", "Tier", "Off", "On", "Chance"]
    assert first.headers == ["Attack", "Off", "On", "Chance"]
    tiers = {row[1].text for section in every.sections for row in section}
    assert tiers == {"all", "head", "tail"}  # no class is in the medium tier here
    assert all(len(row) == len(first.headers) for section in first.sections for row in section)
    assert not any("Edges" in row[0].text for section in every.sections for row in section)


def test_the_page_is_one_file_that_fetches_nothing(found: Audit) -> None:
    page = render(found)
    assert "default-src 'none'" in page
    assert not re.search(r'(src|href)="(?!#|data:)', page)
    assert page.count("<svg") == 1
    assert '<h2 id="learned">What the server could learn</h2><p>With guard and secure sums off:' in page
    assert "Membership" not in page


@pytest.mark.hostile
def test_names_from_data_are_text(found: Audit) -> None:
    evil = '<script>alert(1)</script>"\x1b[31m'
    page = render(replace(found, dataset=evil, method=evil, protocol=evil, notes=[evil]))
    assert "<script>alert" not in page
    assert "\x1b" not in page


def test_the_same_audit_has_the_same_page(found: Audit) -> None:
    assert render(found) == render(found)
