"""The contract of a network.

What a network of two functions gets for nothing, dropout, and the names of layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedepd.network.backbones import Backbone
from fedepd.network.contract import (
    Dropout,
    Inputs,
    Network,
    Shapes,
    classify,
    convolves_first,
    dense_rows,
    glorot,
    layer_names,
    times,
)
from fedepd.network.sparse import Sparse
from fedepd.rng import seeded
from fedepd.types import TaskInfo, Tensors
from toy import CLASSES, FEATURES, toy_client

INFO = TaskInfo(FEATURES, CLASSES, 1)
both_features = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])


@dataclass(frozen=True)
class Linear(Network):
    """H = X W + b, and a parameter that nothing reads. All else is the contract's."""

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        vector = (model.hidden,)
        return {"encoder.weight": (num_features, *vector), "encoder.bias": vector, "encoder.idle": vector}

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        return dropout(times(inputs.features, params["encoder.weight"]) + params["encoder.bias"])


@both_features
def test_two_functions_are_a_network(sparse: bool) -> None:
    """S = H and Z = H V + c. For the loss Σ z² / 2 the error is Z itself. By hand: Hᵀ Z for V, Σ Z for c,
    Xᵀ Z Vᵀ for W and Σ Z Vᵀ for b. The parameter that nothing reads has no gradient."""
    model, data = Backbone(Linear(), hidden=4, dropout=0.0), toy_client(sparse=sparse)
    inputs, params = model.inputs(data), model.init(INFO, seeded(0, "init"))
    params["classifier.bias"] += 0.5
    loss, grads = model.gradient(
        params, inputs, np.random.default_rng(0), lambda z: (float(z.square().sum()) / 2, z)
    )
    x, v = data.graph.x.to_dense()[inputs.train], params["classifier.weight"]
    h = x @ params["encoder.weight"] + params["encoder.bias"]
    z = h @ v + 0.5
    assert loss == pytest.approx(float(z.square().sum()) / 2, rel=1e-5)
    by_hand = {
        "encoder.weight": x.t() @ z @ v.t(),
        "encoder.bias": (z @ v.t()).sum(0),
        "classifier.weight": h.t() @ z,
        "classifier.bias": z.sum(0),
    }
    assert grads.keys() == by_hand.keys()
    for name, expected in by_hand.items():
        torch.testing.assert_close(grads[name], expected, rtol=1e-4, atol=1e-5)
    whole = model.encode(params, inputs)
    assert torch.equal(model.smooth(params, whole, inputs), whole)
    assert torch.equal(model.smooth(params, whole, inputs, train_only=True), whole[inputs.train])
    torch.testing.assert_close(model.logits(params, whole, inputs, train_only=True), z)
    assert (model.width, model.convolution, inputs.extra) == (4, None, None)


@both_features
def test_the_first_rows_are_the_features(sparse: bool) -> None:
    model, data = Backbone(Linear()), toy_client(sparse=sparse)
    nodes = torch.tensor([5, 0, 2])
    rows = model.network.first_rows(model, model.inputs(data), data.graph.x, nodes)
    assert torch.equal(rows, data.graph.x.to_dense()[nodes])
    assert torch.equal(dense_rows(data.graph.x, nodes), rows)


def test_a_network_without_an_encoder_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="encode"):
        type("Half", (Network,), {"shapes": Linear.shapes})()


def test_evaluation_drops_nothing() -> None:
    h = torch.ones(3, 4)
    for dropout in (Dropout(0.5, 4, None), Dropout(0.0, 4, np.random.default_rng(0))):
        assert dropout(h) is h
        assert dropout.mask(3) is None
        assert dropout.scale == 1.0


@pytest.mark.parametrize("share", [0.5, 0.2])
def test_training_multiplies_by_the_mask_of_the_generator(share: float) -> None:
    """A second dropout with an equal generator has the same masks, in the same order."""
    dropout, again = (Dropout(share, 3, np.random.default_rng(7)) for _ in range(2))
    h = torch.arange(1.0, 301.0).reshape(100, 3)
    for _ in range(2):
        mask = again.mask(100)
        assert mask is not None
        assert torch.unique(mask).tolist() == pytest.approx([0.0, dropout.scale])
        assert torch.equal(dropout(h), h * mask)
    assert dropout.scale == 1 / (1 - share)


def test_half_of_the_units_are_drawn_as_bits() -> None:
    """5 rows of 13 units are 65 bits, so two words of 8 bytes."""
    drawn = Dropout(0.5, 13, np.random.default_rng(0)).drawn(5)
    assert isinstance(drawn, bytes)
    assert len(drawn) == 16


@pytest.mark.parametrize(("head", "layers", "names"), [
    ("gcn", 1, ["encoder"]),
    ("gcn", 2, ["encoder"]),
    ("gcn", 4, ["encoder", "encoder.second", "encoder.third"]),
    ("linear", 1, ["encoder"]),
    ("linear", 4, ["encoder", "encoder.second", "encoder.third", "encoder.fourth"]),
])  # fmt: skip
def test_layers_of_the_encoder(head: Any, layers: int, names: list[str]) -> None:
    """With head gcn the last convolution classifies. If it is the only one, the encoder is a dense layer."""
    model = Backbone(head=head, layers=layers)
    assert layer_names(model) == names
    assert convolves_first(model) == ((head, layers) != ("gcn", 1))


def test_the_classifier_by_hand() -> None:
    """(1, 2) times ((1, 0), (0, 3)) is (1, 6); the bias adds (10, 20)."""
    params = {
        "classifier.weight": torch.tensor([[1.0, 0], [0, 3]]),
        "classifier.bias": torch.tensor([10.0, 20]),
    }
    assert classify(params, torch.tensor([[1.0, 2.0]])).tolist() == [[11.0, 26.0]]


def test_a_sparse_matrix_and_a_dense_one_multiply_alike() -> None:
    x, weight = toy_client(sparse=True).graph.x, torch.arange(12.0).reshape(FEATURES, 2)
    made = Backbone(Linear()).inputs(toy_client(sparse=True)).features
    assert isinstance(made, Sparse)
    torch.testing.assert_close(times(made, weight), times(x.to_dense(), weight))


def test_glorot_fills_its_range() -> None:
    """sqrt(6 / (20 + 4)) = 0.5. Of 80 draws, all are below 0.45 with probability 0.9^80 < 0.001."""
    drawn = glorot(20, 4, seeded(0, "weights"))
    assert drawn.shape == (20, 4)
    assert 0.45 < float(drawn.abs().max()) <= 0.5
    assert torch.equal(drawn, glorot(20, 4, seeded(0, "weights")))
