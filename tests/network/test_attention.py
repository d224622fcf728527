"""Attention over edges against a dense one."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from fedepd.network.attention import Edges, attend, edge_softmax
from fedepd.network.sparse import adjacency
from toy import toy_client


def path_matrix() -> sp.csr_matrix:
    """0 - 1 - 2, and 3 alone."""
    return adjacency(torch.tensor([[0, 1], [1, 2]]), 4)


def test_edges_are_both_directions_and_self_loops() -> None:
    """By target: 0 <- {0, 1}; 1 <- {0, 1, 2}; 2 <- {1, 2}; 3 <- {3}.

    The mirror of 0 <- 1 (place 1) is 1 <- 0 (place 2).
    """
    edges = Edges.of(path_matrix(), torch.tensor([1, 3]))
    assert edges.target.tolist() == [0, 0, 1, 1, 1, 2, 2, 3]
    assert edges.source.tolist() == [0, 1, 0, 1, 2, 1, 2, 3]
    mirror = edges.every.transposed_edges
    assert torch.equal(edges.target[mirror], edges.source)
    assert torch.equal(edges.source[mirror], edges.target)
    dense = torch.zeros(4, 4).index_put((edges.target, edges.source), torch.arange(1.0, 9.0))
    for rows, expected in ((edges.every, dense), (edges.train, dense[[1, 3]])):
        filled = rows.filled(torch.arange(1.0, 9.0))
        assert torch.equal(filled.matrix.to_dense(), expected)
        assert torch.equal(filled.transposed.to_dense(), expected.t())


def test_edge_softmax_by_hand() -> None:
    """Scores (0, log 3) at node 0 give (1/4, 3/4); equal scores at node 1 thirds.

    Huge ones stay finite. Node 3 has itself alone.
    """
    scores = torch.tensor([0.0, float(np.log(3)), 5.0, 5.0, 5.0, 1e4, -1e4, -7.0])
    alpha = edge_softmax(scores, Edges.of(path_matrix(), torch.arange(4)))
    assert torch.allclose(alpha, torch.tensor([0.25, 0.75, 1 / 3, 1 / 3, 1 / 3, 1.0, 0.0, 1.0]))


@pytest.mark.parametrize("train_only", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_sparse_attention_is_the_dense_one(seed: int, train_only: bool) -> None:
    """Softmax over all pairs with non-edges at -inf, times V.

    Same values, same gradients; of all rows or every second.
    """
    graph = toy_client(seed=seed).graph
    edges, n = (
        Edges.of(adjacency(graph.edge_index, graph.num_nodes), torch.arange(0, graph.num_nodes, 2)),
        graph.num_nodes,
    )
    draws = torch.Generator().manual_seed(seed)
    at_target, at_source, values, out = (torch.randn(n, k, generator=draws) for k in (1, 1, 5, 5))
    leaves = [t.clone().requires_grad_() for t in (at_target, at_source, values)]
    sparse_scores = F.leaky_relu(leaves[0][edges.target, 0] + leaves[1][edges.source, 0], 0.2)
    rows, kept = (edges.train, slice(None, None, 2)) if train_only else (edges.every, slice(None))
    sparse = attend(edge_softmax(sparse_scores, edges), leaves[2], rows)
    again = [t.clone().requires_grad_() for t in (at_target, at_source, values)]
    outside = torch.full((n, n), float("-inf")).index_put((edges.target, edges.source), torch.tensor(0.0))
    dense = torch.softmax(F.leaky_relu(again[0] + again[1].t(), 0.2) + outside, dim=1) @ again[2]
    assert torch.allclose(sparse, dense[kept], atol=1e-6)
    for a, b in zip(
        torch.autograd.grad(sparse, leaves, out[kept]),
        torch.autograd.grad(dense[kept], again, out[kept]),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-5)


def test_gradients_match_finite_differences() -> None:
    edges = Edges.of(path_matrix(), torch.tensor([0, 2]))
    draws = torch.Generator().manual_seed(0)
    scores = torch.randn(8, dtype=torch.float64, generator=draws, requires_grad=True)
    values = torch.randn(4, 3, dtype=torch.float64, generator=draws, requires_grad=True)
    for rows in (edges.every, edges.train):
        assert torch.autograd.gradcheck(
            lambda s, v, rows=rows: attend(edge_softmax(s, edges), v, rows), (scores, values)
        )
