"""How probabilities become decisions, against scikit-learn and by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import recall_score

from fedepd.errors import BadConfig
from fedepd.model.aim import Aim
from fedepd.model.chances import Chance
from fedepd.model.operating import (
    Operating,
    Rule,
    chosen,
    fitted_shifts,
    shifted,
    threshold_for_alerts,
    threshold_for_recall,
)

NAMES = ("clean", "mule", "takeover")
P = np.array([[0.90, 0.06, 0.04], [0.60, 0.30, 0.10], [0.50, 0.20, 0.30], [0.10, 0.70, 0.20]])


def drawn(n: int = 400, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities that are right: each node's class is drawn by them."""
    draws = np.random.default_rng(seed)
    p = draws.dirichlet([6, 1, 0.5], size=n)
    y = np.array([draws.choice(3, p=row) for row in p])
    return p, y


@given(st.integers(1, 100), st.integers(0, 2**32 - 1))
def test_the_threshold_is_the_highest_that_reaches_the_recall(percent: int, seed: int) -> None:
    """scikit-learn's recall at the threshold is enough, and just above it too small."""
    draws = np.random.default_rng(seed)
    scores, positive = draws.integers(0, 30, 60) / 30, draws.random(60) < 0.3
    if not positive.any():
        return
    at = threshold_for_recall(scores, positive, percent / 100)
    assert recall_score(positive, scores >= at) >= percent / 100 - 1e-9
    assert recall_score(positive, scores > at, zero_division=0) < percent / 100


def test_alerts_are_a_share_of_nodes() -> None:
    """50 alerts of 1000 nodes are 5 of 100 validation nodes. Equal scores are alerted together or not at all:
    with three of them at the edge, only 4 nodes are alerted."""
    scores = np.arange(100) / 100
    assert threshold_for_alerts(scores, 50, 1000) == 0.95
    scores[93:96] = 0.95
    assert (scores >= threshold_for_alerts(scores, 50, 1000)).sum() == 4
    with pytest.raises(BadConfig, match="at least 10"):
        threshold_for_alerts(np.arange(100) / 100, 9, 1000)
    with pytest.raises(BadConfig, match="more than all"):
        threshold_for_alerts(scores, 1001, 1000)


def test_decisions_by_thresholds_by_hand() -> None:
    """Takeover from 0.2 on: nodes 2 and 3. Node 3 is likeliest a mule, but is called a takeover, by that
    rule. Node 1 is called clean. With a rule for mules from 0.5 on, node 3 passes both, and 0.7 > 0.2."""
    one = Operating(0, (Rule((2,), 0.2),)).decide(P)
    assert one.classes.tolist() == [0, 0, 2, 2]
    assert one.alerts.tolist() == [False, False, True, True]
    assert one.ranks.tolist() == [4, 3, 1, 2]
    two = Operating(0, (Rule((2,), 0.2), Rule((1,), 0.5))).decide(P)
    assert two.classes.tolist() == [0, 0, 2, 1]
    together = Operating(0, (Rule((1, 2), 0.4),)).decide(P)  # 0.10, 0.40, 0.50, 0.90
    assert together.classes.tolist() == [0, 1, 2, 1]
    assert together.ranks.tolist() == [4, 3, 2, 1]


def test_alerts_of_several_rules_are_ranked_by_how_likely_they_are_right() -> None:
    """A takeover's probability is far too high here: its odds are divided by 10 (intercept -log 10).

    So nodes 0, 1 and 2 are takeovers by odds of 0.9 / 0.1 / 10 = 0.9, 0.05 / 0.95 / 10 = 1 / 190 and
    0.25 / 0.75 / 10 = 1 / 30. Mules are what their probabilities say. By the factor over the threshold,
    every takeover would come before every mule: node 2 by 0.25 / 0.01 = 25, node 3 by 0.905 / 0.5.
    """
    p = np.array([[0.05, 0.05, 0.90], [0.35, 0.60, 0.05], [0.74, 0.01, 0.25], [0.09, 0.905, 0.005]])
    rules = Rule((2,), 0.01, Chance(1.0, -np.log(10))), Rule((1,), 0.95)
    said = Operating(0, rules).decide(p)
    assert said.alerts.tolist() == [True, True, True, False]
    assert said.classes.tolist() == [2, 2, 2, 0]
    assert said.chances == pytest.approx([0.9 / 1.9, 1 / 191, 1 / 31, 0.905])
    assert said.ranks.tolist() == [1, 3, 2, 4]  # node 3 is no alert
    both = Operating(0, (rules[0], Rule((1,), 0.5))).decide(p)
    assert both.classes.tolist() == [2, 1, 2, 1]  # node 1 passes both, and is likelier a mule: 0.6
    assert both.ranks.tolist() == [3, 2, 4, 1]


def test_the_order_within_a_rule_is_that_of_its_scores() -> None:
    p, y = drawn(300)
    aim = Aim(recall={"takeover": 0.75, "mule": 0.5})
    point = chosen(aim, p, y, NAMES, 0, 1000)
    fitted = [replace(rule, chance=Chance(0.3 + k, -2.0 * k)) for k, rule in enumerate(point.rules)]
    said = replace(point, rules=tuple(fitted)).decide(p)
    for c in (1, 2):
        own = np.flatnonzero(said.alerts & (said.classes == c))
        assert own.size > 5
        assert (np.diff(p[own, c][said.ranks[own].argsort()]) <= 0).all()


def test_a_node_that_misses_a_threshold_is_never_called_that_class() -> None:
    """Node 3 is likeliest a mule, below the threshold: it is called the likeliest of the others."""
    said = Operating(0, (Rule((1,), 0.8),)).decide(P)
    assert said.classes.tolist() == [0, 0, 0, 2]
    assert not said.alerts.any()


def test_decisions_by_costs_by_hand() -> None:
    """Calling clean costs 10 p(mule) + 40 p(takeover), any alert costs p(clean) and 5 for the wrong kind.
    Node 0: clean 2.2; mule 0.9 + 5 · 0.04 = 1.1; takeover 0.9 + 5 · 0.06 = 1.2. It is called a mule."""
    costs = np.array([[0.0, 10, 40], [1, 0, 5], [1, 5, 0]])
    point = Operating(0, (Rule((1, 2), 0.0),), costs, np.zeros(3))
    assert point.decide(P).classes.tolist() == [1, 1, 2, 1]
    cheap = Operating(0, (Rule((1, 2), 0.0),), costs / np.array([1, 1000, 1000]), np.zeros(3))
    assert cheap.decide(P).classes.tolist() == [0, 0, 0, 0]
    assert not cheap.decide(P).alerts.any()


def test_shifts_undo_a_change_of_frequencies() -> None:
    """Probabilities as if all classes were equally frequent: p / prior. The shifts find log(prior) again, up
    to a constant, within the noise of 4000 nodes."""
    p, y = drawn(4000)
    prior = np.array([0.8, 0.13, 0.07])
    balanced = p / prior / (p / prior).sum(1, keepdims=True)
    found = fitted_shifts(balanced, y)
    wanted = np.log(prior) - np.log(prior).mean()
    np.testing.assert_allclose(found, wanted, atol=0.2)
    assert np.abs(shifted(balanced, found) - p).mean() < 0.02


def test_a_class_without_validation_nodes_is_not_shifted() -> None:
    p, _ = drawn(50)
    y = np.zeros(50, dtype=np.int64)
    assert fitted_shifts(p, y).tolist() == [0, 0, 0]


@given(st.integers(0, 2**32 - 1))
def test_an_aim_is_reached_on_validation_nodes(seed: int) -> None:
    p, y = drawn(200, seed)
    if not (y == 2).any():
        return
    point = chosen(Aim(recall={"takeover": 0.75}), p, y, NAMES, 0, 1000)
    said = point.decide(p)
    assert (said.classes[y == 2] == 2).mean() >= 0.75
    assert ((said.classes == 2) == said.alerts).all()
    assert sorted(said.ranks.tolist()) == list(range(1, 201))
    assert said.ranks[said.alerts].max(initial=0) == said.alerts.sum()
    budget = chosen(Aim(alerts=100), p, y, NAMES, 0, 1000).decide(p)  # 10 % of 200
    assert budget.alerts.sum() <= 20
    assert (budget.alerts == (budget.classes != 0)).all()


def test_costs_are_lower_than_by_the_likeliest_class(tmp_path: Path) -> None:
    """By probabilities that are right, no decision is cheaper on average."""
    (tmp_path / "c.csv").write_text(
        "called,clean,mule,takeover\nclean,0,20,100\nmule,1,0,80\ntakeover,1,15,0\n"
    )
    p, y = drawn(2000)
    point = chosen(Aim(cost=tmp_path / "c.csv"), p, y, NAMES, 0, 1000)
    assert point.costs is not None
    said, likeliest = point.decide(p).classes, p.argmax(1)
    assert point.costs[said, y].mean() < 0.5 * point.costs[likeliest, y].mean()


def test_aims_that_nodes_cannot_reach_are_refused() -> None:
    p, y = drawn(50)
    with pytest.raises(BadConfig, match="no validation node is of that class"):
        chosen(Aim(recall={"takeover": 0.5}), p, np.zeros(50, dtype=np.int64), NAMES, 0, 100)
    with pytest.raises(BadConfig, match="every class is named"):
        chosen(Aim(recall=dict.fromkeys(NAMES, 0.5)), p, np.arange(50) % 3, NAMES, 0, 100)
    with pytest.raises(BadConfig, match="one class"):
        chosen(Aim(alerts=5), p[:, :1], y, ("clean",), 0, 100)


def test_a_point_survives_json_and_knows_what_it_fits() -> None:
    costs = np.array([[0.0, 10, 40], [1, 0, 5], [1, 5, 0]])
    for point in (
        Operating(0, (Rule((2,), 0.2), Rule((1,), 0.5))),
        Operating(0, (Rule((2,), 0.2, Chance(0.5, -3.0)), Rule((1,), 0.5))),
        Operating(0, (Rule((1, 2), 0.0),), costs, np.array([1.0, 0, -1])),
    ):
        again = Operating.of_json(point.as_json())
        assert again.rules == point.rules
        assert again.decide(P).classes.tolist() == point.decide(P).classes.tolist()
        assert point.fits(3)
        assert not point.fits(2)
    assert not Operating(0, ()).fits(3)
    assert not Operating(0, (Rule((), 0.1),)).fits(3)
    assert not Operating(0, (Rule((0, 1, 2), 0.1),)).fits(3)
    assert not Operating(0, (Rule((1,), 0.1), Rule((1,), 0.2))).fits(3)
    assert not Operating(0, (Rule((0, 1), 0.0),), costs, np.zeros(3)).fits(3)
    assert not Operating(0, (Rule((1, 2), 0.0),), costs).fits(3)
