"""The gain of one model over another, from counts that can be added up."""

from __future__ import annotations

import numpy as np
import pytest

from fedepd.longtail import tiers
from fedepd.metrics import confusion_matrix, scores
from fedepd.rounds.gains import FIRST, NEITHER, SECOND, Counts, Gain, best, gain

CLASSES = 5


def counted(y: Counts, a: Counts, b: Counts, classes: int = CLASSES) -> tuple[Counts, Counts]:
    """The first model's confusion matrix and the changes, node by node."""
    changed = np.zeros((3, classes, classes), dtype=np.int64)
    for true, first, second in zip(y, a, b, strict=True):
        if first != second:
            changed[FIRST if first == true else SECOND if second == true else NEITHER, first, second] += 1
    return confusion_matrix(y, a, classes), changed


def models(seed: int, nodes: int = 40) -> tuple[Counts, Counts, Counts]:
    """Class 4 occurs in predictions only."""
    draws = np.random.default_rng(seed)
    y = draws.integers(0, CLASSES - 1, nodes)
    a = np.where(draws.random(nodes) < 0.5, y, draws.integers(0, CLASSES, nodes))
    b = np.where(draws.random(nodes) < 0.6, y, np.where(draws.random(nodes) < 0.5, a, 4))
    return y, a, b


@pytest.mark.parametrize("metric", ["acc", "macro_f1"])
@pytest.mark.parametrize("seed", range(20))
def test_the_gain_is_the_difference_of_the_scores(metric: str, seed: int) -> None:
    y, a, b = models(seed)
    first, changed = counted(y, a, b)
    cut = tiers(first.sum(1))
    after = scores(confusion_matrix(y, b, CLASSES), cut)[metric]
    assert gain(first, changed, metric).value == pytest.approx(after - scores(first, cut)[metric], abs=1e-12)


def test_the_interval_of_accuracy_is_mcnemars() -> None:
    # 100 nodes of class 0: 60 right before and after, 20 gained, 10 lost, 10 wrong twice. The gain is 0.1.
    # Its variance is (30 - (20 - 10)² / 100) / 100² = 0.0029, so half the interval is 0.10555.
    first = np.array([[70, 30], [0, 0]])
    changed = np.zeros((3, 2, 2), dtype=np.int64)
    changed[SECOND, 1, 0], changed[FIRST, 0, 1] = 20, 10
    found = gain(first, changed, "acc")
    assert found.value == pytest.approx(0.1)
    assert found.half == pytest.approx(1.96 * 0.0029**0.5)
    assert not found.sure  # 0.1 is within 0.1056


def test_the_interval_of_macro_f1_by_hand() -> None:
    # Two classes with 10 nodes each. Before: 5 of class 0 and all of class 1 are right, so T = 5, 10 and
    # D = 15, 25. After, 4 more of class 0 are right: T = 9, 10 and D = 19, 21. The means are D̄ = 17, 23 and
    # F̄ = (10/15 + 18/19) / 2, (20/25 + 20/21) / 2. Each of the 4 nodes has the term
    # ((2 - F̄₀) / D̄₀ + F̄₁ / D̄₁) / 2, and all other nodes have 0.
    first = np.array([[5, 5], [0, 10]])
    changed = np.zeros((3, 2, 2), dtype=np.int64)
    changed[SECOND, 1, 0] = 4
    f0, f1 = (10 / 15 + 18 / 19) / 2, (20 / 25 + 20 / 21) / 2
    term = ((2 - f0) / 17 + f1 / 23) / 2
    found = gain(first, changed, "macro_f1")
    assert found.value == pytest.approx(4 * term)
    assert found.value == pytest.approx((18 / 19 + 20 / 21 - 10 / 15 - 20 / 25) / 2)
    assert found.half == pytest.approx(1.96 * (4 * term**2 - (4 * term) ** 2 / 20) ** 0.5)


def test_the_interval_is_that_of_a_bootstrap() -> None:
    """400 resamples know a standard error to 1 / sqrt(800) = 3.5 %. Three times that is 11 %."""
    y, a, b = models(0, nodes=2000)
    found, draws, gains = gain(*counted(y, a, b), "macro_f1"), np.random.default_rng(1), []
    for _ in range(400):
        again = draws.integers(0, 2000, 2000)
        gains.append(gain(*counted(y[again], a[again], b[again]), "macro_f1").value)
    assert found.half == pytest.approx(1.96 * np.std(gains), rel=0.11)


def test_counts_of_clients_add_up_to_the_counts_of_all_nodes() -> None:
    y, a, b = models(3)
    parts = [counted(y[k::3], a[k::3], b[k::3]) for k in range(3)]
    first, changed = (sum(each) for each in zip(*parts, strict=True))
    assert gain(first, changed, "macro_f1") == gain(*counted(y, a, b), "macro_f1")


@pytest.mark.parametrize("metric", ["acc", "macro_f1"])
def test_without_nodes_or_changes_there_is_no_gain(metric: str) -> None:
    empty = np.zeros((3, 2, 2), dtype=np.int64)
    for first in (np.zeros((2, 2), dtype=np.int64), np.array([[3, 1], [0, 2]])):
        assert gain(first, empty, metric) == Gain(0.0, 0.0)
        assert not gain(first, empty, metric).sure


def test_the_best_has_the_largest_gain_and_the_first_of_equals_wins() -> None:
    first, none = np.array([[5, 5], [0, 10]]), np.zeros((3, 2, 2), dtype=np.int64)
    some, more = none.copy(), none.copy()
    some[SECOND, 1, 0], more[SECOND, 1, 0] = 1, 3
    assert best(first, [none, some, more, more], "acc") == (2, gain(first, more, "acc"))
    assert best(first, [none, none], "acc")[0] == 0
