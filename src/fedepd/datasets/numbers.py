"""Cells that must be numbers. What is none is refused with its line, and with the option that would help."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from fedepd.datasets.columns import WITH_COMMA, Column, Table
from fedepd.datasets.dates import day_of
from fedepd.datasets.roles import UNKNOWN
from fedepd.errors import BadData
from fedepd.shown import shown

FILL = "fill gaps with --impute median (or mean), or leave the column out with --leave-out"
NAMED = 5
"""Most lines that are named."""


def finite(
    table: Table,
    name: str,
    column: Column,
    words: frozenset[str] = frozenset(),
    missing: bool = False,
    cure: str = FILL,
) -> NDArray[np.float64]:
    """The numbers of a column. A text or a number too large is refused with its line.

    Args:
        table: The table, for its lines.
        name: The column's name.
        column: The column.
        words: Words that stand for a missing number.
        missing: Whether numbers may be missing. They are NaN then.
        cure: What to do about a missing number where it may not be missing.

    Returns:
        Float64 [rows].

    Raises:
        BadData: A cell cannot be used.
    """
    numbers = column.numbers_but(words)
    if isinstance(numbers, int):
        raise not_a_number(table, name, column, words)
    wrong = np.isinf(numbers) | (np.abs(numbers) > np.finfo(np.float32).max)
    if not missing:
        wrong |= np.isnan(numbers)
    bad = np.flatnonzero(wrong)
    if bad.size:
        value = numbers[bad[0]]
        what = "has no value" if math.isnan(value) else f"is {value:g}, too large"
        more = f" ({bad.size:,} such rows)" if bad.size > 1 else ""
        help_ = cure if math.isnan(value) else "correct it or drop the row"
        raise BadData(f"{table.place(int(bad[0]))}: column '{shown(name)}' {what}{more}; {help_}")
    return numbers


def not_a_number(table: Table, name: str, column: Column, words: frozenset[str]) -> BadData:
    """The sentence about texts in a column that should hold numbers: where they are, and what may help."""
    odd = column.odd(words)
    row, text = odd[0]
    said, many = _short(text), len(odd)
    filled = sum(1 for cell in column.texts() if cell and cell not in words)
    if 2 * many >= filled:  # a column of texts
        said = f"{table.place(row)}: column '{shown(name)}' holds the text '{said}'"
    else:
        said = f"{table.place(row)}: column '{shown(name)}' holds '{said}' among numbers{lines(table, odd)}"
    return BadData(f"{said}; {_cure(name, [each for _, each in odd], many >= filled)}")


def _cure(name: str, texts: list[str], all_texts: bool) -> str:
    first, all_of = texts[0], set(texts)
    if all_of <= UNKNOWN:
        return "if it means a missing number, add --impute median (or mean), or correct it"
    if all("," in text and WITH_COMMA.fullmatch(text) for text in all_of):
        return "if the comma is the decimal point, add --decimal ,"
    if all(day_of(text) is not None for text in all_of):
        return (
            f"if these are dates, add --dates {shown(name)}; or leave it out with --leave-out {shown(name)}"
        )
    if all_texts:
        return (
            f"turn categories into numbers with --one-hot, or leave the column out with "
            f"--leave-out {shown(name)}"
        )
    return (
        f"correct it, or say that it means a missing number with --missing '{_short(first)}' and --impute "
        f"median, or use the column as categories with --one-hot {shown(name)}"
    )


def lines(table: Table, rows: list[tuple[int, str]]) -> str:
    """How many cells there are beyond the first, and in which lines."""
    if len(rows) == 1:
        return ""
    places = [table.place(row).rpartition(" ")[2] for row, _ in rows[:NAMED]]
    more = ", ..." if len(rows) > NAMED else ""
    return f" ({len(rows):,} such cells, in lines {', '.join(places)}{more})"


def mostly_numbers(column: Column, words: frozenset[str]) -> bool:
    """Whether more than half of the cells that are not missing are numbers."""
    counts = Counter(column.texts())
    filled = {text: times for text, times in counts.items() if text and text not in words}
    odd = sum(times for text, times in filled.items() if not column.is_number(text))
    return 2 * odd < sum(filled.values())


def _short(text: str) -> str:
    return shown(" ".join(text.split()), 40)
