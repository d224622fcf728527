"""``sgc``: a graph convolution without activations between its steps.

Wu et al., "Simplifying Graph Convolutional Networks", ICML 2019, arXiv 1902.07153.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final

from torch import Tensor

from fedepd.network.contract import Dropout, Inputs, Network, Shapes, dense_rows, times
from fedepd.network.sparse import Sparse, spmm
from fedepd.types import Tensors

if TYPE_CHECKING:
    from fedepd.network.backbones import Backbone


@final
@dataclass(frozen=True)
class SGC(Network):
    """H = P^(L-1) X W + b and S = P H; with a linear head H = P^L X W + b and S = H."""

    # Choice: the published network is one matrix, P^L X W. Here W is the product of two, through the hidden
    # width, because every method needs an H and a classifier.
    depths: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)
    heads: ClassVar[tuple[str, ...]] = ("gcn", "linear")
    convolution: ClassVar[Literal["gcn", "sage"] | None] = "gcn"
    weighs_edges: ClassVar[bool] = True

    def steps(self, model: Backbone) -> int:
        """How often the encoder multiplies by P."""
        return model.layers if model.head == "linear" else model.layers - 1

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        return {"encoder.weight": (num_features, model.hidden), "encoder.bias": (model.hidden,)}

    def features(self, model: Backbone, x: Tensor, operator: Sparse) -> Sparse | Tensor:
        """A dense X: P^k X, cached. A sparse X stays as it is, since P^k X would fill up."""
        out = super().features(model, x, operator)
        if isinstance(out, Tensor):
            for _ in range(self.steps(model)):
                out = operator.times(out)
        return out

    def first_rows(self, model: Backbone, inputs: Inputs, x: Tensor, nodes: Tensor) -> Tensor:
        if isinstance(inputs.features, Tensor):
            return inputs.features[nodes]
        rows = dense_rows(x, nodes.new_tensor(range(x.shape[0])))
        for _ in range(self.steps(model)):
            rows = inputs.operator.times(rows)
        return rows[nodes]

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        h = times(inputs.features, params["encoder.weight"])
        if isinstance(inputs.features, Sparse):
            for _ in range(self.steps(model)):
                h = spmm(inputs.operator, h)
        return dropout(h + params["encoder.bias"])

    def smooth(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        if model.head == "linear":
            return super().smooth(model, params, h, inputs, train_only)
        return spmm(inputs.train_rows if train_only else inputs.operator, h)

    def logits(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        """P (H W) instead of (P H) W where there are fewer classes than hidden units."""
        weight = params["classifier.weight"]
        if model.head == "linear" or weight.shape[1] >= model.hidden:
            return super().logits(model, params, h, inputs, train_only)
        rows = inputs.train_rows if train_only else inputs.operator
        return spmm(rows, h @ weight) + params["classifier.bias"]
