"""The balanced contrastive loss of HierTail (b.4 and b.5 of methods.md section 5) with a hand-written gradient."""

from __future__ import annotations

from math import e, log2
from typing import Any

import numpy as np
import torch
from torch import Tensor

_FLOOR = 1e-7
_LOWEST = -90.0
"""2^-90 is lost beside the floor; below 2^-126 a power is a denormal number, ten times slower to compute."""
_CHUNK = 1024
"""Rows of a contrast held at a time."""


def group_contrast(nodes: Tensor, centres: Tensor, temperature: float) -> Tensor:
    """b.5: the contrast of nodes and all centres, a node belonging to its nearest centre."""
    with torch.no_grad():
        squares = (centres * centres).sum(1)
        distance = torch.addmm(
            squares, nodes, centres.t(), alpha=-2.0
        )  # squared, less the node's own square: the same order
        nearest = np.concatenate([distance.numpy().argmin(1), np.arange(centres.shape[0])])
    return balanced_contrast(torch.cat([nodes, centres]), torch.from_numpy(nearest), temperature)


def balanced_contrast(rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """b.4: mean_i [ log D_i − (1 / n_ℓi) Σ_{j: ℓj = ℓi} log e_ij ], where every class weighs the same in D_i."""
    out: Tensor = _BalancedContrast.apply(rows, labels, temperature)  # type: ignore[no-untyped-call]
    return out


def same_class(labels: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(how many rows have each row's class, [m]; those rows of the first row, of the second, ...)."""
    counts = np.bincount(labels)
    sizes = counts[labels]
    begins = (counts.cumsum() - counts)[labels] - (sizes.cumsum() - sizes)
    return sizes, labels.argsort(kind="stable")[begins.repeat(sizes) + np.arange(sizes.sum())]


class _BalancedContrast(torch.autograd.Function):
    """The gradient is taken along with the loss, some rows at a time."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
        sizes, members = same_class(labels.numpy())
        shares = torch.from_numpy(1.0 / sizes).to(rows.dtype)  # 1 / n_ℓ, [m]
        columns, share = rows.t() * (log2(e) / temperature), shares.numpy()
        grad, total, floor_mass, pairs = torch.zeros_like(rows), 0.0, _FLOOR * float(share.sum()), 0
        for start in range(0, rows.shape[0], _CHUNK):
            own, size = rows[start : start + _CHUNK], sizes[start : start + _CHUNK]
            slope = own @ columns  # similarity in base 2, [c, m]
            numbers = slope.numpy()
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
            grad[start : start + _CHUNK] += slope @ rows
            grad.addmm_(slope.t(), own)
        ctx.save_for_backward(grad.div_(temperature * max(rows.shape[0], 1)))
        return rows.new_tensor(total / max(rows.shape[0], 1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        return grads[0] * grad, None, None
