"""The balanced contrastive loss of HierTail, with a gradient written by hand.

The rows are representations with labels.
Rows i and j have the similarity s_ij = <row_i, row_j> / temperature.
With e_ij = exp(s_ij - max_j s_ij) + 1e-7 and n_l rows of label l, the loss is the mean over the rows i of

    log D_i - (1 / n_l) Σ log e_ij, the sum over the rows j of i's own label l,

where D_i = Σ_j e_ij / n_l(j), so that every label weighs the same however many rows it has.
"""

from __future__ import annotations

from math import e, log2
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedepd.network.kernels import dense_product

_FLOOR = 1e-7
_LOWEST = -90.0
"""Exponents of 2 are clamped here. 2^-90 is lost beside the floor, and powers below 2^-126 are denormal
numbers, which take ten times as long.
"""
_CHUNK = 1024
"""Rows whose similarities are held at a time."""


def group_contrast(nodes: Tensor, centres: Tensor, temperature: float) -> Tensor:
    """The contrast of nodes and centres together. The label of a node is its nearest centre."""
    with torch.no_grad():
        squares = (centres * centres).sum(1)
        # The squared distance without the node's own square, which does not change which centre is nearest.
        distance = torch.addmm(squares, nodes, centres.t(), alpha=-2.0)
        nearest = np.concatenate([distance.numpy().argmin(1), np.arange(centres.shape[0])])
    return balanced_contrast(torch.cat([nodes, centres]), torch.from_numpy(nearest), temperature)


def balanced_contrast(rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """The loss of rows [m, w] with labels [m], as the module says."""
    out: Tensor = _BalancedContrast.apply(rows, labels, temperature)  # type: ignore[no-untyped-call]
    return out


def same_class(labels: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """How many rows have the label of each row, [m], and which rows these are.

    The rows with the label of the first row come first, then those with the label of the second, and so on.
    """
    counts = np.bincount(labels)
    sizes = counts[labels]
    begins = (counts.cumsum() - counts)[labels] - (sizes.cumsum() - sizes)
    return sizes, labels.argsort(kind="stable")[begins.repeat(sizes) + np.arange(sizes.sum())]


class _BalancedContrast(torch.autograd.Function):
    """Computes the gradient together with the loss, some rows at a time, so that no [m, m] matrix is held."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
        sizes, members = same_class(labels.numpy())
        shares = torch.from_numpy(1.0 / sizes).to(rows.dtype)  # 1 / n_ℓ, [m]
        columns, share = rows.t() * (log2(e) / temperature), shares.numpy()
        grad, total, floor_mass, pairs = torch.zeros_like(rows), 0.0, _FLOOR * float(share.sum()), 0
        for start in range(0, rows.shape[0], _CHUNK):
            own, size = rows[start : start + _CHUNK], sizes[start : start + _CHUNK]
            slope = dense_product(own, columns)  # similarity in base 2, [c, m]
            numbers = slope.numpy()  # the same memory: from here on both names see each change
            line, top = np.arange(numbers.shape[0]), numbers.argmax(1)
            numbers -= numbers[line, top][:, None]
            slope.clamp_(min=_LOWEST).exp2_()  # e without its floor
            mass = torch.mv(slope, shares).numpy()
            floored_mass = mass + floor_mass  # D, [c]
            ends = size.cumsum()
            same = line.repeat(size) * rows.shape[0] + members[pairs : pairs + ends[-1]]
            pairs += ends[-1]
            positive = numbers.reshape(-1)[same]
            floored = positive + _FLOOR
            pull = positive / floored
            begins, own_share = ends - size, share[start : start + _CHUNK]
            total += float(
                np.log(floored_mass).sum()
                - np.add.reduceat(torch.from_numpy(floored).log_().numpy(), begins) @ own_share
            )
            slope.mul_(shares).div_(torch.from_numpy(floored_mass)[:, None])  # d loss / d similarity
            numbers.reshape(-1)[same] -= pull * own_share.repeat(size)
            numbers[line, top] += np.add.reduceat(pull, begins) * own_share - mass / floored_mass
            grad[start : start + _CHUNK] += dense_product(slope, rows)
            grad.addmm_(slope.t(), own)
        ctx.save_for_backward(grad.div_(temperature * max(rows.shape[0], 1)))
        return rows.new_tensor(total / max(rows.shape[0], 1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        return grads[0] * grad, None, None
