"""Topological purification, Eq. 1-5: which edges of a client's graph are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.cache import remembered
from fedepd.network.sparse import row_dots, to_scipy
from fedepd.rng import seeded_numpy
from fedepd.types import Graph, widened

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Score = Literal["fused", "energy", "cosine", "random"]

EPSILON = 1e-12
_CHUNK = 1 << 12
"""Edges scored at a time, so that no [e, d] temporary exists.

What fits into a cache is 2-3 times as fast as 1 << 16.
"""
_FEW = 1 << 9
"""The same for dense features, of which four copies of so many rows are in the cache."""


def purified_edges(graph: Graph, score: Score = "fused") -> Tensor:
    """The edges that Eq. 5 keeps: [2, e']."""
    return graph.edge_index[:, edges_kept(graph, score)]


def edges_kept(graph: Graph, score: Score = "fused") -> Tensor:
    """Which edges Eq. 5 keeps: bool [e].

    Each undirected edge is scored once, so the result stays symmetric.

    Choice: weights of edges are not in the score. It asks whether two nodes are alike, and a weight says how
    much they exchange. As a factor of the energy it would drop the heaviest edges first.
    """
    key = (score, graph.name, graph.edge_index.numpy(), *feature_arrays(graph))
    edges = graph.edge_index.shape[1]
    keep = remembered(
        "purified-2",
        key,
        lambda: kept(*edge_metrics(graph), score, graph),
        lambda found: found.dtype == np.bool_ and found.shape == (edges,),
    )
    return torch.from_numpy(keep)


def feature_arrays(graph: Graph) -> tuple[NDArray[Any], ...]:
    """The arrays behind X, for the cache's key."""
    x = graph.x
    return (
        (x.values().numpy(), x.col_indices().numpy(), x.crow_indices().numpy())
        if graph.is_sparse
        else (x.numpy(),)
    )


def edge_metrics(graph: Graph) -> tuple[Floats, Floats]:
    """Eq. 1 and the semantic distance of Eq. 3, both [e], in float64."""
    src, dst = graph.edge_index.numpy()
    degrees = np.bincount(
        np.concatenate([src, dst]), minlength=graph.num_nodes
    )  # without self-loop: the +1 is explicit in Eq. 1
    scale = 1.0 / np.sqrt(degrees + 1.0)
    norms = _row_norms(graph)
    # Choice: a zero feature row has no direction. Its distance to anything is 1 (cosine 0).
    direction = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    measure = _sparse_metrics if graph.is_sparse else _dense_metrics
    energy, cosine = measure(graph, src, dst, scale, direction)
    return energy, 1.0 - cosine  # Eq. 3


def _dense_metrics(
    graph: Graph, src: Ints, dst: Ints, scale: Floats, direction: Floats
) -> tuple[Floats, Floats]:
    """Eq. 1 and the cosine of both ends of each edge, [e] each. Of X, some rows at a time are in float64."""
    x, count = widened(graph.x).numpy(), src.shape[0]
    energy, cosine = np.empty(count), np.empty(count)
    ends, scaled = (np.empty((2, _FEW, x.shape[1])) for _ in range(2))
    for start in range(0, count, _FEW):
        part = slice(start, start + _FEW)
        size = len(src[part])
        for k, nodes in enumerate((src[part], dst[part])):
            ends[k, :size] = x[nodes]
            np.multiply(ends[k, :size], scale[nodes, None], out=scaled[k, :size])
            ends[k, :size] *= direction[nodes, None]
        energy[part] = _square_distances(scaled[0, :size], scaled[1, :size])
        cosine[part] = row_dots(ends[0, :size], ends[1, :size])
    return energy, cosine


def _sparse_metrics(
    graph: Graph, src: Ints, dst: Ints, scale: Floats, direction: Floats
) -> tuple[Floats, Floats]:
    """The same where X is sparse."""
    energy = _over_edges(src, dst, _scaled_rows(graph, scale), _square_distances)
    return energy, _over_edges(src, dst, _scaled_rows(graph, direction), row_dots)


def _over_edges(src: Ints, dst: Ints, x: Any, measure: Callable[[Any, Any], Floats]) -> Floats:
    """A measure of the rows of X at both ends of each edge: [e]."""
    out = np.empty(src.shape[0])
    for start in range(0, src.shape[0], _CHUNK):
        part = slice(start, start + _CHUNK)
        out[part] = measure(x[src[part]], x[dst[part]])
    return out


def kept(energy: Floats, distance: Floats, score: Score, graph: Graph) -> NDArray[np.bool_]:
    """Eq. 2-5: [e] True where an edge stays."""
    if energy.shape[0] < 2:
        return np.ones(energy.shape[0], dtype=bool)
    noise = noise_intensity(energy)
    psi = fused_score(energy, distance, noise, score, graph)
    threshold = np.quantile(psi, 1.0 - noise / 2.0)  # p_k = λ_k / 2; Choice: linear interpolation
    keep: NDArray[np.bool_] = psi <= threshold  # Eq. 5; ties at the threshold stay
    return keep


def noise_intensity(energy: Floats) -> float:
    """λ_k of Eq. 2, in [0, 1). Choice: population standard deviation; the paper does not say."""
    cv = energy.std() / (energy.mean() + EPSILON)
    return float(cv**2 / (1.0 + cv**2))


def fused_score(energy: Floats, distance: Floats, noise: float, score: Score, graph: Graph) -> Floats:
    """ψ of Eq. 4, or one of its controls: [e].

    The standardised energy ζ of Eq. 3 is not computed. It is an increasing function of E, so both have the
    same empirical distribution.
    """
    if (
        score == "random"
    ):  # Choice: a control that drops the same edges for every seed, as the other scores do
        return np.asarray(seeded_numpy("random pruning", graph.name, graph.num_edges).random(energy.shape[0]))
    if score == "energy":
        return cumulative(energy)
    if score == "cosine":
        return cumulative(distance)
    return noise * cumulative(energy) + (1.0 - noise) * cumulative(distance)  # Eq. 4


def cumulative(values: Floats) -> Floats:
    """The empirical distribution function of ``values`` at themselves (Eq. 4): [e]."""
    # One search per value took 7.2 s for 5 million values, and this takes 1.1 s.
    order = np.argsort(values)
    ascending = values[order]
    ends = np.append(np.flatnonzero(ascending[1:] != ascending[:-1]) + 1, values.shape[0])
    ranks = np.empty(values.shape[0])
    ranks[order] = np.repeat(ends, np.diff(ends, prepend=0)) / values.shape[0]
    return ranks


def _scaled_rows(graph: Graph, scale: Floats) -> sp.csr_matrix:
    """A sparse X in float64, its rows multiplied by ``scale`` [n]."""
    scaled = sp.csr_matrix(sp.diags(scale) @ to_scipy(graph.x).astype(np.float64))
    # A product leaves columns unsorted. The rounding of an edge's sum would then depend on its chunk.
    scaled.sort_indices()
    return scaled


def _row_norms(graph: Graph) -> Floats:
    """The Euclidean norm of each row of X, in float64: [n]."""
    if graph.is_sparse:
        x = to_scipy(graph.x).astype(np.float64)
        return np.asarray(np.sqrt(row_dots(x, x)))
    squares = np.empty(graph.num_nodes)
    for start in range(0, graph.num_nodes, _CHUNK):
        part = graph.x[start : start + _CHUNK].to(torch.float64).numpy()
        squares[start : start + _CHUNK] = row_dots(part, part)
    return np.sqrt(squares)


def _square_distances(a: Any, b: Any) -> Floats:
    difference = a - b
    return row_dots(difference, difference)
