"""Products with a gradient against torch's own, bit by bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fedepd.network import products

SHAPES = [(1, 5, 7), (20, 3, 5), (20, 70, 64), (130, 64, 12), (40, 200, 40)]
"""Rows, inner, width: MKL computes the first two, and in the last one it sums in parts."""


@pytest.mark.skipif(not torch._C.has_mkl, reason="torch has no MKL, whose bits these are")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "wanted", [(True, True, True), (False, True, True), (True, False, False), (False,) * 3]
)
def test_products_and_their_gradients_have_the_bits_of_torch(
    shape: tuple[int, int, int], wanted: tuple[bool, bool, bool]
) -> None:
    rows, inner, width = shape
    draws = torch.Generator().manual_seed(rows)
    sizes = (rows, inner), (inner, width), (width,)
    parts = [
        torch.randn(size, generator=draws).requires_grad_(w) for size, w in zip(sizes, wanted, strict=True)
    ]
    left, right, bias = parts
    weights = torch.randn(rows, width, generator=draws)

    def found(out: Tensor) -> list[Tensor]:
        leaves = [part for part in parts if part.requires_grad]
        grads = torch.autograd.grad((weights * out * out).sum(), leaves, allow_unused=True) if leaves else ()
        return [out.detach(), *(grad for grad in grads if grad is not None)]

    for ours, theirs in (
        (products.times(left, right), left @ right),
        (products.affine(left, right, bias), torch.addmm(bias, left, right)),
    ):
        assert ours.requires_grad == theirs.requires_grad
        pairs = zip(found(ours), found(theirs), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
