"""A method whose clients never meet, against what it must equal."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig
from fedepd.methods import METHODS
from fedepd.methods.alone import Alone, inner, scoped
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.isolated import Isolated
from fedepd.runs.experiment import Experiment
from fedepd.runs.simulation import build

GRAPH = synthetic(nodes=240, edges=900, classes=4, imbalance=6.0, smallest=None, features=8, communities=6)
SMALL: dict[str, Any] = {"rounds": 4, "clients": 3, "hidden": 8, "evaluate_every": 2, "backbone": "gcn"}
FEDERATED = [name for name, cls in METHODS.items() if not (cls.trains_alone or cls.merges_clients)]


def trained(method: str, **more: Any) -> fedepd.RunResult:
    return fedepd.run(GRAPH, method, **{**SMALL, **more})


def same_scores(one: fedepd.RunResult, other: fedepd.RunResult, left: str, right: str) -> None:
    for split in ("val", "test"):
        np.testing.assert_array_equal(one.confusions[f"{left}_{split}"], other.confusions[f"{right}_{split}"])


def test_fedavg_alone_is_plain_training() -> None:
    """Averaging one client's reply gives the reply, so FedAvg alone is ``isolated``."""
    alone, plain = trained("fedavg", scope="alone"), trained("isolated")
    same_scores(alone, plain, "personal", "personal")
    assert alone.summary["bytes_up"] == alone.summary["bytes_down"] == 0
    assert "each alone" in alone.summary["protocol"]


def test_fedavg_pooled_is_centralised() -> None:
    pooled, plain = trained("fedavg", scope="pooled"), trained("centralised")
    same_scores(pooled, plain, "personal", "personal")
    assert pooled.summary["bytes_up"] == 0
    assert "one client holds the whole graph" in pooled.summary["protocol"]


@pytest.mark.parametrize("method", FEDERATED)
def test_a_client_alone_is_a_federation_of_one(method: str) -> None:
    """With one client, every method's federated run and its run alone are the same."""
    settings = {"clients": 1, "rounds": 2, "partition": "openfgl"}
    alone, together = trained(method, scope="alone", **settings), trained(method, **settings)
    same_scores(alone, together, "personal", together.summary["headline"])


def test_nobody_hears_of_anybody() -> None:
    """A client alone learns the same whatever labels the others hold."""
    part = build(Experiment.make("fedepd", **SMALL), GRAPH)
    others = part.partition.owner != 0
    changed = replace(GRAPH, y=torch.where(others, 3 - GRAPH.y, GRAPH.y))  # 4 classes, turned round
    cut = {**SMALL, "scope": "alone", "select": "last", "partition": "owner"}
    owned = [replace(graph, owner=part.partition.owner) for graph in (GRAPH, changed)]
    one, other = (fedepd.run(graph, "fedepd", **cut) for graph in owned)
    np.testing.assert_array_equal(one.confusions["personal_test"][0], other.confusions["personal_test"][0])
    assert (one.confusions["personal_test"][1] != other.confusions["personal_test"][1]).any()


def test_an_interrupted_run_alone_is_finished_to_the_same_bits(tmp_path: Path) -> None:
    def stop(each: Any) -> None:
        if each.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained("fedepd", scope="alone", out=tmp_path / "run", on_round=stop)
    again, whole = fedepd.resume(tmp_path / "run", GRAPH), trained("fedepd", scope="alone")
    same_scores(again, whole, "personal", "personal")
    assert again.tensors.keys() == whole.tensors.keys()
    assert all(bool((value == whole.tensors[name]).all()) for name, value in again.tensors.items())


def test_the_model_of_a_client_alone_is_exported(tmp_path: Path) -> None:
    """Export refuses a model that does not predict as was measured, so this is a test of predictions too."""
    trained("fedepd", scope="alone", out=tmp_path / "run")
    made = fedepd.export(tmp_path / "run", tmp_path / "model", GRAPH, client=1)
    assert (made / "README.md").exists()


def test_what_has_no_meaning_alone_is_refused() -> None:
    with pytest.raises(BadConfig, match="scope is alone, so nothing is sent, and settings of privacy"):
        trained("fedepd", scope="alone", guard=True)
    with pytest.raises(BadConfig, match="settings of defence and adapt and participation"):
        trained("fedepd", scope="pooled", robust="median", adapt=True, participation=0.5)


def test_who_is_put_into_it() -> None:
    assert scoped(FedAvg(), "federated") == FedAvg()
    assert scoped(Isolated(), "alone") == Isolated()
    assert scoped(FedAvg(), "alone") == Alone(FedAvg())
    pooled = scoped(FedAvg(), "pooled")
    assert (pooled.merges_clients, pooled.label) == (True, "FedAvg")
    assert inner(pooled) == inner(FedAvg()) == FedAvg()
    settings = Experiment.make("fedepd", scope="alone", mu=2.0).resolved()
    assert settings["method"]["mu"] == 2.0
    assert "inner" not in settings["method"]


def test_the_graph_is_cut_as_before_and_then_its_edges_go() -> None:
    """With one linear layer less to tell apart: gcn without edges is mlp, whose weights have other names."""
    plain, bare = trained("fedavg"), trained("fedavg", edges=False)
    assert plain.summary["partition_sha256"] == bare.summary["partition_sha256"]
    assert bare.summary["warnings"] == []
    assert bare.summary["protocol"].endswith("no edges")
    same_scores(bare, trained("fedavg", backbone="mlp"), "global", "global")
