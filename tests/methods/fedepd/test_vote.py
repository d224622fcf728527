"""The vote on pruning: the closed form against refitting, and where pruning helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.methods.fedepd import vote
from fedepd.methods.fedepd.vote import left_out_hits, pruning_votes
from fedepd.network.sparse import adjacency, normalised
from fedepd.types import ClientData
from methods.fedepd.test_purify import graph_of, random_graph


def client_of(x: Any, edges: Any, y: list[int], sparse: bool) -> ClientData:
    graph = replace(graph_of(x, edges, sparse), y=torch.tensor(y))
    everyone, nobody = torch.ones(len(y), dtype=torch.bool), torch.zeros(len(y), dtype=torch.bool)
    return ClientData(0, graph, everyone, nobody, nobody, torch.arange(len(y)))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_left_out_hits_equals_fitting_without_each_node(seed: int, sparse: bool) -> None:
    """The closed form against n ridge fits in the dual.

    alpha = (K + 1 + 0.1 I)^-1 Y without row i, prediction K_i alpha.
    """
    graph = random_graph(seed, nodes=15, sparse=sparse)
    y = np.random.default_rng(seed).integers(0, 2, 15)
    data = client_of(graph.x.to_dense().tolist(), graph.edge_index.tolist(), y.tolist(), sparse)
    dense = normalised(adjacency(graph.edge_index, 15)).toarray()
    z = dense @ dense @ np.asarray(graph.x.to_dense(), dtype=np.float64)
    z -= z.mean(0)
    k = z @ z.T / np.square(z).sum(1).mean() + 1.0
    hits = 0
    for i in range(15):
        others = np.arange(15) != i
        alpha = np.linalg.solve(k[np.ix_(others, others)] + 0.1 * np.eye(14), np.eye(2)[y[others]])
        hits += int((k[i, others] @ alpha).argmax() == y[i])
    assert left_out_hits(data, graph.edge_index) == hits


def test_pruning_helps_where_edges_join_two_classes() -> None:
    """Two classes at (1, 0) and (0, 1), six nodes each.

    Class 0's first node is joined to all of class 1 and turns into one of them. Without those edges every
    node is its class's feature and all twelve are right.
    """
    x = [[1, 0]] * 6 + [[0, 1]] * 6
    data = client_of(x, [[0] * 6, list(range(6, 12))], [0] * 6 + [1] * 6, False)
    nothing = torch.empty(2, 0, dtype=torch.int64)
    assert left_out_hits(data, nothing) == 12 > left_out_hits(data, data.graph.edge_index)
    assert pruning_votes(data, nothing).tolist() == [12, left_out_hits(data, data.graph.edge_index)]


def test_a_tie_where_pruning_changes_nothing() -> None:
    """Nodes of one class joined: equal nodes average to themselves, all are right on both graphs."""
    data = client_of([[1, 0]] * 3 + [[0, 1]] * 3, [[0, 3], [1, 4]], [0] * 3 + [1] * 3, False)
    assert pruning_votes(data, torch.empty(2, 0, dtype=torch.int64)).tolist() == [6, 6]


def test_a_sample_of_many_nodes_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten of twelve; without edges each is right, the same ones every time."""
    data = client_of([[1, 0]] * 6 + [[0, 1]] * 6, [[0], [1]], [0] * 6 + [1] * 6, False)
    monkeypatch.setattr(vote, "SAMPLE", 10)
    assert [left_out_hits(data, torch.empty(2, 0, dtype=torch.int64)) for _ in range(2)] == [10, 10]


def test_nobody_to_ask() -> None:
    """A client without training nodes, or a graph to predict on.

    No mean is taken of nothing: warnings are errors here.
    """
    data = client_of([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], [[0, 1], [1, 2]], [0, 1, 0], False)
    untrained = replace(data, train_mask=torch.zeros(3, dtype=torch.bool))
    assert pruning_votes(untrained, torch.empty(2, 0, dtype=torch.int64)).tolist() == [0, 0]
