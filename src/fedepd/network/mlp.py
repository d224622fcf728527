"""``mlp``: dense layers alone. It reads no edge, so it shows what a graph's edges are worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

import torch
from torch import Tensor

from fedepd.network.contract import ORDINALS, Dropout, Inputs, Network, Shapes
from fedepd.network.convolution import FirstLayer
from fedepd.types import Tensors

if TYPE_CHECKING:
    from fedepd.network.backbones import Backbone


@final
@dataclass(frozen=True)
class MLP(Network):
    """relu(X W + b), ...; the last of the layers is the classifier."""

    # Choice: one layer would leave no hidden layer, and H is what methods read. The last layer is linear in
    # any case, so a linear head would be the same network under another name.
    depths: ClassVar[tuple[int, ...]] = (2, 3, 4)
    weighs_edges: ClassVar[bool] = True

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        shapes: Shapes = {}
        rows = num_features
        for ordinal in ORDINALS[: model.layers - 1]:
            shapes[f"encoder{ordinal}.weight"] = (rows, model.hidden)
            shapes[f"encoder{ordinal}.bias"] = (model.hidden,)
            rows = model.hidden
        return shapes

    def reach(self, model: Backbone) -> int:
        return 0

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        h = dense(params, inputs, dropout)
        for ordinal in ORDINALS[1 : model.layers - 1]:
            weight, bias = params[f"encoder{ordinal}.weight"], params[f"encoder{ordinal}.bias"]
            h = dropout(torch.relu(h @ weight + bias))
        return h


def dense(params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
    """dropout(relu(X W + b)) with "encoder.weight" and "encoder.bias": [n, hidden]."""
    drawn = dropout.drawn(inputs.operator.shape[0])
    first = FirstLayer(inputs.features, None, False, drawn, dropout.scale)
    return first(params["encoder.weight"], params["encoder.bias"])
