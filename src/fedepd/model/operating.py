"""The operating point of a model: how its probabilities become decisions and alerts.

A point is chosen on validation nodes (``chosen``), saved with the model and applied where it predicts.
Shapes: n nodes, C classes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logsumexp

from fedepd.errors import BadConfig
from fedepd.model.aim import Aim, class_number, read_costs
from fedepd.model.chances import AS_SCORED, Chance
from fedepd.shown import listed, shown

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

LEAST = 1e-300
"""Probabilities are not smaller, so that they have a logarithm."""


@dataclass(frozen=True)
class Rule:
    """Nodes are alerted to some classes from a threshold on."""

    classes: tuple[int, ...]
    threshold: float
    """On the probability of being in one of the classes. Under costs: on what an alert saves."""
    chance: Chance = AS_SCORED
    """How likely a node with some score is of the classes. Rules are compared by it. Not used under costs."""


@dataclass(frozen=True)
class Alerted:
    """How many nodes a point alerted where it was measured."""

    share: float
    nodes: int


@dataclass(frozen=True, eq=False)
class Decisions:
    """What a point makes of probabilities."""

    classes: Ints
    """What each node is called, [n]."""
    alerts: Flags
    """Which nodes are alerted, [n]."""
    ranks: Ints
    """The order in which to look at the nodes: 1 first, [n]. Alerted nodes come before all others."""
    chances: Floats | None = None
    """How likely it is that a node is what it is alerted to, or would be, [n]. None under costs."""


@dataclass(frozen=True, eq=False)
class Operating:
    """How probabilities become decisions: by rules with thresholds, or by costs."""

    usual: int
    """The largest class. Nobody is alerted to it, unless a rule says so."""
    rules: tuple[Rule, ...]
    costs: Floats | None = None
    """[C, C], of calling i what is j."""
    shifts: Floats | None = None
    """With costs: what is added to the logarithms of probabilities before they are weighed, [C]."""
    alerted: Alerted | None = None
    """Of held-out nodes, so that a later rate can be held against it. None in older folders."""

    def scores(self, p: Floats) -> Floats:
        """Of probabilities [n, C], what each rule's threshold is compared with: [R, n]."""
        if self.costs is None:
            return np.stack([p[:, list(rule.classes)].sum(1) for rule in self.rules])
        expected = self._expected(p)
        others = np.delete(expected, self.usual, axis=1)
        saved: Floats = expected[:, self.usual] - others.min(1)
        return saved[None]

    def _expected(self, p: Floats) -> Floats:
        """The expected cost of every call, [n, C]."""
        shifts = np.zeros(p.shape[1]) if self.shifts is None else self.shifts
        out: Floats = shifted(p, shifts) @ np.asarray(self.costs).T
        return out

    def decide(self, p: Floats) -> Decisions:
        """Decide about nodes by their probabilities [n, C].

        A node that a rule alerts is called the likeliest class of that rule. If several rules alert it, the
        one counts that is likeliest to be right. A node that no rule alerts is called the likeliest of the
        other classes. Under costs a node is called what costs least.

        Choice: alerts of all rules are ranked by how likely they are right, because whoever works down the
        list wants the next case to be one. By how far a score is above its threshold, the rule with the
        lowest threshold would come first, and that is the one that is right least often.
        """
        scores = self.scores(p)
        if self.costs is not None:
            margin = scores[0]
            expected = self._expected(p)
            best = np.where(np.arange(p.shape[1]) == self.usual, np.inf, expected).argmin(1)
            saves = margin > 0
            return Decisions(np.where(saves, best, self.usual), saves, ranks(margin, saves))
        odds = np.stack([rule.chance.log_odds(own) for rule, own in zip(self.rules, scores, strict=True)])
        passed = scores >= np.array([[rule.threshold] for rule in self.rules])
        watched = sorted({c for rule in self.rules for c in rule.classes})
        free = [c for c in range(p.shape[1]) if c not in watched]
        called = np.array(free)[p[:, free].argmax(1)]
        of_rule = np.stack(
            [np.array(rule.classes)[p[:, list(rule.classes)].argmax(1)] for rule in self.rules]
        )
        alerts: Flags = np.asarray(passed.any(0))
        first = np.where(passed | ~alerts, odds, -np.inf).argmax(0), np.arange(len(p))  # the rule of a node
        called = np.where(alerts, of_rule[first], called)
        return Decisions(called, alerts, ranks(odds[first], alerts, scores[first]), expit(odds[first]))

    def as_json(self) -> dict[str, Any]:
        out: dict[str, Any] = {
            "usual": self.usual,
            "rules": [_saved(rule) for rule in self.rules],
        }
        if self.costs is not None and self.shifts is not None:
            out |= {"costs": self.costs.tolist(), "shifts": self.shifts.tolist()}
        if self.alerted is not None:
            out["alerted"] = asdict(self.alerted)
        return out

    @classmethod
    def of_json(cls, content: dict[str, Any]) -> Operating:
        """From what ``as_json`` gave. The form was checked by ``shapes.MODEL_CONFIG``."""
        rules = tuple(
            Rule(tuple(rule["classes"]), float(rule["threshold"]), Chance(**rule.get("chance", {})))
            for rule in content["rules"]
        )
        costs, shifts = (
            np.array(content[name], dtype=np.float64) if name in content else None
            for name in ("costs", "shifts")
        )
        alerted = content.get("alerted")
        return cls(content["usual"], rules, costs, shifts, None if alerted is None else Alerted(**alerted))

    def fits(self, num_classes: int) -> bool:
        """Whether the point is one of a model with so many classes."""
        named = [c for rule in self.rules for c in rule.classes]
        shapes = [(self.costs, (num_classes, num_classes)), (self.shifts, (num_classes,))]
        return (
            bool(self.rules)
            and all(rule.classes and rule.chance.is_usable for rule in self.rules)
            and len(set(named)) == len(named) < num_classes
            and max([self.usual, *named]) < num_classes
            and (self.costs is None) == (self.shifts is None)
            and all(part is None or part.shape == shape for part, shape in shapes)
            and (self.costs is None or (len(self.rules) == 1 and self.usual not in named))
        )


def _saved(rule: Rule) -> dict[str, Any]:
    out = {"classes": list(rule.classes), "threshold": rule.threshold}
    return out if rule.chance == AS_SCORED else {**out, "chance": asdict(rule.chance)}


def ranks(scores: Floats, alerts: Flags, then: Floats | None = None) -> Ints:
    """1 for the node to look at first, [n]. Equal nodes are in the order of ``then``, or keep their own."""
    order = np.lexsort((*(() if then is None else (-then,)), -scores, ~alerts))
    out = np.empty(len(scores), dtype=np.int64)
    out[order] = np.arange(1, len(scores) + 1)
    return out


def shifted(p: Floats, shifts: Floats) -> Floats:
    """Probabilities [n, C] after shifts [C] of their logarithms."""
    z = np.log(np.maximum(p, LEAST)) + shifts
    out: Floats = np.exp(z - logsumexp(z, axis=1, keepdims=True))
    return out


# --- choosing -----------------------------------------------------------------------------------------------


def chosen(aim: Aim, p: Floats, y: Ints, label_names: tuple[str, ...], usual: int, nodes: int) -> Operating:
    """The operating point that reaches an aim on validation nodes.

    Args:
        aim: What to reach.
        p: Calibrated probabilities of the validation nodes, [v, C].
        y: Their classes, [v].
        label_names: What the classes are called.
        usual: The largest class.
        nodes: Of how many nodes the alerts are, where the aim does not say.

    Raises:
        BadConfig: The validation nodes cannot say where the point is.
        BadData: The file of costs cannot be used.
        UnknownName: There is no such class.
    """
    if len(label_names) < 2:
        raise BadConfig("the model has one class, so there is nothing to decide; export it without an aim")
    if aim.cost is not None:
        return _by_costs(read_costs(aim.cost, label_names), p, y, usual)
    named = {class_number(name, label_names): share for name, share in aim.recall.items()}
    rules = [
        Rule((c,), threshold_for_recall(p[:, c], y == c, share, label_names[c])) for c, share in named.items()
    ]
    for name, count in aim.budgets.items():
        others = tuple(c for c in range(len(label_names)) if c != usual)
        classes = (class_number(name, label_names),) if name else others
        scores = p[:, list(classes)].sum(1)
        rules.append(Rule(classes, threshold_for_alerts(scores, count, aim.per or nodes)))
    watched = [c for rule in rules for c in rule.classes]
    if len(watched) == len(label_names):
        raise BadConfig(
            f"every class is named ({listed(label_names)}), so no node could go without an alert; leave out "
            "the usual one"
        )
    return Operating(usual, tuple(rules))


def threshold_for_recall(scores: Floats, positive: Flags, share: float, name: str = "") -> float:
    """The highest threshold from which on this share of the positive nodes is found."""
    own = np.sort(scores[positive])[::-1]
    if not len(own):
        raise BadConfig(
            f"the recall of '{shown(name)}' cannot be chosen: no validation node is of that class; name "
            "another class, or run with more of them"
        )
    return float(own[min(len(own), needed(share, len(own))) - 1])


def needed(share: float, count: int) -> int:
    """The fewest of ``count`` nodes that are at least this share of them."""
    return max(1, int(np.ceil(share * count - 1e-9)))


def threshold_for_alerts(scores: Floats, alerts: int, nodes: int) -> float:
    """The lowest threshold at which no larger share of nodes is alerted than ``alerts`` of ``nodes``."""
    if alerts > nodes:
        raise BadConfig(
            f"{alerts:,} alerts of {nodes:,} nodes are more than all; give fewer, or --per a larger number"
        )
    allowed = int(alerts / nodes * len(scores) + 1e-9)
    levels, counts = np.unique(scores, return_counts=True)
    above = np.cumsum(counts[::-1])[::-1]  # nodes at each level or above it
    fitting = np.flatnonzero(above <= allowed)
    if not len(fitting):
        least = int(np.ceil(nodes / max(len(scores), 1) * (above[-1] if len(above) else 1)))
        raise BadConfig(
            f"{alerts:,} alerts of {nodes:,} nodes are too few to choose a threshold by {len(scores):,} "
            f"validation nodes; give at least {least:,}"
        )
    return float(levels[fitting[0]])


def _by_costs(costs: Floats, p: Floats, y: Ints, usual: int) -> Operating:
    """Call what costs least by probabilities that were shifted to the validation nodes' frequencies.

    A method that trains against imbalance gives small classes more probability than they have. Temperatures
    do not mend that, because each is common to all classes of a node.
    """
    others = tuple(c for c in range(len(costs)) if c != usual)
    return Operating(usual, (Rule(others, 0.0),), costs, fitted_shifts(p, y))


def fitted_shifts(p: Floats, y: Ints) -> Floats:
    """The shifts of log-probabilities with the largest likelihood of the validation nodes, [C].

    Choice: a class without validation nodes keeps 0, because they say nothing about it. A weak pull towards 0
    (a normal prior with deviation 10) keeps the others finite.
    """
    classes = p.shape[1]
    counts = np.bincount(y, minlength=classes)
    free, logs = np.flatnonzero(counts), np.log(np.maximum(p, LEAST))
    out = np.zeros(classes)
    if len(free) < 2:
        return out

    def loss(b: Floats) -> tuple[float, Floats]:
        z = logs.copy()
        z[:, free] += b
        total = logsumexp(z, axis=1)
        gradient = np.exp(z[:, free] - total[:, None]).sum(0) - counts[free] + b / 100
        return float(total.sum() - z[np.arange(len(y)), y].sum() + (b**2).sum() / 200), gradient

    found = minimize(loss, np.zeros(len(free)), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    out[free] = found.x - found.x.mean()
    return out
