"""A run's model on the whole graph, with the edges between clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig, BadData
from fedepd.model.whole import on_whole_graph
from fedepd.report.runs import read_run
from fedepd.types import Graph


def across() -> Graph:
    """40 nodes of two owners and two classes. A node's own feature says nothing, its neighbours' say all.

    Every node has one edge, to the node with the same number at the other owner. Without the edges between
    owners a node is isolated.
    """
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(40, 3, generator=generator)
    edges = torch.stack([torch.arange(20), torch.arange(20) + 20])
    y = torch.tensor([0, 1] * 20)
    owner = torch.tensor([0] * 20 + [1] * 20)
    return Graph.make(x, edges, y, 2, name="across", owner=owner)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    for method in ("fedavg", "fedproto", "centralised"):
        settings: dict[str, Any] = {"rounds": 3, "hidden": 4, "partition": "owner", "out": folder / method}
        fedepd.run(across(), method, **settings)
    return folder


def test_edges_between_clients_are_counted(runs: Path) -> None:
    """All 20 edges join the two owners, so every test node has one.

    Each owner has 10 nodes of each class: 6 train, 2 validate, 2 test.
    """
    found = on_whole_graph(runs / "fedavg", across())
    assert (found.edges, found.between, found.nodes, found.touched) == (20, 20, 8, 8)
    assert found.own.sum() == found.whole.sum() == 8


@pytest.mark.heavy
@pytest.mark.parametrize("name", fedepd.METHODS)
def test_every_method_is_scored_there(name: str, tmp_path: Path) -> None:
    """As in the run on the clients' own graphs, on the same test nodes on the whole one."""
    graph = synthetic(
        nodes=300, edges=1200, classes=4, imbalance=6.0, smallest=None, features=12, communities=6
    )
    fedepd.run(graph, name, rounds=4, clients=3, hidden=8, evaluate_every=2, out=tmp_path / "run")
    found, run = on_whole_graph(tmp_path / "run", graph), read_run(tmp_path / "run")
    own = run.confusions[f"{run.headline}_test"]
    assert np.array_equal(found.own, own.sum(0))
    assert np.array_equal(found.whole.sum(1), found.own.sum(1))  # the same nodes of each class
    assert found.nodes == found.whole.sum() > 50


def test_the_whole_graph_gives_what_an_exported_model_predicts_there(runs: Path) -> None:
    found, graph = on_whole_graph(runs / "fedavg", across()), across()
    fedepd.export(runs / "fedavg", runs / "model", data=graph)
    predicted = fedepd.load_model(runs / "model").logits(graph).argmax(1)
    split = np.load(runs / "fedavg" / "partition.npz")["split"]
    tested = torch.from_numpy(split == 2)
    counts = torch.bincount(2 * graph.y[tested] + predicted[tested], minlength=4).reshape(2, 2)
    assert np.array_equal(found.whole, counts.numpy())
    measured = read_run(runs / "fedavg").summary["metrics"]["global"]["pooled"]
    assert all(found.scores()["own"][name] == measured[name] for name in ("acc", "bacc", "macro_f1"))


def test_personal_models_are_scored_on_their_own_clients_nodes(runs: Path) -> None:
    found = on_whole_graph(runs / "fedproto", across())
    assert found.as_json()["model"] == "personal"
    assert found.whole.sum(1).tolist() == [4, 4]


def test_one_client_with_the_whole_graph_has_nothing_to_gain(runs: Path) -> None:
    found = on_whole_graph(runs / "centralised", across())
    assert np.array_equal(found.own, found.whole)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"edges": False}, "the run uses no edges"),
        ({"attack": "scale", "attackers": 1}, "the run has dishonest clients"),
        ({"pruned": "always"}, "pruned is always, but that is a control"),
    ],
)
def test_runs_without_a_meaning_are_refused(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    fedepd.run(across(), "fedavg", rounds=1, hidden=4, partition="owner", out=tmp_path / "run", **settings)
    with pytest.raises(BadConfig, match=sentence):
        on_whole_graph(tmp_path / "run", across())


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="not a run folder"):
        on_whole_graph(tmp_path)
