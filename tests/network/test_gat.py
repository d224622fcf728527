"""gat against torch_geometric's GATConv."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedepd.network.backbones import Backbone
from fedepd.types import ClientData, Tensors
from network.reference import assert_equal_with_gradients, called, clients, start
from toy import CLASSES, FEATURES

HIDDEN, HEADS = 8, 4


def layer(params: Tensors, name: str, x: Tensor, edges: Tensor) -> Tensor:
    conv = pytest.importorskip("torch_geometric.nn").GATConv
    pair = {
        f"att_{short}": params[f"{name}.{end}"][None] for short, end in (("src", "source"), ("dst", "target"))
    }
    own = {"lin.weight": params[f"{name}.weight"].t(), "bias": params[f"{name}.bias"], **pair}
    return torch.relu(called(conv(x.shape[1], HIDDEN // HEADS, HEADS), own, x, edges))


@clients
def test_the_encoder_is_gat_convolutions(data: ClientData) -> None:
    """A linear head: two convolutions, then a linear layer."""
    model = Backbone("gat", HIDDEN, head="linear")

    def theirs(p: Tensors, x: Tensor, edges: Tensor) -> Tensor:
        h = layer(p, "encoder.second", layer(p, "encoder", x, edges), edges)
        return h @ p["classifier.weight"] + p["classifier.bias"]

    assert_equal_with_gradients(model, data, start(model), theirs)


@clients
@pytest.mark.parametrize("hidden", [HIDDEN, 4])
def test_the_last_layer_is_a_gat_convolution(data: ClientData, hidden: int) -> None:
    """GATConv scores a·(W h), ours scores u·h: with u = W a one function of W and a, gradients included."""
    conv = pytest.importorskip("torch_geometric.nn").GATConv
    model = Backbone("gat", hidden, layers=1)
    leaves = start(model)
    for end in ("source", "target"):
        leaves[f"encoder.last.{end}"] = leaves[f"encoder.last.{end}"][:, :CLASSES]  # a, [1, C]

    def ours(p: Tensors) -> Tensors:
        return {k: v @ p["classifier.weight"].t() if ".last." in k else v for k, v in p.items()}

    def theirs(p: Tensors, x: Tensor, edges: Tensor) -> Tensor:
        h = torch.relu(x @ p["encoder.weight"] + p["encoder.bias"])
        own = {"lin.weight": p["classifier.weight"].t(), "bias": p["classifier.bias"]}
        own |= {"att_src": p["encoder.last.source"][None], "att_dst": p["encoder.last.target"][None]}
        return called(conv(hidden, CLASSES), own, h, edges)

    assert hidden != FEATURES
    assert_equal_with_gradients(model, data, leaves, theirs, ours)
