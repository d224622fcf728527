"""Scores with intervals, and differences of two models on the same nodes. The numbers are derived by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedepd.deploy.difference import difference, found, macro_f1, measured
from fedepd.longtail import Tiers
from fedepd.metrics import confusion_matrix, scores

TIERS = Tiers((0,), (1,), (2,))


def test_a_difference_is_a_sum_of_one_term_per_node() -> None:
    """One class of ten nodes. The second model is right about six that the first is wrong about.

    Each term is 1/10. With two more of them the variance is 8/100, so half the interval is 0.5544.
    """
    y, first = np.zeros(10, dtype=np.int64), np.ones(10, dtype=np.int64)
    second = np.array([0] * 6 + [1] * 4)
    gain = difference(y, first, second, range(2))
    assert gain.nodes == 10
    assert gain.value == pytest.approx(0.6)
    assert (gain.low, gain.high) == pytest.approx((0.0456, 1.0), abs=1e-4)


@pytest.mark.parametrize(("won", "lost"), [(5, 0), (6, 0), (7, 1), (8, 1), (9, 2), (10, 2), (20, 10)])
def test_it_agrees_with_mcnemars_exact_test(won: int, lost: int) -> None:
    """In one class: of the nodes that differ, half would be won by chance."""
    from scipy.stats import binomtest

    y = np.zeros(60, dtype=np.int64)
    first, second = y.copy(), y.copy()
    first[:won], second[won : won + lost] = 1, 1
    sure = difference(y, first, second, [0]).low > 0
    assert sure == (binomtest(won, won + lost).pvalue < 0.05)


def test_a_rare_class_weighs_as_much_as_a_large_one() -> None:
    """Classes of 4 and 2 nodes: a node moves the difference by 1/8 or by 1/4."""
    y = np.array([0, 0, 0, 0, 1, 1])
    first, second = np.array([0, 0, 1, 1, 0, 0]), np.array([0, 0, 0, 1, 1, 0])
    assert difference(y, first, second, [0, 1]).value == pytest.approx(1 / 8 + 1 / 4)
    assert difference(y, first, second, [1]).value == pytest.approx(1 / 2)
    assert difference(y, first, second, [1]).nodes == 2


def test_without_a_node_that_differs_few_nodes_prove_little() -> None:
    """Of 10 nodes none differs. If a share of 1 - 0.05^(1/10) = 26 % did, one sample in 20 would hide it."""
    y = np.zeros(10, dtype=np.int64)
    gain = difference(y, y, y, [0])
    assert (gain.value, gain.low, gain.high) == pytest.approx((0.0, -0.2589, 0.2589), abs=1e-4)


def test_without_nodes_nothing_is_measured() -> None:
    nobody = np.empty(0, dtype=np.int64)
    assert math.isnan(difference(nobody, nobody, nobody, [0]).value)
    assert math.isnan(macro_f1(np.zeros((2, 2), dtype=np.int64)).value)


def test_over_all_classes_it_is_the_difference_of_balanced_accuracies() -> None:
    rng = np.random.default_rng(0)
    y, first, second = (rng.integers(0, 3, 50) for _ in range(3))
    expected = [scores(confusion_matrix(y, each, 3), TIERS)["bacc"] for each in (first, second)]
    assert difference(y, first, second, range(3)).value == pytest.approx(expected[1] - expected[0])


def test_scores_are_those_of_the_report_and_have_intervals() -> None:
    y, predicted = np.array([0] * 10 + [1] * 2), np.array([0] * 8 + [1] * 4)
    found_here = measured(y, predicted, TIERS, 3)
    expected = scores(confusion_matrix(y, predicted, 3), TIERS)
    for name, each in found_here.items():
        assert each.value == pytest.approx(expected[name], nan_ok=True)
    assert [found_here[f"{tier}_acc"].nodes for tier in ("head", "medium", "tail")] == [10, 2, 0]
    assert math.isnan(found_here["tail_acc"].low)
    head = found_here["head_acc"]  # Wilson's interval of 8 of 10
    assert (head.low, head.high) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert found(y, predicted, 3).tolist()[:2] == pytest.approx([0.8, 1.0])


def test_macro_f1_of_four_right_nodes_has_an_interval() -> None:
    """Wilson's lower end of 4 of 4 is 4 / (4 + 1.96^2) = 0.5101, so that of F1 is 2 x 0.5101 / 1.5101."""
    each = macro_f1(np.array([[4, 0], [0, 0]]))
    assert (each.value, each.low, each.high) == pytest.approx((1.0, 0.6756, 1.0), abs=1e-4)


def test_macro_f1_is_the_mean_over_the_classes_that_occur() -> None:
    """Class 0: 2 right of a union of 4, so F1 = 2/3. Class 1: 1 right of 3, so F1 = 1/2."""
    each = macro_f1(np.array([[2, 1, 0], [1, 1, 0], [0, 0, 0]]))
    assert each.value == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert each.low < each.value < each.high


@pytest.mark.parametrize(
    ("sizes", "rate"), [([20], 0.2), ([10, 10, 10], 0.15), ([100, 40, 20, 10, 5, 2, 1, 1], 0.12)], ids=str
)
def test_the_interval_holds_the_truth_about_as_often_as_it_says(sizes: list[int], rate: float) -> None:
    """Each model is right where the other is wrong at the same rate, so the true difference is 0."""
    rng, hits = np.random.default_rng(1), 0
    y = np.repeat(np.arange(len(sizes)), sizes)
    for _ in range(400):
        draw = rng.random(len(y))
        first = np.where(draw < rate, y, -1)
        second = np.where((draw >= rate) & (draw < 2 * rate), y, -1)
        gain = difference(y, first, second, range(len(sizes)))
        hits += gain.low <= 0 <= gain.high
    assert 0.92 <= hits / 400 <= 1
