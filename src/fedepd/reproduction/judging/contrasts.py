"""Who a claim sets against whom, from a dataset's rows and the row that is judged."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from fedepd.report.numbers import mean_std
from fedepd.reproduction.judging.paper import PAPER_SENSITIVITY

Rows = Mapping[str, Mapping[str, Sequence[float]]]
"""Row (``fedavg``, ``fedepd:printed``) -> measure (of ``measures.MEASURES``) -> one value per seed, NaN for a missing one."""

STANDARD = ("fedavg", "fedproto", "fedgta")
LONG_TAILED = ("graphsmote", "hiertail", "lws", "fedlc", "fedgac", "creff", "fedspray", "graphfedmig")
BASELINES = STANDARD + LONG_TAILED
PARTS = {
    "consensus": ("consensus", "without_consensus"),
    "purification": ("purify", "without_purification"),
    "recalibration": ("recalibrate", "without_recalibration"),
}
"""What an ablation leaves out -> the setting that does, and the preset of the default without it."""

# Choice: a gain over rivals that is shown to be below half a point is none; the smallest of the paper's Table 2 is 0.62 points.
NO_GAIN = 0.5
# Choice: "stable" and "comparable" mean at most one point less; the paper calls 0.95 points less comparable (Roman-Empire).
COMPARABLE = 1.0
# Choice: "remarkably small" variation is at most what the paper itself reports over its grid, 61.96 - 60.51 points on CoraFull.
SMALL_RANGE = round(PAPER_SENSITIVITY["corafull"][1] - PAPER_SENSITIVITY["corafull"][0], 2)
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
    refutal: float = NO_GAIN
    """and does not where it is shown to be below this."""
    unit: Literal["points", "lower", "times"] = "points"
    """``lower``: both are minus what is better where it is lower; ``times``: minus logarithms of a cost."""
    weight: float = 1.0
    """Its share, among a claim's contrasts, of the error that a refutal may have: its p counts the weights of all over its own."""


@dataclass(frozen=True)
class Missing:
    """Why a claim cannot be shown to hold: a row that it is about was not run, or has nothing to show."""

    reason: str
    undefined: bool = False
    """The rows were run, but the dataset has nothing of the kind: no medium classes, say."""


Found = Sequence[Contrast | Missing]
"""A claim against several rows is one against each of them."""
ContrastOf = Callable[[Rows, str], Found]
"""Of a dataset's rows and the row that is judged."""


def best(metric: str, rivals: Sequence[str] = BASELINES) -> ContrastOf:
    """Above each of these."""
    return lambda rows, judged: _against(rows, [judged], rivals, metric)


def comparable(metric: str, rivals: Sequence[str]) -> ContrastOf:
    """At most ``COMPARABLE`` points below each of these."""
    return lambda rows, judged: _bounded(best(metric, rivals)(rows, judged), -COMPARABLE, -COMPARABLE)


def part_helps(part: str, metric: str) -> ContrastOf:
    """The whole method above the one without this part.

    Choice: refuted where the part is shown to cost something, not by a gain below half a point: Table 3 prints gains of 0.04.
    """
    return lambda rows, judged: _bounded(_against(rows, [judged], [_without(judged, part)], metric), 0.0, 0.0)


def purification_matters_most(rows: Rows, judged: str) -> Found:
    """Both other ablations above the one without purification."""
    others = [_without(judged, part) for part in ("consensus", "recalibration")]
    return _against(rows, others, [_without(judged, "purification")], "acc")


def small_range(rows: Rows, judged: str) -> Found:
    """No cell of the grid more than ``SMALL_RANGE`` below any other.

    Choice: refuted by two cells so far apart, or by two values of one parameter, each averaged over the other, which are those of cells
    that far apart too. There are few pairs of values and many of cells: either kind has half of the error that a refutal may have.
    """
    cells = _means(
        rows, [row for row in rows if row.startswith((f"{judged}:mu=", f"{judged}:gamma="))], "macro_f1"
    )
    if len(cells) < 2:
        return [Missing(f"no grid of {judged} over mu and gamma")]
    scores = {row: rows[row]["macro_f1"] for row in cells}
    of_cells = _spread(scores)
    of_values = [each for name in ("mu", "gamma") for each in _spread(_averaged(scores, judged, name))]
    weight = len(of_cells) / max(1, len(of_values))
    return of_cells + [replace(each, weight=weight) for each in of_values]


def _averaged(scores: Mapping[str, Sequence[float]], judged: str, name: str) -> dict[str, list[float]]:
    """A parameter's value -> the mean over the cells that have it, seed by seed; only where there are several."""
    cells: dict[str, list[Sequence[float]]] = {}
    for row, values in scores.items():
        for setting in row.split(":"):
            if setting.startswith(f"{name}="):
                cells.setdefault(f"{judged}:{setting} on average", []).append(values)
    return {value: np.mean(there, axis=0).tolist() for value, there in cells.items() if len(there) > 1}


def _spread(scores: Mapping[str, Sequence[float]]) -> list[Contrast]:
    """Of every two the one with the lower mean, claimed to be at most ``SMALL_RANGE`` below the other."""
    pairs = itertools.combinations(sorted(scores, key=lambda row: mean_std(scores[row])[0]), 2)
    return [
        Contrast(scores[low], scores[high], (low, high), -SMALL_RANGE, -SMALL_RANGE) for low, high in pairs
    ]


def cheap(measure: str, limit: float, rivals: Sequence[str]) -> ContrastOf:
    """At most ``limit`` times the cost of each of these."""

    def contrast(rows: Rows, judged: str) -> Found:
        costs = {
            row: {measure: [-math.log(value) if value > 0 else math.nan for value in rows[row][measure]]}
            for row in (judged, *rivals)
            if row in rows
        }
        bound = -math.log(limit)
        return _bounded(_against(costs, [judged], rivals, measure), bound, bound, "times")

    return contrast


def steadier(rivals: Sequence[str]) -> ContrastOf:
    """A smaller mean step between evaluations than these have on average."""

    def contrast(rows: Rows, judged: str) -> Found:
        if missing := [row for row in (judged, *rivals) if row not in rows]:
            return [_not_run(missing)]
        ours, *theirs = ([-step for step in rows[row]["fluctuation"]] for row in (judged, *rivals))
        names = (judged, "the methods for long tails")
        return [Contrast(ours, np.mean(theirs, axis=0).tolist(), names, refutal=0.0, unit="lower")]

    return contrast


def tail_is_worse(rows: Rows, judged: str) -> Found:
    """A method's head above its own tail."""
    if judged not in rows:
        return [_not_run([judged])]
    return [Contrast(rows[judged]["head_acc"], rows[judged]["tail_acc"], ("the head", "the tail"))]


def _against(rows: Rows, ours: Iterable[str], theirs: Iterable[str], metric: str) -> list[Contrast | Missing]:
    """Each of ours above each of theirs."""
    pairs = list(itertools.product(ours, theirs))
    named = list(dict.fromkeys(row for pair in pairs for row in pair))
    known = _means(rows, named, metric)
    found: list[Contrast | Missing] = [
        Contrast(rows[one][metric], rows[other][metric], (one, other))
        for one, other in pairs
        if one in known and other in known
    ]
    if absent := [row for row in named if row not in rows]:
        found.append(_not_run(absent))
    if unknown := [row for row in named if row in rows and row not in known]:
        found.append(Missing(f"no {metric} of {', '.join(unknown)}", undefined=True))
    return found


def _not_run(rows: Sequence[str]) -> Missing:
    return Missing(f"no run of {', '.join(rows)}")


def _bounded(
    found: Found, proof: float, refutal: float, unit: Literal["points", "lower", "times"] = "points"
) -> Found:
    return [
        each if isinstance(each, Missing) else replace(each, proof=proof, refutal=refutal, unit=unit)
        for each in found
    ]


def _without(judged: str, part: str) -> str:
    """How the ablation of a row is called: the presets ablate the default."""
    setting, preset = PARTS[part]
    return f"fedepd:{preset}" if judged == "fedepd" else f"{judged}:{setting}=False"


def _means(rows: Rows, chosen: Iterable[str], metric: str) -> dict[str, float]:
    """Of those rows that were measured at all."""
    means = {row: mean_std(rows[row][metric])[0] for row in chosen if row in rows}
    return {row: mean for row, mean in means.items() if not math.isnan(mean)}
