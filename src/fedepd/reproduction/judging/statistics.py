"""Is a difference real? Tests over seeds and over datasets. A result is NaN where there are too few scores.

Higher scores are better throughout. A missing score is NaN.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedepd.errors import BadData

Scores = Mapping[str, Sequence[float]]
"""Row -> one value per seed. The order of the seeds is the same in every row."""

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


def _friedman_p(table: npt.NDArray[np.float64]) -> float:
    """The p-value that all rows rank alike over the datasets, from complete scores [N, R].

    NaN with fewer than three rows or three datasets.
    """
    from scipy.stats import friedmanchisquare

    if table.shape[0] < FEWEST_PAIRS or table.shape[1] < 3:
        return float("nan")
    if (np.ptp(table, axis=1) == 0).all():
        return 1.0
    return float(friedmanchisquare(*table.T).pvalue)


@dataclass(frozen=True)
class CriticalDifference:
    """How the rows rank over datasets, and which of them cannot be told apart."""

    mean_ranks: dict[str, float]
    """Row -> mean rank, the best row first. Rank 1 is best."""
    friedman_p: float
    pairwise: dict[tuple[str, str], float]
    """A pair of rows, the better ranked one first -> Wilcoxon's p-value over datasets, corrected by Holm's
    method."""
    groups: tuple[tuple[str, ...], ...]
    """Rows that are neighbours by rank and of which no two can be told apart.

    No group lies within another.
    """
    datasets: tuple[str, ...]
    left_out: tuple[str, ...]
    """Rows that have no score on some dataset."""


def critical_difference(scores: Mapping[str, Mapping[str, float]], alpha: float = 0.05) -> CriticalDifference:
    """Demšar's comparison over datasets: Friedman's test first, then Wilcoxon's for every pair, with Holm's
    correction.

    ``scores`` maps a dataset to row -> score. Where Friedman's test does not reject, all rows are one group.

    Choice: pairs are tested by Wilcoxon. Nemenyi's critical distance is not used, because its verdict on two
    rows depends on which other rows are in the table (Benavoli et al. 2016).
    Choice: a row without a score on some dataset is left out. Ranking it last there would treat the reason
    why it is missing as a bad score.
    """
    from scipy.stats import rankdata

    rows, table, left_out = _complete(scores)  # [N, R]
    ranks = rankdata(-table, axis=1).mean(axis=0) if table.size else np.zeros(0)  # [R]
    order = [int(r) for r in np.argsort(ranks, kind="stable")]
    pairs = list(itertools.combinations(order, 2))
    corrected = holm([wilcoxon_p(table[:, i] - table[:, j]) for i, j in pairs])
    pairwise = {(rows[i], rows[j]): p for (i, j), p in zip(pairs, corrected, strict=True)}
    friedman_p = _friedman_p(table)
    ranked = [rows[r] for r in order]
    groups = (
        _groups(ranked, pairwise, alpha)
        if friedman_p < alpha
        else (tuple(ranked),)
        if len(ranked) > 1
        else ()
    )
    return CriticalDifference(
        {rows[r]: float(ranks[r]) for r in order}, friedman_p, pairwise, groups, tuple(scores), left_out
    )


def _groups(
    ranked: list[str], pairwise: Mapping[tuple[str, str], float], alpha: float
) -> tuple[tuple[str, ...], ...]:
    found: list[tuple[str, ...]] = []
    reached = 0
    for start in range(len(ranked)):
        end = start + 1
        while end < len(ranked) and not any(
            pairwise[ranked[i], ranked[end]] < alpha for i in range(start, end)
        ):
            end += 1
        if end > max(reached, start + 1):
            found.append(tuple(ranked[start:end]))
            reached = end
    return tuple(found)


def _complete(
    scores: Mapping[str, Mapping[str, float]],
) -> tuple[list[str], npt.NDArray[np.float64], tuple[str, ...]]:
    """The rows that were measured on every dataset, their scores [N, R], and the other rows."""
    everything = list(dict.fromkeys(row for of_rows in scores.values() for row in of_rows))
    rows = [
        row
        for row in everything
        if all(not np.isnan(of_rows.get(row, float("nan"))) for of_rows in scores.values())
    ]
    values = np.array([[of_rows[row] for row in rows] for of_rows in scores.values()], dtype=np.float64)
    return (
        rows,
        np.round(values.reshape(len(scores), len(rows)), DIGITS),
        tuple(row for row in everything if row not in rows),
    )
