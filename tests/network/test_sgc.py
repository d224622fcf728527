"""sgc against torch_geometric's SGConv."""

from __future__ import annotations

import pytest
from torch import Tensor

from fedepd.network.backbones import Backbone
from fedepd.types import ClientData, Tensors
from network.reference import assert_equal_with_gradients, called, clients, start


def convolution(params: Tensors, name: str, steps: int, x: Tensor, edges: Tensor) -> Tensor:
    conv = pytest.importorskip("torch_geometric.nn").SGConv
    weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
    return called(conv(*weight.shape, K=steps), {"lin.weight": weight.t(), "lin.bias": bias}, x, edges)


@clients
@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("hidden", [2, 8])
def test_two_sg_convolutions(data: ClientData, layers: int, hidden: int) -> None:
    """All steps but one to the hidden width, the last one to the classes."""

    def theirs(p: Tensors, x: Tensor, edges: Tensor) -> Tensor:
        return convolution(p, "classifier", 1, convolution(p, "encoder", layers - 1, x, edges), edges)

    model = Backbone("sgc", hidden, layers=layers)
    assert_equal_with_gradients(model, data, start(model), theirs)


@clients
def test_with_a_linear_head_all_steps_come_first(data: ClientData) -> None:
    def theirs(p: Tensors, x: Tensor, edges: Tensor) -> Tensor:
        h = convolution(p, "encoder", 2, x, edges)
        return h @ p["classifier.weight"] + p["classifier.bias"]

    model = Backbone("sgc", 8, head="linear")
    assert_equal_with_gradients(model, data, start(model), theirs)
