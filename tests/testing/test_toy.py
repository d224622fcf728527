"""The small federations have the awkward cases that they promise."""

from __future__ import annotations

import torch

from fedepd.methods.fedavg import FedAvg
from fedepd.testing.toy import CLASSES, FEATURES, make_client, relabelled, run_rounds, toy_client, toy_clients


def test_a_plain_client() -> None:
    """Nodes i with i % 5 in 0, 1, 2 train; 3 validates; 4 tests: of 24 nodes 15, 5 and 4."""
    data = toy_client()
    assert data.graph.x.shape == (24, FEATURES)
    assert torch.unique(data.graph.y).tolist() == list(range(CLASSES))
    assert [int(mask.sum()) for mask in (data.train_mask, data.val_mask, data.test_mask)] == [15, 5, 4]
    assert data.graph.num_edges > 0


def test_awkward_clients() -> None:
    assert toy_client(edges=False).graph.num_edges == 0
    assert not bool(toy_client(train=False).train_mask.any())
    assert toy_client(sparse=True).graph.is_sparse
    assert 2 not in toy_client(missing_class=True).graph.y
    one = toy_client(one_node_class=True)
    assert int((one.graph.y[one.train_mask] == 2).sum()) == int((one.graph.y == 2).sum()) == 1


def test_clients_differ_and_are_the_same_each_time() -> None:
    first, second = toy_clients(2), toy_clients(2)
    assert [client.graph.num_nodes for client in first] == [20, 24]
    assert all(torch.equal(a.graph.x, b.graph.x) for a, b in zip(first, second, strict=True))
    assert set(first[0].global_ids.tolist()).isdisjoint(first[1].global_ids.tolist())


def test_a_client_of_a_method_sees_training_labels_alone() -> None:
    data = toy_client()
    hidden = make_client(FedAvg(), data).data.graph.y
    assert bool((hidden[~data.train_mask] == -1).all())
    assert torch.equal(hidden[data.train_mask], data.graph.y[data.train_mask])


def test_a_run_evaluates_every_round() -> None:
    rounds, exchange = run_rounds(FedAvg(), toy_clients(2), rounds=2)
    assert [each.number for each in rounds] == [1, 2]
    assert all(each.confusions for each in rounds)
    assert sorted(exchange.participants) == [0, 1]


def test_other_labels_on_the_same_graph() -> None:
    data = toy_client()
    other = relabelled(data, (data.graph.y + 1) % CLASSES)
    assert not bool((other.graph.y == data.graph.y).any())
    assert other.graph.x is data.graph.x
