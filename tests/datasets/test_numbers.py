"""Every sentence about a cell that is no number leads to the option that helps."""

from __future__ import annotations

import math

import pytest

from fedepd.datasets.columns import Table, text_column
from fedepd.datasets.numbers import finite, mostly_numbers
from fedepd.datasets.roles import UNKNOWN
from fedepd.errors import BadData


def table(*cells: str) -> Table:
    return Table("t.csv", {"c": text_column(cells)}, len(cells), range(2, 2 + len(cells)))


@pytest.mark.parametrize(
    ("cells", "words"),
    [
        (("1", "n/a", "3", "-", "5"), ("line 3", "'n/a' among numbers", "in lines 3, 5", "--impute median")),
        (("1,5", "2,25"), ("line 2", "--decimal ,")),
        (("2025-01-01", "2024-01-01"), ("line 2", "--dates c")),
        (("red", "blue"), ("line 2", "the text 'red'", "--one-hot", "--leave-out c")),
        (("1", "2", "3 EUR"), ("line 4", "'3 EUR'", "--missing '3 EUR'", "--one-hot c")),
        (("1", "", "3"), ("line 3", "has no value", "--impute median")),
        (("1", "1e300"), ("line 3", "too large")),
    ],
    ids=["n/a", "comma", "date", "text", "unit", "gap", "large"],
)
def test_the_line_and_the_option_that_helps(cells: tuple[str, ...], words: tuple[str, ...]) -> None:
    made = table(*cells)
    with pytest.raises(BadData) as caught:
        finite(made, "c", made.columns["c"])
    for word in words:
        assert word in str(caught.value)


def test_many_lines_are_only_counted() -> None:
    made = table(*["7"] * 20, *["?"] * 9)
    with pytest.raises(BadData, match=r"9 such cells, in lines 22, 23, 24, 25, 26, \.\.\."):
        finite(made, "c", made.columns["c"])


def test_missing_numbers_where_they_may_be_missing() -> None:
    made = table("1", "n/a", "")
    found = finite(made, "c", made.columns["c"], UNKNOWN, missing=True).tolist()
    assert found[0] == 1
    assert all(math.isnan(each) for each in found[1:])


def test_a_column_of_numbers_has_more_numbers_than_texts() -> None:
    assert mostly_numbers(table("1", "2", "x", "").columns["c"], UNKNOWN)
    assert not mostly_numbers(table("1", "x", "").columns["c"], UNKNOWN)
