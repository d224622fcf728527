"""Where every row stands over all datasets: mean ranks, and the target's own row against each.

Three questions, three answers. Friedman's test and Wilcoxon's with Holm's correction ask whether a difference
is there at all. The Bayesian signed-rank test asks how probable it is that it is there and matters.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedepd.report.runs import Group
from fedepd.report.tables import METRIC_WORDS, NOTHING, Cell, Table, marked_label, measured
from fedepd.reproduction.judging.bayes import PRIOR, ROPE, Posterior, signed_rank_posterior
from fedepd.reproduction.judging.comparisons import p_cell, ranks, signed
from fedepd.reproduction.judging.statistics import CriticalDifference
from fedepd.reproduction.pages.tables import note
from fedepd.reproduction.study.results import Results, Scoring
from fedepd.shown import shown


@dataclass(frozen=True)
class Standing:
    """One row over all datasets. Numbers are NaN where there is nothing to compare."""

    row: str
    label: str
    mean_rank: float
    rank_undisputed: float
    """Its mean rank among the rows that are not disputed. NaN for one that is."""
    difference: float
    """The target's own row minus this one, in points, mean over datasets."""
    wilcoxon_p: float
    """Of that difference over datasets, corrected by Holm's method over all pairs of rows."""
    posterior: Posterior
    """The probabilities that the target's own row is worse than this one, level, and better."""


@dataclass(frozen=True)
class Standings:
    """All rows by one metric and scoring, the best rank first."""

    scoring: Scoring
    metric: str
    datasets: tuple[str, ...]
    friedman_p: float
    left_out: tuple[str, ...]
    rows: tuple[Standing, ...]


def standings(results: Results, metric: str, scoring: Scoring) -> Standings | None:
    """Where all rows but references stand. None with fewer than two datasets, or without any row."""
    found, rest = (ranks(results, metric, scoring, disputed) for disputed in (True, False))
    if found is None or rest is None or not found.mean_ranks:
        return None
    labels = _labels(results, scoring)
    means = {(e.dataset, e.row.key): e.mean(metric, scoring) for e in results.entries if e.runs}
    rows = [
        _standing(means, results.target.ours, found, rest.mean_ranks.get(key, math.nan), key, labels[key])
        for key in found.mean_ranks
    ]
    return Standings(scoring, metric, found.datasets, found.friedman_p, found.left_out, tuple(rows))


def _labels(results: Results, scoring: Scoring) -> dict[str, str]:
    runs: dict[str, list[Any]] = {}
    for entry in results.entries:
        runs.setdefault(entry.row.key, []).extend(entry.runs.values())
    return {
        row.key: marked_label(Group(shown(row.label), tuple(runs[row.key])), scoring.model)
        for row in results.target.rows
        if runs.get(row.key)
    }


def _standing(
    means: Mapping[tuple[str, str], float],
    ours: str,
    found: CriticalDifference,
    undisputed: float,
    key: str,
    label: str,
) -> Standing:
    """``means``: scores by dataset and row. ``ours``: the target's own row."""
    nan = math.nan
    differences = [
        means.get((dataset, ours), nan) - means.get((dataset, key), nan)
        for dataset in found.datasets
        if key != ours
    ]
    known = [each for each in differences if not math.isnan(each)]
    p = found.pairwise.get((ours, key), found.pairwise.get((key, ours), nan))
    return Standing(
        key,
        label,
        found.mean_ranks[key],
        undisputed,
        sum(known) / len(known) if known else nan,
        p,
        signed_rank_posterior(known),
    )


def standings_table(results: Results, found: Standings) -> Table:
    """A line per row, the best rank first."""
    disputed = [shown(row.label) for row in results.target.rows if row.disputed]
    headers = ["Method", "Rank", *(["Rank *"] if disputed else [])]
    headers += ["Difference", "Wilcoxon p", "P worse", "P level", "P better"]
    lines = []
    for row in found.rows:
        without = [measured(row.rank_undisputed, math.nan)] if disputed else []
        posterior = (row.posterior.worse, row.posterior.level, row.posterior.better)
        ranked = [Cell(row.label), measured(row.mean_rank, math.nan), *without]
        tests = [signed(row.difference), p_cell(row.wilcoxon_p), *map(_probability, posterior)]
        lines.append([*ranked, *tests])
    return Table(
        f"{results.target.name}-{found.scoring.name}-{found.metric}-standings",
        headers,
        [lines],
        note(results, _explained(found, disputed, results.target.champion), found.scoring, marked=False),
    )


def _explained(found: Standings, disputed: Sequence[str], ours: str) -> str:
    friedman = "" if math.isnan(found.friedman_p) else f" Friedman's test: {_p(found.friedman_p)}."
    missing = f" Without a score on some dataset: {', '.join(found.left_out)}." if found.left_out else ""
    without, name = f" Rank *: without {', '.join(disputed)}." if disputed else "", shown(ours)
    return (
        f"Rank: mean rank by {METRIC_WORDS.get(found.metric, found.metric)} over {len(found.datasets)} "
        f"datasets, 1 is best.{without}{friedman} Difference: {name} minus the row, mean over datasets, in "
        "points. Wilcoxon p: of that difference, corrected by Holm's method over all pairs of rows. P worse, "
        f"P level, P better: the probabilities that {name} is worse than the row, level with it, and better, "
        f"by the Bayesian signed-rank test (Benavoli et al. 2017). Level means within {ROPE:g} point. The "
        f"prior is one difference of 0 with weight {PRIOR:g}.{missing}"
    )


def _p(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _probability(p: float) -> Cell:
    return Cell(NOTHING, -math.inf) if math.isnan(p) else Cell(f"{p:.3f}", p)


def standings_json(found: Iterable[Standings]) -> list[dict[str, Any]]:
    """What the tables show, for programs."""
    return [
        {
            "scoring": each.scoring.name,
            "metric": each.metric,
            "datasets": list(each.datasets),
            "friedman_p": each.friedman_p,
            "left_out": list(each.left_out),
            "rope_points": ROPE,
            "rows": [asdict(row) for row in each.rows],
        }
        for each in found
    ]
