"""A graph with synthetic nodes wired to it, for GraphSMOTE: products with its adjacency, without dense
matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedepd.network.backbones import Backbone
from fedepd.network.patterns import csr, dots, with_values
from fedepd.network.sparse import Sparse, to_scipy

_SMALLEST = 1e-6
"""A weighted degree below this is no neighbourhood."""


@dataclass(frozen=True, eq=False)
class RealGraph:
    """What is there before any synthetic node."""

    train: Tensor
    """int64 [t]."""
    train_rows: Sparse
    """A[train], 0/1, [t, n]."""
    degrees: Tensor
    """float32 [n]."""


def edge_scores(left: Tensor, right: Tensor, pattern: Tensor) -> Tensor:
    """The edge predictor's scores B_ij = σ(⟨S e_i, S e_j⟩) of the pattern's entries, from projected rows:
    [m].
    """
    out: Tensor = _PairDots.apply(left, right, pattern)  # type: ignore[no-untyped-call]
    return torch.sigmoid(out)


class _PairDots(torch.autograd.Function):
    """:func:`dots` with its gradient, a sparse product."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, pattern: Tensor) -> Tensor:
        ctx.save_for_backward(left, right)
        ctx.pattern = pattern
        return dots(pattern, left, right)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        left, right = ctx.saved_tensors
        matrix = Links.make(ctx.pattern, grads[0]).matrix
        return matrix.times(right), matrix.transposed_times(left), None


@dataclass(frozen=True, eq=False)
class Links:
    """The weighted edges between synthetic and real nodes."""

    weights: Tensor
    """[m], with a gradient where the scores themselves are the weights."""
    matrix: Sparse
    """The same as numbers, [s, n]."""

    @classmethod
    def make(cls, pattern: Tensor, weights: Tensor) -> Links:
        matrix = with_values(pattern, weights.detach())
        flipped = to_scipy(matrix).tocsc()  # the arrays of the transpose's CSR
        start, index, values = (
            torch.from_numpy(part) for part in (flipped.indptr, flipped.indices, flipped.data)
        )
        return cls(weights, Sparse(matrix, csr(start, index, values, (matrix.shape[1], matrix.shape[0]))))

    def degrees(self) -> tuple[Tensor, Tensor]:
        """Σ weights at the synthetic nodes, [s], and at the real nodes, [n]."""
        pattern = self.matrix.matrix
        synthetic = torch.repeat_interleave(pattern.crow_indices().diff())
        new, real = (torch.zeros(size) for size in pattern.shape)
        return new.index_add(0, synthetic, self.weights), real.index_add(
            0, pattern.col_indices(), self.weights
        )


def smooth_enlarged(
    model: Backbone, real: RealGraph, hidden: Tensor, synthetic: Tensor, links: Links
) -> Tensor:
    """What the classifier reads on the enlarged graph, normalised anew, [t + s, width].

    The rows of the training nodes come first, then those of the synthetic nodes.
    """
    train = real.train
    new_degrees, added = links.degrees()
    real_degrees = real.degrees + added
    if model.convolution == "sage":
        degrees = torch.cat([real_degrees[train], new_degrees])[:, None].clamp(min=_SMALLEST)
        neighbours = spread(hidden, synthetic, links, real, loops=False) / degrees
        return torch.cat([neighbours, torch.cat([hidden[train], synthetic])], dim=1)
    # Eq. 10 of FedEPD, for both blocks.
    real_scale, new_scale = (real_degrees + 1).rsqrt()[:, None], (new_degrees + 1).rsqrt()[:, None]
    rows = spread(real_scale * hidden, new_scale * synthetic, links, real, loops=True)
    return torch.cat([real_scale[train], new_scale]) * rows


def spread(old: Tensor, new: Tensor, links: Links, real: RealGraph, loops: bool) -> Tensor:
    """The enlarged adjacency times [old; new]: its rows of training nodes, then of synthetic nodes.

    With ``loops`` the adjacency has self-loops.
    """
    weights, matrix = links.weights, links.matrix
    out: Tensor = _Spread.apply(old, new, weights, matrix, real, loops)  # type: ignore[no-untyped-call]
    return out


class _Spread(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, old: Tensor, new: Tensor, weights: Tensor, links: Sparse, real: RealGraph, loops: bool
    ) -> Tensor:
        ctx.save_for_backward(old, new)
        ctx.rest = links, real, loops
        train = real.train
        at_train = real.train_rows.times(old).add_(links.transposed_times(new).index_select(0, train))
        at_new = links.times(old)
        if loops:
            at_train.add_(old.index_select(0, train))
            at_new.add_(new)
        return torch.cat([at_train, at_new])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        old, new = ctx.saved_tensors
        links, real, loops = ctx.rest
        train = real.train
        of_train, of_new = grads[0][: train.shape[0]].contiguous(), grads[0][train.shape[0] :].contiguous()
        everywhere = torch.zeros_like(old).index_copy_(0, train, of_train)  # [n, h]
        of_weights = None
        if ctx.needs_input_grad[2]:
            of_weights = dots(links.matrix, of_new, old) + dots(links.matrix, new, everywhere)
        grad_old = real.train_rows.transposed_times(of_train).add_(links.transposed_times(of_new))
        grad_new = links.times(everywhere)
        if loops:
            grad_old.add_(everywhere)
            grad_new.add_(of_new)
        return grad_old, grad_new, of_weights, None, None, None
