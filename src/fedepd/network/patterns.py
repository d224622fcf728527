"""Sparse patterns whose values change in every step: CSR tensors with 32-bit indices, of which only the
places count.
"""

from __future__ import annotations

import torch
from torch import Tensor


def csr(start: Tensor, index: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(start, index, values, size=shape, check_invariants=False)


def with_values(pattern: Tensor, values: Tensor) -> Tensor:
    return csr(pattern.crow_indices(), pattern.col_indices(), values, (pattern.shape[0], pattern.shape[1]))


def dots(pattern: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """⟨left_i, right_j⟩ for every entry (i, j) of a CSR pattern, [m]."""
    out: Tensor = torch.sparse.sampled_addmm(pattern, left, right.t(), beta=0.0).values()
    return out
