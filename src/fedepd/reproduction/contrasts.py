"""Who a claim sets against whom, from a dataset's rows and the row that is judged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedepd.report.numbers import mean_std

Rows = Mapping[str, Mapping[str, Sequence[float]]]
"""Row (``fedavg``, ``fedepd:printed``) -> measure (of ``measures.MEASURES``) -> one value per seed, NaN for a missing one."""

STANDARD = ("fedavg", "fedproto", "fedgta")
LONG_TAILED = ("graphsmote", "hiertail", "lws", "fedlc", "fedgac", "creff", "fedspray", "graphfedmig")
BASELINES = STANDARD + LONG_TAILED

# Choice: a gain over rivals that is shown to be below half a point is none; the smallest of the paper's Table 2 is 0.62 points.
NO_GAIN = 0.5
# Choice: "stable" and "comparable" mean at most one point less; the paper calls 0.95 points less comparable (Roman-Empire).
COMPARABLE = 1.0
# Choice: "remarkably small" variation is at most what the paper itself reports over its grid, 61.96 - 60.51 points on CoraFull.
SMALL_RANGE = 1.45
# Choice: a "comparable" running time is at most a quarter longer than that of the fastest baseline.
COMPARABLE_TIME = 1.25
# Choice: a "negligible" part of the traffic is at most a twentieth.
NEGLIGIBLE_TRAFFIC = 1.05


@dataclass(frozen=True)
class Contrast:
    """What is claimed to be above, and what below; higher is better in both."""

    ours: Sequence[float]
    theirs: Sequence[float]
    names: tuple[str, str]
    """The rows of ``ours`` and ``theirs``."""
    proof: float = 0.0
    """The claim holds where ours minus theirs is shown to be above this,"""
    refutal: float | None = NO_GAIN
    """and does not where it is shown to be below this; None: this contrast alone refutes nothing."""
    unit: Literal["points", "lower", "times"] = "points"
    """``lower``: both are minus what is better where it is lower; ``times``: minus logarithms of a cost."""


@dataclass(frozen=True)
class Missing:
    """Why there is no contrast."""

    reason: str


Found = list[Contrast] | Missing
"""A claim against several rows is one against each of them."""
ContrastOf = Callable[[Rows, str], Found]
"""Of a dataset's rows and the row that is judged."""


def best(metric: str, rivals: Sequence[str] = BASELINES) -> ContrastOf:
    """Above each of these that was run."""

    def contrast(rows: Rows, judged: str) -> Found:
        measured = _means(rows, rivals, metric)
        return _against(rows, [judged], measured, metric) if measured else Missing(f"no run of {' or '.join(rivals)}")

    return contrast


def comparable(metric: str, rivals: Sequence[str]) -> ContrastOf:
    """At most ``COMPARABLE`` points below each of these."""

    def contrast(rows: Rows, judged: str) -> Found:
        return _within(COMPARABLE, best(metric, rivals)(rows, judged))

    return contrast


def part_helps(setting: str, preset: str, metric: str) -> ContrastOf:
    """The whole method above the one without this part.

    Choice: refuted where the part is shown to cost something, not by a gain below half a point: Table 3 prints gains of 0.04.
    """

    def contrast(rows: Rows, judged: str) -> Found:
        found = _against(rows, [judged], [_without(judged, setting, preset)], metric)
        return found if isinstance(found, Missing) else [replace(each, refutal=0.0) for each in found]

    return contrast


def purification_matters_most(rows: Rows, judged: str) -> Found:
    """Both other ablations above the one without purification."""
    names = [_without(judged, *part) for part in (("consensus", "without_consensus"), ("recalibrate", "without_recalibration"))]
    return _against(rows, names, [_without(judged, "purify", "without_purification")], "acc")


def small_range(rows: Rows, judged: str) -> Found:
    """No cell of the grid more than ``SMALL_RANGE`` below any other.

    Choice: refuted by what one parameter does on average over the other: means that lie so far apart are those of cells that do, and
    there are few of them to pick from.
    """
    cells = _means(rows, [row for row in rows if row.startswith((f"{judged}:mu=", f"{judged}:gamma="))], "macro_f1")
    if len(cells) < 2:
        return Missing(f"no grid of {judged} over mu and gamma")
    scores = {row: rows[row]["macro_f1"] for row in cells}
    of_cells = [replace(each, refutal=None) for each in _spread(scores)]
    return of_cells + [each for name in ("mu", "gamma") for each in _spread(_levels(scores, judged, name))]


def _levels(scores: Mapping[str, Sequence[float]], judged: str, name: str) -> Mapping[str, Sequence[float]]:
    """A parameter's value -> the mean over all cells that have it, seed by seed."""
    cells: dict[str, list[str]] = {}
    for row in scores:
        for setting in row.split(":"):
            if setting.startswith(f"{name}="):
                cells.setdefault(setting, []).append(row)
    many = {f"{judged}:{setting} on average": np.mean([scores[row] for row in there], axis=0).tolist() for setting, there in cells.items()}
    return many if any(len(there) > 1 for there in cells.values()) else scores


def _spread(scores: Mapping[str, Sequence[float]]) -> list[Contrast]:
    """Of every two the one with the lower mean, claimed to be at most ``SMALL_RANGE`` below the other."""
    pairs = itertools.combinations(sorted(scores, key=lambda row: mean_std(scores[row])[0]), 2)
    return [Contrast(scores[low], scores[high], (low, high), -SMALL_RANGE, -SMALL_RANGE) for low, high in pairs]


def cheap(measure: str, limit: float, rivals: Sequence[str]) -> ContrastOf:
    """At most ``limit`` times the cost of each of these."""

    def contrast(rows: Rows, judged: str) -> Found:
        costs = {row: mean for row, mean in _means(rows, rivals, measure).items() if mean > 0}
        if judged not in rows or not costs:
            return Missing(f"no run of {' or '.join(rivals) if judged in rows else judged}")
        minus_log = {row: [-math.log(value) if value > 0 else math.nan for value in rows[row][measure]] for row in (judged, *costs)}
        bound = -math.log(limit)
        return [Contrast(minus_log[judged], minus_log[rival], (judged, rival), bound, bound, "times") for rival in costs]

    return contrast


def steadier(rows: Rows, judged: str) -> Found:
    """A smaller mean step between evaluations than the long-tailed rivals have on average."""
    rivals = [rows[row]["fluctuation"] for row in _means(rows, LONG_TAILED, "fluctuation")]
    if judged not in rows or not rivals:
        return Missing(f"no run of {'a method for long tails' if judged in rows else judged}")
    ours, theirs = (-np.array(rows[judged]["fluctuation"])).tolist(), (-np.mean(rivals, axis=0)).tolist()
    return [Contrast(ours, theirs, (judged, "the methods for long tails"), refutal=0.0, unit="lower")]


def tail_is_worse(rows: Rows, judged: str) -> Found:
    """A method's head above its own tail."""
    if judged not in rows:
        return Missing(f"no run of {judged}")
    return [Contrast(rows[judged]["head_acc"], rows[judged]["tail_acc"], ("the head", "the tail"))]


def _against(rows: Rows, ours: Iterable[str], theirs: Iterable[str], metric: str) -> Found:
    """Each of ours above each of theirs."""
    pairs = list(itertools.product(ours, theirs))
    named = [row for pair in pairs for row in pair]
    if missing := next((row for row in named if row not in _means(rows, named, metric)), None):
        return Missing(f"no run of {missing}")
    return [Contrast(rows[one][metric], rows[other][metric], (one, other)) for one, other in pairs]


def _within(limit: float, found: Found) -> Found:
    return found if isinstance(found, Missing) else [replace(each, proof=-limit, refutal=-limit) for each in found]


def _without(judged: str, setting: str, preset: str) -> str:
    """How the ablation of a row is called: the presets ablate the default."""
    return f"fedepd:{preset}" if judged == "fedepd" else f"{judged}:{setting}=False"


def _means(rows: Rows, chosen: Iterable[str], metric: str) -> dict[str, float]:
    """Of those rows that were measured at all."""
    means = {row: mean_std(rows[row][metric])[0] for row in chosen if row in rows}
    return {row: mean for row, mean in means.items() if not math.isnan(mean)}
