"""How well a model puts the nodes of a class before all others: from the scores of held-out nodes.

A confusion matrix cannot tell this, so it is measured where the scores are. Shapes: n nodes, C classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedepd.metrics import wilson

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

ALERTS = tuple(first * 10**power for power in range(1, 7) for first in (1, 2, 5))
"""Numbers of alerts at which precision and recall are told, as far as there are nodes."""
POINTS = 60
"""Most points of a curve that are kept."""


@dataclass(frozen=True, eq=False)
class Ranking:
    """Nodes from the highest score down. Nodes with equal scores are one step, because no order is right."""

    alerts: Ints
    """Nodes up to each step, [S]; the last is n."""
    found: Ints
    """Nodes of the class among them, [S]."""
    scores: Floats
    """The score of each step, [S], falling."""

    @property
    def nodes(self) -> int:
        """Nodes of the class."""
        return int(self.found[-1]) if len(self.found) else 0

    @property
    def new(self) -> Ints:
        """Nodes of the class that each step adds, [S]."""
        added = self.found.copy()
        added[1:] -= self.found[:-1]
        return added

    def average_precision(self) -> float:
        """The mean precision at the nodes of the class (scikit-learn's ``average_precision_score``).

        NaN if there is no such node.
        """
        if not self.nodes:
            return float("nan")
        return float((self.new * self.found / self.alerts).sum() / self.nodes)

    def found_at(self, alerts: int) -> float:
        """Nodes of the class among so many alerts.

        A step that the alerts end within counts by its share: that is the mean over all orders of its nodes.
        """
        at = int(np.searchsorted(self.alerts, alerts))
        below = (int(self.alerts[at - 1]), int(self.found[at - 1])) if at else (0, 0)
        inside = (alerts - below[0]) / (int(self.alerts[at]) - below[0])
        return below[1] + inside * (int(self.found[at]) - below[1])

    def at_alerts(self) -> list[list[float]]:
        """[alerts, found] at every number of ``ALERTS`` that there are nodes for. Empty without the class."""
        most = int(self.alerts[-1]) if self.nodes else 0
        return [[k, self.found_at(k)] for k in ALERTS if k <= most]

    def curve(self) -> list[list[int]]:
        """[alerts, found] at up to ``POINTS`` steps, from few alerts to all."""
        if not len(self.alerts):
            return []
        # A step that finds nothing new only lowers the precision, so the one before it says more.
        ends = np.append(np.flatnonzero(self.new > 0), len(self.alerts) - 1)
        wanted = np.unique(np.linspace(0, len(ends) - 1, min(POINTS, len(ends))).round().astype(np.int64))
        kept = np.unique(ends[wanted])
        return [[int(a), int(f)] for a, f in zip(self.alerts[kept], self.found[kept], strict=True)]


def ranking(scores: Floats, positive: Flags) -> Ranking:
    """Rank nodes by scores [n]. ``positive`` [n]: whether a node is of the class."""
    order = np.argsort(-scores, kind="stable")
    falling, ends_here = scores[order], np.ones(len(scores), dtype=bool)
    np.not_equal(falling[1:], falling[:-1], out=ends_here[:-1])
    ends = ends_here.nonzero()[0]
    return Ranking(ends + 1, np.cumsum(positive[order], dtype=np.int64)[ends], falling[ends])


def ranked_classes(probabilities: Floats, y: Ints) -> list[dict[str, Any]]:
    """Of each class: its nodes, average precision with a 95 % interval, what few alerts find, and a curve.

    Args:
        probabilities: Of the nodes, [n, C].
        y: The nodes' classes, [n].

    Choice: the interval of an average precision is Wilson's, as if it were the share of the class's nodes
    that are right. It is a mean over these nodes, and they are the few. Boyd, Eng & Page (2013) take the same
    number of trials; their binomial interval has no width at 1.
    """
    out = []
    for c in range(probabilities.shape[1]):
        each = ranking(probabilities[:, c], y == c)
        value = each.average_precision()
        low, high = wilson(np.array(value * each.nodes), np.array(each.nodes))
        out.append(
            {
                "nodes": each.nodes,
                "average_precision": [value, float(low), float(high)] if each.nodes else None,
                "at_alerts": each.at_alerts(),
                "curve": each.curve() if each.nodes else [],
            }
        )
    return out


def ranked_together(probabilities: Floats, y: Ints, classes: Sequence[int]) -> dict[str, Any]:
    """What few alerts find of several classes together: their nodes, and pairs of alerts and found nodes.

    Nodes are ranked by the probability of being in any of the classes.
    """
    chosen = list(classes)
    each = ranking(probabilities[:, chosen].sum(1), np.isin(y, chosen))
    return {"nodes": each.nodes, "at_alerts": each.at_alerts()}


def mean_average_precision(probabilities: Floats, y: Ints) -> float:
    """The plain mean over the classes that occur. NaN without nodes."""
    values = [ranking(probabilities[:, c], y == c).average_precision() for c in np.unique(y).tolist()]
    return float(np.mean(values)) if values else float("nan")
