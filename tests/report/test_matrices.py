"""Pictures of matrices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np

from fedepd.report import drawing
from fedepd.report.matrices import confusion_map, confusion_order, value_map
from fedepd.report.runs import group, read_runs

WriteRun = Callable[..., Path]


def test_few_classes_have_their_counts_written(write_run: WriteRun) -> None:
    matrix = np.array([[[901, 17], [23, 45]]])
    (each,) = group(read_runs(write_run("one", sizes=(900, 50), clients=1, confusion=matrix)))
    svg = confusion_map(each)
    texts = ["".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter() if node.text]
    assert {"901", "17", "23", "45", "called", "is"} <= set(texts)


def test_classes_that_are_mixed_up_stand_side_by_side() -> None:
    """24 classes; 0 and 23, 1 and 22, ... take half of each other's nodes. By size they are far apart."""
    classes = 24
    counts = 10 * np.eye(classes, dtype=np.int64) + 10 * np.eye(classes, dtype=np.int64)[::-1]
    order = confusion_order(counts, np.arange(classes, 0, -1))
    assert sorted(order) == list(range(classes))
    pairs = {frozenset(order[i : i + 2]) for i in range(0, classes, 2)}
    assert pairs == {frozenset({c, classes - 1 - c}) for c in range(classes // 2)}


def test_up_to_twenty_classes_stay_in_order_and_untested_ones_come_last() -> None:
    assert confusion_order(np.ones((20, 20), dtype=np.int64), np.arange(20, 0, -1)) == list(range(20))
    counts = np.eye(30, dtype=np.int64)
    counts[4] = 0
    assert confusion_order(counts, np.arange(30, 0, -1))[-1] == 4


def test_many_classes_make_a_picture(write_run: WriteRun) -> None:
    (each,) = group(read_runs(write_run("many", sizes=tuple(range(100, 70, -1)), clients=2)))
    assert "data:image/png" in confusion_map(each)


def test_scores_over_two_settings_have_numbers_a_gap_and_one_frame() -> None:
    """Rows go up, columns across. The frame is the only line of its axes."""
    frames: list[Any] = []

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        value_map(axis, np.array([[10.0, np.nan], [20.5, 30.0]]), (1, 0), (["a", "b"], ["low", "high"]), 8)
        frames.extend(line.get_xydata() for line in axis.lines)

    svg = drawing.svg_of("map", "Scores over two settings", 3, draw, "test")
    texts = {"".join(node.itertext()).strip() for node in ElementTree.fromstring(svg).iter() if node.text}
    assert {"10.0", "20.5", "30.0", "–", "a", "b", "low", "high"} <= texts
    ((left, bottom), (right, top)) = frames[0].min(axis=0), frames[0].max(axis=0)
    assert (left, right, bottom, top) == (0, 1, 1, 2)
    assert len(frames) == 1
