"""Is the difference of two rows real? Tests over seeds. A result is NaN where there are too few scores.

Higher scores are better throughout. A missing score is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedepd.errors import BadData

# Choice: no p-value below three pairs. The spread of two numbers says next to nothing about the spread of a
# method.
FEWEST_PAIRS = 3
DIGITS = 12
"""Differences are rounded to this many digits. Otherwise rounding errors would break ties."""


@dataclass(frozen=True)
class Comparison:
    """One row against another over the same seeds."""

    difference: float
    """Mean of ours minus mean of theirs."""
    half_width: float
    """Half the width of the 95 % t interval around the difference.

    It is paired by seed, because both rows have the same partition and split at a seed.
    """
    welch_p: float
    wilcoxon_p: float
    rank_sum: float
    """The sum of the signed ranks.

    It is above 0 where Wilcoxon's test favours ours; the mean may say otherwise.
    """
    n: int
    """The number of seeds at which both were measured."""


def compare_seeds(ours: Sequence[float], theirs: Sequence[float]) -> Comparison:
    """Welch's t test and the exact Wilcoxon signed-rank test, both two-sided.

    Seeds at which either score is missing are left out. The Wilcoxon p-value of n seeds is never below
    ``smallest_wilcoxon_p(n)``, so with 5 seeds it cannot show a difference at 0.05.
    """
    if len(ours) != len(theirs):
        raise BadData(
            f"one row has {len(ours)} scores and the other {len(theirs)}; "
            "give one per seed in both rows, NaN for a missing one"
        )
    a, b = in_common(ours, theirs)
    difference = float(a.mean() - b.mean()) if len(a) else float("nan")
    rank_sum = float(_twice_signed_ranks(a - b).sum() / 2)
    return Comparison(
        difference, paired_half_width(a - b), welch_p(a, b), wilcoxon_p(a - b), rank_sum, len(a)
    )


def in_common(ours: Sequence[float], theirs: Sequence[float]) -> npt.NDArray[np.float64]:
    """The scores at the seeds that both rows have: [2, n]."""
    pairs = np.array([ours, theirs], dtype=np.float64)
    return pairs[:, ~np.isnan(pairs).any(axis=0)]


def paired_half_width(differences: npt.NDArray[np.float64]) -> float:
    """t_{0.975, n-1} · s / √n."""
    from scipy.stats import t

    n = len(differences)
    return (
        float(t.ppf(0.975, n - 1) * differences.std(ddof=1) / n**0.5) if n >= FEWEST_PAIRS else float("nan")
    )


def paired_p(differences: npt.NDArray[np.float64], least: float = 0.0) -> float:
    """The two-sided t test that goes with ``paired_half_width``.

    p is below 0.05 where that interval has one sign. ``least``: the spread counts as at least this much.
    """
    from scipy.stats import t

    n = len(differences)
    if n < FEWEST_PAIRS:
        return float("nan")
    mean, spread = float(differences.mean()), max(float(differences.std(ddof=1)), least)
    if spread == 0:
        return float(mean == 0)
    return float(2 * t.sf(abs(mean) / spread * n**0.5, n - 1))


def welch_p(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Welch's two-sided t test. For two rows without any spread p is 1 if they are equal and 0 if not."""
    from scipy.stats import ttest_ind_from_stats

    one, other = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if min(len(one), len(other)) < FEWEST_PAIRS:
        return float("nan")
    spreads = [0.0 if np.ptp(values) == 0 else float(values.std(ddof=1)) for values in (one, other)]
    if not any(spreads):
        return float(round(one[0] - other[0], DIGITS) == 0)
    return float(
        ttest_ind_from_stats(
            one.mean(), spreads[0], len(one), other.mean(), spreads[1], len(other), equal_var=False
        ).pvalue
    )


def wilcoxon_p(differences: npt.ArrayLike) -> float:
    """The exact two-sided signed-rank test.

    Differences of zero are dropped. Ties share their mean rank. If all differences are zero, p is 1.

    Choice: the test is exact with ties, too, by counting all signs of the mean ranks. SciPy uses a normal
    approximation there, which is too coarse for five seeds.
    """
    if np.size(differences) < FEWEST_PAIRS:
        return float("nan")
    ranks = _twice_signed_ranks(differences)
    total = int(np.abs(ranks).sum())
    share = np.zeros(total + 1)  # share[s]: the share of all 2^m signs whose positive ranks sum to s / 2
    share[0] = 1.0
    for rank in np.abs(ranks):
        share[rank:] = share[rank:] + share[: len(share) - rank]
        share /= 2
    sums = np.arange(total + 1)
    return float(min(1.0, share[np.abs(2 * sums - total) >= abs(ranks.sum())].sum()))


def _twice_signed_ranks(differences: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Twice the mean rank of each nonzero difference, with its sign. Doubling makes every mean rank whole."""
    from scipy.stats import rankdata

    known = np.round(np.asarray(differences, dtype=np.float64), DIGITS)
    known = known[known != 0]
    twice: npt.NDArray[np.int64] = np.rint(2 * rankdata(np.abs(known))).astype(np.int64)
    return np.where(known > 0, twice, -twice)


def smallest_wilcoxon_p(n: int) -> float:
    """The p-value of the two-sided signed-rank test if all n pairs differ the same way: 0.0625 for 5,
    0.03125 for 6."""
    return float("nan") if n < FEWEST_PAIRS else 2.0 ** (1 - n)


def holm(pvalues: Sequence[float]) -> list[float]:
    """Holm's step-down correction, in the order given. NaN means no test: it stays NaN and is not counted."""
    result = [float("nan")] * len(pvalues)
    known = sorted((p, place) for place, p in enumerate(pvalues) if not np.isnan(p))
    highest = 0.0
    for step, (p, place) in enumerate(known):
        highest = max(highest, min(1.0, p * (len(known) - step)))
        result[place] = highest
    return result
