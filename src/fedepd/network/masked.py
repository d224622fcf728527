"""A network with gradients by its features and by what its edges carry, on the surroundings of one node.

A prediction is explained by a path from nothing to what is there. Every point of the path is a copy of the
node's surroundings, with features and masks of its own. All copies form one graph, so that one pass through
the network computes the whole path.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd import memory
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.sparse import Sparse, to_scipy
from fedepd.types import Tensors

Ints = NDArray[np.int64]
PATH = 64
"""Bytes that a path of two edges costs while it is looked up."""


@dataclass(frozen=True, eq=False)
class Masked(Sparse):
    """A sparse matrix whose entries have gradients."""

    has_gradient: ClassVar[bool] = True
    at: Tensor
    """int64 [2, m]: row and column of each entry."""
    values: Tensor
    """[m]."""

    def times(self, dense: Tensor) -> Tensor:
        rows, columns = self.at
        carried = self.values[:, None] * dense.index_select(0, columns)
        return dense.new_zeros(self.shape[0], dense.shape[1]).index_add(0, rows, carried)

    def transposed_times(self, dense: Tensor) -> Tensor:
        rows, columns = self.at
        carried = self.values[:, None] * dense.index_select(0, rows)
        return dense.new_zeros(self.shape[1], dense.shape[1]).index_add(0, columns, carried)


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The nodes that can change one node's logits, and the edges among them."""

    nodes: Ints
    """[s]: their numbers in the graph, the node itself first."""
    hops: Ints
    """[s]: how many steps away each of them is."""
    edges: Ints
    """[2, e]: positions in ``nodes``, each edge once."""

    @classmethod
    def of(cls, node: int, reach: int, operator: Sparse) -> Surroundings:
        """Everything within ``reach`` steps. The operator's entries beside its diagonal are the edges."""
        matrix = to_scipy(operator.matrix)
        seen, hops, ring = {node: 0}, [0], [node]
        for hop in range(1, reach + 1):
            starts, ends = matrix.indptr[ring], matrix.indptr[np.add(ring, 1)]
            near = np.unique(np.concatenate([matrix.indices[a:b] for a, b in zip(starts, ends, strict=True)]))
            ring = [each for each in near.tolist() if each not in seen]
            if not ring:
                break
            seen |= {each: len(seen) + place for place, each in enumerate(ring)}
            hops += [hop] * len(ring)
        nodes = np.array(list(seen), dtype=np.int64)
        inner = sp.coo_matrix(sp.triu(matrix[nodes][:, nodes], k=1) if reach else (len(nodes), len(nodes)))
        return cls(nodes, np.array(hops, dtype=np.int64), np.stack([inner.row, inner.col]).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Lens:
    """Copies of a node's surroundings side by side, each with features and masks of its own."""

    around: Surroundings
    x: Tensor
    """[copies · s, d]."""
    mask: Tensor
    """[copies · e]: what the messages along each edge are multiplied by, in both directions."""

    @property
    def copies(self) -> int:
        return self.x.shape[0] // len(self.around.nodes)

    @property
    def none(self) -> Tensor:
        """No training node."""
        return torch.empty(0, dtype=torch.int64)

    @cached_property
    def numbers(self) -> sp.csr_matrix:
        """The number of the edge between two nodes, from 1; no entry where there is none."""
        s, (a, b) = len(self.around.nodes), self.around.edges
        start = np.arange(self.copies).repeat(len(a)) * s
        a, b = np.tile(a, self.copies) + start, np.tile(b, self.copies) + start
        each = np.arange(1, len(a) + 1)
        size = (self.x.shape[0], self.x.shape[0])
        return sp.csr_matrix(
            (np.concatenate([each, each]), (np.concatenate([a, b]), np.concatenate([b, a]))), shape=size
        )

    @property
    def adjacency(self) -> sp.csr_matrix:
        """The 0/1 matrix of the copies."""
        out = self.numbers.astype(np.float32)
        out.data[:] = 1
        return out

    def masks(self, rows: Ints, columns: Ints) -> Tensor:
        """The mask of each entry; 1 on the diagonal, and where there is no edge."""
        if not len(rows) or not self.mask.shape[0]:
            return torch.ones(len(rows))
        found = np.asarray(self.numbers[rows.copy(), columns.copy()]).reshape(-1)  # scipy sets their flags
        return torch.cat([torch.ones(1), self.mask]).index_select(0, torch.from_numpy(found))

    def values_at(self, rows: Tensor, columns: Tensor, matrix: sp.csr_matrix) -> Tensor:
        """Entries of a matrix of the whole graph, at rows and columns of the copies: [m]."""
        size, nodes = len(self.around.nodes), self.around.nodes
        at = nodes[rows.numpy() % size], nodes[columns.numpy() % size]
        return torch.from_numpy(np.asarray(matrix[at], dtype=np.float32).reshape(-1))

    def of(self, matrix: Sparse) -> Masked:
        """A matrix of the whole graph, as the copies have it, every entry times the mask of its edge.

        Choice: entries keep the normalisation of the whole graph, and a mask scales what an edge carries. If
        degrees shrank with the masks, a neighbours' mean would be the same for all masks above 0 and jump at
        0, and no path could explain it.
        """
        entries = self._entries(matrix)
        return _masked(entries, self.masks(entries.row.astype(np.int64), entries.col.astype(np.int64)))

    def two_steps(self, matrix: Sparse) -> Masked:
        """The same for pairs that are two steps apart: the mean over the paths between them, of the product
        of both masks."""
        entries = self._entries(matrix)
        if not entries.nnz or not self.mask.shape[0]:
            return _masked(entries, torch.ones(entries.nnz))
        degrees = np.diff(self.numbers.indptr)
        memory.check(PATH * int(degrees[self.numbers.indices].sum()), "the paths of two edges around a node")
        first = sp.coo_matrix(self.numbers)  # the edge i - j; then all edges j - k
        counts = degrees[first.col]
        second = np.repeat(self.numbers.indptr[first.col] - np.cumsum(counts) + counts, counts)
        second = second + np.arange(counts.sum())
        place = sp.csr_matrix(
            (np.arange(1, entries.nnz + 1), (entries.row, entries.col)), shape=entries.shape
        )
        i, k = np.repeat(first.row, counts), self.numbers.indices[second]
        pair = np.asarray(place[i, k]).reshape(-1) - 1
        known = pair >= 0
        both = (np.repeat(first.data, counts)[known] - 1, self.numbers.data[second][known] - 1)
        product = self.mask[torch.from_numpy(both[0])] * self.mask[torch.from_numpy(both[1])]
        pairs = torch.from_numpy(pair[known])
        paths = torch.bincount(pairs, minlength=entries.nnz)
        total = torch.zeros(entries.nnz).index_add(0, pairs, product)
        return _masked(entries, torch.where(paths > 0, total / paths.clamp(min=1), 1.0))

    def _entries(self, matrix: Sparse) -> sp.coo_matrix:
        nodes = self.around.nodes
        part = to_scipy(matrix.matrix)[nodes][:, nodes]
        return sp.coo_matrix(sp.kron(sp.identity(self.copies, dtype=np.float32), part, format="coo"))

    def inputs(self, model: Backbone, whole: Inputs) -> Inputs:
        """What the network reads of the copies."""
        operator, network = self.of(whole.operator), model.network
        return Inputs(
            operator=operator,
            features=network.features(model, self.x, operator),
            train=self.none,
            train_rows=operator,
            labels=self.none,
            extra=network.seen_through(model, whole.extra, self),
        )


def _masked(entries: sp.coo_matrix, masks: Tensor) -> Masked:
    at = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    shape = torch.empty(entries.shape, device="meta")
    return Masked(shape, shape, at, torch.from_numpy(entries.data.astype(np.float32)) * masks)


class Looking(Backbone):
    """A backbone whose predictions are looked at through a lens, where it has one."""

    lens: Lens | None
    seen: Inputs | None
    """What the last prediction without a lens read."""
    params: Tensors
    """Its parameters."""

    @classmethod
    def at(cls, model: Backbone) -> Looking:
        """The same network, with open eyes."""
        out = cls(**{field.name: getattr(model, field.name) for field in fields(model)})
        out.through(None)
        object.__setattr__(out, "seen", None)
        object.__setattr__(out, "params", {})
        return out

    def through(self, lens: Lens | None) -> None:
        """From now on, predict for the copies of a lens, with gradients; or for the whole graph again."""
        object.__setattr__(self, "lens", lens)

    def predict(self, params: Tensors, inputs: Inputs) -> Tensor:
        """Logits of every node, or of every copy of the lens's nodes, in evaluation mode."""
        if self.lens is None:
            object.__setattr__(self, "seen", inputs)
            object.__setattr__(self, "params", params)
            return super().predict(params, inputs)
        view = self.lens.inputs(self, inputs)
        return self.logits(params, self.encode(params, view), view)
