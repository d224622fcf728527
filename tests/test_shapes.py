"""A shape says in one sentence where a JSON file is not what it should be."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from fedepd.errors import BadData
from fedepd.shapes import EVERY, FLAG, NUMBER, SHA256, SHARE, TEXT, WHOLE, expect, number, whole

SHAPE: dict[str, Any] = {"a": WHOLE, "b?": [TEXT], "c?": ({EVERY: SHARE},), "d?": {"e": FLAG}}


@pytest.mark.parametrize(
    "content",
    [{"a": 0}, {"a": 1, "b": []}, {"a": 1, "b": ["x"], "c": None}, {"a": 1, "c": {"x": 0.5}, "z": 3}],
)
def test_what_fits(content: Any) -> None:
    expect(content, SHAPE, "it")


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([], "it is a list, not a table; cure"),
        (None, "it is null, not a table; cure"),
        ({}, "it has no 'a'; cure"),
        ({"a": None}, "it: 'a' is null, not a whole number of at least 0; cure"),
        ({"a": True}, "it: 'a' is true, not a whole number"),
        ({"a": -1}, "it: 'a' is -1, not a whole"),
        ({"a": 1.0}, "it: 'a' is 1, not a whole"),
        ({"a": 2**63}, "it: 'a' is a number of many digits, not a whole"),
        ({"a": 1, "b": {}}, "it: 'b' is a table, not a list"),
        ({"a": 1, "b": ["x", 2]}, "it: 'b.1' is 2, not a text"),
        ({"a": 1, "c": {"x": float("nan")}}, "it: 'c.x' is nan, not a finite number from 0 to 1"),
        ({"a": 1, "c": {"\x1b[31m" * 50: 2}}, "it: 'c.?[31m"),
        ({"a": 1, "d": {}}, "it: 'd' has no 'e'; cure"),
        ({"a": 1, "d": {"e": "yes"}}, "it: 'd.e' is the text 'yes', not true or false"),
        ({"a": "x\ny" * 100}, "it: 'a' is the text 'x?yx?y"),
    ],
)
def test_what_does_not_fit_is_named(content: Any, says: str) -> None:
    with pytest.raises(BadData) as refused:
        expect(content, SHAPE, "it", "cure")
    assert str(refused.value).startswith(says)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


@pytest.mark.hostile
@pytest.mark.parametrize("value", [float("inf"), float("nan"), 10**400, "1", True, None, [1]])
def test_no_number(value: Any) -> None:
    for kind in (NUMBER, SHARE, number(0, 5)):
        assert not kind.fits(value)


def test_ranges() -> None:
    assert [whole(1, 3).fits(n) for n in (0, 1, 3, 4)] == [False, True, True, False]
    assert [number(0.5, 2).fits(x) for x in (0.4, 0.5, 2, 2.1)] == [False, True, True, False]
    assert SHA256.fits("a" * 64)
    assert not SHA256.fits("a" * 63)


def test_a_date_of_a_toml_file_is_told() -> None:
    with pytest.raises(BadData, match="'day' is a date, not a whole number"):
        expect({"day": datetime.date(2020, 1, 1)}, {"day": WHOLE}, "it")
