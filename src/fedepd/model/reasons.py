"""What an explanation says: reasons with their contributions, and the case that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scipy.special import expit

from fedepd.shown import shown

IMPORTANCES = (
    "importances from 0 to 1 by PyG's GNNExplainer, which do not add up and do not say for or against"
)


@dataclass(frozen=True)
class Reason:
    """One column of the node, or one neighbour."""

    kind: str
    """"feature" or "neighbour"."""
    name: str
    """The column, or the neighbour's id."""
    contribution: float
    """What it adds to the log-odds; or its importance from 0 to 1, where the case has those."""
    value: float | str | None = None
    """Of a feature: the value in the table."""
    usual: float | str | None = None
    """Of a feature: its mean over the graph, or the most frequent category."""
    hops: int = 0
    """Of a neighbour: how many steps away it is."""
    by_edges: float = 0.0
    """Of a neighbour: the part of the contribution that its edges towards the node have."""
    label: str = ""
    """Of a neighbour: what the model says about it."""
    probability: float = 0.0
    features: tuple[tuple[str, float | str, float], ...] = ()
    """Of a neighbour: its columns that contribute most, each with its value and contribution."""

    def words(self) -> str:
        """The reason without its contribution."""
        if self.kind == "feature":
            return f"{shown(self.name)} = {plain_value(self.value)} (usual: {plain_value(self.usual)})"
        away = "neighbour" if self.hops == 1 else f"{self.hops} steps away"
        return f"{shown(self.name)}, {away}, {shown(self.label)} {self.probability:.2f}"


def plain_value(value: float | str | None) -> str:
    """A value of a table, with at most four digits."""
    return f"{value:.4g}" if isinstance(value, float) else shown(value, 40)


@dataclass(frozen=True)
class Case:
    """Why a node has its probability of one class."""

    node: str
    label: str
    """The class that is explained."""
    probability: float
    """Calibrated, as ``predict`` gives it."""
    log_odds: float
    base_log_odds: float
    """At the beginning of the path."""
    reasons: tuple[Reason, ...]
    """All of them, the largest contributions first, whatever their sign."""
    remainder: float
    """What the contributions lack of the difference, because the path has a finite number of points."""
    steps: int
    without: tuple[tuple[str, ...], float]
    """The names of the reasons that speak most for the class, and the probability without them."""
    edges: tuple[tuple[str, str], ...] = ()
    """The edges among the node and its neighbours, by ids."""
    alert: bool | None = None
    """Whether the model's operating point alerts the node. None: it has no point."""
    chance: float | None = None
    """How likely the alert is right. None: it is no alert to this class, or nobody knows."""
    by: str = "gradients"
    """How the reasons were found. Those by "gnnexplainer" are importances without sign or sum."""

    @property
    def adds_up(self) -> bool:
        """Whether the reasons are contributions to the log-odds."""
        return self.by == "gradients"

    def number(self, value: float, digits: int = 2) -> str:
        """A contribution with its sign, or an importance."""
        return f"{value:{'+' if self.adds_up else ''}.{digits}f}"

    def as_json(self, most: int = 20) -> dict[str, Any]:
        """For a file: the first reasons, and the sum of all others."""
        return {
            **{name: getattr(self, name) for name in ("node", "label", "probability", "log_odds")},
            **({} if self.alert is None else {"alert": self.alert}),
            **({} if self.chance is None else {"chance": self.chance}),
            "base_probability": self.base_probability,
            "base_log_odds": self.base_log_odds,
            **({} if self.adds_up else {"by": self.by, "note": f"These are {IMPORTANCES}."}),
            "reasons": [self._reason(each) for each in self.reasons[:most]],
            **(
                {"other_reasons": sum(each.contribution for each in self.reasons[most:])}
                | {"remainder": self.remainder}
                if self.adds_up
                else {}
            ),
            "steps": self.steps,
            "without": {"reasons": list(self.without[0]), "probability": self.without[1]},
        }

    def _reason(self, reason: Reason) -> dict[str, Any]:
        names = {} if self.adds_up else {"contribution": "importance"}
        return {
            names.get(name, name): value
            for name, value in vars(reason).items()
            if value not in (None, "", (), 0) or (name in ("value", "usual") and value == 0)
        }

    def in_short(self, most: int = 2) -> str:
        """The first reasons that speak for the class, in one line; empty if none does."""
        return "; ".join([each.words() for each in self.reasons if each.contribution > 0][:most])

    def alert_words(self) -> str:
        """Whether it is an alert, to be put behind its probability."""
        return {None: "", True: ", an alert", False: ", no alert"}[self.alert]

    @property
    def base_probability(self) -> float:
        """The probability at the beginning of the path."""
        return float(expit(self.base_log_odds))

    def sentences(self, most: int = 5) -> list[str]:
        """The case in words: what is said, by which reasons, and what would be said without them."""
        out = [
            f"{shown(self.node)}: {shown(self.label)} with probability {self.probability:.3f}"
            f"{self.alert_words()}; an average node without neighbours has {self.base_probability:.3f}"
        ]
        if not self.adds_up:
            out.append(f"  These are {IMPORTANCES}.")
        out += [f"  {self.number(each.contribution)}  {each.words()}" for each in self.reasons[:most]]
        if self.without[0]:
            named = ", ".join(shown(name) for name in self.without[0])
            out.append(f"  without {named} it would be {self.without[1]:.3f}")
        return out
