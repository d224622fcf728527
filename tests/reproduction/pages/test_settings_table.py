"""Rows whose settings are not the defaults are shown with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedepd.reproduction.pages.output import folded_tables
from fedepd.reproduction.pages.settings_table import settings_table
from fedepd.reproduction.study.results import Results

MakeResults = Callable[..., Results]


def with_settings(results: Results, row: str, dataset: str, **groups: dict[str, Any]) -> None:
    for entry in results.entries:
        if (entry.row.method, entry.dataset) == (row, dataset):
            for run in entry.runs.values():
                run.config["experiment"].update(groups)


def test_without_other_settings_there_is_no_table(make_results: MakeResults) -> None:
    results = make_results({("fedavg", "email"): [50], ("fedepd", "email"): [60]})
    with_settings(results, "fedavg", "email", training={"lr": 0.01}, method={"name": "fedavg"})
    assert settings_table(results) is None
    assert "Settings that differ from the defaults" not in folded_tables(results, {}, {})


def test_tuned_rows_are_shown_with_their_settings(make_results: MakeResults) -> None:
    """A search chose lr 0.1 for FedAvg on both graphs, and another mu for FedEPD on one of them."""
    results = make_results({(m, g): [50] for g in ("email", "cora") for m in ("fedavg", "fedepd")})
    for graph in ("email", "cora"):
        with_settings(results, "fedavg", graph, training={"lr": 0.1, "epochs": 3})
    with_settings(results, "fedepd", "cora", model={"dropout": 0.75}, method={"mu": 2.0, "purify": True})
    table = folded_tables(results, {}, {})["Settings that differ from the defaults"]
    (rows,) = next(iter(table.values())).sections
    assert [[cell.text for cell in row] for row in rows] == [
        ["FEDAVG", "all", "lr 0.1"],
        ["FEDEPD", "Email", "as by default"],
        ["FEDEPD", "cora", "dropout 0.75, mu 2.0"],
    ]


def test_a_setting_that_names_the_row_is_not_repeated(make_results: MakeResults) -> None:
    results = make_results({("fedepd", "email"): [50]})
    results.entries[0].row.settings["mu"] = 2.0  # type: ignore[index]
    with_settings(results, "fedepd", "email", method={"mu": 2.0})
    assert settings_table(results) is None
