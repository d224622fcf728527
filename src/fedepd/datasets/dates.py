"""Cells that hold a date: read, and turned into a day's number, a month or a weekday.

Choice: 2025-03-31, 2025/03/31 and 31.03.2025 are dates, with or without a time behind. 03/04/2025 is refused,
because half of the world reads it as another day.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import date

import numpy as np
from numpy.typing import NDArray

from fedepd.datasets.columns import Column, Table, text_column
from fedepd.errors import BadConfig, BadData
from fedepd.shown import shown

MONTHS = tuple(map(str, range(1, 13)))
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
PARTS = ("age", "month", "weekday")
"""What a date can become: its days before a given day, its month, its weekday."""
TIME = r"(?:[ T]\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
WRITTEN = (
    re.compile(r"(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})" + TIME),
    re.compile(r"(?P<y>\d{4})/(?P<m>\d{1,2})/(?P<d>\d{1,2})" + TIME),
    re.compile(r"(?P<d>\d{1,2})\.(?P<m>\d{1,2})\.(?P<y>\d{4})" + TIME),
)


def day_of(text: str) -> date | None:
    """The day that a cell names, or None. A time behind it is not looked at.

    Examples:
        >>> day_of("31.03.2025 18:30"), day_of("2025-02-30")
        (datetime.date(2025, 3, 31), None)
    """
    for written in WRITTEN:
        if found := written.fullmatch(text):
            try:
                return date(int(found["y"]), int(found["m"]), int(found["d"]))
            except ValueError:
                return None
    return None


def given_day(text: str) -> date:
    """The day of an option."""
    found = day_of(text)
    if found is None:
        raise BadConfig(f"the day '{shown(text)}' is not a date; write it as 2025-03-31")
    return found


def is_dates(column: Column, missing: frozenset[str]) -> bool:
    """Whether every cell that is not missing is a date, and at least one is there."""
    texts = [text for text in column.texts() if text not in missing] if column.is_text else []
    return bool(texts) and all(day_of(text) is not None for text in texts)


def days(table: Table, name: str, column: Column, missing: frozenset[str]) -> list[date | None]:
    """The day of every row; None where the cell is missing. Any other cell is refused with its line."""
    known: dict[str, date | None] = {text: None for text in ("", *missing)}
    out: list[date | None] = []
    for row, text in enumerate(column.texts()):
        if text not in known:
            known[text] = day_of(text)
            if known[text] is None:
                raise BadData(
                    f"{table.place(row)}: column '{shown(name)}' holds '{shown(text, 40)}', which is not a "
                    f"date; write dates as 2025-03-31 or 31.03.2025, or leave the column out of --dates"
                )
        out.append(known[text])
    return out


def ages(found: Sequence[date | None], day: date) -> NDArray[np.float64]:
    """Days from each date to ``day``, negative for a later date; NaN where the date is missing."""
    return np.array([math.nan if each is None else (day - each).days for each in found], dtype=np.float64)


def months(found: Sequence[date | None]) -> Column:
    return text_column(["" if each is None else MONTHS[each.month - 1] for each in found])


def weekdays(found: Sequence[date | None]) -> Column:
    return text_column(["" if each is None else WEEKDAYS[each.weekday()] for each in found])
