"""What edges tell about classes, by hand."""

from __future__ import annotations

import pytest
import torch

from fedepd.datasets import facts
from fedepd.datasets.facts import (
    adjusted_homophily,
    class_pairs,
    clustering,
    homophily,
    label_informativeness,
)
from fedepd.types import Graph, undirected

EDGES = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])


def test_the_share_of_labelled_edges_inside_a_class() -> None:
    """Edges 0-1, 0-2, 1-2 have labels at both ends, and 0-1 joins one class; node 3 is unlabelled."""
    assert homophily(EDGES, torch.tensor([0, 0, 1, -1])) == 1 / 3


def test_there_is_none_without_a_labelled_edge() -> None:
    assert homophily(EDGES, torch.tensor([-1, 0, -1, 0])) is None
    assert homophily(torch.empty(2, 0, dtype=torch.int64), torch.tensor([0, 1])) is None


def graph_of(edges: list[tuple[int, int]], y: list[int], classes: int) -> Graph:
    return Graph(torch.ones(len(y), 1), torch.tensor(edges).T.reshape(2, -1), torch.tensor(y), classes)


def test_edges_are_counted_by_the_classes_of_their_ends() -> None:
    """0-1 joins class 0 with itself, 0-2 and 1-2 join 0 and 1; node 3 is unlabelled."""
    found = class_pairs(graph_of([(0, 1), (0, 2), (1, 2), (2, 3)], [0, 0, 1, -1], 2))
    assert found.tolist() == [[2, 2], [2, 0]]


def test_chance_is_taken_off_homophily() -> None:
    """Two classes of equal degree: 3 of 4 edges are alike, by chance 1/2 would be: (3/4 - 1/2) / (1/2)."""
    assert adjusted_homophily(torch.tensor([[300, 100], [100, 300]])) == pytest.approx(0.5)
    assert adjusted_homophily(torch.tensor([[100, 100], [100, 100]])) == pytest.approx(0.0)
    assert adjusted_homophily(torch.tensor([[0, 100], [100, 0]])) == pytest.approx(-1.0)
    assert adjusted_homophily(torch.tensor([[90, 0], [0, 0]])) == 0.0  # one class: nothing to be alike in


def test_one_neighbours_class_tells_all_or_nothing() -> None:
    """Edges that always join the two classes tell all, although none is alike."""
    many = 10**9  # so that the correction is nothing
    assert label_informativeness(torch.tensor([[0, many], [many, 0]])) == pytest.approx(1.0)
    assert label_informativeness(torch.tensor([[many, many], [many, many]])) == pytest.approx(0.0)
    # p = 3/8, 1/8 | 1/8, 3/8: I = 3/4 log 3/2 + 1/4 log 1/2 = 0.1308; H = log 2
    three = torch.tensor([[3 * many, many], [many, 3 * many]])
    assert label_informativeness(three) == pytest.approx(0.1308 / 0.6931, abs=1e-4)


def test_few_edges_do_not_look_informative() -> None:
    """Two classes have one free pair: 1 / 2N is taken off, with N = 4 edges 0.125 of 0.1308."""
    few = torch.tensor([[3, 1], [1, 3]])
    assert label_informativeness(few) == pytest.approx((0.1308 - 0.125) / 0.6931, abs=1e-4)
    assert label_informativeness(torch.tensor([[1, 1], [1, 0]])) == 0.0
    assert label_informativeness(torch.tensor([[8, 0], [0, 0]])) == 0.0  # one class: nothing to know


def test_clustering_is_networkx_s() -> None:
    networkx = pytest.importorskip("networkx")
    graph = networkx.gnm_random_graph(60, 300, seed=3)
    edges = torch.tensor(sorted(map(sorted, graph.edges))).T
    assert clustering(edges, 60) == pytest.approx(networkx.average_clustering(graph), abs=1e-12)


def test_clustering_by_hand() -> None:
    """A triangle 0-1-2 with a tail 2-3 and a node 4 alone: 1, 1, 1/3, 0, 0."""
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])
    assert clustering(edges, 5) == pytest.approx((1 + 1 + 1 / 3) / 5)
    assert clustering(edges[:, :0], 3) == 0.0
    assert clustering(edges[:, :0], 0) is None


def test_small_and_large_graphs_are_counted_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    many = torch.randint(0, 40, (2, 300), generator=torch.Generator().manual_seed(1))
    edges = undirected(many, 40)
    dense = clustering(edges, 40)
    monkeypatch.setattr(facts, "DENSE_UP_TO", 0)
    assert clustering(edges, 40) == dense


def test_clustering_is_left_out_where_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "MOST_PATHS", 2)
    assert clustering(torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]]), 4) is None
