"""The shared network as three functions: ``encode`` -> H, ``smooth`` -> S, ``classify`` -> Z = S W + b.

Parameters are named tensors, "encoder.*" and "classifier.*": to freeze, average or send one half is a name prefix. The
first layer is one autograd node with a hand-written backward; ``gradient`` is a whole training step without autograd (the tests check both
against it).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.network import kernels
from fedepd.network.sparse import Sparse, adjacency, neighbour_mean, normalised, spmm, to_scipy
from fedepd.options import option
from fedepd.rng import seeded
from fedepd.types import ClientData, TaskInfo, Tensors

Error = Callable[[Tensor], tuple[float, Tensor]]
"""A loss of logits and its gradient by them, for which it may overwrite them."""


@dataclass(frozen=True, eq=False)
class Inputs:
    """What the network reads of one client, prepared once."""

    operator: Sparse
    """P [n, n]: the convolution (gcn: Eq. 10; sage: the neighbours' mean)."""
    features: Sparse | Tensor
    """X as CSR; or, where X is dense, the product that the first layer needs (gcn: P X; sage: [P X | X]), cached."""
    train: Tensor
    """int64 [t]: the training nodes, ascending."""
    train_rows: Sparse
    """P[train] [t, n]: the second layer of a training step computes no other row."""
    labels: Tensor
    """int64 [t]: the training nodes' classes."""


@dataclass(frozen=True)
class Backbone:
    """A two-layer graph network."""

    backbone: Literal["gcn", "sage", "auto"] = option(
        "gcn",
        "gcn: the paper's convolution; sage: a node's own features kept apart from its neighbours' mean; auto: short runs decide",
    )
    hidden: int = option(64, "width of the hidden layer")
    dropout: float = option(0.5, "dropout on the hidden layer in training")
    head: Literal["gcn", "linear"] = option(
        "gcn", "gcn: the second convolution classifies; linear: a linear layer on two convolutions"
    )

    # Choice: the paper's "two-layer GCN" does not say where the classifier begins; OpenFGL's GCN, its test bed, has no separate linear
    # layer, so the second convolution is the classifier by default. Injected rows then reach their neighbours' logits too (14.10).
    # Choice: dropout 0.5 is OpenFGL's default; the paper names none.

    def __post_init__(self) -> None:
        if self.hidden < 1:
            raise BadConfig(f"hidden is {self.hidden}; the hidden layer needs at least 1 unit")
        if not 0 <= self.dropout < 1:
            raise BadConfig(f"dropout is {self.dropout}; it must lie in [0, 1)")

    def check_chosen(self) -> None:
        """``auto`` is no network: it must have become one before anything is built."""
        if self.backbone == "auto":
            raise BadConfig(
                "backbone auto is chosen by 'fedepd run' and fedepd.run before anything is built; give gcn or sage here"
            )

    @property
    def width(self) -> int:
        """Columns of S, what the classifier reads."""
        return self.hidden * self._parts if self.head == "gcn" else self.hidden

    @property
    def _parts(self) -> int:
        self.check_chosen()
        return 2 if self.backbone == "sage" else 1

    def init(self, info: TaskInfo, generator: torch.Generator) -> Tensors:
        """Glorot weights, zero biases."""
        shapes = {"encoder": (info.num_features * self._parts, self.hidden)}
        if self.head == "linear":
            shapes["encoder.second"] = (self.hidden * self._parts, self.hidden)
        shapes["classifier"] = (self.width, info.num_classes)
        params: Tensors = {}
        for name, (rows, columns) in shapes.items():
            params[f"{name}.weight"] = glorot(rows, columns, generator)
            params[f"{name}.bias"] = torch.zeros(columns)
        return params

    def initial(self, info: TaskInfo, seed: int, *stream: int | str) -> Tensors:
        """The initial weights of a run's seed, or of a stream of their own."""
        return self.init(info, seeded(seed, "init", *stream))

    def inputs(self, data: ClientData, edge_index: Tensor | None = None) -> Inputs:
        """The client's graph made ready; ``edge_index`` replaces its edges (e.g. purified ones)."""
        self.check_chosen()
        graph = data.graph
        adj = adjacency(graph.edge_index if edge_index is None else edge_index, graph.num_nodes)
        operator = (
            Sparse.of(normalised(adj), symmetric=True)
            if self.backbone == "gcn"
            else Sparse.of(neighbour_mean(adj))
        )
        features: Sparse | Tensor
        if graph.is_sparse:
            # P X has 3-6 times the entries of a bag-of-words X: not cached.
            features = Sparse.of(to_scipy(graph.x))
        else:
            smoothed = operator.times(graph.x)
            features = smoothed if self.backbone == "gcn" else torch.cat([smoothed, graph.x], dim=1)
        train = data.train_mask.nonzero().reshape(-1)
        return Inputs(operator, features, train, operator.rows(train), graph.y[train])

    def dropout_mask(self, rows: int, generator: np.random.Generator) -> Tensor | None:
        """0 where dropped, 1 / (1 - dropout) where kept: [rows, hidden]; None without dropout."""
        if self.dropout == 0:
            return None
        if self.dropout == 0.5:
            return kernels.unpacked(self._bits(rows, generator), rows, self.hidden)
        kept = generator.random((rows, self.hidden), dtype=np.float32) >= self.dropout
        return torch.from_numpy(kept.astype(np.float32)).div_(1 - self.dropout)

    def _bits(self, rows: int, generator: np.random.Generator) -> bytes:
        """One random bit per unit, or some more."""
        return (
            generator.bit_generator.random_raw((rows * self.hidden + 63) // 64)
            .astype("<u8", copy=False)
            .tobytes()
        )

    def encode(self, params: Tensors, inputs: Inputs, generator: np.random.Generator | None = None) -> Tensor:
        """H [n, hidden], after ReLU; with a ``generator`` also after dropout, as in training."""
        first = self._first_layer(inputs, generator)
        weight, bias = params["encoder.weight"], params["encoder.bias"]
        h: Tensor
        if torch.is_grad_enabled():
            h = _Encode.apply(weight, bias, first)  # type: ignore[no-untyped-call]
        else:
            h = first.forward(weight, bias)
        if self.head == "gcn":
            return h
        h = torch.relu(
            self._spread(h, inputs.operator) @ params["encoder.second.weight"] + params["encoder.second.bias"]
        )
        mask = self.dropout_mask(h.shape[0], generator) if generator is not None else None
        return h if mask is None else h * mask

    def _first_layer(self, inputs: Inputs, generator: np.random.Generator | None) -> _FirstLayer:
        rows = inputs.operator.shape[0]
        drop: bytes | Tensor | None = None
        if generator is not None:
            drop = self._bits(rows, generator) if self.dropout == 0.5 else self.dropout_mask(rows, generator)
        return _FirstLayer(
            inputs, self.backbone == "sage", drop, 1.0 if drop is None else 1 / (1 - self.dropout)
        )

    def _spread(self, h: Tensor, operator: Sparse, own: Tensor | None = None) -> Tensor:
        """gcn: P h; sage: [P h | h], with ``own`` the rows of h that match the operator's."""
        smoothed = spmm(operator, h)
        return smoothed if self.backbone == "gcn" else torch.cat([smoothed, h if own is None else own], dim=1)

    def smooth(self, h: Tensor, inputs: Inputs, train_only: bool = False) -> Tensor:
        """S, what the classifier reads: [n, width], or [t, width] for the training nodes alone."""
        if self.head == "linear":
            return h[inputs.train] if train_only else h
        if not train_only:
            return self._spread(h, inputs.operator)
        return self._spread(h, inputs.train_rows, h[inputs.train] if self.backbone == "sage" else None)

    @staticmethod
    def classify(params: Tensors, s: Tensor) -> Tensor:
        """Z = S W + b: [rows, C]."""
        return torch.addmm(params["classifier.bias"], s, params["classifier.weight"])

    def logits(self, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False) -> Tensor:
        """``classify(smooth(h))`` with the cheaper order of products: [n, C] or [t, C]."""
        weight, bias = params["classifier.weight"], params["classifier.bias"]
        if not self._narrow(weight):
            return self.classify(params, self.smooth(h, inputs, train_only))
        return spmm(inputs.train_rows if train_only else inputs.operator, h @ weight) + bias

    def _narrow(self, weight: Tensor) -> bool:
        """Whether P (H W) is cheaper than (P H) W, and the same."""
        return self.head == "gcn" and self.backbone == "gcn" and weight.shape[1] < self.hidden

    def gradient(
        self, params: Tensors, inputs: Inputs, generator: np.random.Generator, error: Error
    ) -> tuple[float, Tensors]:
        """The loss of a training step, ``error`` of the training nodes' logits, and its gradient by every parameter, without autograd."""
        if self.head == "linear":
            return self._gradient_by_autograd(params, inputs, generator, error)
        first, weight, train = (
            self._first_layer(inputs, generator),
            params["classifier.weight"],
            inputs.train_rows,
        )
        h = first.forward(params["encoder.weight"], params["encoder.bias"])
        if self._narrow(weight):
            loss, grad = error(train.times(h @ weight).add_(params["classifier.bias"]))
            spread = train.transposed_times(grad)  # [n, C]
            grad_weight, grad_h = kernels.transposed_product(h, spread), spread @ weight.t()
        else:
            s = self.smooth(h, inputs, train_only=True)
            loss, grad = error(self.classify(params, s))
            grad_weight, grad_s = s.t() @ grad, grad @ weight.t()
            grad_h = train.transposed_times(grad_s[:, : self.hidden])
            if self.backbone == "sage":
                grad_h.index_add_(0, inputs.train, grad_s[:, self.hidden :])
        grads = {"classifier.weight": grad_weight, "classifier.bias": grad.sum(0)}
        grads["encoder.weight"], grads["encoder.bias"] = first.backward(grad_h, h)
        return loss, grads

    def _gradient_by_autograd(
        self, params: Tensors, inputs: Inputs, generator: np.random.Generator, error: Error
    ) -> tuple[float, Tensors]:
        leaves = {name: value.detach().requires_grad_() for name, value in params.items()}
        logits = self.logits(leaves, self.encode(leaves, inputs, generator), inputs, train_only=True)
        loss, grad = error(logits.detach().clone())
        return loss, dict(zip(leaves, torch.autograd.grad(logits, list(leaves.values()), grad), strict=True))

    def predict(self, params: Tensors, inputs: Inputs) -> Tensor:
        """Logits of every node, evaluation mode: [n, C]."""
        with torch.no_grad():
            return self.logits(params, self.encode(params, inputs), inputs)


def glorot(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Uniform in ±sqrt(6 / (rows + columns))."""
    bound = (6.0 / (rows + columns)) ** 0.5
    return torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)


@dataclass(frozen=True, eq=False)
class _FirstLayer:
    """H = dropout(relu(P X W + b)) with this dropout; the backward needs no more than H: where H > 0 the unit was positive and kept."""

    inputs: Inputs
    own_apart: bool
    drop: bytes | Tensor | None
    scale: float

    def forward(self, weight: Tensor, bias: Tensor) -> Tensor:
        features, operator = self.inputs.features, self.inputs.operator
        if isinstance(features, Tensor):
            h = features @ weight
        elif self.own_apart:
            smoothed, own = weight.chunk(2)
            h = operator.times(features.times(smoothed)).add_(features.times(own))
        else:
            h = operator.times(features.times(weight))
        kernels.activate(h, bias, self.drop if isinstance(self.drop, bytes) else None)
        return h.mul_(self.drop) if isinstance(self.drop, Tensor) else h

    def backward(self, grad: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of weight and bias."""
        features, operator = self.inputs.features, self.inputs.operator
        g, bias_grad = kernels.activate_backward(grad, h, self.scale)
        if isinstance(features, Tensor):
            return kernels.transposed_product(g, features).t(), bias_grad
        through_neighbours = features.transposed_times(operator.transposed_times(g))
        if not self.own_apart:
            return through_neighbours, bias_grad
        return torch.cat([through_neighbours, features.transposed_times(g)]), bias_grad


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, layer: _FirstLayer) -> Tensor:
        h = layer.forward(weight, bias)
        ctx.save_for_backward(h)
        ctx.layer = layer
        return h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        return *ctx.layer.backward(grads[0], ctx.saved_tensors[0]), None
