"""Dense products with a gradient, which is computed by dense products, too. They have autograd's bits."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fedepd.network.kernels import dense_product


def times(left: Tensor, right: Tensor) -> Tensor:
    """``left @ right``: [r, w]."""
    if not _wanted(left, right):
        return dense_product(left, right)
    out: Tensor = _Affine.apply(left, right, None)  # type: ignore[no-untyped-call]
    return out


def affine(left: Tensor, right: Tensor, bias: Tensor) -> Tensor:
    """``left @ right + bias``: [r, w]."""
    if not _wanted(left, right, bias):
        return dense_product(left, right, bias)
    out: Tensor = _Affine.apply(left, right, bias)  # type: ignore[no-untyped-call]
    return out


def _wanted(*parts: Tensor) -> bool:
    return torch.is_grad_enabled() and any(part.requires_grad for part in parts)


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(left, right)
        return dense_product(left, right, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (grad,), (left, right) = grads, ctx.saved_tensors
        of_left, of_right, of_bias = ctx.needs_input_grad
        return (
            dense_product(grad, right.t()) if of_left else None,
            dense_product(left.t(), grad) if of_right else None,
            grad.sum(0) if of_bias else None,
        )
