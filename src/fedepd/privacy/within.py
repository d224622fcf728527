"""The area under the ROC curve inside groups: does a score order cases that a base rate does not?"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from fedepd.metrics import wilson
from fedepd.privacy.figures import Figure, Z, auc_figure, ranks_within
from fedepd.rng import seeded_numpy

RESAMPLES = 1000

Floats = npt.NDArray[np.float64]
Group = tuple[Floats, Floats]
"""Scores of the cases that should rank high, and of the others."""


def auc_within(name: str, tier: str, groups: Iterable[Group]) -> Figure:
    """The share of pairs of one group that a score puts in the right order; an equal one counts half.

    A score that is the same for a whole group gives 0.5, however the groups differ.

    Choice: the interval is from resamples of the groups, because cases of one group hang together. Where no
    group has a wrong pair it would be empty, so it is then Wilson's over the smaller side, as in
    ``auc_figure``. A single group cannot be resampled, and has DeLong's interval.

    Args:
        name: The figure's stable key.
        tier: The tier that it is over.
        groups: The scores of each group. A group without both kinds of cases has no say.

    Returns:
        The figure. Its cases are those of the groups that have a say.
    """
    used = [(high, low) for high, low in groups if high.size and low.size]
    if not used:
        return Figure(name, tier, math.nan, math.nan, math.nan, 0, 0.5)
    if len(used) == 1:
        return auc_figure(name, tier, *used[0])
    won = np.array([ranks_within(high, low).sum() for high, low in used])
    pairs = np.array([float(high.size * low.size) for high, low in used])
    cases = sum(high.size + low.size for high, low in used)
    auc = float(won.sum() / pairs.sum())
    if auc in (0.0, 1.0):
        smaller = min(sum(high.size for high, _ in used), sum(low.size for _, low in used))
        low, high = wilson(np.array(auc * smaller), np.array(smaller), Z)
        return Figure(name, tier, auc, float(low), float(high), cases, 0.5)
    draws = seeded_numpy("audit", name, tier, len(used)).integers(len(used), size=(RESAMPLES, len(used)))
    again = won[draws].sum(1) / pairs[draws].sum(1)
    return Figure(
        name, tier, auc, float(np.quantile(again, 0.025)), float(np.quantile(again, 0.975)), cases, 0.5
    )
