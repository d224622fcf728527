"""What an attack got -> a number with its interval, beside what guessing reaches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedepd.metrics import wilson

Values = Sequence[float] | npt.NDArray[np.float64]
TIERS = ("all", "head", "medium", "tail")
Z = 1.96
"""Half the width of a 95 % interval, in standard errors."""


@dataclass(frozen=True)
class Figure:
    """One measured number of an audit."""

    name: str
    """A stable key, such as ``rows.single`` or ``membership.tpr``."""
    tier: str
    """One of ``TIERS``."""
    value: float
    """NaN if nothing could be measured."""
    low: float
    """The 95 % interval, with ``high``."""
    high: float
    cases: int
    """Over how many rows, pairs or nodes."""
    chance: float | None
    """What guessing reaches, where that has a meaning."""


def share(name: str, tier: str, hits: int, cases: int, chance: float | None = None) -> Figure:
    """The share ``hits / cases`` with Wilson's interval; NaN without cases.

    Args:
        name: Its stable key.
        tier: The tier that it is over.
        hits: How often the attack was right.
        cases: How often it was tried.
        chance: What guessing reaches.

    Returns:
        The figure.
    """
    low, high = wilson(np.array(hits), np.array(cases), Z)
    value = hits / cases if cases else math.nan
    return Figure(name, tier, value, float(low), float(high), int(cases), chance)


def auc_figure(
    name: str, tier: str, positives: Values, negatives: Values, chance: float | None = 0.5
) -> Figure:
    """The area under the ROC curve with DeLong's interval; NaN if one side is empty.

    Choice: DeLong's standard error is 0 where the sides are apart without exception. The interval is then
    Wilson's over as many trials as the smaller side has, because few cases prove little. Scores that are all
    equal give exactly 0.5, whatever the cases, and the interval [0.5, 0.5].

    Args:
        name: Its stable key.
        tier: The tier that it is over.
        positives: The scores of the cases that the attack should rank high.
        negatives: The scores of the others.
        chance: What guessing reaches.

    Returns:
        The figure. Its cases are those of both sides.
    """
    high_side = np.asarray(positives, dtype=np.float64)
    low_side = np.asarray(negatives, dtype=np.float64)
    m, n = high_side.size, low_side.size
    if m == 0 or n == 0:
        return Figure(name, tier, math.nan, math.nan, math.nan, m + n, chance)
    won = (ranks_within(high_side, low_side)) / n  # [m]: the share of negatives that each positive beats
    lost = 1 - ranks_within(low_side, high_side) / m  # [n]: the share of positives that beat each negative
    auc = float(won.mean())
    if auc in (0.0, 1.0):
        low, high = wilson(np.array(auc * min(m, n)), np.array(min(m, n)), Z)
        return Figure(name, tier, auc, float(low), float(high), m + n, chance)
    error = math.sqrt(_mean_variance(won) + _mean_variance(lost))
    return Figure(name, tier, auc, max(0.0, auc - Z * error), min(1.0, auc + Z * error), m + n, chance)


def ranks_within(values: npt.NDArray[np.float64], others: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many of ``others`` lie below each value; an equal one counts half. [values]."""
    ordered = np.sort(others)
    left, right = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    halves: npt.NDArray[np.float64] = (left + right) / 2
    return halves


def _mean_variance(values: npt.NDArray[np.float64]) -> float:
    """The variance of the mean of independent values; of one value it cannot be known, and is taken as 0."""
    return float(values.var(ddof=1)) / values.size if values.size > 1 else 0.0
