"""What cells have measured: entries, titles, and every number as CSV."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace

from fedepd.reproduction.study.kept_run import KeptRun
from fedepd.reproduction.study.results import (
    COLUMNS,
    OPENFGL,
    PREFERRED,
    Results,
    numbers_csv,
    with_folders,
)

MakeResults = Callable[..., Results]


def test_values_are_percent_by_seed(make_results: MakeResults) -> None:
    (entry,) = make_results({("fedavg", "a"): [50, None, 70]}).entries
    assert {seed: round(value, 9) for seed, value in entry.values("acc").items()} == {0: 50.0, 2: 70.0}
    assert round(entry.mean("acc", OPENFGL), 9) == 60.0
    assert entry.failures == {1: "no memory"}


def test_finished_entries_with_and_without_references(make_results: MakeResults) -> None:
    scores = {("fedavg", "a"): [50], ("lws", "a"): [None], ("isolated", "a"): [40]}
    results = make_results(scores, references=["isolated"])
    assert [entry.row.key for entry in results.finished("a")] == ["fedavg", "isolated"]
    assert [entry.row.key for entry in results.finished("a", references=False)] == ["fedavg"]
    assert len(results.runs) == 2


def test_only_the_official_graph_has_the_paper_s_title(make_results: MakeResults) -> None:
    results = make_results({("fedavg", "email"): [50], ("fedavg", "mine"): [50]})
    assert [results.title(name) for name in results.datasets] == ["Email", "mine"]
    proxy = make_results({("fedavg", "email"): [50]}, proxies=["email"])
    assert not proxy.is_official("email")
    assert proxy.title("email") == "email ‡"
    assert proxy.title("email", words=True) == "email (proxy features)"


def test_two_paths_with_one_name_are_told_apart(make_results: MakeResults) -> None:
    results = make_results({("fedavg", "/x/graph.npz"): [50], ("fedavg", "/y/graph.npz"): [50]})
    assert len({results.title(name) for name in results.datasets}) == 2


def test_every_number_has_a_line_and_so_has_every_failure(make_results: MakeResults) -> None:
    """Per run: 2 models, 2 averages, 6 scores, and 5 costs. A failed seed has one line."""
    lines = list(csv.DictReader(numbers_csv(make_results({("fedavg", "a"): [50, None]})).splitlines()))
    assert list(lines[0]) == COLUMNS
    assert len(lines) == 2 * 2 * 6 + 5 + 1
    assert {line["value"] for line in lines if line["metric"] == "acc"} == {"0.5"}
    assert [line["failure"] for line in lines if line["seed"] == "1"] == ["no memory"]


def test_the_preferred_model_has_lines_of_its_own(make_results: MakeResults) -> None:
    """Where adapted models were scored. The other kinds stay as they are."""
    results = make_results({("fedavg", "a"): [50]})
    run = replace(results.runs[0], known_preference="adapted")
    run.summary["metrics"]["adapted"] = {"pooled": {"acc": 0.9}}
    entry = replace(results.entries[0], runs={0: run})
    results = replace(results, entries=[entry])
    assert PREFERRED in results.scorings
    assert entry.values("acc", PREFERRED) == {0: 90.0}
    assert entry.values("acc") == {0: 50.0}
    lines = csv.DictReader(numbers_csv(results).splitlines())
    assert [line["value"] for line in lines if line["model"] == "preferred"] == ["0.9"]


def test_results_without_runs_of_which_only_scores_are_kept(make_results: MakeResults) -> None:
    """They are no failures, so nothing says that they must be run."""
    results = make_results({("fedavg", "email"): [50, None]})
    run = results.runs[0]
    kept = KeptRun(run.path, run.summary, run.config, "kept.csv", 3)
    results = replace(results, entries=[replace(results.entries[0], runs={0: run, 2: kept})])
    assert results.runs == [run, kept]
    found = with_folders(results)
    assert found.runs == [run]
    assert found.entries[0].failures == {1: "no memory"}
