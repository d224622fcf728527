"""Rows against each other, over seeds and with corrected p-values.

A target's own row (FedEPD, as a rule) against its best rival or its ablations, and all pairs of rows.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedepd.report.tables import METRIC_TITLES, NOTHING, Cell, Table, marked_label
from fedepd.reproduction.judging.statistics import (
    Comparison,
    CriticalDifference,
    compare_seeds,
    critical_difference,
    holm,
    smallest_wilcoxon_p,
)
from fedepd.reproduction.pages.tables import note
from fedepd.reproduction.study.results import HEADLINE, METRICS, Entry, Results, Scoring
from fedepd.shown import shown


@dataclass(frozen=True)
class Duel:
    """Two rows on one dataset by one metric."""

    scoring: Scoring
    metric: str
    ours: Entry
    theirs: Entry
    outcome: Comparison
    welch_p: float
    """Corrected by Holm's method over all duels of the same row, or over all pairs."""
    wilcoxon_p: float
    """Corrected in the same way."""


def best_rival(results: Results, dataset: str, metric: str, scoring: Scoring = HEADLINE) -> Entry | None:
    """The row with the highest mean among those that are neither the target's own nor references."""
    rivals = {
        entry: entry.mean(metric, scoring)
        for entry in results.finished(dataset, references=False)
        if entry.row not in results.target.champions
    }
    return max(
        (entry for entry, mean in rivals.items() if not math.isnan(mean)),
        key=rivals.__getitem__,
        default=None,
    )


def duels(results: Results, scoring: Scoring = HEADLINE) -> list[Duel]:
    """In a comparison: the target's own row, and FedEPD's variants, against the best rival of each.

    In an ablation: the own row against every other row.
    """
    if results.target.kind == "comparison":
        return [
            duel
            for row in results.target.champions
            for duel in _corrected(_pairs_with_rivals(results, row.key, scoring), scoring)
        ]
    return _corrected(_pairs_with_parts(results), scoring)


def all_pairs(results: Results, metric: str, scoring: Scoring = HEADLINE) -> list[Duel]:
    """Every pair of rows but references, on every dataset by one metric, corrected over all of them."""
    pairs = [
        (metric, one, other)
        for dataset in results.datasets
        for one, other in itertools.combinations(results.finished(dataset, references=False), 2)
    ]
    return _corrected(pairs, scoring)


PAIRS = (
    "The first row minus the second, in points. The interval is a paired t interval over seeds. Both tests "
    "are two-sided, and their p-values are corrected by Holm's method over all lines."
)


def duel_table(results: Results, found: Sequence[Duel], text: str = "") -> Table:
    """A line per duel. ``text`` explains them, if they are not the target's own row against others."""
    headers = [
        "Dataset",
        "Metric",
        "Row",
        "Against",
        "Difference",
        "95 % interval",
        "Welch p",
        "Wilcoxon p",
        "Seeds",
    ]
    sections: dict[str, list[list[Cell]]] = {}
    for duel in found:
        key = duel.ours.row.key if results.target.kind == "comparison" else duel.ours.dataset
        sections.setdefault(key, []).append(
            [
                Cell(results.title(duel.ours.dataset)),
                Cell(METRIC_TITLES[duel.metric]),
                Cell(duel.ours.row.label),
                Cell(marked_label(duel.theirs.group, duel.scoring.model)),
                signed(duel.outcome.difference),
                _interval(duel.outcome),
                p_cell(duel.welch_p),
                p_cell(duel.wilcoxon_p),
                Cell(str(duel.outcome.n), float(duel.outcome.n)),
            ]
        )
    return Table(
        f"{results.target.name}-{found[0].scoring.name}-tests",
        headers,
        list(sections.values()),
        note(results, text, found[0].scoring, marked=False) if text else _test_note(results, found),
    )


def _test_note(results: Results, found: Sequence[Duel]) -> str:
    comparison = results.target.kind == "comparison"
    whom = "the rival with the best mean over these seeds" if comparison else "each other row"
    seeds = max((duel.outcome.n for duel in found), default=0)
    least = smallest_wilcoxon_p(seeds)
    name = shown(results.target.champion)
    text = f"{name} against {whom}. The difference is in points and positive where {name} is better. "
    if comparison:
        text += (
            f"The best of many rivals owes part of its lead to chance, so {name}'s losses look larger here "
            "than they are. The verdicts correct for that. "
        )
    text += (
        "The interval is a paired t interval over seeds. It is not corrected for the number of lines. "
        "Both tests are two-sided and use the seeds that both rows have. Their p-values are corrected by "
        "Holm's method over all lines of the same row of ours. A dash means fewer than three seeds."
    )
    if not math.isnan(least):
        text += f" With {seeds} seeds a Wilcoxon p-value is at least {least:g} before correction."
    return note(results, text, found[0].scoring, marked=False)


def ranks(
    results: Results, metric: str, scoring: Scoring = HEADLINE, disputed: bool = True, new: bool = True
) -> CriticalDifference | None:
    """Mean ranks over the datasets, on request without disputed or new rows.

    None with fewer than two datasets.
    """
    scores = {
        d: {
            entry.row.key: entry.mean(metric, scoring)
            for entry in results.finished(d, references=False)
            if (disputed or not entry.row.disputed) and (new or not entry.row.new)
        }
        for d in results.datasets
    }
    return critical_difference(scores) if len(scores) > 1 else None


def compared(ours: Entry, theirs: Entry, metric: str, scoring: Scoring = HEADLINE) -> Comparison:
    """Two rows over the seeds that both have."""
    return _compare(ours.values(metric, scoring), theirs.values(metric, scoring))


def p_cell(p: float) -> Cell:
    if math.isnan(p):
        return Cell(NOTHING, math.inf)
    return Cell("<0.001" if p < 0.001 else f"{p:.3f}", p)


def signed(value: float) -> Cell:
    """A difference in points."""
    return Cell(NOTHING, -math.inf) if math.isnan(value) else Cell(f"{value:+.2f}".replace("-", "−"), value)


def _interval(outcome: Comparison) -> Cell:
    low, high = (signed(outcome.difference + sign * outcome.half_width) for sign in (-1, 1))
    return low if math.isnan(outcome.half_width) else Cell(f"{low.text} to {high.text}", low.value)


def _pairs_with_rivals(results: Results, key: str, scoring: Scoring) -> list[tuple[str, Entry, Entry]]:
    pairs = []
    for dataset in results.datasets:
        ours = next((entry for entry in results.finished(dataset) if entry.row.key == key), None)
        for metric in METRICS:
            rival = best_rival(results, dataset, metric, scoring)
            if ours is not None and rival is not None:
                pairs.append((metric, ours, rival))
    return pairs


def _pairs_with_parts(results: Results) -> list[tuple[str, Entry, Entry]]:
    return [
        (metric, ours, theirs)
        for dataset in results.datasets
        for metric in METRICS
        for ours in results.finished(dataset)
        if ours.row.key == results.target.ours
        for theirs in results.finished(dataset)
        if theirs is not ours
    ]


def _corrected(pairs: Sequence[tuple[str, Entry, Entry]], scoring: Scoring) -> list[Duel]:
    found = [compared(ours, theirs, metric, scoring) for metric, ours, theirs in pairs]
    welch, wilcoxon = holm([c.welch_p for c in found]), holm([c.wilcoxon_p for c in found])
    return [
        Duel(scoring, *pair, outcome, *p)
        for pair, outcome, p in zip(pairs, found, zip(welch, wilcoxon, strict=True), strict=True)
    ]


def _compare(ours: dict[int, float], theirs: dict[int, float]) -> Comparison:
    seeds = sorted(ours.keys() & theirs.keys())
    return compare_seeds([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])
