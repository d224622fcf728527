"""How far new rows are from those that a model was trained on, and what has passed a limit.

Shares are compared by the population stability index, PSI = Σ (a - r) ln(a / r). Without any drift it is
about (1/n + 1/m) times a chi-square number (Yurdakul, Western Michigan University 2018), so a limit counts
only where the index is above that, too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import chi2

from fedepd.clients.scaling import with_features
from fedepd.datasets.facts import homophily
from fedepd.errors import BadConfig, BadData
from fedepd.metrics import confusion_matrix, scores
from fedepd.model.calibration import measured
from fedepd.model.explain import frequent_class
from fedepd.model.model import Model, Predictions
from fedepd.model.operating import Alerted
from fedepd.model.pointed import rules_in_words
from fedepd.model.reference import Bins, Reference, column_values, degrees_of
from fedepd.model.subject import Subject, labelled_rows
from fedepd.options import option
from fedepd.shown import shown

SURE = 0.99
"""The index must be above this share of what chance alone would give."""
HALF = 0.5
"""A bin without a row counts as half a row, so that the index stays finite."""


@dataclass(frozen=True)
class Limits:
    """What may not be passed."""

    psi: float = option(0.25, "largest population stability index of a column, of degrees or of classes")
    alerts: float = option(2.0, "how many times as many, or as few, alerts as in training")
    homophily: float = option(0.1, "largest change of the share of edges whose ends are predicted alike")
    ece: float = option(0.1, "largest calibration error, where labels are known")

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not (isinstance(value, float) and math.isfinite(value) and value > 0):
                raise BadConfig(f"the limit {f.name} is {value}; give a number above 0")
        if self.alerts <= 1:
            raise BadConfig(f"the limit alerts is {self.alerts:g}; it is a ratio, so give more than 1")

    @classmethod
    def read(cls, text: str) -> Limits:
        """Limits from ``psi=0.3,ece=0.05``; those that are not named keep their defaults."""
        known, given = [f.name for f in fields(cls)], dict[str, float]()
        for each in filter(None, (part.strip() for part in text.split(","))):
            name, _, value = each.partition("=")
            try:
                given[name.strip()] = float(value)
            except ValueError:
                raise BadConfig(f"the limit '{shown(each)}' is no NAME=NUMBER; give psi=0.25") from None
            if name.strip() not in known:
                raise BadConfig(f"there is no limit '{shown(name)}'; choose from {', '.join(known)}")
        return cls(**given)


@dataclass(frozen=True)
class Figure:
    """One number that is watched."""

    name: str
    kind: str
    """"column", "degree", "classes", "alerts", "homophily" or "ece"."""
    value: float | None
    before: float | None
    """The number of the training data, where it is no index."""
    limit: float
    """What the value may not pass, chance included."""
    passed: bool
    shares: tuple[tuple[str, float | None, float], ...] = ()
    """Each bin with its share before, if it is known, and now."""


@dataclass(frozen=True, eq=False)
class Watched:
    """All figures of some new rows."""

    nodes: int
    figures: tuple[Figure, ...]
    labelled: dict[str, Any] | None
    """Scores, where labels are known."""
    notes: tuple[str, ...] = ()
    alert: str = ""
    """What an alert is, where the model has an operating point."""

    @property
    def passed(self) -> list[Figure]:
        """The figures that are beyond their limits."""
        return [figure for figure in self.figures if figure.passed]


def watch(
    model: Model,
    reference: Reference,
    subject: Subject,
    limits: Limits | None = None,
    labels: Mapping[str, str] | None = None,
) -> Watched:
    """Hold new nodes against those that a model was trained on.

    Args:
        model: The model.
        reference: What is kept of its training rows.
        subject: The new nodes; where there is a context, only the new ones count.
        limits: What may not be passed.
        labels: Classes of new nodes that are known by now, by id.

    Raises:
        BadData: The graph has other features than the model, or a label names no node or class.
    """
    limits = limits or Limits()
    predictions = model.predict(subject.graph)
    place = {node: number for number, node in enumerate(predictions.node_ids)}
    rows = np.array([place[node] for node in subject.asked], dtype=np.int64)
    graph = with_features(subject.graph, model.experiment.protocol.features)
    values: dict[str, Sequence[Any]] = {}
    watched = reference.columns[:-2]
    for number, column in column_values(model, graph, rows).items() if watched else ():
        if number >= len(watched):
            raise BadData("the model's reference has fewer columns than its schema; export the run again")
        values[str(number)] = column
    figures, few, psi = [], reference.few, limits.psi
    for number, bins in enumerate(watched):
        figures.append(_index(bins, values[str(number)], few, psi, "column"))
    figures.append(_index(reference.columns[-2], degrees_of(graph, rows).tolist(), few, psi, "degree"))
    # The likeliest classes, as in the reference. What the point decides is watched as the alert rate.
    likeliest = predictions.probabilities.argmax(1)
    said = [model.label_names[c] for c in likeliest[rows].tolist()]
    figures.append(_index(reference.columns[-1], said, few, psi, "classes"))
    notes = [] if watched else ["there are too many columns to watch each of them"]
    if predictions.alerts is None or model.operating is None:
        figures.append(_alerts(model, reference.columns[-1], said, limits.alerts))
    else:
        before = reference.alerted or model.operating.alerted
        figures.append(_rate(predictions.alerts[rows], before, limits.alerts))
        if before is None:
            notes.append(
                "the model folder does not say how many nodes its operating point alerted before; set the "
                "point again with 'fedepd point'"
            )
    figures.append(_alike(reference, subject, likeliest, rows, limits.homophily))
    known = None
    if labels is not None:
        known = _labelled(model, predictions.of(subject.asked), labels)
        low = known["ece"][1]
        figures.append(
            Figure("calibration error", "ece", known["ece"][0], None, limits.ece, low > limits.ece)
        )
    words = "" if model.operating is None else rules_in_words(model.operating, model.label_names)
    return Watched(len(rows), tuple(figures), known, tuple(notes), words)


def stability_index(before: Sequence[float | None], counts: NDArray[np.int64], few: float = 0.0) -> float:
    """PSI of counts against shares. A bin without a row counts as half a row.

    ``few``: a share that is not known lies below this one. It counts as the nearest one to the new share, so
    that nothing is called a shift that may be none.
    """
    n = max(int(counts.sum()), 1)
    a = np.maximum(counts, HALF) / n
    known = np.array([share is not None for share in before])
    r = np.where(known, [share or 0.0 for share in before], np.minimum(a, few))
    r = np.maximum(r, 1e-6)
    r, a = r / r.sum(), a / a.sum()
    return float(((a - r) * np.log(a / r)).sum())


def chance(bins: int, n: int, m: int) -> float:
    """What the index stays below with probability ``SURE`` if nothing has changed."""
    return float(chi2.ppf(SURE, bins - 1)) * (1 / max(n, 1) + 1 / m) if bins > 1 else 0.0


def _index(bins: Bins, values: Sequence[Any], few: int, limit: float, kind: str) -> Figure:
    counts = bins.counts(values)
    value = stability_index(bins.shares, counts, few / bins.rows)
    most = max(limit, chance(len(bins.shares), len(values), bins.rows))
    now = counts / max(len(values), 1)
    shares = tuple(zip(bins.names(), bins.shares, now.tolist(), strict=True))
    return Figure(bins.name, kind, value, None, most, value > most, shares)


def _alerts(model: Model, bins: Bins, said: Sequence[str], limit: float) -> Figure:
    """The share of nodes that are predicted to be of another class than the most frequent one."""
    usual = model.label_names[frequent_class(model)]
    before = 1 - (dict(zip(bins.names(), bins.shares, strict=True)).get(usual) or 0.0)
    return _rate(np.array([each != usual for each in said]), Alerted(before, bins.rows), limit)


def _rate(alerts: NDArray[np.bool_], reference: Alerted | None, limit: float) -> Figure:
    """The share of alerts, against the one before. Where that is not known, nothing is passed."""
    now, n = float(alerts.mean()), len(alerts)
    if reference is None:
        return Figure("alert rate", "alerts", now, None, 1.0, False)
    before, m = reference.share, reference.nodes
    noise = 3 * math.sqrt(max(before * (1 - before), 1 / n) * (1 / n + 1 / m))
    far = now > limit * before or now < before / limit
    return Figure("alert rate", "alerts", now, before, limit * before, far and abs(now - before) > noise)


def _alike(
    reference: Reference, subject: Subject, classes: NDArray[np.int64], rows: NDArray[np.int64], limit: float
) -> Figure:
    """The share of the new nodes' edges whose ends are predicted alike."""
    new = torch.zeros(subject.graph.num_nodes, dtype=torch.bool)
    new[torch.from_numpy(rows)] = True
    edges = subject.graph.edge_index
    edges = edges[:, new[edges[0]] | new[edges[1]]]
    now, before = homophily(edges, torch.from_numpy(classes)), reference.homophily
    passed = False
    if now is not None and before is not None:
        noise = 3 * math.sqrt(max(before * (1 - before), 0.01) / edges.shape[1])
        passed = abs(now - before) > max(limit, noise)
    return Figure("edges predicted alike", "homophily", now, before, limit, passed)


def _labelled(model: Model, said: Predictions, labels: Mapping[str, str]) -> dict[str, Any]:
    """``said``: about the new nodes."""
    p = said.probabilities
    rows, y = labelled_rows(model, said.node_ids, labels)
    counts = confusion_matrix(y, p[rows].argmax(1), len(model.label_names))
    found = measured(p[rows], y, "monitor")
    raised = {}
    if said.alerts is not None and model.operating is not None:
        cases = np.isin(y, [c for rule in model.operating.rules for c in rule.classes])
        alerts = said.alerts[rows]
        counted = {"alerts": alerts, "right": alerts & cases, "cases": cases}
        raised = {name: int(flags.sum()) for name, flags in counted.items()}
    return {
        "nodes": len(y),
        **raised,
        **{name: found[name] for name in ("ece", "brier", "accuracy", "confidence")},
        **{
            name: value for name, value in scores(counts, model.tiers).items() if name in ("bacc", "macro_f1")
        },
    }
