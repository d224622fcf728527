"""Communities of a graph, found by Louvain or METIS. Those with similar labels can be joined into clients."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from fedepd.cache import remembered
from fedepd.errors import BadConfig
from fedepd.network.sparse import adjacency
from fedepd.types import Graph

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_STEPS = 300
"""k-means stops after this many steps, as scikit-learn's does."""
DECIMALS = 12
"""Distances are rounded before they are compared.

Processors that round sums differently then choose the same clients.
"""
MAX_SEED = 2**31 - 1
"""METIS takes a seed of 32 bits."""


def louvain(edge_index: Tensor, num_nodes: int, resolution: float, draws: np.random.Generator | None) -> Ints:
    """Louvain labels of nodes 0..num_nodes-1: [n]. With ``draws`` the nodes are shuffled first."""
    if not edge_index.numel():
        return np.arange(num_nodes)
    position = np.arange(num_nodes) if draws is None else draws.permutation(num_nodes)
    edges = torch.from_numpy(position)[edge_index]

    def labels_of() -> Ints:
        from sknetwork.clustering import Louvain

        found = Louvain(modularity="newman", resolution=resolution).fit_predict(adjacency(edges, num_nodes))
        return found.astype(np.int64)  # type: ignore[no-any-return]

    def fits(labels: Ints) -> bool:
        right_form = labels.dtype == np.int64 and labels.shape == (num_nodes,)
        return right_form and labels.min() >= 0 and bool(labels.max() < num_nodes)

    return remembered("louvain-1", (resolution, num_nodes, edges.numpy()), labels_of, fits)[position]


def metis(graph: Graph, parts: int, draws: np.random.Generator | None) -> Ints:
    """METIS labels 0..parts-1 of the nodes: [n]. Some labels may be missing.

    With ``draws``, the seed of METIS is drawn. Otherwise it is 0.
    """
    try:
        import pymetis
    except ImportError as cause:
        raise BadConfig(
            "METIS needs the package pymetis, which is not installed; pip install 'fedepd[metis]', "
            "or choose another --partition"
        ) from cause
    nodes = graph.num_nodes
    if not graph.num_edges:
        return np.arange(nodes) * parts // nodes  # METIS has nothing to cut by
    seed = 0 if draws is None else int(draws.integers(MAX_SEED))
    matrix = adjacency(graph.edge_index, nodes)
    matrix.sort_indices()
    neighbours = np.split(matrix.indices, matrix.indptr[1:-1])
    _, labels = pymetis.part_graph(parts, neighbours, options=pymetis.Options(seed=seed))
    return np.asarray(labels, dtype=np.int64)


def joined_by_labels(graph: Graph, community: Ints, clients: int, draws: np.random.Generator) -> Ints:
    """The client of each node, [n].

    Communities with similar shares of the classes go to one client, by k-means.
    ``community`` [n] must be numbered 0, 1, ... without gaps, and there must be as many as clients.
    """
    count, y = int(community.max()) + 1, graph.y.numpy()
    labelled = y >= 0
    shares = np.zeros((count, graph.num_classes))
    np.add.at(shares, (community[labelled], y[labelled]), 1.0)
    # Choice: OpenFGL divides by the size of a community; one without any labelled node is all zeros here,
    # where OpenFGL would fail.
    shares /= np.maximum(shares.sum(1, keepdims=True), 1.0)
    return k_means(shares, clients, draws)[community]


def k_means(points: Floats, clusters: int, draws: np.random.Generator) -> Ints:
    """The cluster of each point [p, d]: [p].

    It starts with k-means++. No cluster is empty, even if points coincide.
    """
    centres = _far_apart(points, clusters, draws)
    labels = np.full(points.shape[0], -1)
    for _ in range(MOST_STEPS):
        distances = np.stack([_distances(points, centre) for centre in centres], axis=1)  # [p, k]
        nearest = _without_empty(distances.argmin(1), distances)
        if np.array_equal(nearest, labels):
            break
        labels = nearest
        centres = np.stack([points[labels == c].mean(0) for c in range(clusters)])
    return labels


def _far_apart(points: Floats, clusters: int, draws: np.random.Generator) -> Floats:
    """The first centres. Each is a point, drawn in proportion to its squared distance from those before."""
    chosen = [int(draws.integers(points.shape[0]))]
    nearest = _distances(points, points[chosen[0]])
    while len(chosen) < clusters:
        total = np.cumsum(nearest)
        # Where all points coincide with a centre, any point will do.
        at = np.searchsorted(total, draws.random() * total[-1], side="right") if total[-1] > 0 else 0
        chosen.append(int(min(at, points.shape[0] - 1)))
        nearest = np.minimum(nearest, _distances(points, points[chosen[-1]]))
    return points[chosen]


def _distances(points: Floats, centre: Floats) -> Floats:
    """Squared distances from a centre: [p]."""
    squares: Floats = ((points - centre) ** 2).sum(1)
    return np.round(squares, DECIMALS)


def _without_empty(labels: Ints, distances: Floats) -> Ints:
    """Give each empty cluster the point that is farthest from its centre.

    The point is taken from a cluster of at least two points.
    """
    labels = labels.copy()
    sizes = np.bincount(labels, minlength=distances.shape[1])
    for empty in np.flatnonzero(sizes == 0):
        own = distances[np.arange(labels.size), labels]
        farthest = int(np.where(sizes[labels] > 1, own, -1.0).argmax())
        sizes[labels[farthest]] -= 1
        labels[farthest], sizes[empty] = empty, 1
    return labels


def first_seen(labels: Ints) -> Ints:
    """The labels renumbered in the order of their first node: [n]."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty_like(first)
    rank[np.argsort(first)] = np.arange(first.size)
    return rank[inverse].astype(np.int64)


def groups(labels: Ints) -> list[Ints]:
    """The nodes of each label 0, 1, ..., ascending."""
    return np.split(np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels))[:-1])
