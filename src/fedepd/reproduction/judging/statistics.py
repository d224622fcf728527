"""Is a difference real? Tests over seeds and over datasets. A result is NaN where there are too few scores.

Higher scores are better throughout. A missing score is NaN.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedepd.report.paired import (
    DIGITS,
    FEWEST_PAIRS,
    Comparison,
    compare_seeds,
    holm,
    in_common,
    paired_half_width,
    smallest_wilcoxon_p,
    welch_p,
    wilcoxon_p,
)

__all__ = [
    "FEWEST_PAIRS",
    "Comparison",
    "CriticalDifference",
    "compare_seeds",
    "critical_difference",
    "holm",
    "in_common",
    "paired_half_width",
    "smallest_wilcoxon_p",
    "welch_p",
    "wilcoxon_p",
]

Scores = Mapping[str, Sequence[float]]
"""Row -> one value per seed. The order of the seeds is the same in every row."""


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
