"""A lens shows the same logits as the whole graph, and gradients that belong to them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedepd.network.backbones import Backbone
from fedepd.network.masked import Lens, Looking, Masked, Surroundings
from fedepd.network.sparse import Sparse, adjacency, spmm
from fedepd.rng import seeded
from fedepd.testing.toy import toy_client
from fedepd.types import TaskInfo

KINDS = (
    *(("gcn", 2, "gcn"), ("gcn", 1, "gcn"), ("gcn", 3, "linear"), ("sage", 2, "gcn"), ("sage", 2, "linear")),
    *(("gat", 2, "gcn"), ("gat", 1, "linear"), ("sgc", 2, "gcn"), ("sgc", 3, "linear"), ("mlp", 3, "gcn")),
    *(("h2gcn", 1, "gcn"), ("h2gcn", 2, "gcn")),
)
MODELS = [Backbone(name, hidden=8, layers=layers, head=head) for name, layers, head in KINDS]  # type: ignore[arg-type]


def world(model: Backbone, weights: bool = False):  # type: ignore[no-untyped-def]
    """A client's inputs, random parameters and the logits of all its nodes."""
    data = toy_client()
    if weights:
        some = torch.linspace(0.5, 8.0, data.graph.num_edges)
        data = replace(data, graph=replace(data.graph, edge_weight=some))
    info = TaskInfo(data.graph.num_features, data.graph.num_classes, 1)
    params = model.init(info, seeded("masked", 0))
    params = {name: value + 0.1 * (value == 0) for name, value in params.items()}
    looking, inputs = Looking.at(model), model.inputs(data)
    return data.graph, params, looking, inputs, looking.predict(params, inputs)


def lens_at(node: int, model: Backbone, inputs, x, copies: int = 1, mask: float = 1.0) -> Lens:  # type: ignore[no-untyped-def]
    around = Surroundings.of(node, model.network.reach(model), inputs.operator)
    masks = torch.full((copies * around.edges.shape[1],), mask)
    return Lens(around, x[around.nodes].repeat(copies, 1).requires_grad_(), masks.requires_grad_())


@pytest.mark.parametrize("weights", [False, True], ids=["plain", "weighted"])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m.backbone}-{m.layers}-{m.head}")
def test_the_node_has_the_same_logits_through_the_lens(model: Backbone, weights: bool) -> None:
    """With all masks 1, whatever the number of copies, each copy has the logits of the whole graph."""
    graph, params, looking, inputs, whole = world(model, weights)
    for node in range(0, graph.num_nodes, 5):
        lens = lens_at(node, model, inputs, graph.x, copies=3)
        looking.through(lens)
        found = looking.predict(params, inputs)
        own = found[:: len(lens.around.nodes)]
        torch.testing.assert_close(own, whole[node].expand(3, -1), rtol=1e-4, atol=1e-5)
        assert found.requires_grad


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m.backbone}-{m.layers}-{m.head}")
def test_gradients_are_those_of_small_differences(model: Backbone) -> None:
    """By features and by masks, halfway, against central differences of 1e-2."""
    graph, params, looking, inputs, _ = world(model)
    lens = lens_at(1, model, inputs, graph.x, mask=0.5)

    def score(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        looking.through(Lens(lens.around, x, mask))
        found: torch.Tensor = looking.predict(params, inputs)
        return found[0, 0]

    by_x, by_mask = torch.autograd.grad(score(lens.x, lens.mask), [lens.x, lens.mask], allow_unused=True)
    draws = seeded("masked", 1)
    step = torch.randn(lens.x.shape, generator=draws) * 1e-2
    high, low = (score(lens.x + sign * step, lens.mask).item() for sign in (0.5, -0.5))
    assert high - low == pytest.approx(float((by_x * step).sum()), abs=3e-3)
    if lens.mask.numel():
        assert by_mask is not None
        step = torch.randn(lens.mask.shape, generator=draws) * 1e-2
        high, low = (score(lens.x, lens.mask + sign * step).item() for sign in (0.5, -0.5))
        assert high - low == pytest.approx(float((by_mask * step).sum()), abs=3e-3)


def test_without_messages_a_node_of_sage_is_as_without_neighbours() -> None:
    """A sum over no neighbours is 0, so masks of 0 give the logits of a graph without edges."""
    model = Backbone(backbone="sage", hidden=8)
    graph, params, looking, inputs, _ = world(model)
    alone = Backbone.predict(model, params, model.inputs(toy_client(), torch.empty(2, 0, dtype=torch.int64)))
    looking.through(lens_at(3, model, inputs, graph.x, mask=0.0))
    torch.testing.assert_close(looking.predict(params, inputs)[0], alone[3], rtol=1e-4, atol=1e-5)


def test_surroundings_are_rings_around_the_node() -> None:
    """The path 0 - 1 - 2 - 3 with the chord 0 - 2, seen from 1: 0 and 2 in one step, 3 in two."""
    operator = Sparse.of(adjacency(torch.tensor([[0, 1, 2, 0], [1, 2, 3, 2]]), 4), symmetric=True)
    near, far = Surroundings.of(1, 1, operator), Surroundings.of(1, 5, operator)
    assert (near.nodes.tolist(), near.hops.tolist()) == ([1, 0, 2], [0, 1, 1])
    assert sorted(map(tuple, near.edges.T.tolist())) == [(0, 1), (0, 2), (1, 2)]
    assert (far.nodes.tolist(), far.hops.tolist()) == ([1, 0, 2, 3], [0, 1, 1, 2])
    assert Surroundings.of(1, 0, operator).edges.shape == (2, 0)


def test_a_masked_matrix_multiplies_as_a_dense_one() -> None:
    dense = np.array([[0, 2.0], [3, 0], [0, 5]], dtype=np.float32)
    entries = sp.coo_matrix(dense)
    at = torch.tensor(np.stack([entries.row, entries.col]), dtype=torch.int64)
    empty = torch.empty(3, 2, device="meta")
    values = torch.tensor(entries.data).requires_grad_()
    matrix = Masked(empty, empty, at, values)
    right = torch.tensor([[1.0, 2], [3, 4]])
    assert torch.equal(spmm(matrix, right), torch.tensor(dense) @ right)
    assert torch.equal(matrix.transposed_times(torch.ones(3, 1)), torch.tensor(dense).T @ torch.ones(3, 1))
    (found,) = torch.autograd.grad(spmm(matrix, right).sum(), [values])
    assert found.tolist() == [7.0, 3.0, 7.0]
