"""Who a claim sets against whom, from a dataset's rows and the row that is judged."""

from __future__ import annotations

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
    refutal: float = NO_GAIN
    """and does not where it is shown to be below this."""
    unit: Literal["points", "lower", "times"] = "points"
    """``lower``: both are minus what is better where it is lower; ``times``: minus logarithms of a cost."""


@dataclass(frozen=True)
class Missing:
    """Why there is no contrast."""

    reason: str


ContrastOf = Callable[[Rows, str], Contrast | Missing]
"""Of a dataset's rows and the row that is judged."""


def best(metric: str, rivals: Sequence[str] = BASELINES) -> ContrastOf:
    """Above the rival with the highest mean."""

    def contrast(rows: Rows, judged: str) -> Contrast | Missing:
        means = _means(rows, rivals, metric)
        if not means:
            return Missing(f"no run of {' or '.join(rivals)}")
        return _against(rows, judged, max(means, key=means.__getitem__), metric)

    return contrast


def comparable(metric: str, rivals: Sequence[str]) -> ContrastOf:
    """At most ``COMPARABLE`` points below the best of these."""

    def contrast(rows: Rows, judged: str) -> Contrast | Missing:
        return _within(COMPARABLE, best(metric, rivals)(rows, judged))

    return contrast


def part_helps(setting: str, preset: str, metric: str) -> ContrastOf:
    """The whole method above the one without this part.

    Choice: refuted where the part is shown to cost something, not by a gain below half a point: Table 3 prints gains of 0.04.
    """

    def contrast(rows: Rows, judged: str) -> Contrast | Missing:
        found = _against(rows, judged, _without(judged, setting, preset), metric)
        return replace(found, refutal=0.0) if isinstance(found, Contrast) else found

    return contrast


def purification_matters_most(rows: Rows, judged: str) -> Contrast | Missing:
    """Even the worse of the two other ablations above the one without purification."""
    names = [_without(judged, *part) for part in (("consensus", "without_consensus"), ("recalibrate", "without_recalibration"))]
    others = _means(rows, names, "acc")
    if missing := next((name for name in names if name not in others), None):
        return Missing(f"no run of {missing}")
    return _against(rows, min(others, key=others.__getitem__), _without(judged, "purify", "without_purification"), "acc")


def small_range(rows: Rows, judged: str) -> Contrast | Missing:
    """The worst cell of the grid at most ``SMALL_RANGE`` below the best one.

    Choice: the best and the worst of many noisy means lie apart by chance alone, which counts against the claim.
    """
    cells = _means(rows, [row for row in rows if row.startswith((f"{judged}:mu=", f"{judged}:gamma="))], "macro_f1")
    if len(cells) < 2:
        return Missing(f"no grid of {judged} over mu and gamma")
    return _within(SMALL_RANGE, _against(rows, min(cells, key=cells.__getitem__), max(cells, key=cells.__getitem__), "macro_f1"))


def cheap(measure: str, limit: float, rivals: Sequence[str]) -> ContrastOf:
    """At most ``limit`` times the cost of the cheapest of these."""

    def contrast(rows: Rows, judged: str) -> Contrast | Missing:
        costs = {row: mean for row, mean in _means(rows, rivals, measure).items() if mean > 0}
        if judged not in rows or not costs:
            return Missing(f"no run of {' or '.join(rivals) if judged in rows else judged}")
        rival = min(costs, key=costs.__getitem__)
        ours, theirs = ([-math.log(value) if value > 0 else math.nan for value in rows[row][measure]] for row in (judged, rival))
        return Contrast(ours, theirs, (judged, rival), -math.log(limit), -math.log(limit), "times")

    return contrast


def steadier(rows: Rows, judged: str) -> Contrast | Missing:
    """A smaller mean step between evaluations than the long-tailed rivals have on average."""
    rivals = [rows[row]["fluctuation"] for row in _means(rows, LONG_TAILED, "fluctuation")]
    if judged not in rows or not rivals:
        return Missing(f"no run of {'a method for long tails' if judged in rows else judged}")
    ours, theirs = (-np.array(rows[judged]["fluctuation"])).tolist(), (-np.mean(rivals, axis=0)).tolist()
    return Contrast(ours, theirs, (judged, "the methods for long tails"), refutal=0.0, unit="lower")


def tail_is_worse(rows: Rows, judged: str) -> Contrast | Missing:
    """A method's head above its own tail."""
    if judged not in rows:
        return Missing(f"no run of {judged}")
    return Contrast(rows[judged]["head_acc"], rows[judged]["tail_acc"], ("the head", "the tail"))


def _against(rows: Rows, ours: str, theirs: str, metric: str) -> Contrast | Missing:
    known = _means(rows, (ours, theirs), metric)
    if missing := next((row for row in (ours, theirs) if row not in known), None):
        return Missing(f"no run of {missing}")
    return Contrast(rows[ours][metric], rows[theirs][metric], (ours, theirs))


def _within(limit: float, found: Contrast | Missing) -> Contrast | Missing:
    return replace(found, proof=-limit, refutal=-limit) if isinstance(found, Contrast) else found


def _without(judged: str, setting: str, preset: str) -> str:
    """How the ablation of a row is called: the presets ablate the default."""
    return f"fedepd:{preset}" if judged == "fedepd" else f"{judged}:{setting}=False"


def _means(rows: Rows, chosen: Iterable[str], metric: str) -> dict[str, float]:
    """Of those rows that were measured at all."""
    means = {row: mean_std(rows[row][metric])[0] for row in chosen if row in rows}
    return {row: mean for row, mean in means.items() if not math.isnan(mean)}
