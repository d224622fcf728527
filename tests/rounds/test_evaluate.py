from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepd.datasets.facts import homophily
from fedepd.rounds.evaluate import (
    changes,
    client_class,
    client_facts,
    compared,
    confusion,
    confusions,
    held_out,
    unseen_share,
)
from fedepd.types import HIDDEN, ClientData, Graph, Partition
from toy import toy_client


@given(seed=st.integers(0, 10_000), nodes=st.integers(1, 30), classes=st.integers(2, 6))
@settings(max_examples=40)
def test_confusion_equals_scikit_learn(seed: int, nodes: int, classes: int) -> None:
    from sklearn.metrics import confusion_matrix

    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(nodes, classes, generator=generator)
    y = torch.randint(HIDDEN, classes, (nodes,), generator=generator)
    mask = torch.rand(nodes, generator=generator) < 0.7
    counts = confusion(logits.argmax(1), y, mask, classes)
    scored = mask & (y != HIDDEN)
    assert counts.dtype == torch.int64
    assert int(counts.sum()) == int(scored.sum())
    if bool(scored.any()):
        expected = confusion_matrix(y[scored], logits[scored].argmax(1), labels=np.arange(classes))
        assert np.array_equal(counts, expected)


def test_rows_are_true_and_columns_predicted_classes() -> None:
    logits = torch.tensor([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    y, mask = torch.tensor([0, 0, 1, 1]), torch.tensor([True, True, True, False])
    assert confusion(logits.argmax(1), y, mask, 2).tolist() == [[0, 2], [1, 0]]


def test_no_node_to_score_gives_zeros() -> None:
    assert (
        confusion(
            torch.zeros(2, dtype=torch.int64), torch.tensor([0, 1]), torch.zeros(2, dtype=torch.bool), 3
        ).tolist()
        == [[0] * 3] * 3
    )


def test_each_split_is_scored_on_its_own_mask() -> None:
    data = toy_client()
    perfect = torch.eye(3)[data.graph.y]
    for split, mask in (("val", data.val_mask), ("test", data.test_mask)):
        expected = torch.diag(torch.bincount(data.graph.y[mask], minlength=3))
        assert torch.equal(confusions(perfect, data)[split], expected)


def test_homophily_by_hand() -> None:
    """Of 0-1 (same), 1-2 (not), 2-3 (one end unlabelled) two edges count: 1/2."""
    y = torch.tensor([0, 0, 1, HIDDEN])
    assert homophily(torch.tensor([[0, 1, 2], [1, 2, 3]]), y) == 0.5
    assert homophily(torch.tensor([[2], [3]]), y) is None
    assert homophily(torch.empty(2, 0, dtype=torch.int64), y) is None


def test_facts_by_hand() -> None:
    """24 nodes, roles 0 1 2 train, 3 val, 4 test by node number modulo 5: 15, 5 and 4.

    Keeping no edge isolates everyone.
    """
    data = toy_client(missing_class=True)
    facts = client_facts(data, data.graph.edge_index[:, :0])
    sizes = {
        name: facts[name]
        for name in ("client", "nodes", "train", "val", "test", "classes", "edges_kept", "isolated_after")
    }
    assert sizes == {
        "client": 0,
        "nodes": 24,
        "train": 15,
        "val": 5,
        "test": 4,
        "classes": 2,
        "edges_kept": 0,
        "isolated_after": 24,
    }
    assert facts["homophily_after"] is None
    assert facts["homophily_before"] == homophily(data.graph.edge_index, data.graph.y)
    same = client_facts(data, data.graph.edge_index)
    assert same["homophily_after"] == pytest.approx(facts["homophily_before"])
    reached = torch.unique(data.graph.edge_index).numel()
    assert same["isolated_after"] == same["isolated_before"] == 24 - reached


def labelled(labels: list[int]) -> Graph:
    return Graph(torch.zeros(len(labels), 1), torch.empty(2, 0, dtype=torch.int64), torch.tensor(labels), 3)


def test_share_of_test_nodes_without_local_training_nodes() -> None:
    """Client 0 trains class 0 and tests 0, 1, 1. Client 1 trains and tests class 1: two of four."""

    def client(number: int, labels: list[int], train: list[int]) -> ClientData:
        train_mask = torch.zeros(len(labels), dtype=torch.bool)
        train_mask[train] = True
        none = torch.zeros_like(train_mask)
        return ClientData(number, labelled(labels), train_mask, none, ~train_mask, torch.arange(len(labels)))

    clients = [client(0, [0, 0, 1, 1], [0]), client(1, [1, 1], [0])]
    assert unseen_share(clients) == 0.5
    assert unseen_share(clients[1:]) == 0.0
    assert math.isnan(unseen_share([client(0, [0], [0])]))


def test_classes_by_client() -> None:
    """Client 0 owns labels 0, 2, 2; client 1 owns 1 and a node without a label."""
    owner = torch.tensor([0, 0, 1, 0, 1])
    table = client_class(labelled([0, 2, 1, 2, HIDDEN]), Partition(owner, 2, "owner"))
    assert table.dtype == torch.int64
    assert table.tolist() == [[1, 0, 2], [0, 1, 0]]


def test_held_out_rows_are_those_of_the_labelled_nodes_of_each_split() -> None:
    """Nodes 1 and 2 validate, 3 and 4 are tested; node 2 has no label."""
    train, val, test = (torch.tensor([k in nodes for k in range(5)]) for nodes in ((0,), (1, 2), (3, 4)))
    data = ClientData(0, labelled([0, 1, HIDDEN, 2, 0]), train, val, test, torch.arange(5))
    logits = torch.arange(15.0).reshape(5, 3)
    found = held_out(logits, data)
    assert {split: y.tolist() for split, (_, y) in found.items()} == {"val": [1], "test": [2, 0]}
    assert found["val"][0].tolist() == [[3, 4, 5]]
    assert found["test"][0].tolist() == [[9, 10, 11], [12, 13, 14]]


def test_changes_are_counted_by_who_is_right() -> None:
    """Node 0: both say 0. Node 1: only the first is right. Node 2: only the second. Node 3: neither."""
    y, first, second = torch.tensor([0, 1, 2, 0]), torch.tensor([0, 1, 0, 1]), torch.tensor([0, 2, 2, 2])
    found = changes(first, second, y, 3)
    assert found.nonzero().tolist() == [[0, 1, 2], [1, 0, 2], [2, 1, 2]]
    assert found.sum() == 3


def test_models_are_compared_on_labelled_validation_nodes_of_the_counted_classes() -> None:
    """Nodes 0 to 3 validate; node 3 has no label, and class 1 is not counted."""
    val = torch.tensor([True, True, True, True, False])
    none = torch.zeros(5, dtype=torch.bool)
    data = ClientData(0, labelled([0, 1, 2, HIDDEN, 0]), none, val, ~val, torch.arange(5))
    models = [torch.tensor([0, 0, 1, 0, 0]), torch.tensor([2, 1, 2, 1, 1])]
    first, other = compared(models, data)
    assert first.tolist() == [[1, 0, 0], [1, 0, 0], [0, 1, 0]]
    assert other.nonzero().tolist() == [[0, 0, 2], [1, 0, 1], [1, 1, 2]]
    counted = torch.tensor([True, False, True])
    first, other = compared(
        models, data, counted, lambda predicted, y: torch.where(predicted == 1, 0, predicted)
    )
    assert first.tolist() == [[1, 0, 0], [0, 0, 0], [1, 0, 0]]
    assert other.nonzero().tolist() == [[0, 0, 2], [1, 0, 2]]
