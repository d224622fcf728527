"""The shared network as three functions: ``encode`` -> H, ``smooth`` -> S, ``classify`` -> Z = S W + b.

Parameters are named tensors, "encoder.*" and "classifier.*": to freeze, average or send one half is a name prefix. Both hot
functions are one autograd node each with a hand-written backward (checked against autograd in the tests).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from fedepd import kernels
from fedepd.errors import BadConfig
from fedepd.options import option
from fedepd.rng import seeded
from fedepd.sparse import Sparse, adjacency, neighbour_mean, normalised, spmm, to_scipy
from fedepd.types import ClientData, TaskInfo, Tensors


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
        "gcn", "gcn: the paper's convolution; sage: a node's own features kept apart from its neighbours' mean; auto: short runs decide"
    )
    hidden: int = option(64, "width of the hidden layer")
    dropout: float = option(0.5, "dropout on the hidden layer in training")
    head: Literal["gcn", "linear"] = option("gcn", "gcn: the second convolution classifies; linear: a linear layer on two convolutions")

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
            raise BadConfig("backbone auto is chosen by 'fedepd run' and fedepd.run before anything is built; give gcn or sage here")

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
        operator = Sparse.of(normalised(adj), symmetric=True) if self.backbone == "gcn" else Sparse.of(neighbour_mean(adj))
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
        """One random bit per unit."""
        return generator.bytes((rows * self.hidden + 7) // 8)

    def encode(self, params: Tensors, inputs: Inputs, generator: np.random.Generator | None = None) -> Tensor:
        """H [n, hidden], after ReLU; with a ``generator`` also after dropout, as in training."""
        rows = inputs.operator.shape[0]
        drop: bytes | Tensor | None = None
        if generator is not None:
            drop = self._bits(rows, generator) if self.dropout == 0.5 else self.dropout_mask(rows, generator)
        scale = 1.0 if drop is None else 1 / (1 - self.dropout)
        h: Tensor = _Encode.apply(params["encoder.weight"], params["encoder.bias"], inputs, drop, scale, self.backbone == "sage")  # type: ignore[no-untyped-call]
        if self.head == "gcn":
            return h
        h = torch.relu(self._spread(h, inputs.operator) @ params["encoder.second.weight"] + params["encoder.second.bias"])
        mask = self.dropout_mask(rows, generator) if generator is not None else None
        return h if mask is None else h * mask

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
        if self.head == "linear" or self.backbone == "sage" or weight.shape[1] >= self.hidden:
            return self.classify(params, self.smooth(h, inputs, train_only))
        operator = inputs.train_rows if train_only else inputs.operator
        z: Tensor = _NarrowClassify.apply(h, weight, bias, operator)  # type: ignore[no-untyped-call]
        return z

    def predict(self, params: Tensors, inputs: Inputs) -> Tensor:
        """Logits of every node, evaluation mode: [n, C]."""
        with torch.no_grad():
            return self.logits(params, self.encode(params, inputs), inputs)


def glorot(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Uniform in ±sqrt(6 / (rows + columns))."""
    bound = (6.0 / (rows + columns)) ** 0.5
    return torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)


class _Encode(torch.autograd.Function):
    """H = dropout(relu(P X W + b)). Only H is kept for the backward: where H > 0 the unit was positive and not dropped."""

    @staticmethod
    def forward(
        ctx: Any, weight: Tensor, bias: Tensor, inputs: Inputs, drop: bytes | Tensor | None, scale: float, own_apart: bool
    ) -> Tensor:
        features = inputs.features
        if isinstance(features, Tensor):
            h = features @ weight
        elif own_apart:
            smoothed, own = weight.chunk(2)
            h = inputs.operator.times(features.times(smoothed)).add_(features.times(own))
        else:
            h = inputs.operator.times(features.times(weight))
        kernels.activate(h, bias, drop if isinstance(drop, bytes) else None)
        if isinstance(drop, Tensor):
            h.mul_(drop)
        ctx.save_for_backward(h)
        ctx.inputs, ctx.scale, ctx.own_apart = inputs, scale, own_apart
        return h

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
        (h,) = ctx.saved_tensors
        inputs: Inputs = ctx.inputs
        g, bias_grad = kernels.activate_backward(grads[0], h, ctx.scale)
        features = inputs.features
        if isinstance(features, Tensor):
            grad_weight = features.t() @ g
        elif ctx.own_apart:
            grad_weight = torch.cat([features.transposed_times(inputs.operator.transposed_times(g)), features.transposed_times(g)])
        else:
            grad_weight = features.transposed_times(inputs.operator.transposed_times(g))
        return grad_weight, bias_grad, None, None, None, None


class _NarrowClassify(torch.autograd.Function):
    """Z = P (H W) + b: cheaper than (P H) W where there are fewer classes than hidden units."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor, operator: Sparse) -> Tensor:
        ctx.save_for_backward(h, weight)
        ctx.operator = operator
        return operator.times(h @ weight).add_(bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        h, weight = ctx.saved_tensors
        spread = ctx.operator.transposed_times(grads[0].contiguous())  # [n, C]
        grad_h = spread @ weight.t() if ctx.needs_input_grad[0] else None
        return grad_h, h.t() @ spread, grads[0].sum(0), None
