"""How likely an alert is right: from a rule's score to the share of validation nodes that are such cases.

Scores of two classes cannot be compared as they are. A method that trains against imbalance gives a small
class more probability than it has, and thresholds follow that. Chances can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

FARTHEST = 36.0
"""Log-odds are not farther from 0. Nearer to 1, float64 has no other number than 1."""
SLOPES = 0.01, 100.0
"""A larger score never means a smaller chance, so that the order within a rule is that of its scores."""


@dataclass(frozen=True)
class Chance:
    """The log-odds of being a case are a line in the log-odds of the score."""

    slope: float = 1.0
    intercept: float = 0.0

    def log_odds(self, scores: Floats) -> Floats:
        """Of scores between 0 and 1, of any shape."""
        return self.slope * log_odds(scores) + self.intercept

    def of(self, scores: Floats) -> Floats:
        """How likely nodes with these scores are cases.

        >>> Chance(1.0, 0.0).of(np.array([0.25])).round(6).tolist()
        [0.25]
        """
        out: Floats = expit(self.log_odds(scores))
        return out

    @property
    def is_usable(self) -> bool:
        return SLOPES[0] <= self.slope <= SLOPES[1] and bool(np.isfinite(self.intercept))


AS_SCORED = Chance()
"""The score is the chance: all that can be said without validation nodes of both kinds."""


def log_odds(scores: Floats) -> Floats:
    """The logarithm of score / (1 - score)."""
    low, high = expit(-FARTHEST), 1 - np.finfo(np.float64).epsneg
    kept = np.clip(scores, low, high)
    out: Floats = np.log(kept) - np.log1p(-kept)
    return out


def fitted_chance(scores: Floats, cases: Flags) -> Chance:
    """The line with the largest likelihood of validation nodes.

    Choice: a line (Platt's scaling) and not steps, because a rare class may have ten validation nodes. As in
    Platt's paper, a case counts as (n + 1) / (n + 2) of n cases, and any other node as 1 / (m + 2) of m, so
    that the line stays finite where scores tell all cases from all others.

    Args:
        scores: Of the validation nodes, [v].
        cases: Which of them are of the rule's classes, [v].
    """
    n, m = int(cases.sum()), int((~cases).sum())
    if not n or not m:
        return AS_SCORED
    x, target = log_odds(scores), np.where(cases, (n + 1) / (n + 2), 1 / (m + 2))

    def loss(line: Floats) -> tuple[float, Floats]:
        z = line[0] * x + line[1]
        off = expit(z) - target
        return float((np.logaddexp(0, z) - target * z).sum()), np.array([off @ x, off.sum()])

    bounds = [SLOPES, (-1000.0, 1000.0)]
    found = minimize(
        loss, np.array([1.0, 0.0]), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}
    )
    return Chance(float(found.x[0]), float(found.x[1]))
