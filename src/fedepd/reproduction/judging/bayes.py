"""The Bayesian signed-rank test: how probable is it that one method is better than another, or level?

Benavoli, Corani, Demšar and Zaffalon, "Time for a Change: a Tutorial for Comparing Multiple Classifiers
Through Bayesian Analysis", JMLR 18 (2017), Section 4.2. A p-value cannot say that two methods are level.
This can: a difference within the region of practical equivalence (ROPE) counts for neither.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from fedepd.rng import seeded_numpy

ROPE = 1.0
"""Half of the width of the region of practical equivalence, in points."""
PRIOR = 0.5
"""Weight of the prior's one observation. It is a difference of 0, so the prior says that both are level."""
SAMPLES = 50_000
"""Draws from the posterior. The standard error of a probability is at most 0.0022."""
DIGITS = 12
"""Differences are rounded to this many digits, so that rounding errors put none beyond the region's edge."""


@dataclass(frozen=True)
class Posterior:
    """Probabilities that add up to 1. All are NaN without a difference to judge by."""

    worse: float
    """That ours is worse by more than the ROPE."""
    level: float
    """That the two are level."""
    better: float
    """That ours is better by more than the ROPE."""


def signed_rank_posterior(
    differences: npt.ArrayLike, rope: float = ROPE, samples: int = SAMPLES
) -> Posterior:
    """The Bayesian signed-rank test of ours minus theirs, one difference per dataset; NaN is left out.

    The posterior is a Dirichlet process. A draw gives a weight to each difference and to the prior's, and
    with them shares of all pairs whose mean is below, within and above the ROPE. Each probability is that of
    having the largest share. A mean on the edge counts half for either side, and of equal shares each wins
    alike.
    """
    known = np.round(np.asarray(differences, dtype=np.float64), DIGITS)
    known = known[~np.isnan(known)]
    if not known.size:
        return Posterior(float("nan"), float("nan"), float("nan"))
    values = np.concatenate([[0.0], known])  # [n + 1], the prior's first
    sums = values[:, None] + values[None, :]
    above = np.heaviside(sums - 2 * rope, 0.5)
    below = np.heaviside(-sums - 2 * rope, 0.5)
    weights = _weights(len(known), samples)
    shares = np.stack([((weights @ pairs) * weights).sum(1) for pairs in (below, above)])
    shares = np.stack([shares[0], 1 - shares.sum(0), shares[1]])  # [3, samples]
    wins = np.isclose(shares, shares.max(0), rtol=0, atol=1e-12)
    worse, level, better = (wins / wins.sum(0)).mean(1).tolist()
    return Posterior(worse, level, better)


@lru_cache(maxsize=4)
def _weights(count: int, samples: int) -> npt.NDArray[np.float64]:
    """Draws from the posterior, [samples, count + 1]. They do not depend on the differences.

    All rows of a study have as many datasets, as a rule. So their draws are made once.
    """
    draws = seeded_numpy("Bayesian signed-rank", count, samples)
    return draws.dirichlet([PRIOR, *np.ones(count)], samples)
