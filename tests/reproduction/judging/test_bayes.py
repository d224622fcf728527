"""The Bayesian signed-rank test against cases that can be worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedepd.reproduction.judging.bayes import SAMPLES, signed_rank_posterior

NEAR = 4 * 0.5 / math.sqrt(SAMPLES)  # four standard errors of a probability of one half: 0.009


def test_one_difference_far_above_the_region() -> None:
    """The prior's weight w is Beta(1/2, 1), so P(w < x) = sqrt(x).

    With d > 2 rope only the pair (prior, prior) lies within the region, so "better" has the share 1 - w^2. It
    is the largest where w^2 < 1/2: P = (1/2)^(1/4) = 0.8409. "Level" has the rest.
    """
    found = signed_rank_posterior([5.0])
    assert found.better == pytest.approx(0.5**0.25, abs=NEAR)
    assert found.level == pytest.approx(1 - 0.5**0.25, abs=NEAR)
    assert found.worse == 0


def test_one_difference_just_above_the_region() -> None:
    """With rope < d < 2 rope the mean of d and 0 is within the region. Only (d, d) is above it.

    Its share (1 - w)^2 is above 1/2 where w < 1 - sqrt(1/2): P = sqrt(1 - sqrt(1/2)) = 0.5412.
    """
    assert signed_rank_posterior([1.5]).better == pytest.approx(math.sqrt(1 - math.sqrt(0.5)), abs=NEAR)


def test_one_difference_below_the_region_mirrors_one_above() -> None:
    one, other = signed_rank_posterior([5.0]), signed_rank_posterior([-5.0])
    assert (one.worse, one.level, one.better) == (other.better, other.level, other.worse)


def test_without_a_region_half_of_an_edge_counts_for_either_side() -> None:
    """Pairs with 0 in them and d > 0: (0, 0) lies on both edges, half above and half below.

    "Better" has 1 - w^2 / 2 and "worse" w^2 / 2, so "better" is always the larger share.
    """
    found = signed_rank_posterior([5.0], rope=0.0)
    assert (found.worse, found.level, found.better) == (0, 0, 1)


def test_symmetric_differences_favour_neither() -> None:
    found = signed_rank_posterior([-8.0, -5.0, -3.0, 3.0, 5.0, 8.0])
    assert found.worse == pytest.approx(found.better, abs=2 * NEAR)
    assert found.worse > 0.3


def test_no_difference_is_level() -> None:
    assert signed_rank_posterior(np.zeros(9)).level == 1
    assert signed_rank_posterior(np.full(9, 0.99)).level == 1  # within the region, every mean of two


def test_all_far_above_is_better() -> None:
    found = signed_rank_posterior(np.linspace(4.0, 9.0, 14))
    assert found.better > 0.999


def test_the_edge_of_the_region_is_not_crossed_by_rounding() -> None:
    """0.1 + 0.2 is more than 0.3 as a float. Three tenths are no more than three tenths."""
    assert signed_rank_posterior([0.1 + 0.2] * 5, rope=0.3) == signed_rank_posterior([0.3] * 5, rope=0.3)


def test_the_same_differences_give_the_same_numbers_in_any_order_but_for_chance() -> None:
    some = [1.0, 4.0, -2.0, 7.0, 0.5]
    assert signed_rank_posterior(some) == signed_rank_posterior(some)
    assert signed_rank_posterior(some[::-1]).better == pytest.approx(
        signed_rank_posterior(some).better, abs=2 * NEAR
    )
    found = signed_rank_posterior(some)
    assert found.worse + found.level + found.better == pytest.approx(1)


def test_missing_differences_are_left_out() -> None:
    assert signed_rank_posterior([3.0, float("nan"), 4.0]) == signed_rank_posterior([3.0, 4.0])
    assert math.isnan(signed_rank_posterior([float("nan")]).better)
