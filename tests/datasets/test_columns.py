"""Columns of tables: numbers or text, and the place of every complaint."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedepd.datasets.columns import Column, list_column, listed, needs, text_column
from fedepd.errors import BadConfig


def test_numbers_are_read_once_for_the_same_words_and_nobody_changes_them() -> None:
    column = text_column(["1", "n/a", "2.5", ""])
    words = frozenset({"n/a"})
    found = column.numbers_but(words)
    assert isinstance(found, np.ndarray)
    assert column.numbers_but(words) is found
    assert not found.flags.writeable
    assert column.numbers_but(frozenset()) == 1
    assert np.array_equal(found, [1, math.nan, 2.5, math.nan], equal_nan=True)


def test_whole_numbers_have_no_decimal_point() -> None:
    assert Column(np.array([3.0, 2.5, math.nan])).texts() == ["3", "2.5", ""]


def test_a_list_is_numbers_only_where_all_are_and_none_is_too_long() -> None:
    """2**53 + 1 is the first whole number that float64 confuses with its neighbour."""
    assert not list_column([1, None, True, 2.5]).is_text
    assert list_column([1, "a"]).is_text
    assert list_column([2**53]).texts() == [str(2**53)]
    assert list_column([2**53 + 1]).texts() == [str(2**53 + 1)]


def test_text_cells_are_trimmed_and_hold_no_nul() -> None:
    assert text_column([" a ", None, "b\0c", 3]).texts() == ["a", "", "bc", "3"]


def test_a_long_list_of_names_is_cut() -> None:
    assert listed(["a", "b"]) == "a, b"
    assert listed([str(n) for n in range(25)], 2) == "0, 1 and 23 more"


def test_a_missing_package_says_how_to_get_it() -> None:
    with pytest.raises(BadConfig, match=r'nothing is not installed; run: pip install "fedepd\[data\]"'):
        needs("nothing.at.all")
