"""Which rows a claim compares: from the rows of a dataset and the row that is judged to a list of
contrasts."""

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
"""Row (``fedavg``, ``fedepd:printed``) -> measure (of ``measures.MEASURES``) -> one value per seed.

A missing value is NaN.
"""

STANDARD = ("fedavg", "fedproto", "fedgta")
LONG_TAILED = ("graphsmote", "hiertail", "lws", "fedlc", "fedgac", "creff", "fedspray", "graphfedmig")
BASELINES = STANDARD + LONG_TAILED
PARTS = {
    "consensus": ("consensus", "without_consensus"),
    "purification": ("purify", "without_purification"),
    "recalibration": ("recalibrate", "without_recalibration"),
}
"""A part of FedEPD -> the setting that turns it off, and the preset that is our default without it."""

# Choice: a gain over a rival that is shown to be below half a point refutes the claim of a gain. The smallest
# gain in the paper's Table 2 is 0.62 points.
NO_GAIN = 0.5
# Choice: "stable" and "comparable" mean at most one point less. The paper calls 0.95 points less comparable
# (Roman-Empire).
COMPARABLE = 1.0
# Choice: a "remarkably small" variation is at most what the paper itself reports over its grid: 61.96 - 60.51
# points on CoraFull.
SMALL_RANGE = round(PAPER_SENSITIVITY["corafull"][1] - PAPER_SENSITIVITY["corafull"][0], 2)
# Choice: a "comparable" running time is at most a quarter longer than that of the fastest baseline.
COMPARABLE_TIME = 1.25
# Choice: a "negligible" part of the traffic is at most a twentieth.
NEGLIGIBLE_TRAFFIC = 1.05


@dataclass(frozen=True)
class Contrast:
    """One comparison of a claim: ``ours`` is claimed to be above ``theirs``. Higher is better in both."""

    ours: Sequence[float]
    theirs: Sequence[float]
    names: tuple[str, str]
    """The rows of ``ours`` and ``theirs``."""
    proof: float = 0.0
    """The comparison is confirmed where ours minus theirs is shown to be above this."""
    refutal: float = NO_GAIN
    """It is refuted where ours minus theirs is shown to be below this."""
    unit: Literal["points", "lower", "times"] = "points"
    """What the values are: scores in percent (``points``), a negated measure of which less is better
    (``lower``), or the negated logarithm of a cost (``times``)."""
    weight: float = 1.0
    """How much this contrast counts when the worst of a claim's contrasts is picked to refute it.

    The p-value of a contrast is multiplied by the sum of all weights divided by its own weight. With equal
    weights that is the number of contrasts (Bonferroni's correction).
    """


@dataclass(frozen=True)
class Missing:
    """Why a claim cannot be confirmed: a row that it names was not run, or was not measured."""

    reason: str
    undefined: bool = False
    """True where the row was run but the dataset has no such score. Example: it has no medium classes."""


Found = Sequence[Contrast | Missing]
"""What a claim compares on one dataset. A claim against several rows has a contrast with each of them."""
ContrastOf = Callable[[Rows, str], Found]
"""From a dataset's rows and the row that is judged to the contrasts of a claim."""


def best(metric: str, rivals: Sequence[str] = BASELINES) -> ContrastOf:
    """The judged row is above each of these rivals."""
    return lambda rows, judged: _against(rows, [judged], rivals, metric)


def comparable(metric: str, rivals: Sequence[str]) -> ContrastOf:
    """The judged row is at most ``COMPARABLE`` points below each of these rivals."""
    return lambda rows, judged: _bounded(best(metric, rivals)(rows, judged), -COMPARABLE, -COMPARABLE)


def part_helps(part: str, metric: str) -> ContrastOf:
    """The whole method is above the one without this part.

    Choice: that a part helps is refuted only where the part is shown to cost score. A gain below half a point
    does not refute it, because the paper's Table 3 prints gains as small as 0.04.
    """
    return lambda rows, judged: _bounded(_against(rows, [judged], [_without(judged, part)], metric), 0.0, 0.0)


def purification_matters_most(rows: Rows, judged: str) -> Found:
    """The two other ablations are above the one without purification."""
    others = [_without(judged, part) for part in ("consensus", "recalibration")]
    return _against(rows, others, [_without(judged, "purification")], "acc")


def small_range(rows: Rows, judged: str) -> Found:
    """No cell of the grid over mu and gamma is more than ``SMALL_RANGE`` below any other cell.

    Choice: two kinds of pairs can refute a small range. One is a pair of cells. The other is a pair of values
    of one parameter, each averaged over the other parameter: if the averages are that far apart, so are some
    cells. There are many pairs of cells and few pairs of values. The weights give each kind half of the error
    rate, so that the many pairs of cells do not drown the few pairs of values.
    """
    cells = _means(
        rows, [row for row in rows if row.startswith((f"{judged}:mu=", f"{judged}:gamma="))], "macro_f1"
    )
    if len(cells) < 2:
        return [Missing(f"There is no grid of {judged} over mu and gamma")]
    scores = {row: rows[row]["macro_f1"] for row in cells}
    of_cells = _spread(scores)
    of_values = [each for name in ("mu", "gamma") for each in _spread(_averaged(scores, judged, name))]
    weight = len(of_cells) / max(1, len(of_values))
    return of_cells + [replace(each, weight=weight) for each in of_values]


def _averaged(scores: Mapping[str, Sequence[float]], judged: str, name: str) -> dict[str, list[float]]:
    """A parameter's value -> its mean over all cells with that value, seed by seed.

    Values with a single cell are left out.
    """
    cells: dict[str, list[Sequence[float]]] = {}
    for row, values in scores.items():
        for setting in row.split(":"):
            if setting.startswith(f"{name}="):
                cells.setdefault(f"{judged}:{setting} on average", []).append(values)
    return {value: np.mean(there, axis=0).tolist() for value, there in cells.items() if len(there) > 1}


def _spread(scores: Mapping[str, Sequence[float]]) -> list[Contrast]:
    """A contrast for every pair: the lower mean is claimed to be at most ``SMALL_RANGE`` below the higher
    one."""
    pairs = itertools.combinations(sorted(scores, key=lambda row: mean_std(scores[row])[0]), 2)
    return [
        Contrast(scores[low], scores[high], (low, high), -SMALL_RANGE, -SMALL_RANGE) for low, high in pairs
    ]


def cheap(measure: str, limit: float, rivals: Sequence[str]) -> ContrastOf:
    """The judged row costs at most ``limit`` times as much as each of these rivals."""

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
    """The mean step of the judged row between evaluations is smaller than the rivals' average."""

    def contrast(rows: Rows, judged: str) -> Found:
        if missing := [row for row in (judged, *rivals) if row not in rows]:
            return [_not_run(missing)]
        ours, *theirs = ([-step for step in rows[row]["fluctuation"]] for row in (judged, *rivals))
        names = (judged, "the average method for long tails")
        return [Contrast(ours, np.mean(theirs, axis=0).tolist(), names, refutal=0.0, unit="lower")]

    return contrast


def tail_is_worse(rows: Rows, judged: str) -> Found:
    """A method's accuracy on head classes is above its accuracy on tail classes."""
    if judged not in rows:
        return [_not_run([judged])]
    return [Contrast(rows[judged]["head_acc"], rows[judged]["tail_acc"], ("the head", "the tail"))]


def _against(rows: Rows, ours: Iterable[str], theirs: Iterable[str], metric: str) -> list[Contrast | Missing]:
    """Each of ``ours`` is above each of ``theirs``."""
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
        found.append(Missing(f"There is no {metric} of {', '.join(unknown)}", undefined=True))
    return found


def _not_run(rows: Sequence[str]) -> Missing:
    return Missing(f"There is no run of {', '.join(rows)}")


def _bounded(
    found: Found, proof: float, refutal: float, unit: Literal["points", "lower", "times"] = "points"
) -> Found:
    return [
        each if isinstance(each, Missing) else replace(each, proof=proof, refutal=refutal, unit=unit)
        for each in found
    ]


def _without(judged: str, part: str) -> str:
    """The key of the judged row without a part. For our default it is a preset, for others a setting."""
    setting, preset = PARTS[part]
    return f"fedepd:{preset}" if judged == "fedepd" else f"{judged}:{setting}=False"


def _means(rows: Rows, chosen: Iterable[str], metric: str) -> dict[str, float]:
    """The means of those chosen rows that were measured."""
    means = {row: mean_std(rows[row][metric])[0] for row in chosen if row in rows}
    return {row: mean for row, mean in means.items() if not math.isnan(mean)}
