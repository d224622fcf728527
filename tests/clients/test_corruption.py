"""Training data made worse: how much of it, where, and that the rest stays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from fedepd.clients import corruption
from fedepd.clients.corruption import NAMES, Corruption, trained_on, with_wrong_labels
from fedepd.errors import BadConfig, UnknownName
from fedepd.types import ClientData, Graph

NODES, CLASSES, COLUMNS = 60, 4, 10
TRAIN = 40


def client(sparse: bool = False, who: int = 0) -> ClientData:
    """60 nodes on a ring, 40 of them train. Every row has 5 twos among 10 columns."""
    x = torch.zeros(NODES, COLUMNS)
    for node in range(NODES):
        x[node, [(node + step) % COLUMNS for step in range(5)]] = 2.0
    ring = torch.stack([torch.arange(NODES), (torch.arange(NODES) + 1) % NODES])
    y = torch.arange(NODES) % CLASSES
    graph = Graph.make(x.to_sparse_csr() if sparse else x, ring, y, CLASSES)
    places = torch.arange(NODES)
    return ClientData(who, graph, places < TRAIN, (places >= TRAIN) & (places < 50), places >= 50, places)


def dense(x: Tensor) -> Tensor:
    return x.to_dense() if x.layout == torch.sparse_csr else x


def pairs(graph: Graph) -> set[tuple[int, ...]]:
    return set(map(tuple, graph.edge_index.t().tolist()))


def worse(text: str, sparse: bool = False, seed: int = 0, who: int = 0) -> ClientData:
    how = Corruption.read(text)
    return trained_on(with_wrong_labels(client(sparse, who), how, seed), how, seed)


def test_one_text_for_one_thing() -> None:
    assert Corruption.read(" labels = 0.10 ,features=1").text == "features=1,labels=0.1"
    assert Corruption.read("").text == Corruption.read("none").text == Corruption.read("edges=0").text == ""
    assert Corruption.read(Corruption.read("edges=0.3333333333").text).text == "edges=0.333333"
    assert NAMES == ("features", "features-missing", "edges", "edges-missing", "labels", "labels-missing")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("labels=1", "labels is '1'; give a share from 0 to below 1"),
        ("labels=-0.1", "labels is '-0.1'; give a share from 0 to below 1"),
        ("edges=nan", "edges is 'nan'; give a number from 0 to 10"),
        ("features=inf", "features is 'inf'; give a number from 0 to 10"),
        ("features=x", "features is 'x'; give a number from 0 to 10"),
        ("features", "'features' has no share; write it once, as features=0.2"),
        ("edges=1,edges=2", "'edges' is given twice"),
    ],
)
def test_bad_text_is_refused_in_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(BadConfig, match=sentence):
        Corruption.read(text)


@pytest.mark.parametrize("text", ["feature=0.1", "edges_missing=0.1", "=0.1", "edges=0.1,", "\x1b[2J=1"])
def test_a_name_must_be_exact(text: str) -> None:
    with pytest.raises(UnknownName, match="unknown corruption") as caught:
        Corruption.read(text)
    assert "\x1b" not in str(caught.value)


def test_nothing_is_the_same_object() -> None:
    data = client()
    assert with_wrong_labels(data, Corruption(), 0) is data
    assert trained_on(data, Corruption(), 0) is data
    assert trained_on(data, Corruption(labels=0.5), 0) is data


@pytest.mark.parametrize("sparse", [False, True])
def test_missing_features_are_a_share_of_each_row(sparse: bool) -> None:
    """int(0.5 * 5) = 2 of five numbers go, so three are left."""
    found, before = worse("features-missing=0.5", sparse), client(sparse)
    x = dense(found.graph.x)
    assert ((x != 0).sum(1) == 3).all()
    assert torch.equal(x, torch.where(x != 0, dense(before.graph.x), 0.0))
    assert found.graph.is_sparse == sparse
    assert x.dtype == torch.float32


def test_feature_noise_is_a_multiple_of_the_numbers_size() -> None:
    """All numbers but 0 are 2. Noise of 0.5 has the deviation 1: 600 draws give it within 4 / sqrt(1200)."""
    moved = worse("features=0.5").graph.x - client().graph.x
    assert float(moved.std()) == pytest.approx(1.0, abs=0.12)
    assert torch.allclose(worse("features=1").graph.x - client().graph.x, 2 * moved, atol=1e-5)


def test_sparse_feature_noise_falls_on_the_numbers_and_on_as_many_columns() -> None:
    found = worse("features=0.5", sparse=True).graph.x
    moved = found.to_dense() - client().graph.x
    stored = client().graph.x != 0
    assert (moved[stored] != 0).all()
    assert found.values().numel() <= 2 * int(stored.sum())
    assert 0 < int((moved[~stored] != 0).sum()) <= int(stored.sum())
    assert float(moved[stored].std()) > 0.8


def test_missing_edges_are_dropped() -> None:
    """round(0.3 * 60) = 18 of 60 edges."""
    left, more = pairs(worse("edges-missing=0.3").graph), pairs(worse("edges-missing=0.5").graph)
    assert len(left) == 42
    assert len(more) == 30
    assert more < left < pairs(client().graph)


@pytest.mark.parametrize("easy", [corruption.EASY_PAIRS, 0], ids=["listed", "drawn"])
def test_new_edges_are_added_to_all_old_ones(easy: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corruption, "EASY_PAIRS", easy)
    old = pairs(client().graph)
    some, many = pairs(worse("edges=0.5").graph), pairs(worse("edges=2").graph)
    assert len(some) == 90
    assert len(many) == 180
    assert old < some < many
    assert all(a < b for a, b in many)


def test_a_dropped_edge_does_not_come_back_as_a_new_one() -> None:
    old = pairs(client().graph)
    found = pairs(worse("edges-missing=0.5,edges=10").graph)
    assert len(found) == 30 + 600
    assert len(found & old) == 30


def test_more_edges_than_there_are_pairs_make_the_graph_complete() -> None:
    data = client()
    small = replace(data.graph, edge_index=data.graph.edge_index[:, :1])
    pair = Graph.make(torch.eye(3), torch.tensor([[0], [1]]), torch.tensor([0, 1, 1]))
    three = torch.ones(3, dtype=torch.bool)
    found = trained_on(ClientData(0, pair, three, ~three, ~three, torch.arange(3)), Corruption(edges=9), 0)
    assert pairs(found.graph) == {(0, 1), (0, 2), (1, 2)}
    assert trained_on(replace(data, graph=small), Corruption(edges=0.4), 0).graph.num_edges == 1


def test_wrong_labels_are_other_classes_of_training_nodes_only() -> None:
    """round(0.25 * 40) = 10 training nodes."""
    before, found = client(), worse("labels=0.25")
    changed = found.graph.y != before.graph.y
    assert int(changed.sum()) == 10
    assert not bool(changed[TRAIN:].any())
    assert set(found.graph.y[changed].tolist()) <= set(range(CLASSES))
    assert torch.equal(found.train_mask, before.train_mask)
    more = worse("labels=0.5").graph.y
    assert torch.equal(more[changed], found.graph.y[changed])


def test_missing_labels_leave_the_training_nodes() -> None:
    before, found = client(), worse("labels-missing=0.9")
    assert int(found.train_mask.sum()) == 4
    lost = before.train_mask & ~found.train_mask
    assert set(found.graph.y[lost].tolist()) == {-1}
    assert torch.equal(found.graph.y[~lost], before.graph.y[~lost])
    assert torch.equal(found.val_mask, before.val_mask)
    assert torch.equal(found.test_mask, before.test_mask)


def test_labels_that_are_left_can_be_wrong() -> None:
    found = worse("labels-missing=0.5,labels=0.5")
    kept = found.train_mask
    assert int(kept.sum()) == 20
    assert int((found.graph.y[kept] != client().graph.y[kept]).sum()) == 10


@pytest.mark.parametrize("name", NAMES)
def test_seed_and_client_decide(name: str) -> None:
    text = f"{name}=0.5"
    again, other, elsewhere = worse(text), worse(text, seed=1), worse(text, who=1)

    def content(data: ClientData) -> bytes:
        arrays = (dense(data.graph.x), data.graph.edge_index, data.graph.y, data.train_mask)
        return b"".join(np.ascontiguousarray(each.numpy()).tobytes() for each in arrays)

    assert content(again) == content(worse(text))
    assert len({content(client()), content(again), content(other), content(elsewhere)}) == 4
