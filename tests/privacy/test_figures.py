"""Shares and areas, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedepd.privacy.figures import auc_figure, share


def test_a_share_has_wilsons_interval() -> None:
    """Wilson for 36 of 38: centre (36/38 + 1.96^2/76) / (1 + 1.96^2/38) = 0.9063, half width 0.0793."""
    figure = share("reidentified.rank1", "all", 36, 38, 1 / 98)
    assert figure.value == 36 / 38
    assert (figure.low, figure.high) == pytest.approx((0.8271, 0.9854), abs=1e-4)
    assert (figure.cases, figure.chance) == (38, 1 / 98)


def test_no_cases_give_no_number() -> None:
    figure = share("rows.single", "tail", 0, 0)
    assert all(math.isnan(value) for value in (figure.value, figure.low, figure.high))
    assert math.isnan(auc_figure("links.auc", "all", [], [1.0]).value)


def test_an_area_counts_pairs_and_halves_ties() -> None:
    """Positives 1, 3, 3 against negatives 2, 3: 0 + 0; 1 + 1/2; 1 + 1/2 of 6 pairs = 0.5."""
    figure = auc_figure("classes.auc", "all", [1, 3, 3], [2, 3])
    assert (figure.value, figure.cases, figure.chance) == (0.5, 5, 0.5)


def test_delongs_interval_by_hand() -> None:
    """Positives 1, 3, 5, 6; negatives 0, 2, 4.

    The positives beat 1, 2, 3, 3 of 3: shares 1/3, 2/3, 1, 1, mean 0.75, variance (ddof 1) 0.1019, of the
    mean 0.02546. The negatives lose to 4, 3, 2 of 4: shares 1, .75, .5, variance 0.0625, of the mean 0.02083.
    The standard error is sqrt(0.04630) = 0.2152: 0.75 +- 0.4217, cut at 1.
    """
    figure = auc_figure("links.auc", "all", [1, 3, 5, 6], [0, 2, 4])
    assert (figure.value, figure.low, figure.high) == pytest.approx((0.75, 0.3283, 1.0), abs=1e-4)


def test_sides_that_are_apart_still_have_an_interval() -> None:
    """Wilson for 3 of 3 begins at 1 / (1 + 1.96^2 / 3) = 0.4385."""
    apart = auc_figure("links.auc", "all", [5, 6, 7], [1, 2, 3, 4])
    assert (apart.value, apart.low, apart.high) == pytest.approx((1.0, 0.4385, 1.0), abs=1e-4)
    below = auc_figure("links.auc", "all", [1, 2, 3, 4], [5, 6, 7])
    assert (below.value, below.low, below.high) == pytest.approx((0.0, 0.0, 0.5615), abs=1e-4)


def test_equal_scores_are_a_coin_whatever_the_cases() -> None:
    figure = auc_figure("classes.auc", "all", [2.0] * 7, [2.0] * 5)
    assert (figure.value, figure.low, figure.high) == (0.5, 0.5, 0.5)


def test_the_interval_holds_the_true_area() -> None:
    """Normal scores one apart have the area Phi(1 / sqrt 2) = 0.7602; of 200 intervals about 190 hold it."""
    draws = np.random.default_rng(7)
    held = 0
    for _ in range(200):
        figure = auc_figure("x", "all", draws.normal(1, 1, 60), draws.normal(0, 1, 80))
        held += figure.low <= 0.7602 <= figure.high
    assert 180 <= held <= 198
