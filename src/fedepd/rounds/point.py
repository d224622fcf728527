"""A common operating point from sums: clients count their validation nodes by score, and the sum decides.

The score of a node is its calibrated probability of being in a rule's classes. A client adds how many nodes
of these classes, and how many others, are in each bin of a fixed grid. So no score of a single node leaves
it. The sum is enough to find a threshold for a recall, for a share of alerts or for costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedepd.errors import BadConfig, BadMessage, UnknownName
from fedepd.rounds.sums import Layout, Vector
from fedepd.shown import listed, shown

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

EDGES: Floats = np.array([float(f"{1 / (1 + np.exp(-z)):.6g}") for z in np.linspace(-9, 9, 241)])
"""Where bins begin, but for the first, which begins at 0. Thresholds are among them.

Choice: steps of 0.075 in log-odds, from 0.00012 to 0.99988. A threshold is then at most 7.5 % of a small
probability away from the best one. The digits are cut, so that every machine has the same.
"""
BINS = EDGES.size + 1
PARTS = ("of", "others")
"""Nodes of the rule's classes, and all other nodes."""
KINDS = ("recall", "alerts", "cost")
MOST_RULES = 20
NEVER = 2.0
"""Stands for a threshold that could not be chosen."""
SYNTAX = "write 'recall CLASS=0.8', 'alerts CLASS=50/4000' or 'cost CLASS=1000:20'"


@dataclass(frozen=True)
class Goal:
    """What one rule shall reach."""

    kind: str
    name: str
    """The class. Empty: all but the largest."""
    first: float
    """The share that is found, the alerts, or the cost of a missed case."""
    second: float = 0.0
    """Of how many nodes the alerts are, or the cost of a false alarm."""


def goals_of(text: str) -> list[Goal]:
    """What the setting ``aim`` asks for; nothing if it is empty.

    >>> goals_of("recall takeover=0.8, mule=0.5")[1]
    Goal(kind='recall', name='mule', first=0.5, second=0.0)
    >>> goals_of("alerts 50/4000")
    [Goal(kind='alerts', name='', first=50.0, second=4000.0)]
    """
    if not text:
        return []
    kind, _, rest = text.strip().partition(" ")
    if kind not in KINDS or not rest.strip():
        raise BadConfig(f"aim is '{shown(text)}'; {SYNTAX}")
    goals = [_goal(kind, word.strip()) for word in rest.split(",")]
    names = [goal.name for goal in goals]
    if len(set(names)) < len(names) or ("" in names and len(names) > 1) or len(names) > MOST_RULES:
        raise BadConfig(
            f"aim is '{shown(text)}'; name at most {MOST_RULES} classes, each once, or none for all but the "
            "largest"
        )
    return goals


def _goal(kind: str, word: str) -> Goal:
    name, equals, value = word.rpartition("=")
    between = {"recall": "", "alerts": "/", "cost": ":"}[kind]
    first, found, second = value.partition(between) if between else (value, "", "0")
    try:
        numbers = float(first), float(second)
    except ValueError:
        numbers = -1.0, -1.0
    low, high = numbers
    fits = {
        "recall": bool(equals) and 0 < low <= 1,
        "alerts": bool(found) and 1 <= low <= high <= 1e12,
        "cost": bool(found) and 0 < low <= 1e12 and 0 < high <= 1e12,
    }
    if (equals and not name) or not fits[kind]:
        raise BadConfig(f"aim has '{shown(word)}' for {kind}; {SYNTAX}")
    return Goal(kind, name, low, high)


def rules_of(goals: Sequence[Goal], label_names: Sequence[str], usual: int) -> list[tuple[int, ...]]:
    """The classes of each rule.

    Args:
        goals: What they shall reach.
        label_names: What the classes are called.
        usual: The largest class.

    Raises:
        BadConfig: Every class is named.
        UnknownName: There is no such class.
    """
    rules = []
    for goal in goals:
        if goal.name and goal.name not in label_names:
            raise UnknownName("class of aim", shown(goal.name), [shown(each) for each in label_names])
        others = tuple(c for c in range(len(label_names)) if c != usual)
        rules.append((label_names.index(goal.name),) if goal.name else others)
    if len({c for rule in rules for c in rule}) == len(label_names):
        raise BadConfig(
            f"aim names every class ({listed(label_names)}), so no node could go without an alert; leave out "
            "the usual one"
        )
    return rules


def names_of(label_names: Sequence[str], num_classes: int) -> tuple[str, ...]:
    """What classes are called in an aim: by their names, or by their numbers where they have none."""
    return tuple(label_names) or tuple(map(str, range(num_classes)))


# --- at a client --------------------------------------------------------------------------------------------


def point_layout(goals: Sequence[Goal]) -> Layout:
    """The parts of a client's vector."""
    return tuple((f"rule {place}/{part}", (BINS,)) for place in range(len(goals)) for part in PARTS)


def histograms(
    p: Floats, y: Ints, rules: Sequence[tuple[int, ...]], goals: Sequence[Goal], few: int = 0
) -> Vector:
    """A client's vector, from its validation nodes.

    Args:
        p: Calibrated probabilities, [n, C].
        y: The nodes' classes, [n].
        rules: The classes of each rule.
        goals: What each rule shall reach.
        few: Where the vector is seen alone: no count below this one is shown (``coarse``).

    Returns:
        int64 [2 * rules * BINS], as ``point_layout`` says.
    """
    out = []
    for rule, goal in zip(rules, goals, strict=True):
        bins = np.searchsorted(EDGES, p[:, list(rule)].sum(1), side="right")
        own = np.isin(y, rule)
        for part in (own, ~own):
            out.append(coarse(bins[part], few, upwards=goal.kind == "alerts"))
    vector: Vector = np.concatenate(out).astype(np.int64)
    return vector


def coarse(bins: Ints, few: int, upwards: bool) -> Ints:
    """Nodes by bin, [BINS], where they stand together in groups of at least ``few``.

    Choice: groups are made from the highest bin downwards, and the last one takes what is left. A group
    stands in its lowest bin, so that a recall is reached at least. For a number of alerts (``upwards``) it
    stands in its highest one, so that there are not more of them. Fewer nodes than one group are left out.
    """
    if few <= 1:
        return np.bincount(bins, minlength=BINS)
    ordered, groups = np.sort(bins)[::-1], len(bins) // few
    starts = few * np.arange(groups)
    ends = np.append(starts[1:], len(bins))[:groups]
    places = ordered[starts] if upwards else ordered[ends - 1]
    out = np.zeros(BINS, dtype=np.int64)
    np.add.at(out, places, ends - starts)
    return out


# --- from the sum -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Chosen:
    """What a sum says about one rule."""

    threshold: float
    """``NEVER`` if none could be chosen."""
    reason: str = ""
    """Why none could be chosen."""
    found: int = 0
    false_alarms: int = 0
    cases: int = 0
    nodes: int = 0


def choose_all(total: Vector, goals: Sequence[Goal], most: int) -> list[Chosen]:
    """The threshold of every rule.

    Args:
        total: The sum of all clients' vectors.
        goals: What the rules shall reach.
        most: How many validation nodes the clients have at most.

    Raises:
        BadMessage: The sum cannot be one of such vectors.
    """
    size = 2 * len(goals) * BINS
    if total.shape != (size,) or total.dtype != np.int64:
        raise BadMessage(f"the counts for the operating point are not {size} whole numbers")
    if fault := counts_fault(total, most):
        raise BadMessage(f"the counts for the operating point {fault}; find who sends them")
    parts = total.reshape(len(goals), 2, BINS)
    return [choose(goal, part[0], part[1]) for goal, part in zip(goals, parts, strict=True)]


def counts_fault(counts: Vector, most: int) -> str | None:
    """What is wrong with counts of this many nodes at most; None if nothing is."""
    if int(counts.min()) < 0:
        return "hold a negative number"
    # As Python's numbers: a sum of such counts may not fit an int64.
    nodes = max(sum(rule.tolist()) for rule in counts.reshape(-1, 2 * BINS))
    return f"are of {nodes:,} nodes, but there are {most:,} validation nodes" if nodes > most else None


def choose(goal: Goal, of: Ints, others: Ints) -> Chosen:
    """The threshold that reaches a goal, from the counts of both kinds of nodes by bin."""
    found = np.cumsum(of[::-1])[::-1][1:]  # nodes at each edge or above it, [BINS - 1]
    false = np.cumsum(others[::-1])[::-1][1:]
    cases, nodes = int(of.sum()), int(of.sum() + others.sum())
    what = f"the {goal.kind} of '{shown(goal.name)}'" if goal.name else f"the {goal.kind}"
    if not cases:
        return Chosen(NEVER, f"{what} cannot be chosen, because no validation node of the class was counted")
    if goal.kind == "recall":
        needed = max(1, int(np.ceil(goal.first * cases - 1e-9)))
        fitting = np.flatnonzero(found >= needed)
        at = int(fitting[-1]) if len(fitting) else -1  # below the first edge: everybody is alerted
    elif goal.kind == "alerts":
        fitting = np.flatnonzero(found + false <= int(goal.first / goal.second * nodes + 1e-9))
        if not len(fitting) or not (found + false)[fitting[0]]:
            return Chosen(
                NEVER, f"{what} cannot be chosen, because {nodes:,} validation nodes are too few for so few"
            )
        at = int(fitting[0])
    else:
        costs = goal.first * (cases - found) + goal.second * false
        at = int(costs.argmin())
        if costs[at] >= goal.first * cases:
            return Chosen(NEVER, f"{what} is lowest if nobody is alerted, so there is no point to choose")
    if at < 0:
        return Chosen(0.0, "", cases, nodes - cases, cases, nodes)
    return Chosen(float(EDGES[at]), "", int(found[at]), int(false[at]), cases, nodes)
