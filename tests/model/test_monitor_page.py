"""The page of a monitored model: its answer, its trends, and that names are text."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from fedepd.model.drift import Figure, Limits, Watched
from fedepd.model.monitor_page import render, trends, verdict

EVIL = "<script>alert(1)</script>"
WATCHED = Watched(
    400,
    (
        Figure(EVIL, "column", 0.4, None, 0.25, True, (("below 1", 0.5, 0.9), ("from 1", 0.5, 0.1))),
        Figure("alert rate", "alerts", 0.1, 0.09, 0.18, False),
        Figure("edges predicted alike", "homophily", None, 0.8, 0.1, False),
    ),
    {"nodes": 9, "accuracy": 0.9, "confidence": 0.8, "bacc": 0.7, "macro_f1": 0.6, "ece": [0.1, 0.05, 0.2],
     "brier": [0.2, 0.1, 0.3]},
)  # fmt: skip


def line(when: str, value: float, labelled: dict[str, Any] | None = None) -> dict[str, Any]:
    figures = {EVIL: value, "alert rate": 0.1, "edges predicted alike": None}
    return {
        "when": when, "model": f"m{when[-1]}", "data": "new", "nodes": 400, "figures": figures,
        "passed": [EVIL], "labelled": labelled,
    }  # fmt: skip


def test_the_page_answers_first_and_shows_names_as_text() -> None:
    page = render(WATCHED, [line("2026-01", 0.1), line("2026-02", 0.4, WATCHED.labelled)], Limits())
    assert "<script>alert" not in page
    assert "2026-02: 400 new nodes; beyond its limit:" in page
    assert page.count('data-name="trends"') == 1
    assert "The model was exchanged: m1, m2." in page
    assert "balanced accuracy 0.700" in page
    first = render(WATCHED, [line("2026-01", 0.4)], Limits())
    assert "there is no trend yet" in first
    assert "another class than the most frequent one" in first


def test_the_page_says_what_an_alert_is() -> None:
    known = {**(WATCHED.labelled or {}), "alerts": 1200, "right": 30, "cases": 40}
    page = render(replace(WATCHED, alert="Alerts are by rule.", labelled=known), [line("x1", 0.4)], Limits())
    assert "Alerts are by rule." in page
    assert "another class than the most frequent one" not in page
    assert "Of 1,200 alerts among them 30 were right, of 40 cases." in page


def test_a_quiet_month_says_so() -> None:
    assert verdict(Watched(5, (), None), "May") == "May: 5 new nodes, and no limit is passed."


def test_numbers_that_are_not_known_are_gaps() -> None:
    index, shares, scores = trends([line("a", 0.1), line("b", 0.4, WATCHED.labelled)], Limits())
    assert index == ("stability index", {EVIL: [0.1, 0.4]}, 0.25)
    assert all(math.isnan(value) for value in shares[1]["edges predicted alike"])
    assert math.isnan(scores[1]["balanced accuracy"][0])
    assert scores[1]["balanced accuracy"][1] == 0.7
