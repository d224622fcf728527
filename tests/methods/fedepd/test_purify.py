from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepd.methods.fedepd import purify
from fedepd.methods.fedepd.purify import (
    cumulative,
    edge_metrics,
    fused_score,
    kept,
    noise_intensity,
    purified_edges,
)
from fedepd.network.sparse import csr_tensor
from fedepd.types import Graph

SCORES: tuple[Any, ...] = ("fused", "energy", "cosine", "random")


def graph_of(x: Any, edges: Any, sparse: bool = False) -> Graph:
    features = np.asarray(x, dtype=np.float32)
    y = torch.arange(features.shape[0]) % 2
    tensor = csr_tensor(sp.csr_matrix(features)) if sparse else torch.tensor(features)
    return Graph.make(tensor, torch.tensor(edges, dtype=torch.int64).reshape(2, -1), y, 2)


def random_graph(seed: int = 0, nodes: int = 12, sparse: bool = False) -> Graph:
    """Sparse rows no two of which are parallel, so that no score is a tie that rounding could split."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((nodes, 6))
    x[:, 2:] *= rng.random((nodes, 4)) < 0.5
    return graph_of(x, rng.integers(0, nodes, (2, 3 * nodes)), sparse)


PATH_X, PATH_EDGES = [[1, 0], [1, 0], [0, 1]], [[0, 1], [1, 2]]


@pytest.mark.parametrize("sparse", [False, True])
def test_the_path_a_b_c(sparse: bool) -> None:
    """x = (1,0), (1,0), (0,1); degrees 1, 2, 1.

    Eq. 1: E_ab = (1/√2 - 1/√3)² = 0.0168, E_bc = 1/2 + 1/3 = 0.8333.
    Eq. 2: mean 0.4251, population deviation 0.4082, cv = 0.9604.
    λ = cv² / (1 + cv²) = 0.4798, p = λ/2 = 0.2399.
    Eq. 3: s = (0, 1).
    Eq. 4: both metrics rank ab before bc, so ψ = (1/2, 1).
    The 0.7601-quantile between the two is 0.5 + 0.5 · 0.7601 = 0.8800: bc goes.
    """
    graph = graph_of(PATH_X, PATH_EDGES, sparse)
    energy, distance = edge_metrics(graph)
    np.testing.assert_allclose(energy, [(1 / np.sqrt(2) - 1 / np.sqrt(3)) ** 2, 5 / 6], rtol=1e-12)
    np.testing.assert_allclose(distance, [0, 1], atol=1e-12)
    noise = noise_intensity(energy)
    assert noise == pytest.approx(0.4798, abs=5e-5)
    psi = fused_score(energy, distance, noise, "fused", graph)
    np.testing.assert_allclose(psi, [0.5, 1.0], rtol=1e-12)
    assert np.quantile(psi, 1 - noise / 2) == pytest.approx(0.8800, abs=5e-5)
    assert purified_edges(graph).tolist() == [[0], [1]]


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_scores_do_not_change_when_features_are_scaled_by_seven(seed: int) -> None:
    graph = random_graph(seed)
    scaled = graph_of(7 * graph.x.numpy(), graph.edge_index.numpy())
    psi, psi_scaled = (
        fused_score(*edge_metrics(g), noise_intensity(edge_metrics(g)[0]), "fused", g)
        for g in (graph, scaled)
    )
    np.testing.assert_allclose(psi, psi_scaled, rtol=1e-6)
    assert torch.equal(purified_edges(graph), purified_edges(scaled))


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_the_standardised_energy_has_the_ranks_of_the_energy(seed: int) -> None:
    """ζ = (E - mean) / (deviation + ε) of Eq. 3 is increasing in E, so leaving it out changes no ψ."""
    graph = random_graph(seed)
    energy, distance = edge_metrics(graph)
    zeta = (energy - energy.mean()) / (energy.std() + 1e-12)
    noise = noise_intensity(energy)
    by_zeta, by_energy = (fused_score(values, distance, noise, "fused", graph) for values in (zeta, energy))
    assert np.array_equal(by_zeta, by_energy)


def test_the_empirical_distribution_counts_ties() -> None:
    """F(v) = share of values <= v: of (3, 1, 1, 2) these are 4/4, 2/4, 2/4, 3/4."""
    assert cumulative(np.array([3.0, 1.0, 1.0, 2.0])).tolist() == [1.0, 0.5, 0.5, 0.75]


@pytest.mark.parametrize("sparse", [False, True])
def test_a_zero_feature_row_is_at_distance_one_from_everything(sparse: bool) -> None:
    graph = graph_of([[0, 0], [3, 0], [0, 0], [3, 0]], [[0, 0, 1], [1, 2, 3]], sparse)
    assert graph.edge_index.tolist() == [[0, 0, 1], [1, 2, 3]]
    assert edge_metrics(graph)[1].tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("sparse", [False, True])
def test_all_features_zero_keeps_every_edge(sparse: bool) -> None:
    graph = graph_of(np.zeros((4, 2)), [[0, 1, 2], [1, 2, 3]], sparse)
    assert torch.equal(purified_edges(graph), graph.edge_index)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("edges", [[[], []], [[0], [1]]])
def test_fewer_than_two_edges_are_kept(score: Any, sparse: bool, edges: Any) -> None:
    graph = graph_of(PATH_X, edges, sparse)
    assert torch.equal(purified_edges(graph, score), graph.edge_index)


@pytest.mark.parametrize("score", SCORES)
def test_equal_energies_keep_every_edge(score: Any) -> None:
    """On a ring of alternating features every edge has the same energy.

    So cv = λ = p = 0, and the 1-quantile of any score keeps all.
    """
    graph = graph_of([[1, 0], [0, 1]] * 3, [[0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]])
    energy, distance = edge_metrics(graph)
    assert noise_intensity(energy) == 0.0
    assert kept(energy, distance, score, graph).all()


def test_ties_at_the_threshold_stay() -> None:
    """Energies (0, 1, 1, 1): mean 3/4, variance 3/16, cv² = 1/3, λ = 1/4.

    ψ by energy = (1/4, 1, 1, 1), its 7/8-quantile 1: all stay.
    """
    energy = np.array([0.0, 1.0, 1.0, 1.0])
    assert noise_intensity(energy) == pytest.approx(0.25)
    assert kept(energy, energy, "energy", graph_of(PATH_X, PATH_EDGES)).all()


@given(seed=st.integers(0, 1000))
@settings(max_examples=20)
def test_sparse_equals_dense(seed: int) -> None:
    dense, sparse = random_graph(seed), random_graph(seed, sparse=True)
    for a, b in zip(edge_metrics(dense), edge_metrics(sparse), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)
    assert torch.equal(purified_edges(dense), purified_edges(sparse))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("chunk", [1, 7])
def test_the_size_of_a_chunk_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, sparse: bool, chunk: int
) -> None:
    graph = random_graph(3, nodes=20, sparse=sparse)
    whole = edge_metrics(graph)
    monkeypatch.setattr(purify, "_CHUNK", chunk)
    for a, b in zip(whole, edge_metrics(graph), strict=True):
        assert np.array_equal(a, b)


def test_the_controls_prune_other_edges_at_the_same_rate() -> None:
    """Without ties the linear (1 - p)-quantile keeps ⌊(e - 1)(1 - p)⌋ + 1 edges, whatever the score."""
    graph = random_graph(1, nodes=30)
    noise = noise_intensity(edge_metrics(graph)[0])
    expected = int((graph.num_edges - 1) * (1 - noise / 2)) + 1
    survivors = {score: purified_edges(graph, score) for score in SCORES}
    assert {score: edges.shape[1] for score, edges in survivors.items()} == dict.fromkeys(SCORES, expected)
    assert expected < graph.num_edges
    assert len({str(edges.tolist()) for edges in survivors.values()}) == 4
    assert torch.equal(purified_edges(graph, "random"), survivors["random"])


def test_features_are_not_written_to() -> None:
    for sparse in (False, True):
        graph = random_graph(2, sparse=sparse)
        before = graph.x.to_dense().clone()
        purified_edges(graph)
        assert torch.equal(graph.x.to_dense(), before)
