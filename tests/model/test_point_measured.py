"""What an operating point is said to do on test nodes."""

from __future__ import annotations

import numpy as np
import pytest

from fedepd.longtail import Tiers
from fedepd.model.aim import Aim
from fedepd.model.operating import Operating, Rule, chosen
from fedepd.model.point_measured import Split, curve, measured_point

NAMES, TIERS = ("clean", "mule", "takeover"), Tiers((0,), (1,), (2,))


def drawn(n: int, seed: int) -> Split:
    draws = np.random.default_rng(seed)
    p = draws.dirichlet([6, 1, 0.5], size=n)
    return Split(p, np.array([draws.choice(3, p=row) for row in p]))


def test_counts_are_those_of_the_decisions() -> None:
    validation, test, aim = drawn(400, 1), drawn(500, 2), Aim(recall={"takeover": 0.8})
    point = chosen(aim, validation.p, validation.classes, NAMES, 0, 900)
    told = measured_point(point, aim, validation, test, TIERS, 900)
    (rule,) = told["measured"]
    said, is_one = point.decide(test.p).classes == 2, test.classes == 2
    assert rule["found"][0] == (said & is_one).sum()
    assert rule["false_alarms"][0] == (said & ~is_one).sum()
    assert rule["recall"][0] == (said & is_one).sum() / is_one.sum()
    assert rule["precision"][0] == (said & is_one).sum() / said.sum()
    assert np.array(told["confusion"])[2, 2] == rule["found"][0]
    for name in ("found", "false_alarms", "recall", "precision"):
        value, low, high = rule[name]
        assert low <= value <= high
    assert told == measured_point(point, aim, validation, test, TIERS, 900)


def test_the_interval_holds_what_other_samples_give() -> None:
    """20 pairs of validation and test nodes from the same source: in at least 15 of them the recall that was
    aimed at lies in the interval (95 % of 20 are 19)."""
    aim, hits = Aim(recall={"mule": 0.7}), 0
    for seed in range(20):
        validation, test = drawn(150, 100 + seed), drawn(150, 200 + seed)
        point = chosen(aim, validation.p, validation.classes, NAMES, 0, 300)
        _, low, high = measured_point(point, aim, validation, test, TIERS, 300)["measured"][0]["recall"]
        hits += low <= 0.7 <= high
    assert hits >= 15


def test_alerts_of_a_budget_are_about_as_many_as_asked() -> None:
    """100 of 1000 nodes: on 500 test nodes 50, within three deviations of a share of 10 % on both sides."""
    validation, test, aim = drawn(400, 1), drawn(500, 2), Aim(alerts=100, per=1000)
    point = chosen(aim, validation.p, validation.classes, NAMES, 0, 1)
    told = measured_point(point, aim, validation, test, TIERS, 1)
    (rule,) = told["measured"]
    assert told["aim"] == {"alerts": 100, "per": 1000}
    assert rule["found"][0] + rule["false_alarms"][0] == pytest.approx(50, abs=3 * np.sqrt(500 * 0.1 * 2))


def test_costs_are_told_beside_what_other_calls_cost() -> None:
    """Node by node from the matrix: calling all clean costs 20 per mule and 100 per takeover."""
    costs = np.array([[0.0, 20, 100], [1, 0, 80], [1, 15, 0]])
    point = Operating(0, (Rule((1, 2), 0.0),), costs, np.zeros(3))
    test = drawn(500, 2)
    told = measured_point(point, Aim(cost="c.csv"), drawn(300, 1), test, TIERS, 10)["costs_per_node"]
    wanted = (20 * (test.classes == 1).sum() + 100 * (test.classes == 2).sum()) / 500
    assert told["usual"][0] == pytest.approx(wanted)
    assert told["decided"][0] < told["likeliest"][0] < told["usual"][0]
    assert told["decided"][1] < told["decided"][0] < told["decided"][2]


def test_a_curve_counts_what_is_found_before_so_many_false_alarms() -> None:
    """Cases at places 1, 3, 4 of 6: no false alarm finds 1, one finds 3, three find 3."""
    points = curve(np.arange(6, 0, -1.0), np.array([True, False, True, True, False, False]))
    assert [(x, y) for x, y, *_ in points] == [(0, 1), (1, 3), (2, 3), (3, 3)]
    assert all(low <= y <= high for _, y, low, high in points[1:])
    assert curve(np.arange(3.0), np.zeros(3, dtype=bool)) == []


def test_no_test_node_is_no_fault() -> None:
    empty = Split(np.empty((0, 3)), np.empty(0, dtype=np.int64))
    validation, aim = drawn(300, 1), Aim(recall={"mule": 0.5})
    point = chosen(aim, validation.p, validation.classes, NAMES, 0, 300)
    (rule,) = measured_point(point, aim, validation, empty, TIERS, 300)["measured"]
    assert rule["recall"] == [None, None, None]
    assert rule["found"][0] == 0


def test_a_threshold_that_others_chose_is_not_chosen_anew() -> None:
    """All of 4 cases lie above 0.5 and all 6 other nodes below, in every resample: the interval has no width.

    Validation nodes would choose another threshold, and are not asked.
    """
    y = np.array([0] * 6 + [1] * 4)
    p = np.where(y == 1, 0.9, 0.1)
    test = Split(np.stack([1 - p, p], axis=1), y)
    point, tiers = Operating(0, (Rule((1,), 0.5),)), Tiers((0,), (), (1,))
    told = measured_point(point, "recall 1=0.5", Split(test.p[:, ::-1], y), test, tiers, 0)
    assert told["aim"] == {"federation": "recall 1=0.5"}
    (rule,) = told["measured"]
    assert (rule["found"][0], rule["false_alarms"]) == (4, [0, 0.0, 0.0])
    assert rule["recall"] == [1.0, 1.0, 1.0]
