"""gcn and sage: the first layer's own backward against autograd.

Also what "encoder.weight" is multiplied with. Whole networks are held against dense formulas and
torch_geometric in test_backbones.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedepd.network.backbones import Backbone
from fedepd.network.contract import Dropout
from fedepd.network.convolution import GCN, SAGE, FirstLayer, side_by_side
from fedepd.network.sparse import Sparse, adjacency, to_scipy
from fedepd.rng import seeded
from fedepd.types import TaskInfo
from toy import CLASSES, FEATURES, toy_client

INFO = TaskInfo(FEATURES, CLASSES, 1)
HIDDEN = 4


def test_operators_by_hand() -> None:
    """0 - 1 - 2 and 3 alone.

    gcn counts a node itself: degrees 2, 3, 2, 1. sage takes the neighbours' mean.
    """
    adj = adjacency(torch.tensor([[0, 1], [1, 2]]), 4)
    gcn, sage = (network.operator(adj).matrix.to_dense() for network in (GCN(), SAGE()))
    side = 6**-0.5
    expected = torch.tensor([[1 / 2, side, 0, 0], [side, 1 / 3, side, 0], [0, side, 1 / 2, 0], [0, 0, 0, 1]])
    torch.testing.assert_close(gcn, expected)
    torch.testing.assert_close(
        sage, torch.tensor([[0.0, 1, 0, 0], [0.5, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    )


@pytest.mark.parametrize("share", [0.0, 0.5, 0.3])
@pytest.mark.parametrize("kind", ["dense layer", "gcn", "sage"])
@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_the_first_layer_has_the_gradients_of_autograd(sparse: bool, kind: str, share: float) -> None:
    """The same product written out with dense matrices, of a loss Σ w h² whose error w h differs by entry."""
    graph = toy_client(sparse=sparse).graph
    x, adj = graph.x.to_dense(), adjacency(graph.edge_index, graph.num_nodes)
    operator = None if kind == "dense layer" else (SAGE() if kind == "sage" else GCN()).operator(adj)
    read = x if operator is None else operator.matrix.to_dense() @ x
    if kind == "sage":
        read = torch.cat([read, x], dim=1)
    features = Sparse.of(to_scipy(graph.x)) if sparse else read
    drawn, mask = (Dropout(share, HIDDEN, np.random.default_rng(3)) for _ in range(2))
    layer = FirstLayer(features, operator, kind == "sage", drawn.drawn(graph.num_nodes), drawn.scale)
    dropped = mask.mask(graph.num_nodes)
    draws = torch.Generator().manual_seed(1)
    start = [torch.randn(read.shape[1], HIDDEN, generator=draws), torch.randn(HIDDEN, generator=draws)]
    weights = torch.randn(graph.num_nodes, HIDDEN, generator=draws)

    def found(h: Tensor, leaves: list[Tensor]) -> tuple[Tensor, ...]:
        return h.detach(), *torch.autograd.grad((weights * h * h).sum(), leaves)

    ours, theirs = ([value.clone().requires_grad_() for value in start] for _ in range(2))
    plain = torch.relu(read @ theirs[0] + theirs[1]) * (1.0 if dropped is None else dropped)
    for a, b in zip(found(layer(*ours), ours), found(plain, theirs), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        assert torch.equal(layer(*ours), layer.forward(*start))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("backbone", ["gcn", "sage"])
def test_first_rows_are_what_the_weight_is_multiplied_with(backbone: str, layers: int, sparse: bool) -> None:
    model, data = Backbone(backbone, HIDDEN, layers=layers), toy_client(sparse=sparse)
    inputs, params = model.inputs(data), model.init(INFO, seeded(0, "init"))
    nodes = torch.tensor([7, 0, 3])
    rows = model.network.first_rows(model, inputs, data.graph.x, nodes)
    assert rows.shape[1] == (2 if (backbone, layers) == ("sage", 2) else 1) * FEATURES
    expected = torch.relu(rows @ params["encoder.weight"] + params["encoder.bias"])
    torch.testing.assert_close(model.encode(params, inputs)[nodes], expected)


@pytest.mark.parametrize(("backbone", "layers", "shape"), [
    ("gcn", 2, (FEATURES, HIDDEN)),
    ("sage", 2, (FEATURES, 2 * HIDDEN)),
    ("sage", 1, (FEATURES, HIDDEN)),
])  # fmt: skip
def test_the_two_halves_of_sage_side_by_side(backbone: Any, layers: int, shape: tuple[int, int]) -> None:
    model = Backbone(backbone, HIDDEN, layers=layers)
    weight = model.init(INFO, seeded(0, "init"))["encoder.weight"]
    beside = side_by_side(model, weight)
    assert beside.shape == shape
    assert torch.equal(beside[:, :HIDDEN], weight[:FEATURES])
    assert torch.equal(beside[:, -HIDDEN:], weight[-FEATURES:])
