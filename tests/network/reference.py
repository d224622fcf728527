"""Our networks beside torch_geometric's layers, on the same weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedepd.network.backbones import Backbone
from fedepd.rng import seeded
from fedepd.types import ClientData, TaskInfo, Tensors
from toy import CLASSES, FEATURES, toy_client

INFO = TaskInfo(FEATURES, CLASSES, 1)
clients = pytest.mark.parametrize(
    "data",
    [toy_client(), toy_client(sparse=True), toy_client(edges=False)],
    ids=["dense", "sparse", "without edges"],
)


def called(layer: torch.nn.Module, params: dict[str, Tensor], *arguments: Any) -> Tensor:
    """The layer with these parameters in place of its own, so that gradients reach ours."""
    assert dict(layer.named_parameters()).keys() == params.keys()
    out: Tensor = torch.func.functional_call(layer, params, arguments)
    return out


def start(model: Backbone) -> Tensors:
    """Initial weights whose biases are not 0, so that a forgotten bias shows."""
    draws = torch.Generator().manual_seed(0)
    params = model.init(INFO, seeded(0, "init"))
    return {k: v + 0.3 * torch.randn(v.shape, generator=draws) for k, v in params.items()}


def assert_equal_with_gradients(
    model: Backbone,
    data: ClientData,
    leaves: Tensors,
    theirs: Callable[[Tensors, Tensor, Tensor], Tensor],
    ours: Callable[[Tensors], Tensors] = dict,
) -> None:
    """``theirs`` of leaves, X and edges, against our network with ``ours(leaves)``.

    The logits are compared, and the gradients of Σ w z² by every leaf.
    """
    inputs = model.inputs(data)
    graph = data.graph.to_pyg()
    weights = torch.randn(data.graph.num_nodes, CLASSES, generator=torch.Generator().manual_seed(1))
    found = []
    forwards: tuple[Callable[[Tensors], Tensor], ...] = (
        lambda p: model.logits(ours(p), model.encode(ours(p), inputs), inputs),
        lambda p: theirs(p, graph.x, graph.edge_index),
    )
    for forward in forwards:
        own = {name: value.clone().requires_grad_() for name, value in leaves.items()}
        logits = forward(own)
        grads = torch.autograd.grad((weights * logits * logits).sum(), list(own.values()))
        found.append((logits.detach(), *grads))
    for name, a, b in zip(("logits", *leaves), *found, strict=True):
        scale = max(1.0, float(b.abs().max()))
        torch.testing.assert_close(a / scale, b / scale, rtol=1e-5, atol=1e-5, msg=name)
