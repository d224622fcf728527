from __future__ import annotations

import numpy as np
import pytest
import torch

from fedepd.methods.parts.mended import (
    Generator,
    WithGenerated,
    centres_of,
    chosen_slots,
    imagined,
    mended_inputs,
    missing,
)
from fedepd.methods.parts.sketch import Sketch
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import Sparse, to_scipy
from fedepd.types import ClientData, Graph, TaskInfo
from toy import CLASSES, FEATURES, toy_client


def two_columns(x: list[list[float]], edges: list[list[int]]) -> ClientData:
    count = len(x)
    graph = Graph.make(
        torch.tensor(x),
        torch.tensor(edges, dtype=torch.int64).reshape(2, -1),
        torch.arange(count),
        2,
        part=True,
    )
    train = torch.ones(count, dtype=torch.bool)
    return ClientData(0, graph, train, ~train, ~train, torch.arange(count))


def test_a_node_without_neighbours_and_its_generated_one_by_hand() -> None:
    """Rows (1, 0) and (0, 1) of degree 2 each, with loops: both become (½, ½), so messages go both ways."""
    data = two_columns([[1.0, 0.0]], [])
    model = Backbone(hidden=2, dropout=0.0)
    inputs = mended_inputs(model, data, Sketch.of(2, 0), torch.tensor([0]), torch.tensor([[0.0, 1.0]]))
    params = {"encoder.weight": torch.eye(2), "encoder.bias": torch.zeros(2)}
    torch.testing.assert_close(model.encode(params, inputs), torch.full((2, 2), 0.5))
    assert inputs.train.tolist() == [0]


def test_a_node_with_one_real_and_one_generated_neighbour_by_hand() -> None:
    """Its degree is 3, theirs is 2: 1/3 for itself, 1/√6 = .4082 for each."""
    data = two_columns([[1.0, 0.0], [0.0, 1.0]], [[0], [1]])
    inputs = mended_inputs(
        Backbone(hidden=2), data, Sketch.of(2, 0), torch.tensor([0]), torch.tensor([[0.0, 1.0]])
    )
    operator = inputs.operator.matrix.to_dense()
    assert operator[0].tolist() == pytest.approx([1 / 3, 0.40825, 0.40825], abs=1e-5)
    assert torch.equal(operator, operator.t())


@pytest.mark.parametrize("width", [4, 256])
@pytest.mark.parametrize("backbone", ["gcn", "sage", "gat", "mlp"])
def test_sparse_features_are_mended_as_dense_ones_are(backbone: str, width: int) -> None:
    """Sketches of 4 columns for 6 features, or the identity: all logits, and the gradient of a step."""
    sparse = toy_client(sparse=True)
    graph = sparse.graph
    whole = Graph.make(graph.x.to_dense(), graph.edge_index, graph.y, CLASSES)
    dense = ClientData(0, whole, sparse.train_mask, sparse.val_mask, sparse.test_mask, sparse.global_ids)
    model, sketch = Backbone(backbone, hidden=4, dropout=0.0), Sketch.of(FEATURES, 0, width)
    draws = torch.Generator().manual_seed(0)
    params = model.init(TaskInfo(FEATURES, CLASSES, 1), draws)
    new = torch.randn(3, sketch.width, generator=draws)
    found = []
    for data in (sparse, dense):
        inputs = mended_inputs(model, data, sketch, torch.tensor([0, 0, 5]), new)
        steps = model.gradient(params, inputs, np.random.default_rng(0), lambda z: (0.0, torch.ones_like(z)))
        found.append((model.predict(params, inputs), steps[1]))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=1e-5)
    assert found[0][0].shape == (len(graph.y) + 3, CLASSES)


def test_products_with_generated_rows() -> None:
    """Those of [X; ĉ S], written out."""
    x, sketch = toy_client(sparse=True).graph.x, Sketch.of(FEATURES, 0, 4)
    new = torch.randn(3, 4, generator=torch.Generator().manual_seed(1))
    real = Sparse.of(to_scipy(x))
    both = WithGenerated(real.matrix, real.transposed, sketch.matrix, new)
    dense = torch.cat([x.to_dense(), new @ sketch.matrix.matrix.to_dense()])
    assert both.shape == dense.shape
    right, left = torch.randn(FEATURES, 5), torch.randn(len(dense), 5)
    torch.testing.assert_close(both.times(right), dense @ right, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(both.transposed_times(left), dense.t() @ left, atol=1e-5, rtol=1e-5)


def test_who_gets_generated_neighbours_by_hand() -> None:
    """.4, 1.6 and 7 are 0, 2 and 5 of at most 5. Of 3 nodes together only 3, which the last one gets."""
    numbers = torch.tensor([0.4, 1.6, 7.0])
    parents, slots = chosen_slots(numbers, 5)
    assert (parents.tolist(), slots.tolist()) == ([2, 2, 2], [0, 1, 2])
    parents, slots = chosen_slots(torch.cat([numbers, torch.zeros(9)]), 5)
    assert (parents.tolist(), slots.tolist()) == ([1, 1, 2, 2, 2, 2, 2], [0, 1, 0, 1, 2, 3, 4])
    assert chosen_slots(torch.zeros(3), 5)[0].numel() == 0


def test_centres_are_means_of_what_is_near() -> None:
    """Rows near 0 and near 10: two centres, .5 and 10.5. Of one distinct row all centres are copies."""
    rows = torch.tensor([[0.0], [1.0], [10.0], [11.0]])
    for seed in range(4):
        found = centres_of(rows, 2, np.random.default_rng(seed))
        assert sorted(found[:, 0].tolist()) == [0.5, 10.5]
    assert centres_of(torch.ones(3, 2), 4, np.random.default_rng(0)).tolist() == [[1.0, 1.0]] * 4


def test_generators_are_equal_by_their_numbers() -> None:
    """Copies are equal, and so mend once; another number, name or seed makes another generator."""
    params = {"a": torch.ones(2), "b": torch.zeros(1)}
    first = Generator(params, 0)
    again = Generator({name: value.clone() for name, value in params.items()}, 0)
    assert first == again
    assert hash(first) == hash(again)
    for other in (
        Generator({**params, "b": torch.ones(1)}, 0),
        Generator({"a": torch.ones(2), "c": torch.zeros(1)}, 0),
        Generator(params, 1),
        params,
    ):
        assert first != other


def test_what_a_generator_says_by_hand() -> None:
    """Rows 2 and -1, weights 1: hidden 2 and 0. softplus(0) = log 2. Slots are 3 and 5 times hidden."""
    params = {
        "generator.in": torch.ones(1, 1),
        "generator.number.weight": torch.zeros(1, 1),
        "generator.number.bias": torch.zeros(1),
        "generator.out": torch.tensor([[3.0, 5.0]]),
    }
    hidden, number = missing(params, torch.tensor([[2.0], [-1.0]]))
    assert hidden.tolist() == [[2.0], [0.0]]
    assert number.tolist() == pytest.approx([0.6931] * 2, abs=1e-4)
    node, slot = torch.tensor([0, 1, 0]), torch.tensor([1, 0, 0])
    assert imagined(params, hidden, node, slot, 2).tolist() == [[10.0], [0.0], [6.0]]
