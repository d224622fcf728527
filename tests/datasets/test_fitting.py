"""Which rules a table gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from fedepd.datasets.columns import Table, list_column, text_column
from fedepd.datasets.edges import find_ends
from fedepd.datasets.fitting import fitted
from fedepd.datasets.roles import Roles
from fedepd.datasets.schema import FeatureRule
from fedepd.errors import BadData


def table(**columns: Sequence[object]) -> Table:
    rows = len(next(iter(columns.values())))
    made = {name: list_column(cells) for name, cells in columns.items()}
    ids = list_column([f"n{row}" for row in range(rows)])
    return Table("t.csv", {"id": ids, **made}, rows, range(2, 2 + rows))


def test_gaps_are_left_open_and_marked() -> None:
    """Mean and deviation of 1, 3, 5 are 3 and sqrt(8/3). A column without gaps has no mark."""
    schema, notes = fitted(table(n=[1, None, 3, 5], full=[1, 2, 3, 4]), Roles(impute="median", scale=True))
    gap, full = schema.rules
    assert (gap.impute, gap.fill, gap.marked) == ("median", None, True)
    assert (gap.mean, gap.std) == pytest.approx((3, (8 / 3) ** 0.5))
    assert (full.impute, full.marked) == ("median", False)
    assert "n 1" in notes[0]
    assert "training rows" in notes[0]


def test_a_word_among_numbers_is_named_with_its_line() -> None:
    """It must not turn a column of numbers into categories."""
    dirty = table(n=[str(each % 9) for each in range(30)])
    cells = [*dirty.columns["n"].texts()[:7], "n/a", *dirty.columns["n"].texts()[8:]]
    dirty = Table("t.csv", {**dirty.columns, "n": text_column(cells)}, 30, range(2, 32))
    with pytest.raises(BadData, match=r"t\.csv line 9: column 'n' holds 'n/a' among numbers; .*--impute"):
        fitted(dirty, Roles(one_hot=True))
    schema, notes = fitted(dirty, Roles(one_hot=True, impute="mean"))
    assert schema.rules == (FeatureRule("n", impute="mean", marked=True),)
    assert "t.csv line 9: 'n/a' in column 'n' counts as missing" in notes
    odd = Table(
        "t.csv", {**dirty.columns, "n": text_column([*cells[:7], "12 EUR", *cells[8:]])}, 30, range(2, 32)
    )
    with pytest.raises(BadData, match=r"line 9.*'12 EUR' among numbers; .*--missing '12 EUR'"):
        fitted(odd, Roles(one_hot=True, impute="mean"))
    assert fitted(odd, Roles(impute="mean", missing=("12 EUR",)))[0].rules[0].marked
    named = fitted(odd, Roles(one_hot=("n",)))[0].rules[0].categories
    assert named is not None
    assert "12 EUR" in named


def test_missing_categories_are_a_category() -> None:
    schema, _ = fitted(table(kind=["x", "", "y", "NA"]), Roles(one_hot=True))
    assert schema.feature_names == ("kind=x", "kind=y", "kind=(missing)")


def test_dates_become_what_is_asked_for() -> None:
    dates = table(opened=["2025-01-01", "2025-01-31", "2024-12-31"])
    schema, notes = fitted(dates, Roles(dates=True, date_parts=("age", "month", "weekday")))
    age, month, weekday = schema.rules
    assert (age.day, age.made, age.of) == ("2025-01-31", "age", "opened")
    assert len(month.categories or ()) == 12
    assert len(weekday.categories or ()) == 7
    assert "2025-01-31 (the latest day of column 'opened'; --day sets another)" in notes[0]
    assert fitted(dates, Roles(dates=("opened",), day="2025-03-01"))[0].rules[0].day == "2025-03-01"
    with pytest.raises(BadData, match="--dates opened"):
        fitted(dates, Roles())
    with pytest.raises(BadData, match=r"'closed' in --dates is not a feature"):
        fitted(dates, Roles(dates=("closed",)))
    gaps = table(opened=["2025-01-01", ""])
    with pytest.raises(BadData, match=r"line 3: column 'opened' has no date .*--impute"):
        fitted(gaps, Roles(dates=True))
    assert fitted(gaps, Roles(dates=True, impute="mean"))[0].rules[0].marked


def test_columns_of_edges_become_features() -> None:
    nodes = table(n=[1, 2])
    links: dict[str, list[Any]] = {
        "a": ["n0", "n0"],
        "b": ["n1", "n1"],
        "amount": [2.0, 4.0],
        "when": ["x", "y"],
    }
    edges = Table("e", {name: list_column(cells) for name, cells in links.items()}, 2)
    ends = find_ends(edges, ["n0", "n1"], Roles())
    schema, notes = fitted(nodes, Roles(edge_features=True), ends)
    assert schema.feature_names == (
        "n", "out count", "out amount sum", "out amount mean", "out amount max",
        "in count", "in amount sum", "in amount mean", "in amount max",
    )  # fmt: skip
    assert np.array_equal(schema.apply(nodes, ends)[:, 1:5], [[2, 6, 3, 4], [0, 0, 0, 0]])
    assert "of amount" in notes[-1]
    with pytest.raises(BadData, match="'a' in --edge-features is an end"):
        fitted(nodes, Roles(edge_features=("a",)), ends)


def test_columns_can_be_left_out() -> None:
    assert fitted(table(n=[1, 2], note=["x y", "z"]), Roles(leave_out=("note",)))[0].feature_names == ("n",)
    with pytest.raises(BadData, match="correct --leave-out"):
        fitted(table(n=[1, 2]), Roles(leave_out=("note",)))


def test_two_features_of_one_name() -> None:
    with pytest.raises(BadData, match="two features are called 'd age'"):
        fitted(table(d=["2025-01-01", "2025-01-02"], **{"d age": [1, 2]}), Roles(dates=("d",)))
