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
from fedepd.types import Graph

Floats = NDArray[np.float64]
Score = Literal["fused", "energy", "cosine", "random"]

EPSILON = 1e-12
_CHUNK = 1 << 12
"""Edges scored at a time, so that no [e, d] temporary exists.

What fits into a cache is 2-3 times as fast as 1 << 16.
"""


def purified_edges(graph: Graph, score: Score = "fused") -> Tensor:
    """The edges that Eq. 5 keeps: [2, e'].

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
    return graph.edge_index[:, torch.from_numpy(keep)]


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
    norms = _row_norms(_scale_rows(graph))
    # One scaled copy of X is in memory at a time.
    energy = _over_edges(
        src, dst, _scale_rows(graph, 1.0 / np.sqrt(degrees + 1.0)), _square_distances
    )  # Eq. 1
    # Choice: a zero feature row has no direction. Its distance to anything is 1 (cosine 0).
    direction = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    cosine = _over_edges(src, dst, _scale_rows(graph, direction), row_dots)
    return energy, 1.0 - cosine  # Eq. 3


def _over_edges(src: Any, dst: Any, x: Any, measure: Callable[[Any, Any], Floats]) -> Floats:
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
    ranks: Floats = np.searchsorted(np.sort(values), values, side="right") / values.shape[0]
    return ranks


def _scale_rows(graph: Graph, scale: Floats | None = None) -> Any:
    """X in float64, its rows multiplied by ``scale`` [n]."""
    if not graph.is_sparse:
        dense = graph.x.numpy().astype(np.float64)
        if scale is not None:
            dense *= scale[:, None]
        return dense
    x = to_scipy(graph.x).astype(np.float64)
    if scale is None:
        return x
    scaled = sp.csr_matrix(sp.diags(scale) @ x)
    # A product leaves columns unsorted. The rounding of an edge's sum would then depend on its chunk.
    scaled.sort_indices()
    return scaled


def _row_norms(x: Any) -> Floats:
    return np.asarray(np.sqrt(row_dots(x, x)))


def _square_distances(a: Any, b: Any) -> Floats:
    difference = a - b
    return row_dots(difference, difference)
