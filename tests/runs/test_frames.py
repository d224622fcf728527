"""Frames hold the numbers of the run, each in one place, with names where they are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedepd.datasets import load
from fedepd.metrics import METRICS
from fedepd.runs.frames import Frames
from fedepd.runs.run import RunResult, run
from fedepd.types import Graph

pytest.importorskip("pandas", reason="needs the extra 'data'")

QUICK: dict[str, Any] = {"rounds": 3, "hidden": 8, "clients": 3, "evaluate_every": 2, "backbone": "gcn"}


@pytest.fixture(scope="module")
def graph() -> Graph:
    made = load("synthetic")
    return replace(made, label_names=tuple(f"class <{c}>" for c in range(made.num_classes)))


@pytest.fixture(scope="module")
def results(graph: Graph) -> list[RunResult]:
    return [run(graph, "fedavg", seed=seed, lr=lr, **QUICK) for seed, lr in ((0, 0.01), (1, 0.02))]


@pytest.fixture(scope="module")
def frames(results: list[RunResult]) -> Frames:
    return Frames([(f"run{k}", each) for k, each in enumerate(results)])


def test_scores_have_a_row_per_run_model_and_average(frames: Frames, results: list[RunResult]) -> None:
    found = frames.scores
    assert len(found) == 2 * 2 * 2  # runs, models, averages
    for k, result in enumerate(results):
        for model, averages in result.metrics.items():
            for average, values in averages.items():
                rows = found[(found.run == f"run{k}") & (found.model == model) & (found.average == average)]
                assert len(rows) == 1
                for name in METRICS:
                    assert rows[name].item() == pytest.approx(values[name], nan_ok=True)
    assert found[found.headline].model.unique().tolist() == ["global"]


def test_a_setting_in_which_runs_differ_is_a_column(frames: Frames) -> None:
    assert frames.scores.groupby("run").lr.first().tolist() == [0.01, 0.02]
    assert "hidden" not in frames.scores


def test_rounds_have_a_row_per_run_and_round(frames: Frames, results: list[RunResult]) -> None:
    found = frames.rounds
    assert found[["run", "round"]].drop_duplicates().shape == (6, 2)
    first = found[found.run == "run0"]
    assert first.bytes_up.sum() == results[0].summary["bytes_up"]
    # Rounds 2 and 3 were evaluated: every second one, and the last.
    assert first.global_val_bacc.isna().tolist() == [True, False, False]
    assert first.global_val_bacc.iloc[1] == results[0].rounds[1]["val"]["global"]["bacc"]


def test_classes_have_names_and_the_numbers_of_the_summary(
    frames: Frames, results: list[RunResult], graph: Graph
) -> None:
    found = frames.classes
    own = found[(found.run == "run0") & (found.model == "global")].reset_index()
    assert own["class"].tolist() == list(graph.label_names)
    for row, said in zip(own.itertuples(), results[0].summary["by_class"], strict=True):
        assert (row.nodes, row.predicted) == (said["nodes"], said["predicted"])
        if said["recall"] is not None:
            assert [row.recall, row.recall_low, row.recall_high] == pytest.approx(said["recall"])


def test_clients_have_what_they_hold_and_their_own_scores(frames: Frames, results: list[RunResult]) -> None:
    found = frames.clients[frames.clients.run == "run0"]
    assert found.client.tolist() == ["0", "1", "2"]
    assert found.nodes.tolist() == [each["nodes"] for each in results[0].clients]
    counts = results[0].confusions["global_test"]
    shares = [float(own.diagonal().sum() / own.sum()) for own in counts]
    assert found.global_test_acc.tolist() == pytest.approx(shares)


def test_confusions_add_up_to_the_tested_nodes(frames: Frames, results: list[RunResult]) -> None:
    found = frames.confusions
    tested = found[(found.run == "run1") & (found.model == "personal") & (found.split == "test")]
    assert tested.nodes.sum() == int(results[1].confusions["personal_test"].sum())
    assert (tested.nodes > 0).all()


def test_owners_are_named(graph: Graph) -> None:
    import torch

    owned = replace(graph, owner=torch.arange(graph.num_nodes) % 3, owner_names=("Basel", "Bern", "Zug"))
    result = run(owned, "fedavg", partition="owner", **{**QUICK, "rounds": 1})
    assert result.to_pandas().clients.client.tolist() == ["Basel", "Bern", "Zug"]


def test_sums_have_no_clients(graph: Graph) -> None:
    """Under secure sums only the sum over the clients is known."""
    found = run(graph, "fedavg", secure=True, **{**QUICK, "rounds": 1}).to_pandas()
    assert found.confusions.client.unique().tolist() == ["all"]
    assert not [name for name in found.clients if name.startswith("global_test")]


def test_they_show_themselves(frames: Frames, results: list[RunResult]) -> None:
    assert repr(frames).startswith("Frames(2 runs of fedavg;")
    assert "macro_f1" in frames._repr_html_()
    assert repr(results[0]).startswith("RunResult(FedAvg on synthetic, seed 0, global model of round")
    assert len(repr(results[0])) < 200
    assert "<td>acc " in results[0]._repr_html_()
