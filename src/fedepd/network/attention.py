"""Attention over the edges of a graph, all sparse: scores of edges, their softmax at each node, and weighted
sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.network.patterns import dots, with_values
from fedepd.network.sparse import Sparse, csr_tensor, is_weighted, with_loops


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of the attention matrix as a pattern [r, n], beside its transpose."""

    pattern: Tensor
    edges: Tensor
    """int64 [p]: the edge at each place."""
    transposed: Tensor
    transposed_edges: Tensor

    @classmethod
    def of(cls, places: sp.csr_matrix) -> Rows:
        """From a matrix whose numbers are those of the edges."""
        flipped = sp.csr_matrix(places.T)
        return cls(
            csr_tensor(places, np.int32), _numbers(places), csr_tensor(flipped, np.int32), _numbers(flipped)
        )

    def filled(self, alpha: Tensor) -> Sparse:
        forward, backward = alpha.index_select(0, self.edges), alpha.index_select(0, self.transposed_edges)
        return Sparse(with_values(self.pattern, forward), with_values(self.transposed, backward))


def _numbers(places: sp.csr_matrix) -> Tensor:
    return torch.tensor(places.data.astype(np.int64))


@dataclass(frozen=True, eq=False)
class Edges:
    """Both directions of every edge and one self-loop per node, m = 2e + n in all, sorted by target."""

    offsets: Tensor
    """int64 [n + 1]: where each target's edges begin. Every target has one, because of the self-loops."""
    target: Tensor
    """int64 [m]."""
    source: Tensor
    """int64 [m]."""
    every: Rows
    train: Rows
    """Those of the training nodes."""
    mask: Tensor | None = None
    """[m]: what the messages are multiplied by, where a prediction is explained."""
    log_weight: Tensor | None = None
    """[m]: the logarithms of the edges' weights; None where all count alike."""

    @classmethod
    def of(cls, adj: sp.csr_matrix, train: Tensor) -> Edges:
        """From an adjacency matrix without self-loops, [n, n]."""
        places = sp.csr_matrix(with_loops(adj))
        places.sort_indices()
        weights = torch.tensor(np.log(places.data.astype(np.float64)).astype(np.float32))
        places.data = np.arange(places.nnz)
        return cls(
            offsets=torch.tensor(places.indptr.astype(np.int64)),
            target=torch.repeat_interleave(torch.tensor(np.diff(places.indptr).astype(np.int64))),
            source=torch.tensor(places.indices.astype(np.int64)),
            every=Rows.of(places),
            train=Rows.of(places[train.numpy()]),
            log_weight=weights if is_weighted(adj) else None,
        )

    def weighted(self) -> sp.csr_matrix:
        """The logarithms of the weights as a matrix [n, n]; an entry of 0 is there, too."""
        assert self.log_weight is not None
        n = self.offsets.shape[0] - 1
        parts = (self.log_weight.numpy(), self.source.numpy(), self.offsets.numpy())
        return sp.csr_matrix(parts, shape=(n, n))

    def reduce(self, values: Tensor, how: str) -> Tensor:
        """The "sum" or "max" over each target's edges, at each of its edges: [m]."""
        return torch.segment_reduce(values, how, offsets=self.offsets).index_select(0, self.target)


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, edges: Edges) -> Tensor:
        weights = (scores - edges.reduce(scores, "max")).exp_()
        alpha = weights.div_(edges.reduce(weights, "sum"))
        ctx.save_for_backward(alpha)
        ctx.edges = edges
        return alpha

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (alpha,) = ctx.saved_tensors
        weighted = alpha * grads[0]
        return weighted - alpha * ctx.edges.reduce(weighted, "sum"), None


def edge_softmax(scores: Tensor, edges: Edges) -> Tensor:
    """α, the softmax of the scores over each target's edges: [m]."""
    alpha: Tensor = _EdgeSoftmax.apply(scores, edges)  # type: ignore[no-untyped-call]
    return alpha


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, alpha: Tensor, values: Tensor, rows: Rows) -> Tensor:
        ctx.save_for_backward(values)
        matrix = rows.filled(alpha)
        ctx.rows, ctx.matrix, ctx.edges = rows, matrix, alpha.shape[0]
        return matrix.times(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (values,) = ctx.saved_tensors
        grad = grads[0].contiguous()
        grad_alpha = grad_values = None
        if ctx.needs_input_grad[0]:  # g_i · v_j on the edges alone, without an [m, h] intermediate
            grad_alpha = grad.new_zeros(ctx.edges).index_copy_(
                0, ctx.rows.edges, dots(ctx.matrix.matrix, grad, values)
            )
        if ctx.needs_input_grad[1]:
            grad_values = ctx.matrix.transposed_times(grad)
        return grad_alpha, grad_values, None


def attend(alpha: Tensor, values: Tensor, rows: Rows) -> Tensor:
    """Σ_j α_ij v_j for the chosen nodes i: [r, columns]."""
    out: Tensor = _Attend.apply(alpha, values, rows)  # type: ignore[no-untyped-call]
    return out
