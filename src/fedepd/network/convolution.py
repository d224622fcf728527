"""``gcn`` and ``sage``: layers relu(P H W + b), for sage with a node's own row beside its neighbours' mean.

The first layer is one autograd node with a hand-written backward. A whole training step of up to two layers
does without autograd (the tests check both against it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.network import kernels, near, products
from fedepd.network.contract import (
    Dropout,
    Error,
    ErrorOfBoth,
    Inputs,
    Network,
    Shapes,
    classify,
    convolves_first,
    dense_rows,
    layer_names,
)
from fedepd.network.kernels import dense_product
from fedepd.network.sparse import Chosen, Sparse, neighbour_mean, spmm, to_scipy
from fedepd.types import Tensors

if TYPE_CHECKING:
    from fedepd.network.backbones import Backbone


@dataclass(frozen=True)
class Convolution(Network):
    """What gcn and sage share. ``parts``: how often a layer reads a row, from the neighbours and as it is."""

    depths: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)
    heads: ClassVar[tuple[str, ...]] = ("gcn", "linear")
    parts: ClassVar[int] = 1
    weighs_edges: ClassVar[bool] = True

    def width(self, model: Backbone) -> int:
        return model.hidden if model.head == "linear" else model.hidden * self.parts

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        rows = num_features * (self.parts if convolves_first(model) else 1)
        shapes: Shapes = {}
        for name in layer_names(model):
            shapes[f"{name}.weight"], shapes[f"{name}.bias"] = (rows, model.hidden), (model.hidden,)
            rows = model.hidden * self.parts
        return shapes

    def features(self, model: Backbone, x: Tensor, operator: Sparse) -> Sparse | Tensor:
        """Of a dense X: gcn P X, sage [P X | X]. P X has 3-6 times the entries of a sparse X: not cached."""
        own = super().features(model, x, operator)
        if isinstance(own, Sparse) or not convolves_first(model):
            return own
        smoothed = operator.times(own)
        return smoothed if self.parts == 1 else torch.cat([smoothed, own], dim=1)

    def large(
        self, model: Backbone, x: Tensor, operator: Sparse, train: Tensor, labels: Tensor
    ) -> Inputs | None:
        """A dense X in blocks, where few rows of P X are needed in training, or where it is huge."""
        if x.layout != torch.strided or x.numel() < near.LARGE or not convolves_first(model):
            return None
        short = model.head == "gcn" and model.layers == 2
        reach = near.Reach.of(operator, train) if short else None
        if reach is None and x.numel() < near.HELD:
            return None
        whole = Inputs(operator, near.Blocks(x, None), train, operator.rows_in_place(train), labels)
        if reach is None:
            return whole
        rows = self._rows(operator, x, reach.nodes)
        few = Inputs(operator, rows, reach.train, reach.train_rows, labels, nodes=reach.nodes)
        return replace(whole, near=few)

    def _rows(self, operator: Sparse, x: Tensor, nodes: Tensor) -> Tensor:
        """What the first layer reads of distinct nodes: P X, for sage [P X | X]."""
        smoothed = near.smoothed(operator.rows_in_place(nodes), x)
        return smoothed if self.parts == 1 else torch.cat([smoothed, dense_rows(x, nodes)], dim=1)

    def first_rows(self, model: Backbone, inputs: Inputs, x: Tensor, nodes: Tensor) -> Tensor:
        if isinstance(inputs.features, near.Blocks):
            return self._rows(inputs.operator, x, nodes)
        if isinstance(inputs.features, Tensor) or not convolves_first(model):
            return super().first_rows(model, inputs, x, nodes)
        smoothed = (to_scipy(inputs.operator.matrix)[nodes.numpy()] @ to_scipy(x)).toarray()
        own = [] if self.parts == 1 else [dense_rows(x, nodes)]
        return torch.cat([torch.from_numpy(smoothed).float(), *own], dim=1)

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        first = self._first_layer(model, inputs, dropout)
        h: Tensor = first(params["encoder.weight"], params["encoder.bias"])
        for name in layer_names(model)[1:]:
            h = dropout(
                torch.relu(
                    self._spread(h, inputs.operator) @ params[f"{name}.weight"] + params[f"{name}.bias"]
                )
            )
        return h

    def _first_layer(self, model: Backbone, inputs: Inputs, dropout: Dropout) -> FirstLayer:
        operator = inputs.operator if convolves_first(model) else None
        drawn = dropout.drawn(inputs.operator.shape[0], inputs.nodes)
        return FirstLayer(inputs.features, operator, self.parts == 2, drawn, dropout.scale)

    def _spread(self, h: Tensor, operator: Sparse | Chosen, own: Tensor | None = None) -> Tensor:
        """gcn: P h; sage: [P h | h], with ``own`` the rows of h that match the operator's."""
        smoothed = spmm(operator, h)
        return smoothed if self.parts == 1 else torch.cat([smoothed, h if own is None else own], dim=1)

    def smooth(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        if model.head == "linear":
            return super().smooth(model, params, h, inputs, train_only)
        if not train_only:
            return self._spread(h, inputs.operator)
        return self._spread(h, inputs.train_rows, h[inputs.train] if self.parts == 2 else None)

    def logits(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        weight, bias = params["classifier.weight"], params["classifier.bias"]
        if not self._narrow(model, weight):
            return super().logits(model, params, h, inputs, train_only)
        return spmm(inputs.train_rows if train_only else inputs.operator, products.times(h, weight)) + bias

    def _narrow(self, model: Backbone, weight: Tensor) -> bool:
        """Whether P (H W) is cheaper than (P H) W, and the same."""
        return model.head == "gcn" and self.parts == 1 and weight.shape[1] < model.hidden

    def gradient(
        self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout, error: Error
    ) -> tuple[float, Tensors]:
        """Without autograd, which on a small graph costs more than the arithmetic; deeper ones have it."""
        if model.head == "linear" or model.layers > 2:
            return super().gradient(model, params, inputs, dropout, error)
        inputs = inputs.of_training
        first = self._first_layer(model, inputs, dropout)
        h = first.forward(params["encoder.weight"], params["encoder.bias"])
        logits, s = self._training_logits(model, params, h, inputs)
        loss, grad = error(logits)
        grads, grad_h = self._through_last(params, inputs, h, s, grad, kernels.transposed_product)
        grads["encoder.weight"], grads["encoder.bias"] = first.backward(grad_h, h)
        return loss, grads

    def gradient_of_both(
        self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout, error: ErrorOfBoth
    ) -> tuple[float, Tensors]:
        """Without autograd, with its bits. P X W is computed once for H with and without dropout."""
        if model.head == "linear" or model.layers > 2:
            return super().gradient_of_both(model, params, inputs, dropout, error)
        inputs = inputs.of_training
        first = self._first_layer(model, inputs, dropout)
        plain = replace(first, drop=None, scale=1.0)
        product = first.product(params["encoder.weight"])
        clean = plain.activated(product.clone(), params["encoder.bias"])
        h = first.activated(product, params["encoder.bias"])
        logits, s = self._training_logits(model, params, h, inputs)
        loss, grad, grad_rows = error(logits, clean.index_select(0, inputs.train))
        grads, grad_h = self._through_last(params, inputs, h, s, grad, _product_of_transpose)
        grad_clean = torch.zeros_like(clean)
        grad_clean[inputs.train] = grad_rows
        both = zip(first.backward(grad_h, h), plain.backward(grad_clean, clean), strict=True)
        grads["encoder.weight"], grads["encoder.bias"] = (one.add_(other) for one, other in both)
        return loss, grads

    def _training_logits(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs
    ) -> tuple[Tensor, Tensor | None]:
        """Logits of the training nodes, and S where they were computed from it."""
        weight = params["classifier.weight"]
        if self._narrow(model, weight):
            product = inputs.train_rows.times(dense_product(h, weight))
            return product.add_(params["classifier.bias"]), None
        s = self.smooth(model, params, h, inputs, train_only=True)
        return classify(params, s), s

    def _through_last(
        self,
        params: Tensors,
        inputs: Inputs,
        h: Tensor,
        s: Tensor | None,
        grad: Tensor,
        transposed_product: Callable[[Tensor, Tensor], Tensor],
    ) -> tuple[Tensors, Tensor]:
        """The gradients of the last layer's parameters, and that of H, by the gradient of the logits."""
        weight, train, hidden = params["classifier.weight"], inputs.train_rows, h.shape[1]
        if s is None:
            spread = train.transposed_times(grad)  # [n, C]
            grad_weight, grad_h = transposed_product(h, spread), dense_product(spread, weight.t())
        else:
            grad_weight, grad_s = dense_product(s.t(), grad), dense_product(grad, weight.t())
            grad_h = train.transposed_times(grad_s[:, :hidden])
            if self.parts == 2:
                grad_h.index_add_(0, inputs.train, grad_s[:, hidden:])
        return {"classifier.weight": grad_weight, "classifier.bias": grad.sum(0)}, grad_h


def _product_of_transpose(h: Tensor, dense: Tensor) -> Tensor:
    """``h.t() @ dense`` with the bits of autograd."""
    return dense_product(h.t(), dense)


@final
@dataclass(frozen=True)
class GCN(Convolution):
    """The paper's convolution, Eq. 10."""

    convolution: ClassVar[Literal["gcn", "sage"] | None] = "gcn"


@final
@dataclass(frozen=True)
class SAGE(Convolution):
    """A node's own features apart from its neighbours' mean."""

    convolution: ClassVar[Literal["gcn", "sage"] | None] = "sage"
    parts: ClassVar[int] = 2

    def operator(self, adj: sp.csr_matrix) -> Sparse:
        return Sparse.of(neighbour_mean(adj))


@dataclass(frozen=True, eq=False)
class FirstLayer:
    """H = dropout(relu(P X W + b)), or without P.

    The backward needs no more than H: it is above 0 where a unit was positive and kept.
    """

    features: Sparse | Tensor
    operator: Sparse | None
    """None: a dense layer."""
    own_apart: bool
    drop: bytes | Tensor | None
    scale: float

    def __call__(self, weight: Tensor, bias: Tensor) -> Tensor:
        """The layer with a gradient for weight and bias, where one is wanted.

        Features have one where a prediction is explained. Then nothing is trained, and autograd does it all.
        """
        if isinstance(self.features, Tensor) and self.features.requires_grad:
            return torch.relu(self.features @ weight + bias)
        if not torch.is_grad_enabled():
            return self.forward(weight, bias)
        out: Tensor = _Encode.apply(weight, bias, self)  # type: ignore[no-untyped-call]
        return out

    def forward(self, weight: Tensor, bias: Tensor) -> Tensor:
        return self.activated(self.product(weight), bias)

    def product(self, weight: Tensor) -> Tensor:
        """P X W, or X W."""
        features, operator = self.features, self.operator
        if isinstance(features, Tensor):
            return dense_product(features, weight)
        if operator is None:
            return features.times(weight)
        if self.own_apart:
            smoothed, own = weight.chunk(2)
            return operator.times(features.times(smoothed)).add_(features.times(own))
        return operator.times(features.times(weight))

    def activated(self, h: Tensor, bias: Tensor) -> Tensor:
        """H of that product, which is overwritten."""
        kernels.activate(h, bias, self.drop if isinstance(self.drop, bytes) else None)
        return h.mul_(self.drop) if isinstance(self.drop, Tensor) else h

    def backward(self, grad: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of weight and bias."""
        features, operator = self.features, self.operator
        g, bias_grad = kernels.activate_backward(grad, h, self.scale)
        if isinstance(features, Tensor):
            return kernels.transposed_product(g, features).t(), bias_grad
        if operator is None:
            return features.transposed_times(g), bias_grad
        through_neighbours = features.transposed_times(operator.transposed_times(g))
        if not self.own_apart:
            return through_neighbours, bias_grad
        return torch.cat([through_neighbours, features.transposed_times(g)]), bias_grad


def side_by_side(model: Backbone, weight: Tensor) -> Tensor:
    """sage: the half for the neighbours' values beside the one for a node's own; else the weight itself."""
    apart = model.backbone == "sage" and convolves_first(model)
    return torch.cat(weight.chunk(2), dim=1) if apart else weight


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, layer: FirstLayer) -> Tensor:
        h = layer.forward(weight, bias)
        ctx.save_for_backward(h)
        ctx.layer = layer
        return h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        return *ctx.layer.backward(grads[0], ctx.saved_tensors[0]), None
