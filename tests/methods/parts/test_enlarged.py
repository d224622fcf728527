"""The graph enlarged by synthetic nodes against one built densely."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from fedepd.methods.parts.enlarged import Links, RealGraph, edge_scores, smooth_enlarged
from fedepd.network.backbones import Backbone
from fedepd.network.patterns import csr
from fedepd.network.sparse import Sparse, adjacency, neighbour_mean, normalised
from toy import toy_client


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
@pytest.mark.parametrize("soft", [False, True])
def test_enlarged_graph_against_the_dense_matrix(backbone: Any, soft: bool) -> None:
    """S of the enlarged graph equals the operator of [[A, Rᵀ], [R, 0]] built densely.

    So does its gradient.
    """
    data = toy_client(nodes=12).hidden()
    model = Backbone(hidden=4, backbone=backbone)
    adj = adjacency(data.graph.edge_index, 12)
    train = data.train_mask.nonzero().reshape(-1)
    real = RealGraph(train, Sparse.of(adj[train.numpy()]), torch.tensor(adj.sum(1).A1))
    generator = torch.Generator().manual_seed(3)
    hidden, synthetic = (torch.rand(rows, 4, generator=generator).requires_grad_() for rows in (12, 2))
    pairs = torch.tensor([[0, 0, 1], [3, 5, 5]])
    weights = torch.tensor([0.2, 0.7, 0.4]) if soft else torch.ones(3)

    def dense(w: Tensor) -> Tensor:
        r = torch.zeros(2, 12).index_put((pairs[0], pairs[1]), w)
        a = torch.tensor(adj.toarray())
        big = torch.cat([torch.cat([a, r.t()], 1), torch.cat([r, torch.zeros(2, 2)], 1)])
        rows = torch.cat([train, torch.tensor([12, 13])])
        everything = torch.cat([hidden, synthetic])
        if backbone == "gcn":
            scale = (big.sum(1) + 1).rsqrt()
            return (scale[:, None] * (big + torch.eye(14)) * scale @ everything)[rows]
        return torch.cat([big / big.sum(1, keepdim=True).clamp(min=1e-6) @ everything, everything], 1)[rows]

    ours, theirs = weights.clone().requires_grad_(soft), weights.clone().requires_grad_(soft)
    pattern = csr(torch.tensor([0, 2, 3], dtype=torch.int32), pairs[1].to(torch.int32), weights, (2, 12))
    s = smooth_enlarged(model, real, hidden, synthetic, Links.make(pattern, ours))
    expected = dense(theirs)
    assert torch.allclose(s, expected, atol=1e-5)
    reference = normalised(adj) if backbone == "gcn" else neighbour_mean(adj)
    far = ~torch.isin(train, torch.tensor([3, 5]))
    touched = adj[train.numpy()][:, [3, 5]].sum(1).A1 > 0
    untouched = far & ~torch.from_numpy(touched) if backbone == "gcn" else far
    plain = torch.tensor(reference.toarray(), dtype=torch.float32)[train] @ hidden
    assert torch.allclose(
        s[: len(far)][untouched, :4], plain[untouched], atol=1e-5
    )  # rows that no synthetic node reaches
    probe, inputs = torch.rand(s.shape, generator=generator), [hidden, synthetic]
    found = torch.autograd.grad((s * probe).sum(), [*inputs, ours] if soft else inputs)
    wanted = torch.autograd.grad((expected * probe).sum(), [*inputs, theirs] if soft else inputs)
    assert all(torch.allclose(g, h, atol=1e-4) for g, h in zip(found, wanted, strict=True))


def test_edge_scores_and_their_gradient() -> None:
    """Against the same written with plain indexing."""
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(4, 3, generator=generator).requires_grad_(),
        torch.randn(5, 3, generator=generator).requires_grad_(),
    )
    pairs = torch.tensor([[0, 1, 1, 3, 3], [4, 0, 3, 1, 2]])
    pattern = csr(
        torch.tensor([0, 1, 3, 3, 5], dtype=torch.int32), pairs[1].to(torch.int32), torch.ones(5), (4, 5)
    )
    ours = edge_scores(left, right, pattern)
    plain = torch.sigmoid((left[pairs[0]] * right[pairs[1]]).sum(1))
    assert torch.allclose(ours, plain)
    probe = torch.rand(5, generator=generator)
    for a, b in zip(
        torch.autograd.grad((ours * probe).sum(), [left, right]),
        torch.autograd.grad((plain * probe).sum(), [left, right]),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-6)
