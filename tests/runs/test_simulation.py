"""What a run builds before its first round, by hand on small graphs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd.clients.partition import PartitionConfig
from fedepd.errors import BadConfig
from fedepd.longtail import Tiers
from fedepd.runs.experiment import Experiment
from fedepd.runs.simulation import Simulation, build, merged, owner_names, warnings_of
from fedepd.types import HIDDEN, Graph
from toy import toy_client, toy_clients


def two_owners() -> Graph:
    """Nodes 0-9 belong to "north", 10-19 to "south". Labels alternate. One edge, 9-10, crosses."""
    path = torch.tensor([(i, i + 1) for i in range(19)]).T
    return Graph.make(
        torch.eye(20),
        path,
        torch.tensor([0, 1] * 10),
        2,
        name="two owners",
        owner=torch.tensor([0] * 10 + [1] * 10),
        owner_names=("north", "south"),
    )


def built(method: str = "fedavg", **settings: Any) -> Simulation:
    settings = {"rounds": 2, "hidden": 4, "partition": "owner", **settings}
    return build(Experiment.make(method, **settings), two_owners())


def test_the_cut_says_who_owns_a_node_and_what_it_is_for() -> None:
    """A client has 5 nodes of each class.

    The floor rule gives 3 to training, 1 to validation, 1 to the test.
    """
    one = built()
    cut = one.cut()
    assert cut["owner"].tolist() == [0] * 10 + [1] * 10
    assert cut["client_class"].tolist() == [[5, 5], [5, 5]]
    assert cut["class_sizes"].tolist() == [10, 10]
    for nodes in (slice(0, 10), slice(10, 20)):
        assert torch.bincount(cut["split"][nodes]).tolist() == [6, 2, 2]
    for client in one.clients:
        for code, mask in enumerate((client.train_mask, client.val_mask, client.test_mask)):
            assert (cut["split"][client.global_ids[mask]] == code).all()
    assert [client.graph.num_edges for client in one.clients] == [9, 9]
    assert (one.unseen, one.config["dataset"]["owner_names"]) == (0.0, ["north", "south"])


def test_a_method_that_merges_clients_has_one_with_all_edges_and_the_same_split() -> None:
    apart, one = built(), built("centralised")
    (whole,) = one.clients
    assert whole.graph.num_edges == 19
    assert torch.equal(one.cut()["split"], apart.cut()["split"])
    assert one.course().clients == [0]
    again = merged(two_owners(), apart.clients)
    assert torch.equal(again.train_mask, whole.train_mask)
    assert torch.equal(again.test_mask, whole.test_mask)


def test_the_settings_of_the_simulation_are_those_that_auto_became() -> None:
    assert built(partition="auto").experiment.partition == built().experiment.partition
    with pytest.raises(BadConfig, match="backbone auto is chosen by"):
        built(backbone="auto")


def test_owners_are_named_where_the_graph_is_cut_by_owner() -> None:
    graph = two_owners()
    assert owner_names(graph, PartitionConfig(partition="owner")) == ["north", "south"]
    assert owner_names(graph, PartitionConfig(partition="openfgl")) == []
    assert owner_names(replace(graph, owner_names=()), PartitionConfig(partition="owner")) == []


def test_warnings_name_the_clients() -> None:
    assert warnings_of(toy_clients()) == []
    odd = [toy_client(0, edges=False), toy_client(1), toy_client(2, edges=False, train=False)]
    assert warnings_of(odd) == [
        "no edges at client 0, 2: it trains as a plain network on its nodes' own features",
        "no training nodes at client 2: it is evaluated but has no say in the average",
    ]


def test_of_very_many_clients_a_warning_names_the_first() -> None:
    many = [toy_client(k, train=False) for k in range(103)]
    assert warnings_of(many)[0].startswith("no training nodes at client 0, 1, 2")
    assert "98, 99 and 3 more: it is" in warnings_of(many)[0]


def test_personal_models_are_the_states_without_moments() -> None:
    one = built()
    assert one.personal_models() == {}
    state = {"encoder.weight": torch.ones(2), "adam.moments.first": torch.zeros(2)}
    one.participants[1].state = state
    found = one.personal_models()
    assert found.keys() == {"client1.encoder.weight"}
    assert torch.equal(found["client1.encoder.weight"], torch.ones(2))


def test_the_start_has_the_tiers_of_the_whole_graph() -> None:
    """Both classes have 10 nodes.

    The first holds half of all nodes: it is the head, and the other the tail.
    """
    progress = built().start()
    assert progress.next_round == 1
    assert progress.tiers == Tiers(head=(0,), medium=(), tail=(1,))


def test_corrupted_data_are_trained_on_and_clean_ones_scored() -> None:
    """The clients that scores, exports and reports look at have clean features and edges."""
    how = "features=1,edges=1,labels-missing=0.5"
    plain, one = built(), built(corrupt=how)
    for before, after, p in zip(plain.clients, one.clients, one.participants, strict=True):
        assert torch.equal(after.graph.x, before.graph.x)
        assert torch.equal(after.graph.edge_index, before.graph.edge_index)
        assert (int(before.train_mask.sum()), int(after.train_mask.sum())) == (6, 3)
        client, asked = p._client(1), p._asked(1)
        assert client.data.graph.num_edges > after.graph.num_edges
        assert not torch.equal(client.data.graph.x, after.graph.x)
        assert torch.equal(asked.data.graph.edge_index, after.graph.edge_index)
        assert torch.equal(asked.data.graph.x, after.graph.x)
        assert torch.equal(asked.data.train_mask, client.data.train_mask)
        assert bool((asked.data.graph.y[~asked.data.train_mask] == HIDDEN).all())
    clean = plain.participants[0]
    assert clean._asked(1).data is clean._client(1).data


@pytest.mark.heavy
@pytest.mark.parametrize("name", fedepd.METHODS)
def test_every_method_trains_on_corrupted_data(name: str) -> None:
    """To another model, seed by seed the same, and scored on the same nodes with their true classes."""
    how = "features=0.5,features-missing=0.2,edges=0.5,edges-missing=0.3,labels=0.1,labels-missing=0.2"
    few: dict[str, Any] = {"rounds": 4, "clients": 3, "hidden": 8, "evaluate_every": 2}
    plain = fedepd.run("synthetic", name, **few)
    one, again = (fedepd.run("synthetic", name, corrupt=how, **few) for _ in range(2))
    assert not any("refused" in line for line in one.rounds)
    trained, once_more, clean = ([line["loss"] for line in each.rounds] for each in (one, again, plain))
    assert trained == once_more != clean
    assert one.summary["weights_sha256"] == again.summary["weights_sha256"]
    assert plain.confusions.keys() == one.confusions.keys()
    for kind, matrix in one.confusions.items():
        assert np.array_equal(matrix.sum(-1), plain.confusions[kind].sum(-1)), kind


def test_an_aim_is_for_federations() -> None:
    with pytest.raises(BadConfig, match="aim is for federations"):
        build(Experiment.make("fedavg", aim="recall 1=0.8"), two_owners())
