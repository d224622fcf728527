from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedepd.methods.parts import reliability as module
from fedepd.methods.parts.reliability import node_trust, reliability, returns
from fedepd.network.sparse import adjacency
from fedepd.types import ClientData, Graph
from toy import toy_client


def edges(*pairs: tuple[int, int], nodes: int) -> sp.csr_matrix:
    return adjacency(torch.tensor(pairs).reshape(-1, 2).t(), nodes)


def test_returns_of_small_graphs() -> None:
    """Triangle: (1 + 2 (-½)^s) / 3 = 0, .5, .25, .375, .3125. One edge: every second step. Alone: never."""
    triangle = returns(edges((0, 1), (0, 2), (1, 2), nodes=3))
    np.testing.assert_allclose(triangle, [[0.0, 0.5, 0.25, 0.375, 0.3125]] * 3, atol=1e-12)
    pair = returns(edges((0, 1), nodes=3))
    np.testing.assert_allclose(pair, [[0, 1, 0, 1, 0]] * 2 + [[0] * 5], atol=1e-12)


def test_returns_are_the_diagonals_of_powers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against whole matrices, in blocks of 5 nodes."""
    monkeypatch.setattr(module, "_BLOCK", 5)
    graph = toy_client().graph
    adj = adjacency(graph.edge_index, graph.num_nodes)
    step = adj.toarray() / adj.toarray().sum(1, keepdims=True)
    powers = [np.linalg.matrix_power(step, s) for s in range(1, 6)]
    np.testing.assert_allclose(returns(adj), np.stack([np.diag(p) for p in powers], axis=1), atol=1e-6)
    monkeypatch.setattr(module, "_MOST", 0)
    np.testing.assert_allclose(returns(adj)[:, :2], np.stack([np.diag(p) for p in powers[:2]], 1), atol=1e-6)
    assert not returns(adj)[:, 2:].any()


def star(train: list[int]) -> ClientData:
    """Node 0 with two neighbours; node 3 alone. Return codes: 0 and both leaves never return in odd steps.

    After two steps and after four node 0 is back for sure, a leaf with probability ½.
    """
    x = torch.zeros(4, 2)
    graph = Graph.make(x, torch.tensor([[0, 0], [1, 2]]), torch.tensor([0, 1, 1, 0]), 2)
    mask = torch.zeros(4, dtype=torch.bool).index_fill_(0, torch.tensor(train), True)
    return ClientData(0, graph, mask, ~mask, ~mask, torch.arange(4)).hidden()


def test_trust_by_hand() -> None:
    """Without codes: cosines 1 and 0 of two neighbours give (1 + 1 + 0) / 3; a node alone has 1 / 1.

    Codes are made small by features that are a million times as long.
    """
    data = star([0, 3])
    x = 1e6 * torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    adj = adjacency(data.graph.edge_index, 4)
    np.testing.assert_allclose(node_trust(adj, x.numpy()), [2 / 3, 1.0, 0.5, 1.0], atol=1e-6)
    for features in (x, x.to_sparse_csr()):
        found = reliability(replace(data, graph=replace(data.graph, x=features)))
        assert found.tolist() == pytest.approx([5 / 3, 0.0], abs=1e-6)


def test_codes_count_as_features() -> None:
    """Without features, codes (0, 1, 0, 1, 0) and (0, ½, 0, ½, 0) have cosine 1: ρ is 1 everywhere."""
    assert reliability(star([0, 1, 2])).tolist() == pytest.approx([1.0, 2.0], abs=1e-6)


def test_opposite_neighbours_make_no_negative_weight() -> None:
    """Cosines of -1 twice: ρ = (1 - 2) / 3, and the sum of class 0 is cut at 0."""
    data = star([0])
    x = 1e6 * torch.tensor([[1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0], [1.0, 0.0]])
    assert node_trust(adjacency(data.graph.edge_index, 4), x.numpy())[0] == pytest.approx(-1 / 3, abs=1e-6)
    assert reliability(replace(data, graph=replace(data.graph, x=x))).tolist() == [0.0, 0.0]


def test_classes_of_training_nodes_alone() -> None:
    data = toy_client(missing_class=True).hidden()
    assert float(reliability(data)[2]) == 0.0
    assert reliability(toy_client(train=False).hidden()).tolist() == [0.0] * 3
