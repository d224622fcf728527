"""The balanced contrast: HierTail's checks 2 and 3 in docs/reading-the-rivals.md.

Its gradient is held against autograd's.
"""

from __future__ import annotations

from math import exp, log

import pytest
import torch
from torch import Tensor

from fedepd.methods.parts import contrast
from fedepd.methods.parts.contrast import balanced_contrast, group_contrast


def plain_contrast(rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """Step 4 of HierTail with whole matrices, differentiated by autograd, through the maximum as well."""
    similar = rows @ rows.t() / temperature
    e = torch.exp(similar - similar.max(1, keepdim=True).values) + 1e-7
    same = (labels[:, None] == labels).to(rows.dtype)
    count = same.sum(1)
    mass = (e / count).sum(1)
    return (-(same * torch.log(e / mass[:, None])).sum(1) / count).mean()


def test_contrast_of_two_orthonormal_rows() -> None:
    """Check 2. Two classes, temperature 1: e_ii = 1, e_ij = 1/e and D = 1 + 1/e.

    So the loss is log(1 + 1/e) = 0.3133, up to the floor 1e-7.
    """
    loss = balanced_contrast(torch.eye(2), torch.tensor([0, 1]), 1.0)
    assert float(loss) == pytest.approx(log(1 + exp(-1)), abs=1e-6)


def test_a_class_weighs_the_same_whatever_its_size() -> None:
    """Check 3. Every member of class 1 twice: each D_i stays, so a row of class 0 has the same loss.

    It is 1 of 2 rows, then 1 of 3.
    """
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    doubled = torch.cat([rows, rows[1:]])
    before = balanced_contrast(rows, torch.tensor([0, 1]), 1.0)
    after = balanced_contrast(doubled, torch.tensor([0, 1, 1]), 1.0)
    assert float(after) == pytest.approx(
        float(before), rel=1e-5
    )  # all rows have one loss, by symmetry, and keep it


@pytest.mark.parametrize("temperature", [1.0, 0.1, 0.01])
def test_contrast_and_its_gradient(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against autograd on whole matrices; at low temperatures the floor 1e-7 holds most positives."""
    monkeypatch.setattr(contrast, "_CHUNK", 5)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(17, 4, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, 5, (17,), generator=generator)
    ours, theirs = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    a, b = balanced_contrast(ours, labels, temperature), plain_contrast(theirs, labels, temperature)
    assert float(a.detach()) == pytest.approx(float(b.detach()), rel=1e-6)
    (g,), (h,) = torch.autograd.grad(3 * a, ours), torch.autograd.grad(3 * b, theirs)
    assert torch.allclose(g, h, rtol=1e-6, atol=1e-9)


def test_one_centre_is_no_contrast_but_a_pull() -> None:
    """With one group every pair is positive: mean_i [log mean_j e_ij − mean_j log e_ij].

    It is 0 where all rows are alike and positive else.
    """
    alike = torch.ones(4, 3)
    assert float(group_contrast(alike, torch.ones(1, 3), 1.0)) == pytest.approx(0.0, abs=1e-6)
    assert float(group_contrast(torch.eye(3), torch.ones(1, 3), 1.0)) > 0.01
