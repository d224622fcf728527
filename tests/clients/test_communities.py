"""k-means over communities, METIS at its limits, and the numbering of labels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepd.clients.communities import first_seen, groups, joined_by_labels, k_means, metis
from fedepd.types import Graph


def draws(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.mark.parametrize("seed", range(5))
def test_points_in_heaps_are_told_apart(seed: int) -> None:
    """Three heaps around (0, 0), (9, 0) and (0, 9), each within 0.1 of its middle.

    Any start ends with these heaps.
    """
    middles = np.array([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    points = np.repeat(middles, 4, axis=0) + draws(seed).uniform(-0.1, 0.1, (12, 2))
    labels = k_means(points, 3, draws(seed))
    assert sorted(map(tuple, (group.tolist() for group in groups(first_seen(labels))))) == [
        (0, 1, 2, 3),
        (4, 5, 6, 7),
        (8, 9, 10, 11),
    ]


@settings(max_examples=40)
@given(st.integers(1, 12), st.integers(1, 3), st.integers(0, 99), st.data())
def test_no_cluster_is_empty_even_where_points_coincide(
    count: int, kinds: int, seed: int, data: st.DataObject
) -> None:
    points = np.eye(3)[draws(seed).integers(0, kinds, count)]
    clusters = data.draw(st.integers(1, count))
    labels = k_means(points, clusters, draws(seed))
    assert sorted(set(labels.tolist())) == list(range(clusters))
    assert np.array_equal(labels, k_means(points, clusters, draws(seed)))


def test_communities_without_labels_are_joined_too() -> None:
    """Communities of nodes 0-1 (class 0), 2-3 (no labels) and 4-5 (class 1); one client for each."""
    graph = Graph.make(torch.zeros(6, 1), torch.tensor([[0], [1]]), torch.tensor([0, 0, -1, -1, 1, 1]), 2)
    owner = joined_by_labels(graph, np.array([0, 0, 1, 1, 2, 2]), 3, draws())
    assert owner[0] == owner[1] != owner[2] == owner[3] != owner[4] == owner[5] != owner[0]


def test_metis_without_edges_and_with_one_part() -> None:
    lonely = Graph.make(torch.zeros(6, 1), torch.zeros(2, 0, dtype=torch.int64), torch.arange(6) % 2, 2)
    assert metis(lonely, 3, None).tolist() == [0, 0, 1, 1, 2, 2]
    pair = Graph.make(torch.zeros(6, 1), torch.tensor([[0, 2], [1, 3]]), torch.arange(6) % 2, 2)
    assert metis(pair, 1, None).tolist() == [0] * 6


def test_labels_are_numbered_by_their_first_node() -> None:
    assert first_seen(np.array([7, 3, 7, 9])).tolist() == [0, 1, 0, 2]
    assert [group.tolist() for group in groups(np.array([1, 0, 1]))] == [[1], [0, 2]]
