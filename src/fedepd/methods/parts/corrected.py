"""What AdaFGL makes of a client's graph and of predictions for its nodes.

Nodes with the same prediction are linked. Label propagation says how homophilous the graph is. Messages
between nodes have signs: like nodes draw near, unlike ones push away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.network.sparse import Sparse, adjacency, normalised
from fedepd.types import undirected

Form = Literal["meant", "released"]
ALIKE = 0.999
"""Predictions with a larger cosine are the same."""
PARTNERS = 20
"""Choice: a node is linked to at most so many others that are most like it, ties by number, or is among
theirs. Where a model is sure, all nodes of a class would be linked to each other."""
ANCHORS = 256
"""Choice: signed messages come from so many nodes, drawn once, and weigh as if they came from all. Messages
between all pairs would take ten [n, n] matrices."""
STEPS = 10
"""Of label propagation."""
_BLOCK = 512
_TINY = 1e-12


@dataclass(frozen=True, eq=False)
class View:
    """A client's nodes as the global model sees them, fixed for the second stage."""

    soft: Tensor
    """P̂, the global model's probabilities, [n, C]."""
    operator: Sparse
    """Ã, the normalised corrected graph, [n, n]."""
    anchors: Tensor
    """int64 [m], ascending."""
    linked: Tensor
    """1 where an anchor has the same prediction, else 0: [n, m]."""


def view_of(
    soft: Tensor, partners: Tensor, adj: sp.csr_matrix, alpha: float, draws: np.random.Generator
) -> View:
    """The view from probabilities [n, C], the pairs of :func:`partners_of`, and the client's graph."""
    nodes = soft.shape[0]
    count = min(nodes, ANCHORS)
    anchors = torch.from_numpy(np.sort(draws.choice(nodes, count, replace=False)))
    same = adjacency(partners.to(torch.int64), nodes)
    chosen = same[:, anchors.numpy()].toarray()
    # At alpha = 1 the graph is the client's own, to the bit.
    graph = adj if alpha == 1 else sp.csr_matrix(alpha * adj + (1 - alpha) * same)
    operator = Sparse.of(normalised(graph, unit_loops=True), symmetric=True)
    return View(soft, operator, anchors, torch.from_numpy(chosen))


def compared(soft: Tensor, form: Form) -> Tensor:
    """What of probabilities P̂ [n, C] is compared and mixed. The released program has softmax once more."""
    return soft.softmax(1) if form == "released" else soft


def partners_of(soft: Tensor) -> Tensor:
    """Pairs of nodes with the same prediction, each pair once: [2, e], float32 as all that a client keeps."""
    directions, nodes = F.normalize(soft, dim=1), soft.shape[0]
    order, most = 1e-12 * torch.arange(nodes, dtype=torch.float64), min(PARTNERS, nodes)
    rows, columns = [], []
    for start in range(0, nodes, _BLOCK):
        similar = directions[start : start + _BLOCK] @ directions.t()
        here = torch.arange(similar.shape[0])
        similar[here, here + start] = 0.0
        best = (similar.to(torch.float64) - order).topk(most, dim=1).indices
        row, place = (similar.gather(1, best) > ALIKE).nonzero(as_tuple=True)
        rows.append((row + start).numpy())
        columns.append(best[row, place].numpy())
    ends = torch.from_numpy(np.stack([np.concatenate(rows), np.concatenate(columns)]))
    return undirected(ends, nodes).to(torch.float32)


def propagated(operator: Sparse, start: Tensor, known: Tensor, kappa: float, steps: int = STEPS) -> Tensor:
    """Y after steps of Y <- κ Â Y + (1 - κ) Y⁰, with Y⁰ added once more at the known nodes: [n, C]."""
    spread = start
    for _ in range(steps):
        spread = kappa * operator.times(spread) + (1 - kappa) * start
        spread = spread.index_add(0, known, start[known])
    return spread


def homophily(
    operator: Sparse, train: Tensor, labels: Tensor, classes: int, kappa: float, draws: np.random.Generator
) -> float:
    """The share of one half of the training nodes that labels of the other half, propagated, get right.

    Half a node is no half: with fewer than two training nodes it is ½.
    """
    if len(train) < 2:
        return 0.5
    order = torch.from_numpy(draws.permutation(len(train)))
    known, asked = order[: len(order) // 2], order[len(order) // 2 :]
    start = torch.full((operator.shape[0], classes), 1 / classes)
    start[train[known]] = F.one_hot(labels[known], classes).to(torch.float32)
    guess = propagated(operator, start, train[known], kappa)[train[asked]].argmax(1)
    return float((guess == labels[asked]).to(torch.float32).mean())


def signed(similar: Tensor, form: Form = "meant") -> Tensor:
    """Similarities as weights in [-1, 1]: above their mean μ up to 1, below it down to -1 for the least.

    The released program has -b / μ below the mean, which is -1 just below it and 0 for the least similar.
    """
    mean, most = similar.mean(), similar.max()
    above = (similar - mean) / (most - mean).clamp(min=_TINY)
    gap = mean - similar if form == "meant" else similar
    return torch.where(similar > mean, above, -gap / mean.clamp(min=_TINY))


def messages(rows: Tensor, view: View, beta: float, slope: Tensor, form: Form = "meant") -> Tensor:
    """Z_m: rows E [n, C] after signed messages from the anchors, [n, C]. A node hears itself by weight 1."""
    nodes, count = view.linked.shape
    directions, places = F.normalize(rows.softmax(1), dim=1), torch.arange(count)
    itself = torch.zeros_like(view.linked)
    itself[view.anchors, places] = 1.0
    similar = (directions @ directions[view.anchors].t()) * (1 - itself)
    weights = signed(beta * view.linked + (1 - beta) * similar, form) * (1 - itself) + itself
    sent = rows[view.anchors] * (nodes / count)
    near, far = (F.prelu(each, slope) @ sent for each in (weights, -weights))
    return 0.5 * (near.softmax(1) - far.softmax(1) + rows)
