from __future__ import annotations

import itertools
from math import isnan, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedepd.errors import BadData
from fedepd.reproduction.judging.statistics import (
    compare_seeds,
    critical_difference,
    holm,
    smallest_wilcoxon_p,
    welch_p,
    wilcoxon_p,
)

fractions = st.integers(0, 1000).map(lambda thousandths: thousandths / 1000)
rows = st.lists(fractions, min_size=3, max_size=8)


def test_five_seeds_by_hand() -> None:
    """Means 3 and 1, variances 10/4 and 3.5/4, so t = 2 / sqrt(3.375 / 5) = 2.434, with df = 3.375² /
    ((2.5² + 0.875²) / 4) = 6.494.

    All five differences (2, 0.5, 2, 3, 2.5) are positive: 2 of the 32 signs are as extreme. Their variance is
    3.5 / 4 and the 0.975 quantile of t with 4 degrees of freedom 2.776445, so that the interval is 2 ±
    2.776445 · sqrt(0.875 / 5).
    """
    found = compare_seeds([2, 1, 3, 4, 5], [0, 0.5, 1, 1, 2.5])
    assert found.difference == pytest.approx(2.0)
    assert found.half_width == pytest.approx(2.776445 * (0.875 / 5) ** 0.5, abs=1e-6)
    assert found.welch_p == pytest.approx(2 * stats.t.sf(2.434322, df=6.494432), abs=1e-6)
    assert found.wilcoxon_p == smallest_wilcoxon_p(5) == 0.0625
    assert found.rank_sum == 15
    assert found.n == 5


def test_ties_and_zeros_of_the_signed_ranks_by_hand() -> None:
    """0 is dropped; |1|, |1|, |2| have ranks 1.5, 1.5, 3, and W+ = 4.5 of 6. Of the eight signs, W+ is 0,
    1.5, 1.5, 3, 3, 4.5, 4.5, 6: six are at least 1.5 from the middle, 3."""
    assert wilcoxon_p([0, -1, 1, 2]) == pytest.approx(6 / 8)
    assert compare_seeds([0, -1, 1, 2], [0] * 4).rank_sum == 4.5 - 1.5


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [([], []), ([1.0], [2.0]), ([1.0, 2.0], [3.0, 3.5]), ([1.0, nan, 2.0], [2.0, 3.0, 4.0])],
)
def test_too_few_seeds_cannot_tell(ours: list[float], theirs: list[float]) -> None:
    found = compare_seeds(ours, theirs)
    assert isnan(found.welch_p)
    assert isnan(found.wilcoxon_p)
    assert isnan(found.half_width)
    assert found.n == min(2, len(ours))


def test_a_missing_seed_is_left_out_of_both_rows() -> None:
    assert compare_seeds([1, 2, nan, 4.5], [0, 1, 9, 2]) == compare_seeds([1, 2, 4.5], [0, 1, 2])


def test_equal_and_constant_rows() -> None:
    same = compare_seeds([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    assert (same.difference, same.half_width, same.wilcoxon_p) == (0, 0, 1)
    assert same.welch_p == pytest.approx(1)
    assert welch_p([0.1] * 3, [0.1] * 3) == 1
    assert welch_p([0.3] * 3, [0.1] * 3) == 0
    assert 0 < welch_p([0.3] * 3, [0.1, 0.2, 0.3]) < 1


def test_rounding_errors_break_no_ties() -> None:
    """0.3 - 0.2 and 0.2 - 0.1 differ in the last bit, and 0.1 + 0.2 - 0.3 is not 0."""
    assert wilcoxon_p([0.3 - 0.2, 0.2 - 0.1, -0.1, 0.1 + 0.2 - 0.3]) == wilcoxon_p([1, 1, -1, 0])


def test_rows_of_different_length_are_refused() -> None:
    with pytest.raises(BadData, match="one row has 2 scores and the other 3"):
        compare_seeds([1, 2], [1, 2, 3])


@given(rows, st.data())
def test_welch_is_scipys(ours: list[float], data: st.DataObject) -> None:
    theirs = data.draw(st.lists(fractions, min_size=len(ours), max_size=len(ours)))
    if len(set(ours)) > 1 and len(set(theirs)) > 1:
        assert compare_seeds(ours, theirs).welch_p == pytest.approx(
            stats.ttest_ind(ours, theirs, equal_var=False).pvalue
        )


@given(rows, st.data())
def test_the_interval_is_scipys(ours: list[float], data: st.DataObject) -> None:
    theirs = data.draw(st.lists(fractions, min_size=len(ours), max_size=len(ours)))
    found = compare_seeds(ours, theirs)
    if np.ptp(np.subtract(ours, theirs)) > 1e-9:
        low, high = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
        assert (found.difference - found.half_width, found.difference + found.half_width) == pytest.approx(
            (low, high), abs=1e-9
        )


@given(st.lists(st.integers(-6, 6), min_size=3, max_size=8))
def test_the_signed_rank_test_counts_all_signs(differences: list[int]) -> None:
    kept = np.array([d for d in differences if d])
    ranks = stats.rankdata(np.abs(kept))
    sums = [
        sum(r for r, sign in zip(ranks, signs, strict=True) if sign)
        for signs in itertools.product((0, 1), repeat=len(kept))
    ]
    middle, found = ranks.sum() / 2, ranks[kept > 0].sum()
    extreme = sum(abs(s - middle) >= abs(found - middle) for s in sums)
    assert wilcoxon_p(differences) == pytest.approx(extreme / len(sums))
    if len(set(np.abs(kept))) == len(differences):
        assert wilcoxon_p(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue)


@given(rows, st.data())
def test_the_smallest_p_is_a_bound_and_order_does_not_matter(ours: list[float], data: st.DataObject) -> None:
    theirs = data.draw(st.lists(fractions, min_size=len(ours), max_size=len(ours)))
    there, back = compare_seeds(ours, theirs), compare_seeds(theirs, ours)
    assert smallest_wilcoxon_p(len(ours)) <= there.wilcoxon_p <= 1
    assert (there.welch_p, there.wilcoxon_p) == pytest.approx((back.welch_p, back.wilcoxon_p))
    assert there.rank_sum == -back.rank_sum


def test_holm_by_hand() -> None:
    """Sorted 0.01, 0.02, 0.03, 0.5: times 4, 3, 2, 1 gives 0.04, 0.06, 0.06, 0.5; NaN is no fifth test."""
    assert holm([0.5, 0.02, nan, 0.01, 0.03]) == pytest.approx([0.5, 0.06, nan, 0.04, 0.06], nan_ok=True)
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), max_size=12))
def test_holm_keeps_order_and_only_raises(pvalues: list[float]) -> None:
    corrected = holm(pvalues)
    assert all(raw <= p <= 1 for raw, p in zip(pvalues, corrected, strict=True))
    in_order = [p for _, p in sorted(zip(pvalues, corrected, strict=True))]
    assert in_order == sorted(in_order)
    assert corrected == [] or min(corrected) == pytest.approx(min(1.0, len(pvalues) * min(pvalues)))


def made_up(datasets: int) -> dict[str, dict[str, float]]:
    """``good`` is always best; ``b`` and ``c`` take turns."""
    return {f"d{d}": {"c": 0.5 + 0.01 * (d % 2), "good": 0.9 - 0.01 * d, "b": 0.505} for d in range(datasets)}


def test_friedman_is_scipys() -> None:
    scores = made_up(6)
    columns = [[of_rows[row] for of_rows in scores.values()] for row in ("good", "b", "c")]
    assert critical_difference(scores).friedman_p == pytest.approx(stats.friedmanchisquare(*columns).pvalue)
    assert critical_difference({d: dict.fromkeys("abc", 0.5) for d in "xyz"}).friedman_p == 1
    assert isnan(critical_difference(made_up(2)).friedman_p)
    assert isnan(critical_difference({d: {"a": 0.1, "b": 0.2} for d in "xyz"}).friedman_p)


def test_critical_difference_by_hand() -> None:
    """Twelve datasets: ranks 1, 2.5, 2.5. Each pair with ``good`` has raw p 2 / 2^12, times 3 and 2 by
    Holm; b and c differ by +0.005 and -0.005 in turn, so p = 1."""
    found = critical_difference(made_up(12))
    assert found.mean_ranks == {"good": 1.0, "c": 2.5, "b": 2.5}
    assert next(iter(found.mean_ranks)) == "good"
    assert found.pairwise["good", "c"] == pytest.approx(6 / 2**12)
    assert found.pairwise["good", "b"] == pytest.approx(6 / 2**12)
    assert found.pairwise["c", "b"] == 1
    assert found.groups == (("c", "b"),)
    assert found.datasets == tuple(f"d{d}" for d in range(12))


def test_few_datasets_tell_nothing_apart() -> None:
    """With four, Wilcoxon cannot go below 0.125; with two, neither test gives anything."""
    for count in (2, 4):
        found = critical_difference(made_up(count))
        assert [set(group) for group in found.groups] == [{"good", "b", "c"}]
    assert isnan(critical_difference(made_up(2)).friedman_p)
    assert critical_difference({}).groups == ()


def test_groups_may_overlap() -> None:
    """a and c are told apart, b lies between and is told apart from neither: b's differences change sign."""
    scores = {
        f"d{d}": {"a": 0.9, "b": 0.8 + (0.2 if d % 3 == 0 else -0.2 if d % 3 == 1 else 0), "c": 0.7}
        for d in range(9)
    }
    found = critical_difference(scores)
    assert found.friedman_p < 0.05
    assert found.groups == (("a", "b"), ("b", "c"))


def test_a_row_missing_on_a_dataset_is_left_out() -> None:
    scores = made_up(4)
    scores["d1"]["b"] = nan
    scores["d2"]["extra"] = 0.3
    found = critical_difference(scores)
    assert found.left_out == ("b", "extra")
    assert set(found.mean_ranks) == {"good", "c"}


@given(st.lists(st.lists(fractions, min_size=4, max_size=4), min_size=1, max_size=7))
def test_ranks_sum_and_every_row_is_placed(table: list[list[float]]) -> None:
    found = critical_difference(
        {f"d{i}": dict(zip("wxyz", line, strict=True)) for i, line in enumerate(table)}
    )
    assert sum(found.mean_ranks.values()) == pytest.approx(10)
    assert list(found.mean_ranks.values()) == sorted(found.mean_ranks.values())
    if found.friedman_p < 0.05:
        assert not any(
            found.pairwise[pair] < 0.05 for group in found.groups for pair in itertools.combinations(group, 2)
        )
    else:
        assert found.groups == (tuple(found.mean_ranks),)
