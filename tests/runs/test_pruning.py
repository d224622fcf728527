"""FedEPD's purification as a control for other methods."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedepd import run
from fedepd.datasets import synthetic
from fedepd.errors import BadConfig
from fedepd.methods.fedepd.purify import purified_edges
from fedepd.model.export import export
from fedepd.runs.experiment import Experiment
from fedepd.runs.pruning import check_not_pruned, favoured, pruned
from fedepd.runs.simulation import build
from fedepd.types import ClientData

GRAPH = synthetic(nodes=300, edges=900, classes=4, imbalance=10, smallest=None, communities=6)


def clients_of(method: str, **settings: str) -> list[ClientData]:
    return build(Experiment.make(method, clients=3, **settings), GRAPH).clients


def test_always_is_the_purified_graph_at_every_client() -> None:
    for before, after in zip(clients_of("fedavg"), clients_of("fedavg", pruned="always"), strict=True):
        assert torch.equal(after.graph.edge_index, purified_edges(before.graph))
        assert after.graph.num_edges < before.graph.num_edges
        assert torch.equal(after.graph.y, before.graph.y)
        assert torch.equal(after.train_mask, before.train_mask)


def test_by_vote_is_one_of_both_and_the_same_at_all_clients() -> None:
    whole, after = clients_of("fedavg"), clients_of("fedavg", pruned="by_vote")
    kept = [purified_edges(c.graph) for c in whole]
    wanted = kept if favoured(whole, kept) else [c.graph.edge_index for c in whole]
    assert all(torch.equal(c.graph.edge_index, edges) for c, edges in zip(after, wanted, strict=True))


def test_the_vote_is_fedepds_own() -> None:
    """FedEPD's clients vote in round 1, on the same graphs and split. All of its clients agree."""
    whole = clients_of("fedavg")
    votes = run(GRAPH, "fedepd", rounds=1, clients=3).tensors["pruning.votes"]
    assert favoured(whole, [purified_edges(c.graph) for c in whole]) == bool(votes[0] > votes[1])


def test_no_pruning_is_what_was_before() -> None:
    experiment = Experiment.make("fedavg")
    clients = clients_of("fedavg")
    assert pruned(clients, experiment) is clients
    assert experiment.config_hash("x") == Experiment.make("fedavg", pruned="no").config_hash("x")
    assert experiment.config_hash("x") != Experiment.make("fedavg", pruned="always").config_hash("x")
    assert "pruned as FedEPD does, always" in Experiment.make("fedavg", pruned="always").sentence()


def test_fedepd_prunes_by_itself() -> None:
    with pytest.raises(BadConfig, match="pruned is always, but FedEPD prunes by itself; leave pruned out"):
        clients_of("fedepd", pruned="always")


def test_what_meets_other_graphs_is_refused(tmp_path: Path) -> None:
    experiment = Experiment.make("fedavg", pruned="by_vote")
    with pytest.raises(BadConfig, match="pruned is by_vote, but that is a control for simulations, and x"):
        check_not_pruned(experiment, "x")
    check_not_pruned(Experiment.make("fedavg"), "x")
    run(GRAPH, "fedavg", rounds=1, clients=3, pruned="always", out=tmp_path / "run")
    with pytest.raises(BadConfig, match="a model would meet graphs that are not pruned"):
        export(tmp_path / "run", tmp_path / "model", GRAPH)
    assert not (tmp_path / "model").exists()
