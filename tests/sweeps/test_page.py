"""The page of a sweep: names of settings and values are data, and the answer keeps to what can be told."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from fedepd.report.tables import html_table
from fedepd.sweeps import page
from fedepd.sweeps.sweep import Combination, Swept


class Scored:
    """A run as the tables see it."""

    def __init__(self, seed: int, val: float, test: float) -> None:
        self.seed, self.headline, self.summary = seed, "global", {"best_round": 1}
        self.config = {"experiment": {"protocol": {"select": "val_macro_f1"}}}
        self.rounds = [{"round": 1, "val": {"global": {"macro_f1": val}}}]
        self.metric = lambda name: test


def combination(values: tuple[Any, ...], val: float, *tests: float) -> Combination:
    return Combination(values, tuple(Scored(k, val, each) for k, each in enumerate(tests)))  # type: ignore[misc]


def test_the_answer_says_what_can_be_told() -> None:
    found = Swept(
        ("mu",), [combination((1,), 0.5, 0.30, 0.31, 0.32), combination((2,), 0.4, 0.40, 0.41, 0.42)]
    )
    assert page.answer(found) == [
        "Validation chooses mu = 1 (validation 50.0). Its test macro-F1 is 31.0 ± 1.0.",
        "Of 1 pairs of values, 1 can be told apart over 3 seeds, 1 of them with the chosen one.",
    ]


def test_one_seed_tells_nothing() -> None:
    found = Swept(("mu",), [combination((1,), 0.5, 0.3), combination((2,), 0.4, 0.4)])
    assert page.answer(found)[1] == "With 1 seed no difference can be tested; give --seeds 3 or more."
    unscored = Swept(("mu",), [combination((1,), nan, 0.3), combination((2,), nan, 0.4)])
    assert page.answer(unscored) == ["No validation node was scored, so no value can be chosen."]


def test_the_chosen_values_are_marked_once() -> None:
    table = page.values_table(Swept(("mu",), [combination((1,), 0.5, 0.3), combination((2,), 0.5, 0.4)]))
    assert [row[-1].text for row in table.sections[0]] == ["chosen", ""]  # the earliest wins a tie
    assert all(table.headers)  # a column without a name has only an arrow to sort it by


@pytest.mark.hostile
def test_a_value_is_shown_as_text() -> None:
    found = Swept(("<b>",), [combination(("<script>",), 0.5, 0.3), combination(("\x1b[2J",), 0.4, 0.4)])
    for table in (page.values_table(found), page.tests_table(found)):
        text = html_table(table)
        assert "<script>" not in text
        assert "\x1b" not in text
    assert "<b>" not in html_table(page.values_table(found))


def test_no_line_is_drawn_between_names() -> None:
    """A line has one path more than dots alone: the dots of both means are markers in each case."""
    lines = []
    for values in ((1, 2), ("a", "b")):
        found = Swept(("mu",), [combination((value,), 0.5, 0.3, 0.4) for value in values])
        lines.append(page._line(found).count("stroke: #0072b2; stroke-width: 1.5"))
    assert lines[0] > lines[1]


def test_true_and_one_are_two_values() -> None:
    found = [combination((True, 1), 0.5, 0.3), combination((1, 1), 0.4, 0.4)]
    assert page._distinct(found, 0) == [True, 1]
    assert page._index([True, 1], 1) == 1
