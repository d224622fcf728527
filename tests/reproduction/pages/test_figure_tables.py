"""Figures as tables, and the points behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedepd.report.tables import Table
from fedepd.reproduction.pages.figure_tables import (
    bin_table,
    convergence_table,
    cost_table,
    grid_table,
    shape_table,
)
from fedepd.reproduction.pages.illustrations import figures_of, points_of
from fedepd.reproduction.study.results import Entry, Results
from fedepd.reproduction.study.targets import Row, Target

MakeResults = Callable[..., Results]
SIZES = np.array([10, 40, 20])
HELD = np.array([[6, 25, 0], [4, 15, 20]])
CONFUSION = np.array([[[1, 1, 0], [0, 6, 2], [0, 0, 4]]])  # [K, C, C]: 1 of 2, 6 of 8, 4 of 4 right


def texts(table: Table) -> list[list[str]]:
    return [[cell.text + cell.spread for cell in row] for section in table.sections for row in section]


@pytest.fixture
def with_files(make_results: MakeResults) -> Callable[[Any], Results]:
    """Results of two methods whose runs have what the files of a run folder hold."""

    def make(kind: Any) -> Results:
        results = make_results({("fedavg", "x"): [50, 52], ("fedepd", "x"): [60, 62]}, kind)
        for run in results.runs:
            run.__dict__["partition"] = {"class_sizes": SIZES, "client_class": HELD}
            run.__dict__["confusions"] = {"global_test": CONFUSION}
            run.__dict__["clients"] = [{}, {}]
            scores = (0.2, 0.6, 0.8, 0.7)
            sent = {"bytes_up": {"model": 500_000}, "bytes_down": {"model": 500_000}}
            run.__dict__["rounds"] = [
                {"round": r, "cpu_seconds": 0.5, **sent, "val": {"global": {"acc": score, "macro_f1": score}}}
                for r, score in enumerate(scores, start=1)
            ]
            run.summary["rounds"] = 4
            run.summary["tiers"] = {"head": [1], "medium": [2], "tail": [0]}
            run.summary.update({"bytes_up": 2**20, "bytes_down": 2**21, "peak_rss_mb": 100.0})
            run.config["dataset"] |= {
                "nodes": 70,
                "edges": 9,
                "features": 4,
                "classes": 3,
                "imbalance_ratio": 4.0,
            }
            run.config["experiment"]["partition"]["partition"] = "openfgl"
        return results

    return make


def test_bins_from_the_largest_class_to_the_smallest(with_files: Callable[[Any], Results]) -> None:
    """Class 1 has 40 nodes and 6 of 8 right, class 2 20 and 4 of 4, class 0 10 and 1 of 2."""
    results = with_files("per_class")
    table = bin_table(results, "x")
    assert table.headers == ["Method", "40", "20", "10"]
    assert texts(table)[0] == ["FEDAVG", "75.0", "100.0", "50.0"]
    assert points_of(results)[1][:5] == ["x", "FEDAVG", 1, "1", 75.0]


def test_convergence(with_files: Callable[[Any], Results]) -> None:
    """The last quarter of four rounds is round 4 with 70 %; in the last half, from 80 to 70: a step of 10
    points. Half a second and one megabyte a round.
    """
    results = with_files("convergence")
    assert texts(convergence_table(results, "x"))[0] == [
        "FEDAVG",
        "70.00±0.00",
        "10.00±0.00",
        "1.00±0.00",
        "4.00±0.00",
    ]
    points = points_of(results)
    assert points[0][:4] == ["dataset", "row", "seed", "round"]
    assert points[4] == ["x", "FEDAVG", 0, 4, 2.0, 4.0, "acc", 70.0]
    assert len(points) == 1 + 2 * 2 * 2 * 4


def test_cost(with_files: Callable[[Any], Results]) -> None:
    table = cost_table(with_files("efficiency"), "x")
    assert table.headers == ["Method", "Acc", "Macro-F1", "MiB up", "MiB down", "CPU s", "Peak MiB"]
    assert texts(table)[0] == [
        "FEDAVG",
        "51.00±1.41",
        "51.00±1.41",
        "1.0±0.0",
        "2.0±0.0",
        "1.0±0.0",
        "100.0±0.0",
    ]


def test_shape(with_files: Callable[[Any], Results]) -> None:
    """Clients hold 6 + 25 = 31 and 4 + 15 + 20 = 39 nodes."""
    table = shape_table(with_files("distribution"))
    assert texts(table)[0] == ["x", "70", "9", "4", "3", "1", "1", "1", "40", "10", "4.00", "2", "31", "39"]
    assert "partition openfgl" in table.note


def test_a_grid_and_its_figure(make_results: MakeResults) -> None:
    grid = {"mu": (0.5, 1.0), "gamma": (0.1, 0.9)}
    base = make_results({("fedepd", "x"): [50, 52]}).entries[0]
    entries = [
        Entry(Row("fedepd", settings={"mu": m, "gamma": g}), "x", base.runs, {})
        for m, g in ((0.5, 0.1), (0.5, 0.9), (1.0, 0.1))
    ]
    for run in base.runs.values():
        run.__dict__["clients"] = [{}]
    results = Results(
        Target("g", "G", "sensitivity", tuple(e.row for e in entries), ("x",), grid=grid), entries
    )
    table = grid_table(results, "x")
    assert table.headers == ["mu \\ gamma", "0.1", "0.9"]
    assert texts(table) == [["0.5", "51.00±1.41", "51.00±1.41"], ["1", "51.00±1.41", "–"]]
    assert list(figures_of(results)) == ["g"]


def test_more_than_four_datasets_make_a_second_figure(make_results: MakeResults) -> None:
    results = make_results({("fedavg", name): [50, 51] for name in "abcde"}, "tiers")
    for run in results.runs:
        run.__dict__["clients"] = [{}]
    assert list(figures_of(results)) == ["mine-1", "mine-2"]
    assert figures_of(replace(results, entries=[])) == {}
    assert points_of(results) == []


def test_a_grid_of_one_setting_is_one_line(make_results: MakeResults) -> None:
    """Means over the seeds: (50 + 52) / 2 and (60 + 62) / 2."""
    results = make_results(
        {("fedavg", "x"): [50, 52], ("fedlc", "x"): [60, 62]}, "sensitivity", grid={"lr": (0.1, 1)}
    )
    entries = [
        replace(entry, row=replace(entry.row, settings={"lr": value}))
        for entry, value in zip(results.entries, (0.1, 1), strict=True)
    ]
    table = grid_table(Results(results.target, entries), "x")
    assert table.headers == ["lr", "0.1", "1"]
    assert texts(table) == [["macro-F1", "51.00±1.41", "61.00±1.41"]]
