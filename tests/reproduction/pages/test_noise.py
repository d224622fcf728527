"""Curves over the share of corrupted training data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fedepd.report.drawing import METHOD_COLOURS
from fedepd.report.runs import Group
from fedepd.reproduction.pages.illustrations import figures_of
from fedepd.reproduction.pages.noise import (
    MOST,
    apart,
    curves,
    foremost,
    noise_figure,
    noise_tables,
    overview,
)
from fedepd.reproduction.pages.output import folded_tables, tables_of
from fedepd.reproduction.study.results import Results
from fedepd.reproduction.study.targets import Row, Target, over_grid

MakeResults = Callable[..., Results]
POINTS = ("none", "edges=1", "edges=0.5", "labels=0.2")
SCORES = {"FedAvg": (50, 30, 40, 45), "FedEPD": (60, 50, 55, 40)}


@pytest.fixture
def results(make_results: MakeResults) -> Results:
    """Two methods at four points: clean, two shares of new edges, one of wrong labels."""
    rows = over_grid((Row("fedavg", label="FedAvg"), Row("fedepd", label="FedEPD")), {"corrupt": POINTS})
    flat = [score for scores in SCORES.values() for score in scores]
    made = make_results({(f"fedavg:{k}", "email"): [score, score + 2] for k, score in enumerate(flat)})
    for run in made.runs:
        vars(run)["clients"] = [{}, {}]  # a figure says how many there were, and no folder is read
    entries = [replace(entry, row=row) for entry, row in zip(made.entries, rows, strict=True)]
    target = Target("noise", "Noise", "noise", rows, ("email",), grid={"corrupt": POINTS})
    return Results(target, entries)


def test_a_curve_begins_at_the_clean_run_and_goes_up_in_share(results: Results) -> None:
    found = curves(results, "email")
    assert list(found) == ["edges", "labels"]
    assert {label: list(points) for label, points in found["edges"].items()} == {
        "FedAvg": [0.0, 0.5, 1.0],
        "FedEPD": [0.0, 0.5, 1.0],
    }
    assert found["edges"]["FedAvg"][0.0] is found["labels"]["FedAvg"][0.0]
    assert found["edges"]["FedEPD"][1.0].mean("bacc") == pytest.approx(51)  # seeds 50 and 52


def test_a_table_says_what_is_lost(results: Results) -> None:
    """FedAvg: 51 clean, 41 and 31. It loses 20. FedEPD: 61, 56, 51. It loses 10."""
    table = noise_tables(results, "email", "bacc")["Email: balanced accuracy, edges"]
    assert table.headers == ["Method", "0", "0.5", "1", "Lost"]
    texts = [[cell.text for cell in row] for row in table.sections[0]]
    assert texts == [
        ["FedAvg", "51.00", "41.00", "31.00", "20.00"],
        ["FedEPD", "61.00", "56.00", "51.00", "10.00"],
    ]
    assert "Mean ± standard deviation over 2 seeds" in table.note


def test_the_overview_is_clean_and_worst(results: Results) -> None:
    table = overview(results, "email")
    assert table.headers == ["Method", "clean", "edges=1", "labels=0.2"]
    assert [[cell.text for cell in row] for row in table.sections[0]] == [
        ["FedAvg", "51.00", "31.00", "46.00"],
        ["FedEPD", "61.00", "51.00", "41.00"],
    ]


def test_a_run_that_is_missing_leaves_a_gap(results: Results) -> None:
    entries = [replace(e, runs={}) if e.row.settings["corrupt"] == "none" else e for e in results.entries]
    less = replace(results, entries=entries)
    assert list(curves(less, "email")["edges"]["FedAvg"]) == [0.5, 1.0]
    assert [cell.text for cell in overview(less, "email").sections[0][0]][1] == "–"
    nothing = replace(results, entries=[replace(entry, runs={}) for entry in results.entries])
    assert curves(nothing, "email") == {}
    assert tables_of(nothing) == {}
    assert figures_of(nothing) == {}


def test_the_page_has_the_overview_and_folds_every_share(results: Results) -> None:
    assert list(tables_of(results)) == ["Email"]
    assert list(folded_tables(results, {}, {})) == [
        "Email: every share, balanced accuracy",
        "Email: every share, macro-F1",
    ]
    assert list(figures_of(results)) == ["noise", "noise-macro_f1"]


def test_a_figure_has_a_panel_per_corruption_and_a_line_per_method(results: Results) -> None:
    figure = noise_figure(results, ["email"], "bacc")
    assert [axis.get_xlabel() for axis in figure.axes] == [
        "new random edges (× edges)",
        "share of training labels wrong",
    ]
    first = figure.axes[0]
    assert [np.asarray(line.get_xdata()).tolist() for line in first.get_lines()] == [[0.0, 0.5, 1.0]] * 2
    assert np.asarray(first.get_lines()[0].get_ydata()).tolist() == pytest.approx([51, 41, 31])


def test_no_two_curves_look_alike(make_results: MakeResults) -> None:
    """FedTGP and FedRep have no colour of their own, and share a marker."""
    names = ("fedepd", "fedtgp", "fedrep", "adafgl", "scaffold")
    runs = make_results({(name, "email"): [50] for name in names}).runs
    colours = {run.summary["method"]: apart([Group("a", (run,))])["a"].colour for run in runs}
    assert colours["fedtgp"] == colours["fedrep"]  # each alone
    together = apart([Group(run.summary["method"], (run,)) for run in runs])
    assert len({style.colour for style in together.values()}) == len(names)
    assert together["fedepd"].colour == METHOD_COLOURS["fedepd"]


def test_many_curves_are_named_only_where_they_are_the_best(make_results: MakeResults) -> None:
    """Ten methods with 1 to 10 points on average, and FedEPD has 3: it is named beside 10 to 4."""
    names = ["fedepd", *(f"rival{k}" for k in range(1, 11))]
    scores = [3, *range(1, 11)]
    points = ("none", "labels=0.2")
    rows = over_grid(
        tuple(Row("fedepd" if name == "fedepd" else "fedavg", label=name) for name in names),
        {"corrupt": points},
    )
    cells = {(f"fedavg:{k}", "email"): [score + k % 2, score - k % 2] for k, score in enumerate(
        score for score in scores for _ in points
    )}  # fmt: skip
    made = make_results(cells)
    for run in made.runs:
        vars(run)["clients"] = [{}, {}]
    entries = [replace(entry, row=row) for entry, row in zip(made.entries, rows, strict=True)]
    results = Results(Target("noise", "Noise", "noise", rows, ("email",), grid={"corrupt": points}), entries)
    assert foremost(results) == {"fedepd", *(f"rival{k}" for k in range(4, 11))}
    assert len(foremost(results)) == MOST
    figure = noise_figure(results, ["email"], "bacc")
    assert len(figure.axes[0].get_lines()) == 11
    assert {text.get_text() for text in figure.legends[0].get_texts()} == foremost(results)
    assert "In grey: 3 more" in figure.get_suptitle()
