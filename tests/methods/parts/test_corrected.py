from __future__ import annotations

import numpy as np
import pytest
import torch

from fedepd.methods.parts import corrected
from fedepd.methods.parts.corrected import View, homophily, messages, partners_of, propagated, signed, view_of
from fedepd.network.sparse import Sparse, adjacency, normalised, to_scipy
from fedepd.rng import seeded_numpy


def operator(*pairs: tuple[int, int], nodes: int) -> Sparse:
    adj = adjacency(torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).t(), nodes)
    return Sparse.of(normalised(adj), symmetric=True)


def cosine_matrix(soft: torch.Tensor) -> torch.Tensor:
    unit = torch.nn.functional.normalize(soft, dim=1)
    return unit @ unit.t()


def test_only_the_same_prediction_is_alike() -> None:
    """Certain predictions of classes 0, 0, 1, and one that is unsure; no node is its own partner."""
    soft = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    assert partners_of(soft).tolist() == [[0.0], [1.0]]


def test_softmax_twice_makes_unlike_predictions_alike() -> None:
    """Certain predictions of two of 70 classes: e, 1, ... against 1, e, ...

    Their cosine is (2 e + 68) / (e² + 69) = .961 where that of the predictions is 0.
    """
    soft = torch.eye(70)[:2]
    assert float(cosine_matrix(soft)[0, 1]) == 0.0
    expected = (2 * np.e + 68) / (np.e**2 + 69)
    assert float(cosine_matrix(soft.softmax(1))[0, 1]) == pytest.approx(expected, abs=1e-5)
    assert expected == pytest.approx(0.961, abs=1e-3)


def test_the_nearest_are_kept_and_ties_go_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five nodes alike, one partner each: node 0 takes node 1, all others node 0. In blocks of 2."""
    monkeypatch.setattr(corrected, "PARTNERS", 1)
    monkeypatch.setattr(corrected, "_BLOCK", 2)
    found = partners_of(torch.tensor([[1.0, 0.0]]).repeat(5, 1))
    assert found.tolist() == [[0.0] * 4, [1.0, 2.0, 3.0, 4.0]]


def test_the_corrected_graph() -> None:
    """Edge 0-1 of weight α = ½, the pair 1-2 of weight ½: degrees with loops 1.5, 2, 1.5."""
    adj = adjacency(torch.tensor([[0], [1]]), 3)
    soft = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    found = view_of(soft, partners_of(soft), adj, 0.5, seeded_numpy(0)).operator.matrix.to_dense()
    side, middle = 0.5 / 3**0.5, 0.5
    expected = [[1 / 1.5, side, 0.0], [side, middle, side], [0.0, side, 1 / 1.5]]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_with_own_edges_alone_it_is_the_graph_bit_for_bit() -> None:
    adj = adjacency(torch.tensor([[0, 1], [1, 2]]), 3)
    found = view_of(torch.eye(3), torch.tensor([[0.0], [2.0]]), adj, 1.0, seeded_numpy(0))
    assert (to_scipy(found.operator.matrix) != normalised(adj).astype(np.float32)).nnz == 0


def test_a_step_of_propagation_by_hand() -> None:
    """One edge, node 0 known as class 0, κ = ½: Â Y⁰ = (.75, .25) at both nodes.

    Node 0: .375 + .5 + 1 = 1.875 and .125. Node 1: .375 + .25 and .125 + .25.
    """
    start = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    found = propagated(operator((0, 1), nodes=2), start, torch.tensor([0]), 0.5, steps=1)
    torch.testing.assert_close(found, torch.tensor([[1.875, 0.125], [0.625, 0.375]]))


def test_homophily() -> None:
    """Two cliques of one class each, in whose halves both are known: 1. Without edges: the share of class 0.

    One training node: ½.
    """
    pairs = [(i, j) for base in (0, 6) for i in range(base, base + 6) for j in range(i + 1, base + 6)]
    train, labels = torch.arange(12), torch.arange(12) // 6
    assert homophily(operator(*pairs, nodes=12), train, labels, 2, 0.5, seeded_numpy(1)) == 1.0
    draws = seeded_numpy(2).permutation(12)[6:]
    expected = float((labels[torch.from_numpy(draws)] == 0).float().mean())
    assert homophily(operator(nodes=12), train, labels, 2, 0.5, seeded_numpy(2)) == pytest.approx(expected)
    assert homophily(operator(nodes=3), train[:1], labels[:1], 2, 0.5, seeded_numpy(0)) == 0.5


def test_signs_by_hand() -> None:
    """(0, .2, .6), mean .2667: below it -(μ - b) / μ = -1, -.25; released -b / μ = 0, -.75; above it 1."""
    similar = torch.tensor([0.0, 0.2, 0.6])
    torch.testing.assert_close(signed(similar), torch.tensor([-1.0, -0.25, 1.0]))
    torch.testing.assert_close(signed(similar, "released"), torch.tensor([0.0, -0.75, 1.0]))
    assert bool(signed(torch.zeros(3)).isfinite().all())


def dense_messages(rows: torch.Tensor, linked: torch.Tensor, beta: float, slope: float) -> torch.Tensor:
    """Step 6 of the method with whole matrices, entry by entry where it matters. A node hears itself."""
    similar = cosine_matrix(rows.softmax(1)).fill_diagonal_(0)
    both = beta * linked + (1 - beta) * similar
    mean = both.mean()
    weights = torch.where(both > mean, (both - mean) / (both.max() - mean), -(mean - both) / mean)
    weights = weights.fill_diagonal_(1.0)
    near, far = (torch.where(w > 0, w, slope * w) @ rows for w in (weights, -weights))
    return (near.softmax(1) - far.softmax(1) + rows) / 2


def test_messages_from_all_nodes_are_the_dense_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = torch.Generator().manual_seed(0)
    rows, soft = (torch.randn(9, 3, generator=draws) for _ in range(2))
    adj = adjacency(torch.tensor([[0, 1], [1, 2]]), 9)
    soft = (9 * soft).softmax(1)
    view = view_of(soft, partners_of(soft), adj, 0.5, seeded_numpy(0))
    assert view.anchors.tolist() == list(range(9))
    found = messages(rows, view, 0.2, torch.tensor([0.25]))
    torch.testing.assert_close(found, dense_messages(rows, view.linked, 0.2, 0.25), rtol=1e-5, atol=1e-5)
    monkeypatch.setattr(corrected, "ANCHORS", 4)
    few = view_of(soft, partners_of(soft), adj, 0.5, seeded_numpy(0))
    assert few.linked.shape == (9, 4)
    assert torch.equal(few.linked, view.linked[:, few.anchors])


def test_few_anchors_stand_for_all() -> None:
    """All nodes alike but for the anchors' number: their messages weigh n / m, so that the sums are equal."""
    rows = torch.tensor([[1.0, -1.0]]).repeat(8, 1)
    adjacent = operator(nodes=8)
    out = []
    for count in (8, 4):
        anchors = torch.arange(count)
        out.append(
            messages(rows, View(rows, adjacent, anchors, torch.ones(8, count)), 1.0, torch.tensor([0.25]))
        )
    assert bool(out[0].isfinite().all())
    torch.testing.assert_close(out[0][7], out[1][7], rtol=0.2, atol=0.2)
