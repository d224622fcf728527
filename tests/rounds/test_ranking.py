"""Rankings against scikit-learn, and by hand where it has no word for it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics

from fedepd.rounds.ranking import POINTS, mean_average_precision, ranked_classes, ranked_together, ranking

nodes = st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=1, max_size=60)


@given(nodes)
def test_average_precision_is_scikit_learns_also_with_ties(drawn: list[tuple[int, bool]]) -> None:
    scores, positive = np.array([s for s, _ in drawn]) / 6, np.array([p for _, p in drawn])
    mine = ranking(scores, positive)
    if positive.any():
        assert mine.average_precision() == pytest.approx(
            sklearn_metrics.average_precision_score(positive, scores)
        )
    else:
        assert np.isnan(mine.average_precision())


@given(nodes)
def test_every_step_is_a_point_of_scikit_learns_curve(drawn: list[tuple[int, bool]]) -> None:
    scores, positive = np.array([s for s, _ in drawn]) / 6, np.array([p for _, p in drawn])
    if not positive.any():
        return
    mine = ranking(scores, positive)
    precision, recall, thresholds = sklearn_metrics.precision_recall_curve(positive, scores)
    np.testing.assert_allclose(mine.scores[::-1], thresholds)
    np.testing.assert_allclose((mine.found / mine.alerts)[::-1], precision[:-1])
    np.testing.assert_allclose((mine.found / mine.nodes)[::-1], recall[:-1])


def test_alerts_that_end_within_equal_scores_find_their_share() -> None:
    """Scores 3 | 2 2 2 2 | 1, cases at 3, twice at 2, at 1. One alert finds 1. Three alerts: 1 + 2 of 4 equal
    nodes, half of which are cases: 1 + 2 · 2/4 = 2. Five: 3. Six: all 4."""
    scores = np.array([3.0, 2, 2, 2, 2, 1])
    each = ranking(scores, np.array([True, True, False, True, False, True]))
    assert [each.found_at(k) for k in (1, 3, 5, 6)] == [1, 2, 3, 4]


def test_a_curve_is_short_and_ends_with_everything() -> None:
    draws = np.random.default_rng(0)
    scores, positive = draws.random(5000), draws.random(5000) < 0.3
    points = ranking(scores, positive).curve()
    assert len(points) <= POINTS + 1
    assert points[-1] == [5000, int(positive.sum())]
    assert all(a < b for (a, _), (b, _) in pairwise(points))


def test_classes_without_nodes_have_no_numbers() -> None:
    p = np.array([[0.8, 0.1, 0.1], [0.2, 0.7, 0.1], [0.6, 0.3, 0.1]])
    first, second, third = ranked_classes(p, np.array([0, 1, 1]))
    assert first["average_precision"][0] == 1.0
    # Class 1 ranks 0.7 (right), 0.3 (right), 0.1: average precision 1. Wilson's interval of 2 in 2 ends at 1
    # and begins at 1 / (1 + 1.96² / 2) = 0.3424.
    assert second["average_precision"] == pytest.approx([1.0, 0.34237, 1.0], abs=1e-5)
    assert third == {"nodes": 0, "average_precision": None, "at_alerts": [], "curve": []}
    assert mean_average_precision(p, np.array([0, 1, 1])) == 1.0
    assert np.isnan(mean_average_precision(np.empty((0, 3)), np.empty(0, dtype=np.int64)))


def test_the_interval_of_average_precision_holds_what_resamples_give() -> None:
    """Wilson's interval with the class's nodes as trials is about as wide as a bootstrap's: 40 cases in 1000
    nodes, normal scores that lie two deviations apart."""
    draws = np.random.default_rng(3)
    y = (np.arange(1000) < 40).astype(np.int64)
    z = draws.normal(size=1000) + 2.0 * y
    p = 1 / (1 + np.exp(-z))
    value, low, high = ranked_classes(np.stack([1 - p, p], axis=1), y)[1]["average_precision"]
    again = []
    for _ in range(300):
        chosen = draws.integers(1000, size=1000)
        again.append(ranking(p[chosen], y[chosen] == 1).average_precision())
    theirs = np.percentile(again, (2.5, 97.5))
    assert low < value < high
    assert (high - low) / (theirs[1] - theirs[0]) == pytest.approx(1.0, abs=0.35)


def test_several_classes_are_alerted_to_together() -> None:
    """Probabilities of classes 1 and 2 fall together. Of the first ten nodes, six are cases."""
    rest = np.linspace(0.95, 0.05, 20)
    p = np.stack([1 - rest, rest * 0.25, rest * 0.75], axis=1)
    y = np.array([1, 2, 0, 1, 0, 2, 2, 0, 1, 0] + [0] * 9 + [2])
    assert ranked_together(p, y, (1, 2)) == {"nodes": 7, "at_alerts": [[10, 6.0], [20, 7.0]]}
    assert ranked_together(p, y, ()) == {"nodes": 0, "at_alerts": []}
    assert ranked_together(p[:0], y[:0], (1, 2)) == {"nodes": 0, "at_alerts": []}
