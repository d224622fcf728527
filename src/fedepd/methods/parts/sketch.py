"""A count sketch: wide features in 256 columns, for methods that generate features.

Every feature f has a place b(f) and a sign s(f), both random. A row x becomes Σ s(f) x_f, summed at each
place. A weight is sketched likewise, along its rows. The product of both sketches estimates the product of
row and weight without bias. Places and signs follow from the run's seed, so nobody has to send them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.network.sparse import Sparse, spmm, to_scipy
from fedepd.rng import seeded_numpy

WIDTH = 256
"""Columns of a sketch. Features of at most so many columns are their own sketch."""


@dataclass(frozen=True, eq=False)
class Sketch:
    """The map from d features to r columns."""

    matrix: Sparse
    """[r, d]: in the column of each feature its sign, at its place."""

    @classmethod
    def of(cls, num_features: int, seed: int, width: int = WIDTH) -> Sketch:
        """The sketch of a run. It is the identity, and exact, where there are at most ``width`` features."""
        if num_features < 1 or width < 1:
            raise BadConfig(
                f"a sketch has {num_features} features and {width} columns; give at least 1 of each"
            )
        return _sketch(num_features, seed, width)

    @property
    def width(self) -> int:
        """r."""
        return self.matrix.shape[0]

    def rows(self, x: Tensor) -> Tensor:
        """The sketch of every row of a dense or sparse X [n, d]: [n, r]. A sparse X is never made dense."""
        if x.layout == torch.sparse_csr:
            return torch.from_numpy((to_scipy(x) @ to_scipy(self.matrix.transposed)).toarray())
        return self.matrix.times(x.t()).t().contiguous()

    def weight(self, weight: Tensor) -> Tensor:
        """The sketch of a weight [d, h], with a gradient for it: [r, h]."""
        return spmm(self.matrix, weight)


@lru_cache(maxsize=8)
def _sketch(num_features: int, seed: int, width: int) -> Sketch:
    if num_features <= width:
        return Sketch(Sparse.of(sp.identity(num_features, dtype=np.float32, format="csr"), symmetric=True))
    draws = seeded_numpy(seed, "sketch", num_features, width)
    places = draws.integers(width, size=num_features)
    signs = draws.choice(np.array([-1, 1], dtype=np.float32), num_features)
    entries = (signs, (places, np.arange(num_features)))
    return Sketch(Sparse.of(sp.csr_matrix(entries, shape=(width, num_features))))
