"""What an operating point does to test nodes: found cases and false alarms, with intervals by bootstrap.

Shapes: n nodes, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedepd.longtail import Tiers
from fedepd.metrics import confusion_matrix, scores
from fedepd.model.aim import Aim, in_words
from fedepd.model.operating import Operating, Rule, needed
from fedepd.rng import seeded_numpy
from fedepd.rounds.ranking import ranking

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

RESAMPLES = 1000
BAND = 200
"""Resamples for the band of a curve. Its ends are looked at, not quoted."""
POINTS = 60
"""Most points of a curve."""


@dataclass(frozen=True, eq=False)
class Split:
    """Nodes of one split: calibrated probabilities [n, C] and classes [n]."""

    p: Floats
    classes: Ints


@dataclass(frozen=True)
class Wanted:
    """What one rule shall reach: a share of its classes' nodes, or a share of all nodes that is alerted."""

    recall: float | None = None
    alerted: float = 0.0
    fixed: bool = False
    """The threshold is not chosen by these nodes, so no resample chooses it anew."""


def wanted_by(aim: Aim | str, nodes: int, rules: int = 1) -> list[Wanted]:
    """What each rule shall reach, in the order of the rules. ``nodes``: of how many the alerts are."""
    if isinstance(aim, str):
        return [Wanted(fixed=True)] * rules
    if aim.cost is not None:
        return [Wanted()]
    return [
        *(Wanted(recall=share) for share in aim.recall.values()),
        *(Wanted(alerted=count / nodes) for count in aim.budgets.values()),
    ]


def measured_point(
    point: Operating, aim: Aim | str, validation: Split, test: Split, tiers: Tiers, nodes: int
) -> dict[str, Any]:
    """What the model folder says about its operating point, as JSON.

    ``nodes``: of how many nodes the alerts are, where the aim does not say. An aim that is a text is that of
    a federation's plan, whose sites have chosen together.
    """
    told, per = ({"federation": aim}, nodes) if isinstance(aim, str) else (in_words(aim, nodes), aim.per)
    classes = test.p.shape[1]
    decided, before = point.decide(test.p).classes, test.p.argmax(1)
    after = confusion_matrix(test.classes, decided, classes)
    out: dict[str, Any] = {
        **point.as_json(),
        "aim": told,
        "validation_nodes": len(validation.classes),
        "test_nodes": len(test.classes),
        "resamples": RESAMPLES,
        "measured": [
            _rule(number, point, wanted, validation, test)
            for number, wanted in enumerate(wanted_by(aim, per or nodes, len(point.rules)))
        ],
        "confusion": after.tolist(),
        "likeliest": scores(confusion_matrix(test.classes, before, classes), tiers),
        "decided": scores(after, tiers),
    }
    if point.costs is not None and len(test.classes):
        usual = np.full(len(test.classes), point.usual)
        calls = {"likeliest": before, "decided": decided, "usual": usual}
        out["costs_per_node"] = {
            name: _mean_with_interval(point.costs[called, test.classes], name)
            for name, called in calls.items()
        }
    return out


def _mean_with_interval(values: Floats, name: str) -> list[float | None]:
    draws, n = seeded_numpy("operating point", "cost", name, len(values)), len(values)
    again = [float(values[draws.integers(n, size=n)].mean()) for _ in range(RESAMPLES)]
    return [float(values.mean()), *_ends(again)]


def _rule(number: int, point: Operating, wanted: Wanted, validation: Split, test: Split) -> dict[str, Any]:
    rule = point.rules[number]
    own, theirs = (point.scores(split.p)[number] for split in (validation, test))
    truth, positive = (np.isin(split.classes, rule.classes) for split in (validation, test))
    alerted = theirs > 0 if point.costs is not None else theirs >= rule.threshold
    found, false = int((alerted & positive).sum()), int((alerted & ~positive).sum())
    again = _resampled(rule, None if point.costs is not None else wanted, (own, truth), (theirs, positive))
    shares = _ends(again[:, 2])
    return {
        "classes": list(rule.classes),
        "threshold": rule.threshold,
        "nodes": int(positive.sum()),
        # As a share of these cases: resamples have other numbers of them.
        "found": [found, *(None if end is None else end * int(positive.sum()) for end in shares)],
        "false_alarms": [false, *_ends(again[:, 1])],
        "recall": [_share(found, int(positive.sum())), *shares],
        "precision": [_share(found, found + false), *_ends(again[:, 3])],
        "curve": curve(theirs, positive),
    }


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None


def _ends(values: Any) -> list[float | None]:
    """Both ends of the 95 % interval by percentiles; None where no resample has a value."""
    known = np.asarray(values, dtype=np.float64)
    known = known[~np.isnan(known)]
    return [float(end) for end in np.percentile(known, (2.5, 97.5))] if len(known) else [None, None]


def _resampled(
    rule: Rule, wanted: Wanted | None, validation: tuple[Floats, Flags], test: tuple[Floats, Flags]
) -> Floats:
    """Found, false alarms, recall and precision of every resample: [B, 4]. ``wanted``: None under costs.

    Choice: each resample draws validation nodes, chooses its threshold by them, and draws test nodes to
    measure it on. So the interval also holds what the choice of a threshold by few nodes adds. The shifts of
    a point by costs are not fitted again.
    """
    (own, truth), (theirs, positive) = validation, test
    order = np.argsort(-own, kind="stable")
    own, truth = own[order], truth[order]
    draws = seeded_numpy("operating point", *rule.classes, len(own), len(theirs))
    out = np.full((RESAMPLES, 4), np.nan)
    for i in range(RESAMPLES):
        limit = rule.threshold
        if wanted is not None and not wanted.fixed:
            limit = _again(wanted, own, truth, draws.integers(len(own), size=len(own)), limit)
        chosen = draws.integers(len(theirs), size=len(theirs)) if len(theirs) else np.empty(0, dtype=np.int64)
        s, is_one = theirs[chosen], positive[chosen]
        alerted = s > limit if wanted is None else s >= limit
        found, false, all_of_them = (int(x.sum()) for x in (alerted & is_one, alerted & ~is_one, is_one))
        out[i, :2] = found, false
        out[i, 2] = found / all_of_them if all_of_them else np.nan
        out[i, 3] = found / (found + false) if found + false else np.nan
    return out


def _again(wanted: Wanted, own: Floats, truth: Flags, drawn: Ints, threshold: float) -> float:
    """The threshold by resampled validation nodes, whose scores fall."""
    weights = np.bincount(drawn, minlength=len(own))
    if wanted.recall is not None:
        reached = np.cumsum(weights * truth)
        if not reached[-1]:
            return threshold
        return float(own[int(np.searchsorted(reached, needed(wanted.recall, int(reached[-1]))))])
    allowed = int(wanted.alerted * len(own) + 1e-9)
    above = np.cumsum(weights)
    last = int(np.searchsorted(above, allowed, side="right")) - 1
    return float(own[last]) if last >= 0 else float(np.nextafter(own[0], np.inf))


def curve(scores_of_rule: Floats, positive: Flags) -> list[list[float]]:
    """[false alarms, found, low, high] at up to ``POINTS`` numbers of false alarms.

    The band is pointwise: the 95 % interval of found cases over resamples of the test nodes, at the same
    number of false alarms.
    """
    if not positive.any() or positive.all():
        return []
    steps = ranking(scores_of_rule, positive)
    false = steps.alerts - steps.found
    most = int(false[-1])
    at = np.unique(
        np.concatenate([np.arange(min(most, 10) + 1), np.geomspace(1, most, POINTS).round()])
    ).astype(int)
    found = _found_at(false, steps.found, at)
    order = np.argsort(-scores_of_rule, kind="stable")
    is_one, n = positive[order], len(order)
    draws, again = seeded_numpy("operating point", "band", n), np.empty((BAND, len(at)))
    for i in range(BAND):
        weights = np.bincount(draws.integers(n, size=n), minlength=n)
        ones, others = np.cumsum(weights * is_one), np.cumsum(weights * ~is_one)
        scale = positive.sum() / max(int(ones[-1]), 1)
        again[i] = _found_at(others, ones, at) * scale
    low, high = np.percentile(again, (2.5, 97.5), axis=0)
    return [[float(x), float(y), float(a), float(b)] for x, y, a, b in zip(at, found, low, high, strict=True)]


def _found_at(false: Ints, found: Ints, at: Ints) -> Floats:
    """Found nodes with at most so many false alarms."""
    place = np.searchsorted(false, at, side="right") - 1
    return np.where(place >= 0, found[np.maximum(place, 0)], 0).astype(np.float64)
