"""Why a model says what it says about a node: which features and which neighbours moved its log-odds.

Integrated gradients (Sundararajan et al., ICML 2017, arXiv 1703.01365), by features and by what edges carry.
The path begins at a node with average features whose edges carry nothing, and ends at what is there. So the
contributions add up to the difference of the log-odds at both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit
from torch import Tensor

from fedepd import memory
from fedepd.clients.scaling import with_features
from fedepd.errors import BadConfig, UnknownName
from fedepd.model.columns import Column, columns_of
from fedepd.model.model import Model, Predictions, ids_of
from fedepd.model.reasons import Case, Reason
from fedepd.network.contract import dense_rows
from fedepd.network.masked import Lens, Looking, Surroundings
from fedepd.network.sparse import to_scipy
from fedepd.rounds.calibrate import tier_of_class
from fedepd.runs.predict import client_with, predicted, unlabelled
from fedepd.shapes import TIERS
from fedepd.shown import shown
from fedepd.types import Graph

Floats = NDArray[np.float64]

STEPS, MOST_STEPS = 32, 1024
"""Points of the path: at first, and at most."""
TOLERANCE = 0.01
"""Contributions add up to the difference of log-odds within this share of it, or this much if that is more.

Points are added until they do. What is left is given as the remainder.
"""
SAME = 1e-3
"""Log-odds through the lens may differ by this much from those of the prediction: both are float32."""
CHUNK = 2**25
"""Numbers in the widest layer of all copies that are computed at once."""
NAMED = 3
"""The reasons that are taken away to see what the model would say without them."""


class Explainer:
    """A model before one graph."""

    by: ClassVar[str] = "gradients"
    """How reasons are found."""

    def __init__(self, model: Model, graph: Graph) -> None:
        graph = model.check_features(graph)
        self.model, self.raw = model, graph
        self.graph = with_features(graph, model.experiment.protocol.features)
        self.ids = ids_of(graph)
        self.predictions: Predictions = model.predict(graph)
        self.columns: list[Column] = columns_of(model.schema, graph)
        x = to_scipy(self.graph.x) if self.graph.is_sparse else self.graph.x.numpy()
        self.usual = torch.from_numpy(np.asarray(x.mean(0), dtype=np.float32).reshape(-1))  # [d]
        # Choice: the path begins at the mean row of the graph at hand, an average account. A row of zeros
        # would be one where columns are not scaled.
        experiment = model.experiment
        self._eyes = Looking.at(experiment.model)
        self._experiment = replace(experiment, model=self._eyes)
        self._client = client_with(self._experiment, model.info, unlabelled(self.graph, model.info))
        with torch.no_grad():
            self._whole = predicted(self._experiment, model.tensors, self._client)  # [n, C]
        if self._eyes.seen is None:
            raise BadConfig(
                f"{experiment.method.label} predicts by a network of its own, which cannot be looked into; "
                "explain a model of a method that predicts by its backbone, such as fedepd or fedavg"
            )
        self._operator = self._eyes.seen.operator

    def alerts(
        self, count: int, of: str | None = None, among: Sequence[str] | None = None
    ) -> list[tuple[str, int]]:
        """The nodes to look at first, and what each may be.

        A model with an operating point has alerts of its own, in the order of their ranks. Of another model,
        the nodes are those with the highest probability of a class other than the most frequent one.

        Args:
            count: How many nodes, at most.
            of: Only this class.
            among: Only these nodes.

        Returns:
            Ids and classes, the first to look at first.

        Raises:
            BadConfig: The operating point alerts none of these nodes.
        """
        if count < 1:
            raise BadConfig(f"alerts is {count}; give at least 1")
        if self.model.operating is not None:
            return self._alerted(count, None if of is None else self.class_number(of), among)
        p = self.predictions.of(among).probabilities if among is not None else self.predictions.probabilities
        ids = self.ids if among is None else among
        if of is not None:
            classes = np.full(len(ids), self.class_number(of))
        else:
            rest = p.copy()
            rest[:, frequent_class(self.model)] = -1
            classes = rest.argmax(1)
        order = np.argsort(-p[np.arange(len(ids)), classes], kind="stable")[:count]
        return [(ids[i], int(classes[i])) for i in order]

    def _alerted(self, count: int, of: int | None, among: Sequence[str] | None) -> list[tuple[str, int]]:
        said = self.predictions if among is None else self.predictions.of(among)
        assert said.ranks is not None
        assert said.alerts is not None
        wanted = said.alerts if of is None else said.alerts & (said.classes == of)
        order = [i for i in np.argsort(said.ranks, kind="stable").tolist() if wanted[i]][:count]
        if not order:
            what = "" if of is None else f" to '{shown(self.model.label_names[of])}'"
            raise BadConfig(
                f"the model's operating point alerts none of {len(said.node_ids):,} nodes{what}; name nodes "
                "with --ids, or change the point with 'fedepd point'"
            )
        return [(said.node_ids[i], int(said.classes[i])) for i in order]

    def with_reasons(self, predictions: Predictions, count: int) -> Predictions:
        """The predictions, with reasons for the nodes to look at first.

        Args:
            predictions: Of some of the graph's nodes.
            count: For how many nodes, at most.

        Returns:
            The same predictions. Nodes without reasons have an empty text.

        Raises:
            BadConfig: ``count`` is below 1, or the network cannot be looked into.
        """
        none = predictions.alerts is not None and not predictions.alerts.any()
        chosen = [] if none and count > 0 else self.alerts(count, among=predictions.node_ids)
        said = {node: self.case(node, label).in_short() for node, label in chosen}
        return replace(predictions, why=tuple(said.get(node, "") for node in predictions.node_ids))

    def _chance(self, place: int, label: int) -> float | None:
        said = self.predictions
        if said.alerts is None or said.chances is None:
            return None
        alerted = bool(said.alerts[place]) and int(said.classes[place]) == label
        return float(said.chances[place]) if alerted else None

    def class_number(self, name: str) -> int:
        """The class with this name."""
        if name not in self.model.label_names:
            raise UnknownName("class", name, list(self.model.label_names))
        return self.model.label_names.index(name)

    def case(self, node: str, label: int | None = None) -> Case:
        """Explain one node.

        Args:
            node: Its id.
            label: The class to explain. None: what the model calls the node.

        Raises:
            BadConfig: The network cannot be looked into.
            BadData: There is no such node.
        """
        place = self._place(node)
        chosen = int(self.predictions.classes[place]) if label is None else label
        around = Surroundings.of(place, self._eyes.network.reach(self._eyes), self._operator)
        x = dense_rows(self.graph.x, torch.from_numpy(around.nodes))  # [s, d]
        found = self._found(around, x, place, chosen)
        reasons = self._reasons(around, found)
        return Case(
            node=node,
            label=self.model.label_names[chosen],
            probability=float(self.predictions.probabilities[place, chosen]),
            log_odds=found.end,
            base_log_odds=found.start,
            reasons=tuple(reasons),
            remainder=found.remainder,
            steps=found.steps,
            without=self._without(around, x, place, chosen, reasons),
            edges=tuple((self.ids[around.nodes[a]], self.ids[around.nodes[b]]) for a, b in around.edges.T),
            alert=None if self.predictions.alerts is None else bool(self.predictions.alerts[place]),
            chance=self._chance(place, chosen),
            by=self.by,
        )

    def _found(self, around: Surroundings, x: Tensor, place: int, label: int) -> Integrated:
        found = self._integrated(around, x, place, label)
        while abs(found.remainder) > TOLERANCE * max(1.0, abs(found.end - found.start)):
            if found.steps >= MOST_STEPS:
                break
            found = self._integrated(around, x, place, label, 2 * found.steps)
        return found

    def _place(self, node: str) -> int:
        self.predictions.of([node])  # refuses an unknown one
        return self.ids.index(node)

    def _temperature(self, place: int) -> float:
        tier = tier_of_class(self.model.tiers, self.model.info.num_classes)
        likeliest = int(self.predictions.probabilities[place].argmax())  # whatever the point decides
        return self.model.temperatures[TIERS[tier[likeliest]]]

    def _log_odds(self, around: Surroundings, x: Tensor, mask: Tensor, place: int, label: int) -> Tensor:
        """log p / (1 - p) of the node in every copy, with the node's own temperature: [copies]."""
        z = self._logits(Lens(around, x, mask))[:: len(around.nodes)] / self._temperature(place)
        others = torch.arange(z.shape[1]) != label
        return z[:, label] - z[:, others].logsumexp(1)

    def _logits(self, lens: Lens) -> Tensor:
        """Of every copy of the lens's nodes, [copies · s, C]."""
        self._eyes.through(lens)
        try:
            return predicted(self._experiment, self.model.tensors, self._client)
        finally:
            self._eyes.through(None)

    def _integrated(
        self, around: Surroundings, x: Tensor, place: int, label: int, steps: int = STEPS
    ) -> Integrated:
        s, e = len(around.nodes), around.edges.shape[1]
        width = max(x.shape[1], 2 * self._eyes.hidden)
        memory.check(4 * memory.COPIES * (s + 2 * e) * width, f"the {s:,} nodes around a node")
        ends = self._ends(around, x, place, label)
        by_x, by_mask = torch.zeros(x.shape, dtype=torch.float64), torch.zeros(e, dtype=torch.float64)
        at_once = max(1, CHUNK // ((s + 2 * e) * width))
        points = (torch.arange(steps) + 0.5) / steps
        for t in torch.split(points, at_once):
            mixed = torch.lerp(self.usual, x, t[:, None, None]).reshape(-1, x.shape[1]).requires_grad_()
            mask = t.repeat_interleave(e).requires_grad_()
            score = self._log_odds(around, mixed, mask, place, label).sum()
            grads = torch.autograd.grad(score, [mixed, mask], allow_unused=True)
            for total, grad in zip((by_x, by_mask), grads, strict=True):
                if grad is not None:
                    total += grad.reshape(len(t), *total.shape).sum(0, dtype=torch.float64)
        features = (by_x / steps * (x - self.usual)).numpy()  # [s, d]
        edges = (by_mask / steps).numpy()  # [e]: masks go from 0 to 1
        left = ends[1] - ends[0] - features.sum() - edges.sum()
        return Integrated(features, edges, *ends, float(left), steps)

    def _ends(self, around: Surroundings, x: Tensor, place: int, label: int) -> tuple[float, float]:
        """The log-odds where the path begins and where it ends. The end must be what was predicted."""
        e = around.edges.shape[1]
        usual = self.usual.expand_as(x)
        with torch.no_grad():
            pair = torch.cat([torch.zeros(e), torch.ones(e)])
            start, end = self._log_odds(around, torch.cat([usual, x]), pair, place, label).tolist()
            z = self._whole[place] / self._temperature(place)
            others = torch.arange(len(z)) != label
            said = float(z[label] - z[others].logsumexp(0))
        if not abs(said - end) <= SAME * max(1.0, abs(said)):
            raise BadConfig(
                f"the backbone {self._eyes.backbone} says {said:.4g} about a node, but {end:.4g} when it is "
                "looked into, so it cannot be explained; it must compute by spmm and times of fedepd.network "
                "and reach no further than 'reach' says"
            )
        return start, end

    def _reasons(self, around: Surroundings, found: Integrated) -> list[Reason]:
        hops, by_edge = around.hops, self._by_node(around, found.edges)
        own = self._by_column(found.features[0])
        reasons = [
            Reason("feature", column.name, each, column.value(int(around.nodes[0])), column.usual)
            for column, each in zip(self.columns, own, strict=True)
            if each
        ]
        for position in range(1, len(hops)):
            node = int(around.nodes[position])
            p = self.predictions.probabilities[node]
            features = found.features[position]
            reasons.append(
                Reason(
                    "neighbour",
                    self.ids[node],
                    self._of_neighbour(features, by_edge[position]),
                    hops=int(hops[position]),
                    by_edges=float(by_edge[position]),
                    label=self.model.label_names[int(p.argmax())],
                    probability=float(p.max()),
                    features=self._columns_of(node, features),
                )
            )
        return sorted(reasons, key=lambda each: -abs(each.contribution))

    def _by_node(self, around: Surroundings, edges: Floats) -> Floats:
        """What the edges of each node contribute, [s].

        An edge belongs to its end that is farther from the node, and to both where they are equally far.
        """
        ends, hops, out = around.edges, around.hops, np.zeros(len(around.hops))
        for a, b in ((0, 1), (1, 0)):
            farther, level = hops[ends[a]] - hops[ends[b]], 0.5
            share = np.where(farther > 0, 1.0, np.where(farther == 0, level, 0.0))
            np.add.at(out, ends[a], share * edges)
        return out

    def _of_neighbour(self, features: Floats, by_edges: float) -> float:
        """What a neighbour contributes by its features and its edges."""
        return float(features.sum() + by_edges)

    def _by_column(self, own: Floats) -> list[float]:
        """The sum over the features of each column."""
        sums: list[float] = np.add.reduceat(own, [int(column.at[0]) for column in self.columns]).tolist()
        return sums

    def _columns_of(self, node: int, own: Floats) -> tuple[tuple[str, float | str, float], ...]:
        """The columns of a neighbour that contribute most."""
        sums = self._by_column(own)
        order = sorted(range(len(sums)), key=lambda i: -abs(sums[i]))[:NAMED]
        return tuple((self.columns[i].name, self.columns[i].value(node), sums[i]) for i in order if sums[i])

    def _without(
        self, around: Surroundings, x: Tensor, place: int, label: int, reasons: Sequence[Reason]
    ) -> tuple[tuple[str, ...], float]:
        """The reasons that speak most for the class, and its probability if they were as usual or absent."""
        named = [each for each in reasons if each.contribution > 0][:NAMED]  # sorted already
        changed, mask = x.clone(), torch.ones(around.edges.shape[1])
        columns = {column.name: column for column in self.columns}
        position = {self.ids[node]: i for i, node in enumerate(around.nodes.tolist())}
        for each in named:
            if each.kind == "feature":
                at = torch.from_numpy(columns[each.name].at)
                changed[0, at] = self.usual[at]
            else:
                mask[torch.from_numpy((around.edges == position[each.name]).any(0))] = 0
        with torch.no_grad():
            odds = self._log_odds(around, changed, mask, place, label).item()
        return tuple(each.name for each in named), float(expit(odds))


@dataclass(frozen=True, eq=False)
class Integrated:
    """Contributions to the log-odds of one node."""

    features: Floats
    """[s, d]."""
    edges: Floats
    """[e]."""
    start: float
    end: float
    remainder: float
    steps: int


def frequent_class(model: Model) -> int:
    """The most frequent class of the training data: the first of the head."""
    return (*model.tiers.head, *model.tiers.medium, *model.tiers.tail, 0)[0]


def explain(
    model: Model, graph: Graph, ids: Sequence[str] | None = None, alerts: int = 20, of: str | None = None
) -> list[Case]:
    """Say why a model says what it says about some nodes.

    Args:
        model: A model from ``load_model``.
        graph: The graph with these nodes; its labels are not looked at.
        ids: The nodes. None: the alerts of the model's operating point. Without a point, those of the highest
            probability of a class other than the most frequent one.
        alerts: Without ids: how many nodes, at most.
        of: Explain this class, not the likeliest one.

    Returns:
        One case for each node.

    Raises:
        UnknownName: There is no such class.
        BadConfig: The model's network cannot be looked into.
        BadData: There is no such node, or the graph has other features than the model.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=1, clients=2, out="runs/first")
        >>> model = fedepd.load_model(fedepd.export("runs/first", "model"))
        >>> from fedepd.model.explain import explain
        >>> case = explain(model, fedepd.load("synthetic"), ["7"])[0]
        >>> total = sum(reason.contribution for reason in case.reasons) + case.remainder
        >>> round(total - (case.log_odds - case.base_log_odds), 6)
        0.0
    """
    explainer = Explainer(model, graph)
    label = None if of is None else explainer.class_number(of)
    chosen = explainer.alerts(alerts, of) if ids is None else [(node, label) for node in ids]
    return [explainer.case(node, each) for node, each in chosen]
