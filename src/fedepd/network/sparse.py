"""Constant sparse matrices: adjacency, its normalisation (Eq. 10), bag-of-words features, and their products.

A matrix is kept as CSR with 32-bit indices, together with its transpose. So neither the forward nor the
backward product has to transpose.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.errors import BadData
from fedepd.network.kernels import ChosenFactor, Factor, check_cpu, normalised_parts, symmetric_parts
from fedepd.types import Graph

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")

_ROWS = 1 << 16
"""Rows of an operator whose entries are computed at a time in float64."""


IN_PLACE_FROM = 1 << 20
"""From so many entries on, rows of a symmetric matrix are read where they are."""


def check_size(
    shape: tuple[int, int], entries: int, index_type: type[np.signedinteger[Any]] = np.int32
) -> None:
    """Refuse a sparse matrix that its indices cannot count: numbers would silently wrap around."""
    if max(entries, *shape) > np.iinfo(index_type).max:
        size = f"[{shape[0]:,}, {shape[1]:,}] with {entries:,} entries"
        bits = np.iinfo(index_type).bits
        raise BadData(
            f"a sparse matrix {size} is too large for {bits}-bit indices; give fewer nodes, edges or columns"
        )


def csr_tensor(matrix: sp.csr_matrix, index_type: type[np.signedinteger[Any]] = np.int64) -> Tensor:
    """A ``torch.sparse_csr`` float32 tensor that shares nothing with ``matrix``."""
    check_size(matrix.shape, int(matrix.indptr[-1]), index_type)
    return torch.sparse_csr_tensor(
        torch.from_numpy(matrix.indptr.astype(index_type)),  # astype makes a copy
        torch.from_numpy(matrix.indices.astype(index_type)),
        torch.from_numpy(matrix.data.astype(np.float32)),
        size=matrix.shape,
        check_invariants=False,
    )


def to_scipy(x: Tensor) -> sp.csr_matrix:
    """A scipy view of a ``torch.sparse_csr`` tensor."""
    check_cpu(x)
    return sp.csr_matrix(
        (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy()), shape=tuple(x.shape)
    )


@dataclass(frozen=True, eq=False)
class Sparse:
    """A constant matrix [r, c] and its transpose."""

    matrix: Tensor
    known_transpose: Tensor | None
    """None: it is made when it is asked for. A client that only predicts never asks."""
    has_gradient: ClassVar[bool] = False
    """Whether the entries have a gradient of their own, as where a prediction is explained."""

    @classmethod
    def of(cls, matrix: sp.spmatrix, symmetric: bool = False) -> Sparse:
        forward = csr_tensor(_sorted(sp.csr_matrix(matrix)), np.int32)
        return cls(forward, forward if symmetric else None)

    @property
    def shape(self) -> torch.Size:
        return self.matrix.shape

    def rows(self, index: Tensor) -> Sparse:
        """The chosen rows, in that order."""
        return Sparse(self._forward.chosen_rows(index), None)

    def rows_in_place(self, index: Tensor) -> Sparse | Chosen:
        """Distinct rows, in that order. Those of a large symmetric matrix are not copied.

        Their products have the bits of a copy's, and take as long. Where edges have weights, the matrix is
        symmetric up to the last digit of float64, so smaller graphs keep the copy, and all their bits.
        """
        large = self.known_transpose is self.matrix and self.matrix.values().numel() >= IN_PLACE_FROM
        return Chosen(ChosenFactor(self._forward, index)) if large else self.rows(index)

    @cached_property
    def transposed(self) -> Tensor:
        return self._forward.transposed() if self.known_transpose is None else self.known_transpose

    @cached_property
    def _forward(self) -> Factor:
        return Factor(self.matrix)

    @cached_property
    def _backward(self) -> Factor:
        return self._forward if self.transposed is self.matrix else Factor(self.transposed)

    def times(self, dense: Tensor) -> Tensor:
        return self._forward.times(dense)

    def transposed_times(self, dense: Tensor) -> Tensor:
        return self._backward.times(dense)


@dataclass(frozen=True, eq=False)
class Chosen:
    """Distinct rows of a constant symmetric matrix, which are not copied: [r, n]."""

    factor: ChosenFactor
    has_gradient: ClassVar[bool] = False

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.factor.chosen), self.factor.whole.columns))

    def times(self, dense: Tensor) -> Tensor:
        return self.factor.times(dense)

    def transposed_times(self, dense: Tensor) -> Tensor:
        return self.factor.transposed_times(dense)


def _sorted(matrix: sp.csr_matrix) -> sp.csr_matrix:
    # sorted_indices makes a copy, because the arrays may belong to a client.
    return matrix if matrix.has_sorted_indices else matrix.sorted_indices()


DENSE_FROM = 0.5
"""From which share of non-zero entries on features are multiplied as a dense matrix."""


def factor_of(x: Tensor) -> Sparse | Tensor:
    """X [n, d] in the form in which its products are cheapest: CSR with its transpose, or dense.

    Choice: forward and weight gradient together, 64 columns wide, dense products take 1.0 to 1.6 times as
    long as ours on CSR where 35 % of the entries are not zero (1,375 rows), and 0.6 to 1.1 times as long at
    50 %, over 104 to 8,710 features. So half is the limit at every width. A dense X [n, d] takes 4 n d bytes,
    CSR and its transpose 16 per entry. So from half on the dense form is the smaller one, too. A client's own
    features decide alone: they are the same simulated and deployed.
    """
    if x.layout != torch.sparse_csr:
        return x
    filled = x.values().numel() >= DENSE_FROM * x.numel() > 0
    return torch.from_numpy(to_scipy(x).toarray()) if filled else Sparse.of(to_scipy(x))


class _Spmm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Sparse | Chosen, dense: Tensor) -> Tensor:
        ctx.matrix = matrix
        return matrix.times(dense)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.matrix.transposed_times(grads[0].contiguous())


def spmm(matrix: Sparse | Chosen, dense: Tensor) -> Tensor:
    """``matrix @ dense`` with a gradient for ``dense``."""
    if matrix.has_gradient or not (torch.is_grad_enabled() and dense.requires_grad):
        return matrix.times(dense)
    out: Tensor = _Spmm.apply(matrix, dense)  # type: ignore[no-untyped-call]
    return out


def adjacency(edge_index: Tensor, num_nodes: int, weight: Tensor | None = None) -> sp.csr_matrix:
    """The symmetric adjacency matrix [n, n] without self-loops. ``edge_index`` holds each edge once.

    Its entries are 1, or the edges' weights [e].
    """
    check_size((num_nodes, num_nodes), 2 * edge_index.shape[1] + num_nodes)  # with the self-loops to come
    if (parts := symmetric_parts(edge_index, num_nodes, weight)) is not None:
        return sp.csr_matrix(parts, shape=(num_nodes, num_nodes))
    src, dst = edge_index.numpy()
    ones = np.ones(2 * src.shape[0], dtype=np.float32) if weight is None else weight.repeat(2).numpy()
    return sp.csr_matrix(
        (ones, (np.concatenate([src, dst]), np.concatenate([dst, src]))), shape=(num_nodes, num_nodes)
    )


def weighted_adjacency(graph: Graph, edges: Tensor | None = None) -> sp.csr_matrix:
    """The adjacency matrix of a graph, or of some of its edges, with their weights if it has any."""
    if edges is None:
        return adjacency(graph.edge_index, graph.num_nodes, graph.edge_weight)
    return adjacency(edges, graph.num_nodes, graph.weights_of(edges))


def is_weighted(adj: sp.csr_matrix) -> bool:
    """Whether an entry of an adjacency matrix is not 1."""
    return bool((adj.data != 1).any())


def own_weights(adj: sp.csr_matrix) -> np.ndarray[Any, np.dtype[np.float32]]:
    """What each node's self-loop counts, [n]: as much as the mean of its edges; 1 without edges.

    Choice: a self-loop of 1 would vanish beside amounts of thousands and rule beside amounts of cents. So the
    unit of the weights changes nothing, and 0/1 edges have self-loops of 1 as in Eq. 10.
    """
    counts = np.diff(adj.indptr)
    sums = np.asarray(adj.sum(1), dtype=np.float64).reshape(-1)
    means = np.divide(sums, counts, out=np.ones_like(sums), where=counts > 0)
    return np.asarray(means, dtype=np.float32)


def with_loops(adj: sp.csr_matrix) -> sp.csr_matrix:
    """The adjacency matrix with a self-loop at every node."""
    return adj + sp.csr_matrix(sp.diags(own_weights(adj)))


def normalised(
    adj: sp.csr_matrix, unit_loops: bool = False, dtype: type[np.floating[Any]] = np.float64
) -> sp.csr_matrix:
    """The convolution operator of Eq. 10: D^-1/2 (A + I) D^-1/2. Degrees include the self-loop.

    With ``unit_loops``, self-loops count 1 whatever the edges count. Entries are computed in float64 and kept
    as ``dtype``.
    """
    if dtype is np.float32 and not is_weighted(adj):
        scale = 1.0 / np.sqrt(np.diff(adj.indptr) + 1.0)
        if (parts := normalised_parts(adj, scale)) is not None:
            return sp.csr_matrix(parts, shape=adj.shape)
    looped = adj + sp.identity(adj.shape[0], np.float32, "csr") if unit_loops else with_loops(adj)
    scale = _scale(looped)
    starts, values = looped.indptr, np.empty(looped.indices.shape[0], dtype)
    for first in range(0, looped.shape[0], _ROWS):
        bounds = starts[first : first + _ROWS + 1]
        part = slice(bounds[0], bounds[-1])
        entries = np.repeat(scale[first : first + _ROWS], np.diff(bounds)) * looped.data[part]
        values[part] = entries * scale[looped.indices[part]]
    return sp.csr_matrix((values, looped.indices, starts), shape=looped.shape)


def _scale(looped: sp.csr_matrix) -> np.ndarray[Any, np.dtype[np.float64]]:
    """D^-1/2 of an adjacency matrix with self-loops, [n]."""
    return 1.0 / np.sqrt(np.asarray(looped.sum(1), dtype=np.float64).reshape(-1))


def two_steps(adj: sp.csr_matrix, nodes: np.ndarray[Any, np.dtype[np.int64]]) -> sp.csr_matrix:
    """The chosen rows of P P, where P is :func:`normalised` in float64: [chosen, n].

    Of P, only the chosen rows are made, and those of the nodes that they reach.
    """
    looped = with_loops(adj)
    scale = _scale(looped)
    first = _scaled(looped, scale, nodes)
    reached, place = np.unique(first.indices, return_inverse=True)
    first = sp.csr_matrix((first.data, place, first.indptr), shape=(len(nodes), len(reached)))
    return (first @ _scaled(looped, scale, reached)).tocsr()


def _scaled(looped: sp.csr_matrix, scale: np.ndarray[Any, Any], rows: np.ndarray[Any, Any]) -> sp.csr_matrix:
    """The chosen rows of S L S, where L is ``looped`` and S is the diagonal matrix of ``scale``."""
    part = looped[rows]
    values = np.repeat(scale[rows], np.diff(part.indptr)) * part.data * scale[part.indices]
    return sp.csr_matrix((values, part.indices, part.indptr), shape=part.shape)


def neighbour_mean(adj: sp.csr_matrix) -> sp.csr_matrix:
    """D^-1 A: the mean over neighbours, by weight if edges have any; zero for a node without neighbours."""
    return sp.csr_matrix(sp.diags(inverse_degrees(adj)) @ adj)


def inverse_degrees(adj: sp.csr_matrix) -> np.ndarray[Any, np.dtype[np.float64]]:
    """1 / degree, 0 for an isolated node: [n]."""
    degrees = np.asarray(adj.sum(1), dtype=np.float64).reshape(-1)
    return np.divide(1.0, degrees, out=np.zeros_like(degrees), where=degrees > 0)


def row_dots(a: Any, b: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The product of each row of one matrix with the same row of another of its kind, [rows]."""
    if sp.issparse(a):
        return np.asarray(a.multiply(b).sum(1), dtype=np.float64).reshape(-1)
    return np.asarray(np.einsum("ij,ij->i", a, b), dtype=np.float64)
