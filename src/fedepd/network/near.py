"""Large clients: X in blocks of rows, and rows of the first layer only where a training node reaches.

``P X`` [n, d] is kept where it is small, or where training reads most of it. Otherwise X stays where it is,
which may be a file or float16, and all rows are computed as ``P (X W)``. Training then reads the rows of P X
that its loss depends on. They are computed once.

Choice: P (X W) and (P X) W differ in the last digits of float32 (about 1e-7). Which one a client computes
depends on its sizes alone. So a run has the same bits on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedepd.network.sparse import Chosen, Sparse
from fedepd.types import widened

LARGE = 1 << 20
"""Numbers in X from which on it is asked which rows training needs."""
MOST = 0.5
"""If training needs more than this share of the rows, all of P X is kept."""
HELD = 1 << 30
"""Numbers in X from which on P X is never kept: 4 GB."""
ROWS = 1 << 16
"""Rows of X that are multiplied at a time."""
COLUMNS = 32
"""Columns of X that P is multiplied with at a time, so that X is never copied whole."""


@dataclass(frozen=True, eq=False)
class Blocks(Sparse):
    """A dense X [n, d], ``matrix``, in float32 or float16, of which some rows at a time are in float32.

    It stands where a sparse X may stand, and has the products alone.
    """

    def times(self, dense: Tensor) -> Tensor:
        """X W: [n, w]."""
        out = torch.empty(self.shape[0], dense.shape[1])
        for part, rows in zip(torch.split(out, ROWS), torch.split(self.matrix, ROWS), strict=True):
            torch.mm(widened(rows), dense, out=part)
        return out

    def transposed_times(self, dense: Tensor) -> Tensor:
        """Xᵀ G: [d, w]."""
        out = torch.zeros(self.shape[1], dense.shape[1])
        for part, rows in zip(torch.split(dense, ROWS), torch.split(self.matrix, ROWS), strict=True):
            out.addmm_(widened(rows).t(), part)
        return out


def smoothed(rows: Sparse | Chosen, x: Tensor) -> Tensor:
    """The chosen rows of P, times X: [m, d]."""
    out = torch.empty(rows.shape[0], x.shape[1])
    for part, columns in zip(torch.split(out, COLUMNS, 1), torch.split(x, COLUMNS, 1), strict=True):
        part.copy_(rows.times(widened(columns).contiguous()))
    return out


@dataclass(frozen=True, eq=False)
class Reach:
    """The nodes whose first layer a training node's logits depend on."""

    nodes: Tensor
    """int64 [m], ascending."""
    train: Tensor
    """int64 [t]: where the training nodes are among them."""
    train_rows: Sparse
    """P[train] [t, m], the same entries."""

    @classmethod
    def of(cls, operator: Sparse, train: Tensor) -> Reach | None:
        """None where these are more than a share of ``MOST`` of all nodes."""
        count = operator.shape[0]
        if len(train) > MOST * count:
            return None
        seen = torch.zeros(count, dtype=torch.bool)
        seen[train] = True
        for part in torch.split(train, ROWS):
            seen[operator.rows(part).matrix.col_indices().long()] = True
            if int(seen.sum()) > MOST * count:
                return None
        nodes, rows = seen.nonzero().reshape(-1), operator.rows(train).matrix
        place = torch.zeros(count, dtype=torch.int32)
        place[nodes] = torch.arange(len(nodes), dtype=torch.int32)
        parts = rows.crow_indices(), place[rows.col_indices().long()], rows.values()
        kept = torch.sparse_csr_tensor(*parts, size=(len(train), len(nodes)), check_invariants=False)
        return cls(nodes, place[train].long(), Sparse(kept, None))
