"""What FedEPD reads off a client's graph.

Central nodes (Eq. 6), the homophily of classes (Eq. 13-14) and the low-pass rows (Eq. 10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from fedepd.methods.fedepd.margin import Margin
from fedepd.methods.fedepd.purify import EPSILON
from fedepd.methods.fedepd.vote import pruning_votes
from fedepd.methods.steps import class_counts
from fedepd.network.contract import Inputs
from fedepd.network.sparse import Chosen, Sparse, inverse_degrees, normalised, weighted_adjacency
from fedepd.types import ClientData


@dataclass(frozen=True, eq=False)
class Prepared:
    """What Algorithm 2 caches in its first round."""

    inputs: Inputs
    """On the graph that is trained and predicted on: the purified one, or the whole one."""
    elites: Tensor
    """int64 [m]: the elite nodes of all classes."""
    elite_classes: Tensor
    """int64 [m]: the class each of them stands for."""
    margin: Margin
    absent: Tensor
    """bool [C]."""
    low_pass: Sparse | Chosen | None
    """For injection: the training rows of Eq. 10 on that graph, [t, n], whatever the backbone's own operator
    is.
    """


class Graphs:
    """A client's whole and purified graph.

    What the method derives from one of them is made when it is asked for. Only the last one is kept. Of the
    purified graph, one byte per edge is kept: which ones it has.
    """

    def __init__(self, data: ClientData, kept: Tensor | None, derive: Callable[[Tensor], Prepared]) -> None:
        """``kept``: the edges of the purified graph, bool [e]; None: all."""
        self._data, self._kept = data, kept
        self._derived = lru_cache(maxsize=1)(lambda pruned: derive(self.edges(pruned)))

    def edges(self, pruned: bool) -> Tensor:
        every = self._data.graph.edge_index
        return every[:, self._kept] if pruned and self._kept is not None else every

    def on(self, pruned: bool) -> Prepared:
        return self._derived(pruned)

    def votes(self) -> Tensor:
        """How many training nodes are classified right on the purified and on the whole graph, [2]."""
        return pruning_votes(self._data, self.edges(True))


def central_nodes(
    data: ClientData, counts: Tensor, share: float, among: str, teleport: float, steps: int
) -> tuple[Tensor, Tensor]:
    """The elite nodes of each class in ``counts``, and their classes.

    They are the m_k^c nodes with the highest personalised PageRank on the original graph (Eq. 6).
    """
    if among == "train" and share == 1 and bool(counts.any()):
        everyone = data.train_mask.nonzero().reshape(-1)
        return everyone, data.graph.y[everyone]
    present = counts.nonzero().reshape(-1)
    ranks = walk_scores(data, present, teleport, steps)  # [n, present]
    nodes, classes = [], []
    for column, c in enumerate(present.tolist()):
        # Choice: N_k^c counts training nodes. Over all nodes it would read test labels.
        m = max(1, int(np.floor(share * int(counts[c]))))
        members = (
            data.train_mask & (data.graph.y == c) if among == "train" else torch.ones_like(data.train_mask)
        )
        candidates = members.nonzero().reshape(-1)
        # Choice: of equal scores, the node with the lower number comes first.
        order = torch.argsort(ranks[candidates, column], descending=True, stable=True)
        nodes.append(candidates[order[:m]])
        classes.append(torch.full((m,), c))
    return (torch.cat(nodes), torch.cat(classes)) if nodes else (torch.empty(0, dtype=torch.int64),) * 2


def walk_scores(data: ClientData, classes: Tensor, teleport: float, steps: int) -> Tensor:
    """π^(L) of Eq. 6, one column per class, restarting from its training nodes: [n, classes]."""
    train, labels = data.train_mask.numpy(), data.graph.y.numpy()
    restart = (labels[:, None] == classes.numpy()) & train[:, None]
    restart = restart / np.maximum(restart.sum(0), 1)  # r, [n, classes]
    adj = weighted_adjacency(data.graph).astype(np.float64)
    step = adj.multiply(inverse_degrees(adj)[None, :]).tocsr()  # A D^-1; an isolated node passes nothing on
    scores = restart
    for _ in range(steps):
        scores = teleport * restart + (1 - teleport) * (step @ scores)  # Eq. 6
    # Rounded, so that equal places have equal scores whatever the order of the sums.
    return torch.from_numpy(np.round(scores, 15))


def class_homophily(data: ClientData, edges: Tensor, isolated: float) -> Tensor:
    """q_k^c of Eq. 13-14 over training-labelled neighbours: float64 [C]. A class without training nodes has
    0.5. Where edges have weights, a neighbour counts by its edge's.

    Choice: a training node whose kept neighbours are all unlabelled has no statistic. It counts as 0.5.
    """
    y, n = data.hidden().graph.y, data.graph.num_nodes
    src, dst = torch.cat([edges, edges.flip(0)], dim=1)
    labelled = (y[dst] >= 0).to(torch.float64)
    if (weight := data.graph.weights_of(edges)) is not None:
        labelled *= weight.to(torch.float64).repeat(2)
    same = (y[src] == y[dst]).to(torch.float64) * labelled
    neighbours = torch.bincount(src, minlength=n)
    with_label = torch.zeros(n, dtype=torch.float64).index_add_(0, src, labelled)
    node = torch.zeros(n, dtype=torch.float64).index_add_(0, src, same) / (with_label + EPSILON)  # Eq. 13
    node = torch.where(with_label > 0, node, 0.5)
    node = torch.where(neighbours > 0, node, isolated)
    counts = class_counts(data)
    sums = torch.zeros(counts.shape[0], dtype=torch.float64).index_add_(
        0, y[data.train_mask], node[data.train_mask]
    )
    return torch.where(counts > 0, sums / counts.clamp(min=1), 0.5)  # Eq. 14


def low_pass_rows(data: ClientData, edges: Tensor) -> Sparse:
    """The training nodes' rows of the operator: [t, n]."""
    return Sparse.of(normalised(weighted_adjacency(data.graph, edges))[data.train_mask.numpy()])  # Eq. 10
