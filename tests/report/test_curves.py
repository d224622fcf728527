"""Curves of rankings and operating points."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from fedepd.errors import BadData
from fedepd.report.curves import operating_curve, operating_picture, precision_recall, rule_name
from fedepd.report.page import build_report
from fedepd.report.runs import group, read_runs
from hostile_names import ALL, cases

WriteRun = Callable[..., Path]
MATRIX = np.array([[[90, 10], [4, 6]]])


def point(**changed: Any) -> dict[str, Any]:
    rule = {
        "classes": [1],
        "threshold": 0.25,
        "nodes": 10,
        "found": [8, 5.0, 10.0],
        "false_alarms": [12, 6.0, 20.0],
        "recall": [0.8, 0.5, 1.0],
        "precision": [0.4, 0.25, 0.6],
        "curve": [[0, 2, 1, 4], [12, 8, 5, 10], [90, 10, 10, 10]],
    }
    scores = {"acc": 0.9, "bacc": 0.7, "macro_f1": None}
    return {
        "usual": 0,
        "rules": [{"classes": [1], "threshold": 0.25}],
        "aim": {"recall": {"1": 0.8}},
        "validation_nodes": 100,
        "test_nodes": 110,
        "resamples": 1000,
        "measured": [rule],
        "likeliest": scores,
        "decided": scores,
    } | changed


def test_a_run_without_ranking_or_point_has_no_curve(write_run: WriteRun) -> None:
    (each,) = group(read_runs(write_run("one", sizes=(900, 50), clients=1, confusion=MATRIX)))
    assert precision_recall(each) == ""
    assert operating_curve(each) == ""


def test_the_page_shows_the_point_of_the_last_export(write_run: WriteRun) -> None:
    folder = write_run("one", sizes=(900, 50), clients=1, confusion=MATRIX)
    (folder / "operating.json").write_text(json.dumps(point()))
    page = build_report(folder).read_text()
    assert "chosen point" in page
    assert "found cases against false alarms" in page


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"usual": 7}, "names a class that is none"),
        ({"measured": [{**point()["measured"][0], "found": [8]}]}, "found"),
        ({"measured": [{**point()["measured"][0], "curve": [[1, 2, 3]]}]}, "curve"),
        ({"aim": {"alerts": "many"}}, "alerts"),
    ],
)
def test_a_damaged_point_is_refused(changed: dict[str, Any], words: str, write_run: WriteRun) -> None:
    folder = write_run("one", sizes=(900, 50), clients=1, confusion=MATRIX)
    (folder / "operating.json").write_text(json.dumps(point(**changed)))
    with pytest.raises(BadData, match=words):
        build_report(folder)


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(ALL))
def test_names_in_a_picture_are_text(text: str) -> None:
    svg = operating_picture(point(), ["clean", text])
    assert "script" not in {node.tag.rpartition("}")[2] for node in ElementTree.fromstring(svg).iter()}


def test_a_rule_is_named_by_its_class_or_by_what_it_leaves_out() -> None:
    names = ["clean", "mule", "takeover"]
    assert rule_name([2], 0, names) == "takeover"
    assert rule_name([1, 2], 0, names) == "all but clean"


def test_precision_and_recall_are_drawn_from_the_ranking(write_run: WriteRun) -> None:
    (each,) = group(read_runs(write_run("one", sizes=(900, 50), clients=1, confusion=MATRIX)))
    classes = [
        {"nodes": 100, "curve": [[100, 95], [110, 100]]},
        {"nodes": 10, "curve": [[2, 2], [110, 10]]},
    ]
    each.first.__dict__["ranking"] = {"classes": classes}
    svg = precision_recall(each)
    assert "1 (10 nodes)" in svg
    assert "precision: right of the alerts (%)" in svg
