from __future__ import annotations

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.parts.sketch import WIDTH, Sketch
from fedepd.network.sparse import to_scipy


def test_few_features_are_their_own_sketch() -> None:
    sketch = Sketch.of(5, seed=0)
    x, weight = torch.randn(4, 5), torch.randn(5, 3)
    assert sketch.width == 5
    assert torch.equal(sketch.rows(x), x)
    assert torch.equal(sketch.weight(weight), weight)
    assert torch.equal(sketch.rows(x.to_sparse_csr()), x)
    assert Sketch.of(WIDTH, 0).width == Sketch.of(WIDTH + 1, 0).width == WIDTH


def test_every_feature_has_one_place_and_one_sign() -> None:
    """Of 1,000 features about half have either sign: 500 ± 5 · 16. About 62 fall on each of 16 places."""
    matrix = to_scipy(Sketch.of(1000, seed=3, width=16).matrix.matrix)
    assert matrix.shape == (16, 1000)
    assert matrix.getnnz(axis=0).tolist() == [1] * 1000
    assert set(matrix.data.tolist()) == {-1.0, 1.0}
    assert 420 < int((matrix.data > 0).sum()) < 580
    assert 20 < matrix.getnnz(axis=1).min() <= matrix.getnnz(axis=1).max() < 110


def test_rows_and_weights_by_the_definition() -> None:
    """sk(x)_j = Σ_{f at j} s_f x_f, one feature after the other; sparse and dense rows alike."""
    sketch, x, weight = Sketch.of(7, seed=1, width=3), torch.randn(4, 7), torch.randn(7, 2)
    matrix = sketch.matrix.matrix.to_dense()
    rows, sketched = torch.zeros(4, 3), torch.zeros(3, 2)
    for f in range(7):
        place = int(matrix[:, f].abs().argmax())
        rows[:, place] += matrix[place, f] * x[:, f]
        sketched[place] += matrix[place, f] * weight[f]
    torch.testing.assert_close(sketch.rows(x), rows)
    torch.testing.assert_close(sketch.rows(x.to_sparse_csr()), rows)
    torch.testing.assert_close(sketch.weight(weight), sketched)


def test_a_product_of_sketches_has_no_bias() -> None:
    """The mean of sk(x)·sk(w) over 500 seeds is x·w within 4 standard errors.

    A product varies by about |x| |w| / sqrt(r), r = 4, and the mean by 1 / sqrt(500) of it.
    """
    draws = torch.Generator().manual_seed(0)
    x, w = torch.randn(1, 40, generator=draws), torch.randn(40, 1, generator=draws)
    found = torch.cat([s.rows(x) @ s.weight(w) for s in (Sketch.of(40, seed, 4) for seed in range(500))])
    error = found.std() / 500**0.5
    assert abs(float(found.mean() - x @ w)) < 4 * float(error)
    expected = float(x.norm() * w.norm()) / 2 / 500**0.5
    assert expected / 2 < float(error) < 2 * expected  # it does vary by what it should


def test_the_gradient_of_a_weight() -> None:
    """Of Σ sk(W) every row has its sign, as each feature is at one place."""
    sketch, weight = Sketch.of(6, seed=2, width=2), torch.randn(6, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(sketch.weight(weight).sum(), weight)
    assert torch.equal(grad, sketch.matrix.matrix.to_dense().sum(0)[:, None].expand(6, 3))


def test_the_seed_alone_decides() -> None:
    first, again, other = (Sketch.of(300, seed).matrix.matrix.to_dense() for seed in (4, 4, 5))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("wrong", [{"num_features": 0}, {"num_features": 5, "width": 0}])
def test_an_empty_sketch_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(BadConfig, match="at least 1"):
        Sketch.of(seed=0, **wrong)
