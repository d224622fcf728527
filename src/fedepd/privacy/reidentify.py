"""Class rows and columns -> nodes: which node is behind what the server saw?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fedepd.methods.steps import model_part
from fedepd.privacy.figures import Figure, share
from fedepd.privacy.guesses import (
    Embedding,
    Fit,
    best_fit,
    embeddings,
    layers_of,
    likeness,
    trained_on,
)
from fedepd.privacy.rows import Row, rows_of
from fedepd.privacy.view import Seen, View
from fedepd.privacy.within import auc_within
from fedepd.types import CLASSIFIER

STILL = 1e-6
"""A column that changed less was sent back as it came. Sums of whole numbers round at 2^-25."""
BLOCK = 1000
"""Candidates whose pairs are looked at together."""


@dataclass(frozen=True)
class Guess:
    """How an attack on one row or column ended."""

    label: int
    rank: int
    """Candidates before the best placed node that was looked for."""
    wanted: int
    """Nodes that were looked for."""
    candidates: int


def reidentify_figures(view: View) -> list[Figure]:
    """All figures of this module.

    ``reidentified.rank1`` and ``.top5``: a row of one node names its node among all nodes of its client, by
    an attacker who knows model, features and edges. ``reidentified.rank1_no_edges`` and ``.top5_no_edges``:
    who knows no edges. ``pairs.resolved``: of a row of two nodes, both are named. ``members.rank1`` and
    ``members.auc``: of any row, whether it tells the nodes that it is of from others of the same class.
    ``columns.rank1``: a column of the classifier names the only training node of its class.
    ``model.rank1``: the model alone does, without any row.
    """
    out, seen = [], last_with_rows(view)
    for ending, edges_known in (("", True), ("_no_edges", False)):
        found = list(_single_rows(view, seen, edges_known)) if seen else []
        out += ranked(view, f"reidentified.rank1{ending}", found, 1)
        out += ranked(view, f"reidentified.top5{ending}", found, 5)
    out += ranked(view, "pairs.resolved", list(_pairs(view, seen)) if seen else [], 1)
    out += _members(view, seen)
    out += ranked(view, "columns.rank1", list(_columns(view)), 1)
    out += ranked(view, "model.rank1", list(_by_model(view)), 1)
    return out


def last_with_rows(view: View) -> Seen | None:
    """The round that is attacked.

    Choice: the last one with rows. On email the sum over all rounds finds no more nodes.
    """
    return next((seen for seen in reversed(view.rounds) if any(rows_of(view, seen))), None)


def ranked(view: View, name: str, found: Sequence[Guess], places: int) -> list[Figure]:
    """The share of guesses with a node that was looked for among the first ``places``, by tier."""
    out = []
    for tier, classes in view.tiers.items():
        mine = [guess for guess in found if guess.label in classes]
        chance = sum(min(1.0, places * g.wanted / g.candidates) for g in mine) / len(mine) if mine else None
        out.append(share(name, tier, sum(g.rank < places for g in mine), len(mine), chance))
    return out


def rank_of(scores: Tensor, wanted: Tensor) -> int:
    """Candidates before the best placed wanted one. Of equal scores, the lower number comes first."""
    order = torch.argsort(scores, descending=True, stable=True)
    return int(torch.isin(order, wanted).nonzero()[0])


def training_nodes(view: View, source: int, label: int) -> Tensor:
    """The truth: places of the class's training nodes among the candidates, int64 [m]."""
    found = [c.train_mask & (c.graph.y == label) for c in view.behind(source)]
    return torch.cat(found).nonzero().reshape(-1)


def attacked(
    view: View, seen: Seen, edges_known: bool, wanted: Callable[[Row], bool], fit: Fit
) -> Iterator[tuple[Row, Embedding, Tensor]]:
    """The wanted rows with the embedding that explains their sender's rows best, and the nodes behind."""
    rows = [row for row in rows_of(view, seen) if wanted(row)]
    for source in sorted({row.source for row in rows}):
        mine = [row for row in rows if row.source == source]
        best = best_fit(mine, list(embeddings(view, seen, source, edges_known)), fit)
        for row in mine:
            if best and row.field == best[0]:
                yield row, best[1], training_nodes(view, source, row.label)


def one_node(row: Row, candidates: Embedding) -> float:
    """How well the best single candidate explains a row."""
    return float(likeness(row.value, candidates).max())


def two_nodes(row: Row, candidates: Embedding) -> float:
    """How well the best pair of candidates explains a row."""
    return best_pair(row.value.double(), candidates)[0]


def _single_rows(view: View, seen: Seen, edges_known: bool) -> Iterator[Guess]:
    for row, candidates, nodes in attacked(view, seen, edges_known, lambda row: row.nodes == 1, one_node):
        rank = rank_of(likeness(row.value, candidates), nodes)
        yield Guess(row.label, rank, nodes.numel(), candidates.shape[0])


def _pairs(view: View, seen: Seen) -> Iterator[Guess]:
    """Rows of two nodes, of classes that have just these two: are they the pair that explains it best?"""

    def of_two(row: Row) -> bool:
        return row.nodes == 2 and row.value.ndim == 1 and int(view.held(row.source)[row.label]) == 2

    for row, candidates, nodes in attacked(view, seen, True, of_two, two_nodes):
        n, (_, pair) = candidates.shape[0], best_pair(row.value.double(), candidates)
        yield Guess(row.label, 0 if pair == tuple(nodes.tolist()) else 1, 1, n * (n - 1) // 2)


def best_pair(value: Tensor, candidates: Embedding) -> tuple[float, tuple[int, int]]:
    """The two candidates whose sum has the largest cosine with ``value`` [w], after that cosine."""
    along, squared = candidates @ value, candidates.square().sum(1)  # [n], [n]
    best, pair = -float("inf"), (0, 0)
    for start in range(0, len(candidates), BLOCK):
        part = slice(start, start + BLOCK)
        length = squared[part, None] + squared[None] + 2 * candidates[part] @ candidates.t()  # [b, n]
        score = (along[part, None] + along[None]) / length.clamp(min=1e-30).sqrt()
        here = torch.arange(len(candidates))
        score[here[part, None] >= here[None]] = -float("inf")
        place = int(score.argmax())
        first, second = start + place // len(candidates), place % len(candidates)
        if float(score.max()) > best:
            best, pair = float(score.max()), (first, second)
    return best / max(float(value.norm()), 1e-30), pair


def _members(view: View, seen: Seen | None) -> list[Figure]:
    """Does a row tell its nodes from others of the same class? The attacker is even told all classes."""

    def class_mean(row: Row, candidates: Embedding) -> float:
        return float(likeness(row.value, candidates[same_class(view, row)].mean(0, keepdim=True)))

    found, groups = [], []
    for row, candidates, nodes in attacked(view, seen, True, lambda row: True, class_mean) if seen else ():
        same = same_class(view, row)
        scores = likeness(row.value, candidates).masked_fill(~same, -2.0)
        inside = torch.zeros_like(same).index_fill(0, nodes, True)
        found.append(Guess(row.label, rank_of(scores, nodes), nodes.numel(), int(same.sum())))
        groups.append((row.label, scores[inside].numpy(), scores[same & ~inside].numpy()))
    out = ranked(view, "members.rank1", found, 1)
    for tier, classes in view.tiers.items():
        mine = [(high, low) for label, high, low in groups if label in classes]
        out.append(auc_within("members.auc", tier, mine))
    return out


def same_class(view: View, row: Row) -> Tensor:
    """The truth: which candidates are of the row's class, bool [n]."""
    return torch.cat([c.graph.y == row.label for c in view.behind(row.source)])


def sole_classes(view: View, source: int) -> list[int]:
    """The truth: classes with one training node behind a reply."""
    return (view.held(source) == 1).nonzero().reshape(-1).tolist()


def _columns(view: View) -> Iterator[Guess]:
    """The change of a classifier's column points to the rows of its class's training nodes.

    The cosines of all rounds are added up. A column that never moved was not sent, and is no case.

    Choice: the attacker is told which classes have one training node. Where counts are sent it is told so.
    """
    name, model = CLASSIFIER[0], view.simulation.server.model
    totals: dict[tuple[int, int], Tensor] = {}
    for seen in view.rounds:
        for source, reply in seen.replies.items():
            params = model_part(seen.messages[source])
            if (
                name not in reply.tensors
                or not params.keys() >= model.shapes(view.simulation.server.info).keys()
            ):
                continue
            moved = (reply.tensors[name] - params[name]).double()  # [w, C]
            still = moved.abs().amax(0) < STILL
            moved = torch.where(still, 0.0, moved - moved.mean(1, keepdim=True))
            sole = [label for label in sole_classes(view, source) if bool(moved[:, label].any())]
            if not sole:
                continue
            clients = view.behind(source)
            edges = [trained_on(view, c, seen.messages[source]) for c in clients]
            rows = torch.cat([layers_of(model, params, c, e)[0] for c, e in zip(clients, edges, strict=True)])
            for label in sole:
                place = (source, label)
                totals[place] = totals.get(place, torch.zeros(len(rows))) + likeness(moved[:, label], rows)
    for (source, label), scores in totals.items():
        yield Guess(label, rank_of(scores, training_nodes(view, source, label)), 1, len(scores))


def _by_model(view: View) -> Iterator[Guess]:
    """The only training node of a class at its client, ranked by the last model's own score for the class.

    No row is used, so neither the guard nor sums hide it: whoever holds the model can do this.
    """
    seen = view.rounds[-1]
    model, info = view.simulation.server.model, view.simulation.server.info
    for data in view.simulation.clients:
        source = data.client_id if data.client_id in seen.messages else min(seen.messages)
        params = model_part(seen.messages[source])
        if not params.keys() >= model.shapes(info).keys():
            continue
        edges = trained_on(view, data, seen.messages[source])
        with torch.no_grad():
            scores = model.predict(params, model.inputs(data.hidden(), edges)).log_softmax(1)  # [n, C]
        for label in sole_classes(view, data.client_id):
            nodes = training_nodes(view, data.client_id, label)
            yield Guess(label, rank_of(scores[:, label], nodes), 1, len(scores))
