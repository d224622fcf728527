"""One neighbour more, by hand; and without it, the backbone's own network."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch

from fedepd.methods.parts.translated import (
    MATRICES,
    View,
    Views,
    initial_translations,
    missing,
    read,
    translations,
)
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import Sparse, adjacency, neighbour_mean, to_scipy
from fedepd.types import TaskInfo, Tensors
from toy import CLASSES, FEATURES, toy_client


def plain(width: int, offset: list[float]) -> Tensors:
    """γ = 1 and β = 0."""
    zeros = {f"translate1.{name}": torch.zeros(width, width) for name in MATRICES}
    return {**zeros, "translate1.offset": torch.tensor(offset)}


def view(model: Backbone, edges: list[list[int]], nodes: int, tail: list[bool]) -> View:
    adj = adjacency(torch.tensor(edges, dtype=torch.int64).reshape(2, -1), nodes)
    degrees = np.diff(adj.indptr).astype(np.int64)
    return View.of(model, torch.arange(nodes), adj, degrees, torch.tensor(tail))


def test_a_node_without_neighbours_by_hand() -> None:
    """a = 2, r = 1, no neighbour: m = 2 + 1 - 0 = 3. Its degree with loop and guess is 2: (2 + 3) / 2."""
    alone = view(Backbone(hidden=1), [], 1, [True])
    assert alone.convolved(plain(1, [1.0]), "translate1", torch.tensor([[2.0]])).tolist() == [[2.5]]


def test_without_matrices_the_translation_is_constant() -> None:
    """a = 1, neighbours 2 and 4, r = .5: m = 1 + .5 - 3 = -1.5."""
    found = missing(plain(1, [0.5]), "translate1", torch.tensor([[1.0]]), torch.tensor([[3.0]]))
    assert found.tolist() == [[-1.5]]


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_a_tail_node_with_two_neighbours_by_hand(backbone: str) -> None:
    """Node 0 has neighbours 1 and 2 of degree 1; rows 1, 2, 4 and m = -1.5 as above.

    gcn: its degree is 2 + 1 + 1 = 4, theirs is 2: 1/4 + (2 + 4) / √8 - 1.5 / 4 = 1.99632. The others are head
    nodes: 2/2 + 1 / √(2 · 3) = 1.40825 (Eq. 10, where node 0 has degree 3). sage: 3 - 1.5 / 3 = 2.5.
    """
    star = view(Backbone(backbone, hidden=1), [[0, 0], [1, 2]], 3, [True, False, False])
    found = star.convolved(plain(1, [0.5]), "translate1", torch.tensor([[1.0], [2.0], [4.0]]))
    wanted = [2.5, 1.0] if backbone == "sage" else [1.99632, 1.40825]
    assert found[:2, 0].tolist() == pytest.approx(wanted, abs=1e-5)


def test_a_constant_translation_passes_through_a_product() -> None:
    """(h + r - h_N) W = h W + r W - h_N W: so it may act after the product, with r W for r."""
    draws = torch.Generator().manual_seed(1)
    own, near, weight = (torch.randn(5, 5, generator=draws) for _ in range(3))
    r = torch.randn(5, generator=draws)
    before = missing(plain(5, r.tolist()), "translate1", own, near) @ weight
    after = missing(plain(5, (r @ weight).tolist()), "translate1", own @ weight, near @ weight)
    torch.testing.assert_close(before, after, atol=1e-5, rtol=1e-5)


def test_the_length_of_what_is_missing_by_hand() -> None:
    """m = own - near + r = (1, 1) - (0, 0) + (2, 3) = (3, 4): length 5. The isolated node is head here."""
    alone = view(Backbone(hidden=2), [], 1, [False])
    means = Sparse.of(neighbour_mean(adjacency(torch.empty(2, 0, dtype=torch.int64), 1)))
    views = Views(alone, alone, heads=means, head_nodes=torch.tensor([0]))
    rows = torch.ones(1, 2)
    assert float(views.length(plain(2, [2.0, 3.0]), "translate1", rows)) == pytest.approx(5.0)
    assert float(Views(alone, alone).length(plain(2, [2.0, 3.0]), "translate1", rows)) == 0.0


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("head", ["gcn", "linear"])
@pytest.mark.parametrize(
    ("backbone", "sparse"), [("gcn", True), ("gcn", False), ("sage", True), ("sgc", True)]
)
def test_without_tail_nodes_it_is_the_backbones_network(
    backbone: str, sparse: bool, head: Literal["gcn", "linear"], layers: int
) -> None:
    """All nodes, and the training nodes alone; r, G and B have no say."""
    data, model = toy_client(sparse=sparse), Backbone(backbone, hidden=4, head=head, layers=layers)
    inputs, draws = model.inputs(data), torch.Generator().manual_seed(0)
    params = model.init(TaskInfo(FEATURES, CLASSES, 1), draws) | initial_translations(model, draws)
    adj = adjacency(data.graph.edge_index, data.graph.num_nodes)
    degrees, everyone = np.diff(adj.indptr).astype(np.int64), torch.arange(data.graph.num_nodes)
    whole, train = (
        View.of(model, nodes, adj[nodes.numpy()], degrees, torch.zeros(len(nodes), dtype=torch.bool))
        for nodes in (everyone, inputs.train)
    )
    x = Sparse.of(to_scipy(data.graph.x)) if sparse else data.graph.x
    wanted = model.predict(params, inputs)
    for last, expected in ((whole, wanted), (train, wanted[inputs.train])):
        found = read(model, params, inputs, x, Views(whole, last))
        logits = model.classify(params, found.rows)
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert len(translations(model)) == (1 if backbone == "sgc" else layers)
