"""Cells that hold dates."""

from __future__ import annotations

import math
from datetime import date

import pytest

from fedepd.datasets.columns import Table, list_column
from fedepd.datasets.dates import ages, day_of, days, given_day, is_dates, months, weekdays
from fedepd.errors import BadConfig, BadData

WORDS = frozenset({"", "n/a"})


@pytest.mark.parametrize(
    "text",
    [
        "2025-03-31",
        "2025/03/31",
        "31.03.2025",
        "31.3.2025 18:30",
        "2025-03-31T18:30:05.25Z",
        "2025-03-31 18:30",
    ],
)
def test_dates_that_can_be_read_in_one_way_only(text: str) -> None:
    assert day_of(text) == date(2025, 3, 31)


@pytest.mark.parametrize(
    "text", ["03/04/2025", "2025-02-30", "2025", "31.03.25", "soon", "", "2025-03-31 noon"]
)
def test_other_texts_are_no_dates(text: str) -> None:
    assert day_of(text) is None
    with pytest.raises(BadConfig, match="2025-03-31"):
        given_day(text)


def test_a_column_of_dates_may_have_gaps_but_nothing_else() -> None:
    assert is_dates(list_column(["2025-01-01", "n/a", ""]), WORDS)
    assert not is_dates(list_column(["2025-01-01", "tomorrow"]), WORDS)
    assert not is_dates(list_column(["n/a", ""]), WORDS)
    assert not is_dates(list_column([2025, 2024]), WORDS)


def test_ages_months_and_weekdays() -> None:
    """2025-03-01 is a Saturday, and 31 days before 2025-04-01."""
    column = list_column(["2025-03-01", "n/a", "02.04.2025"])
    found = days(Table("t", {"d": column}, 3), "d", column, WORDS)
    counted = ages(found, date(2025, 4, 1)).tolist()
    assert (counted[0], counted[2]) == (31, -1)
    assert math.isnan(counted[1])
    assert months(found).texts() == ["3", "", "4"]
    assert weekdays(found).texts() == ["Sat", "", "Wed"]


def test_what_is_no_date_is_refused_with_its_line() -> None:
    column = list_column(["2025-03-01", "03/04/2025"])
    table = Table("t.csv", {"d": column}, 2, [2, 3])
    with pytest.raises(BadData, match=r"t\.csv line 3: column 'd' holds '03/04/2025'.*2025-03-31"):
        days(table, "d", column, WORDS)
