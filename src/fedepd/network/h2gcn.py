"""``h2gcn``: a node's own row, its neighbours' and those of nodes two steps away, side by side.

Zhu et al., "Beyond Homophily in Graph Neural Networks", NeurIPS 2020, arXiv 2006.11468.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd import memory
from fedepd.network.contract import Dropout, Inputs, Network, Shapes
from fedepd.network.mlp import dense
from fedepd.network.sparse import Sparse, inverse_degrees, is_weighted, spmm
from fedepd.types import Tensors

if TYPE_CHECKING:
    from fedepd.network.backbones import Backbone
    from fedepd.network.masked import Lens

ENTRY = 48
"""Bytes that an entry of the two-step matrix costs while it is made and normalised."""


@dataclass(frozen=True, eq=False)
class Rings:
    """The nodes one step away and those two steps away, as normalised matrices."""

    near: Sparse
    """D^-1/2 A D^-1/2 of the edges, [n, n]."""
    far: Sparse
    """The same of pairs that have a common neighbour and no edge, [n, n]."""
    near_train: Sparse
    """The training nodes' rows, [t, n]."""
    far_train: Sparse

    def of(self, train_only: bool) -> tuple[Sparse, Sparse]:
        return (self.near_train, self.far_train) if train_only else (self.near, self.far)


@final
@dataclass(frozen=True)
class H2GCN(Network):
    """H = relu(X W + b). R0 = H, R1 = [A1 R0 | A2 R0], ... ``layers`` times; S = [R0 | R1 | ...]."""

    # Choice: of GCNII and H2GCN, this one is better by validation on actor and roman_empire_proxy
    # (docs/backbones.md).
    # Choice: S has all rounds already, and a linear layer reads it. So the setting head has no other value
    # here.
    depths: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)
    weighs_edges: ClassVar[bool] = True

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        return {"encoder.weight": (num_features, model.hidden), "encoder.bias": (model.hidden,)}

    def width(self, model: Backbone) -> int:
        """Each round has twice the columns of the one before: h (1 + 2 + 4 + ...)."""
        return model.hidden * ((2 << model.layers) - 1)

    def extra(self, model: Backbone, adj: sp.csr_matrix, train: Tensor) -> Rings:
        near = sp.csr_matrix(adj, dtype=np.float32)
        # A row of A² has at most as many entries as its neighbours have neighbours, and as there are nodes.
        most = np.minimum(degrees_around(near), near.shape[0]).sum()
        memory.check(
            ENTRY * int(most), "the matrix of nodes two steps apart, which the backbone h2gcn needs,"
        )
        # Choice: edges have weights, pairs two steps apart have none: no path says what they exchange.
        joined = near
        if is_weighted(near):
            joined = near.copy()
            joined.data[:] = 1.0
        two_steps = joined @ joined
        two_steps.data[:] = 1.0
        two_steps.setdiag(0)
        far = sp.csr_matrix(two_steps - two_steps.multiply(joined))
        far.eliminate_zeros()
        rings = [Sparse.of(balanced(each), symmetric=True) for each in (near, far)]
        return Rings(*rings, *(ring.rows(train) for ring in rings))

    def reach(self, model: Backbone) -> int:
        return 2 * model.layers

    def seen_through(self, model: Backbone, extra: Rings, lens: Lens) -> Rings:
        near, far = lens.of(extra.near), lens.two_steps(extra.far)
        return Rings(near, far, near, far)

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        return dense(params, inputs, dropout)

    def _rounds(self, model: Backbone, h: Tensor, rings: Rings) -> list[Tensor]:
        """R0 .. R(L-1): all but the last round, of all nodes."""
        rounds = [h]
        for _ in range(model.layers - 1):
            rounds.append(torch.cat([spmm(rings.near, rounds[-1]), spmm(rings.far, rounds[-1])], dim=1))
        return rounds

    def smooth(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        rings: Rings = inputs.extra
        rounds = self._rounds(model, h, rings)
        last = [spmm(ring, rounds[-1]) for ring in rings.of(train_only)]
        return torch.cat([*(each[inputs.train] if train_only else each for each in rounds), *last], dim=1)

    def logits(
        self, model: Backbone, params: Tensors, h: Tensor, inputs: Inputs, train_only: bool = False
    ) -> Tensor:
        """The last round as A (R W), which has C columns, instead of (A R) W."""
        rings: Rings = inputs.extra
        rounds = self._rounds(model, h, rings)
        read, wide = torch.cat(rounds, dim=1), rounds[-1].shape[1]
        weight, (near, far) = params["classifier.weight"], rings.of(train_only)
        of_near, of_far = weight[-2 * wide :].chunk(2)
        own = (read[inputs.train] if train_only else read) @ weight[: -2 * wide] + params["classifier.bias"]
        return own + spmm(near, rounds[-1] @ of_near) + spmm(far, rounds[-1] @ of_far)


def degrees_around(adj: sp.csr_matrix) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How many neighbours the neighbours of each node have, with repeats: [n]."""
    pattern = sp.csr_matrix((np.ones(adj.nnz), adj.indices, adj.indptr), shape=adj.shape)
    return np.asarray(pattern @ np.diff(adj.indptr), dtype=np.float64)


def balanced(adj: sp.csr_matrix) -> sp.csr_matrix:
    """D^-1/2 A D^-1/2, a row of zeros for a node without neighbours."""
    scale = sp.diags(np.sqrt(inverse_degrees(adj)))
    return sp.csr_matrix(scale @ adj @ scale)
