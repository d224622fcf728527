"""Areas inside groups, against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedepd.privacy.figures import auc_figure
from fedepd.privacy.within import Group, auc_within


def group(high: list[float], low: list[float]) -> Group:
    return np.array(high, dtype=np.float64), np.array(low, dtype=np.float64)


def test_groups_are_ordered_on_their_own() -> None:
    """Every pair inside a group is right, though the second group's best is below the first one's worst."""
    figure = auc_within("classes.auc", "all", [group([9, 8], [7]), group([2], [1, 0])])
    assert (figure.value, figure.cases, figure.chance) == (1.0, 6, 0.5)
    assert figure.low == pytest.approx(1 / (1 + 1.96**2 / 3), abs=1e-6)  # Wilson for 3 of 3


def test_pairs_are_counted_over_all_groups() -> None:
    """Right: 1 of 2 in the first group, 3.5 of 4 in the second: 4.5 of 6."""
    figure = auc_within("classes.auc", "all", [group([2], [1, 3]), group([5, 4], [3, 4])])
    assert figure.value == 4.5 / 6
    assert figure.low <= figure.value <= figure.high


def test_a_base_rate_alone_is_a_coin() -> None:
    """One score per group, and the group with many hits has the higher one.

    Over all pairs that would be 0.9: of 10 x 10, 9 x 9 are right and 9 + 9 equal.
    """
    groups = [group([3.0] * 9, [3.0]), group([1.0], [1.0] * 9)]
    figure = auc_within("classes.auc", "all", groups)
    assert (figure.value, figure.low, figure.high) == (0.5, 0.5, 0.5)
    hits, others = (np.concatenate([each[side] for each in groups]) for side in (0, 1))
    assert auc_figure("x", "all", hits, others).value == pytest.approx(0.9)


def test_groups_without_both_kinds_have_no_say() -> None:
    assert math.isnan(auc_within("x", "all", [group([1], []), group([], [2])]).value)
    one = auc_within("x", "all", [group([1, 3], [2, 0]), group([1], [])])
    assert one == auc_figure("x", "all", [1, 3], [2, 0])


def test_the_same_cases_give_the_same_interval() -> None:
    groups = [group([k % 3, 2], [k % 2, 1.5]) for k in range(8)]
    assert auc_within("x", "tail", groups) == auc_within("x", "tail", groups)
