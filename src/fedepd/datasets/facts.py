"""Facts of any graph: how large its classes are, and how its edges join them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.types import HIDDEN, Graph


def class_sizes(graph: Graph) -> Tensor:
    """The number of labelled nodes per class, int64 [C]."""
    return torch.bincount(graph.y[graph.y != HIDDEN], minlength=graph.num_classes)


def weights_in_words(weight: Tensor) -> str:
    """The least, the largest and the middle weight of an edge.

    >>> weights_in_words(torch.tensor([1.0, 2.5, 40.0]))
    'from 1 to 40, median 2.5'
    """
    if not weight.numel():
        return "none"
    least, most, middle = (float(f(weight)) for f in (torch.min, torch.max, torch.median))
    return f"from {least:.3g} to {most:.3g}, median {middle:.3g}"


def homophily(edges: Tensor, y: Tensor) -> float | None:
    """The share of edges that join nodes of one class, among edges with two labelled ends;

    None if there are none.
    """
    src, dst = (y.numpy()[ends] for ends in edges.numpy())
    labelled = (src != HIDDEN) & (dst != HIDDEN)
    return float((src == dst)[labelled].mean()) if labelled.any() else None


def class_pairs(graph: Graph) -> Tensor:
    """Edges by the classes of their two ends, among edges with two labelled ends: int64 [C, C], symmetric.

    Every edge is counted twice, once in each direction.
    """
    src, dst = (graph.y[ends] for ends in graph.edge_index)
    both, classes = (src != HIDDEN) & (dst != HIDDEN), graph.num_classes
    one = torch.bincount(src[both] * classes + dst[both], minlength=classes**2).reshape(classes, classes)
    return one + one.t()


def adjusted_homophily(pairs: Tensor) -> float:
    """How much more often edges join nodes of one class than chance would, from ``class_pairs``.

    1: always; 0: as often as edges that keep only the nodes' degrees. A large class counts for nothing by its
    size, as it does in plain homophily (Platonov et al. 2023).
    """
    share = pairs.to(torch.float64) / pairs.sum()  # [C, C]
    chance = float((share.sum(1) ** 2).sum())
    return (float(share.diagonal().sum()) - chance) / (1 - chance) if chance < 1 else 0.0


def label_informativeness(pairs: Tensor) -> float:
    """How much of what there is to know about a node's class is known from one neighbour's, in [0, 1].

    The mutual information of the classes at both ends of an edge, over the entropy of one of them (Platonov
    et al. 2023), from ``class_pairs``.
    Choice: Miller and Madow's correction is taken off. Without it, many classes and few edges look
    informative: k classes have k (k - 1) / 2 free pairs, each of which adds 1 / 2N with N edges.
    """
    share = pairs.to(torch.float64) / pairs.sum()  # [C, C]
    ends = share.sum(1)
    known = share > 0
    chance = (ends[:, None] * ends[None, :])[known]
    information = float((share[known] * torch.log(share[known] / chance)).sum())
    classes, edges = int((ends > 0).sum()), float(pairs.sum()) / 2
    information -= classes * (classes - 1) / 2 / (2 * edges)
    entropy = -float((ends[ends > 0] * torch.log(ends[ends > 0])).sum())
    return max(0.0, information / entropy) if entropy > 0 else 0.0


MOST_PATHS = 2**22
"""Most paths of two edges that are counted, some 60 MB. A graph with more has no coefficient here."""


DENSE_UP_TO = 128
"""Most nodes of a graph whose paths are counted by dense products.

A coefficient takes 0.2 ms with 20 nodes, 0.6 ms with 128 and 5 ms with 300. By sparse products it takes 1.4
to 1.9 ms in all three.
"""


def _closed_paths(ends: NDArray[np.int64], num_nodes: int) -> tuple[Any, Any]:
    """Of edges that point up [2, e], the paths of two edges whose ends are joined: two matrices [n, n].

    In the first, [u, w] counts the v with u -> v -> w. In the second, [v, w] counts the u with u -> v and
    u -> w. They are whole numbers, so that both ways to multiply give the same.
    """
    if num_nodes <= DENSE_UP_TO:
        dense = np.zeros((num_nodes, num_nodes))
        dense[tuple(ends)] = 1
        return (dense @ dense) * dense, (dense.T @ dense) * dense
    up = sp.csr_matrix((np.ones(ends.shape[1], dtype=np.int64), tuple(ends)), shape=(num_nodes, num_nodes))
    return (up @ up).multiply(up), (up.T @ up).multiply(up)


def clustering(edge_index: Tensor, num_nodes: int) -> float | None:
    """The mean over all nodes of the share of pairs of neighbours that are joined; None if it takes too long.

    Choice: a node with fewer than two neighbours counts as 0, as NetworkX's average_clustering has it.
    """
    if not num_nodes:
        return None
    edges = edge_index.numpy()
    degree = np.bincount(edges.reshape(-1), minlength=num_nodes)
    # Every edge points to the end with more neighbours, so that few edges go out of any node.
    order = np.lexsort((np.arange(num_nodes), degree))
    rank = np.empty(num_nodes, dtype=np.int64)
    rank[order] = np.arange(num_nodes)
    ends = np.sort(rank[edges], axis=0)  # [2, e], by rank
    out, into = (np.bincount(side, minlength=num_nodes) for side in ends)
    if int((out * (into + out)).sum()) > MOST_PATHS:
        return None
    first, middle = _closed_paths(ends, num_nodes)
    triangles = np.asarray(first.sum(1)).ravel() + np.asarray(first.sum(0)).ravel()
    triangles = (triangles + np.asarray(middle.sum(1)).ravel())[rank]
    pairs = degree * (degree - 1) / 2
    return float(np.divide(triangles, pairs, out=np.zeros(num_nodes), where=pairs > 0).mean())
