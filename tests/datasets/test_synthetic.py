from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from fedepd.datasets import graph_sha256
from fedepd.datasets.published import SHAPES
from fedepd.datasets.synthetic import planned_sizes, synthetic, twin
from fedepd.errors import BadConfig
from fedepd.longtail import imbalance_ratio, tiers
from fedepd.types import Graph


def sizes_of(graph: Graph) -> np.ndarray:
    return np.bincount(graph.y.numpy(), minlength=graph.num_classes)


def same_class_share(graph: Graph, classes: tuple[int, ...]) -> float:
    """Of the edge ends at nodes of these classes, the share whose other end has the same class."""
    ends = graph.y[graph.edge_index]
    at = torch.isin(ends, torch.tensor(classes))
    return float((at & (ends[0] == ends[1])).sum() / at.sum())


def test_default_has_the_asked_shape() -> None:
    graph = synthetic()
    sizes = sizes_of(graph)
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (1_500, 6_000, 64, 10)
    assert imbalance_ratio(sizes) == 50
    assert sizes.min() >= 10
    assert (np.diff(sizes) <= 0).all()
    assert not graph.is_sparse


def test_same_seed_same_bits_other_seed_other_graph() -> None:
    assert graph_sha256(synthetic(seed=3)) == graph_sha256(synthetic(seed=3))
    assert graph_sha256(synthetic(seed=3)) != graph_sha256(synthetic(seed=4))


@settings(max_examples=60)
@given(st.integers(3, 60), st.floats(1.5, 100), st.integers(30, 200))
def test_class_sizes_add_up_fall_and_hit_the_ratio(classes: int, imbalance: float, per_class: int) -> None:
    """With a smallest class of m nodes the ratio of integers misses the asked one by at most 0.5 / m."""
    nodes = classes * per_class
    try:
        sizes = planned_sizes(nodes, classes, imbalance)
    except BadConfig:  # too few nodes for so steep a law
        reject()
    assert sizes.sum() == nodes
    assert sizes.size == classes
    assert (sizes.max(), sizes.min()) == (sizes[0], sizes[-1])
    assert abs(sizes[0] / sizes[-1] - imbalance) <= 0.5 / sizes[-1] + 1e-9


def test_class_sizes_by_hand() -> None:
    """Two classes 3:1 of 100; three equal ones of 30; a law from 8 to 1 over 4 classes.

    The law is 8, 8/2^1.5, 8/3^1.5, 1, here times 100.
    """
    assert planned_sizes(100, 2, 3.0).tolist() == [75, 25]
    assert planned_sizes(30, 3, 1.0).tolist() == [10, 10, 10]
    assert np.abs(planned_sizes(1_336, 4, 8.0) - [800, 283, 154, 100]).max() <= 2


@pytest.mark.parametrize(("head", "tail"), [(0.8, 0.2), (0.5, 0.5), (0.6, 0.1)])
def test_homophily_of_head_and_tail(head: float, tail: float) -> None:
    """The first and the last class keep the asked share of their edge ends, both ends counted."""
    graph = synthetic(
        nodes=6_000,
        edges=30_000,
        classes=8,
        imbalance=8,
        smallest=None,
        homophily_head=head,
        homophily_tail=tail,
    )
    assert same_class_share(graph, (0,)) == pytest.approx(head, abs=0.08)
    assert same_class_share(graph, (7,)) == pytest.approx(tail, abs=0.08)


def test_tail_nodes_sit_in_head_neighbourhoods() -> None:
    """In the default, tiers fall in homophily.

    Most foreign neighbours of tail nodes belong to the head.
    """
    graph = synthetic()
    cut = tiers(sizes_of(graph))
    head, medium, tail = (same_class_share(graph, ids) for ids in (cut.head, cut.medium, cut.tail))
    assert head > medium + 0.1 > tail + 0.2
    ends = torch.cat([graph.edge_index, graph.edge_index.flip(0)], dim=1)
    own, other = graph.y[ends]
    foreign = other[torch.isin(own, torch.tensor(cut.tail)) & (own != other)]
    assert float(torch.isin(foreign, torch.tensor(cut.head)).float().mean()) > 0.5


def test_degrees_are_skewed_and_no_node_is_isolated() -> None:
    degrees = torch.bincount(synthetic().edge_index.reshape(-1), minlength=1_500)
    assert int(degrees.min()) >= 1
    assert int(degrees.max()) > 8 * float(degrees.float().mean())


def test_louvain_finds_communities_that_mix_classes() -> None:
    from sknetwork.clustering import Louvain, get_modularity

    from fedepd.network.sparse import adjacency

    graph = synthetic()
    adj = adjacency(graph.edge_index, graph.num_nodes)
    found = Louvain().fit_predict(adj)
    assert get_modularity(adj, found) > 0.5
    assert len(np.unique(found)) >= 10
    largest = np.bincount(found).argsort()[-5:]
    assert all(len(np.unique(graph.y.numpy()[found == community])) >= 3 for community in largest)


def test_edgeless_and_two_classes() -> None:
    graph = synthetic(nodes=20, edges=0, classes=2, imbalance=3, smallest=None, features=4)
    assert graph.num_edges == 0
    assert sizes_of(graph).tolist() == [15, 5]


def test_sparse_features_carry_the_class() -> None:
    """With signal 3, three words in four come from the class's topic.

    Two nodes of a class share more words than strangers do.
    """
    graph = synthetic(features=500, sparse=True, words_per_node=30)
    words = graph.x.to_dense()
    assert graph.is_sparse
    assert set(torch.unique(graph.x.values()).tolist()) == {1.0}
    assert float(words.sum(1).mean()) == pytest.approx(30, rel=0.25)
    first, second = words[graph.y == 1], words[graph.y == 2]
    assert float((first[:50] @ first[50:100].T).mean()) > 2 * float((first[:50] @ second[:50].T).mean())


def test_dense_features_lie_around_class_means() -> None:
    """Means at distance 3 from the origin, unit noise: the mean of 700 rows is within 3 + 0.3 of it."""
    graph = synthetic(signal=3.0)
    assert float(graph.x[graph.y == 0].mean(0).norm()) == pytest.approx(3.0, abs=0.4)


HOMOPHILY = {
    "corafull": 0.57,
    "electronics": 0.75,
    "clothing": 0.75,
    "roman_empire": 0.05,
    "email": 0.34,
    "arxiv": 0.65,
    "computers": 0.78,
}
WORDS = {"corafull": 58, "electronics": 57, "clothing": 32, "computers": 267}


HOMOPHILOUS = ("homophily_head", "homophily_tail")
LARGE = [pytest.param(name, marks=pytest.mark.heavy) for name in ("arxiv", "electronics", "computers")]


@pytest.mark.parametrize("name", ["corafull", "clothing", "roman_empire", "email", *LARGE])
def test_twins_have_the_shape_of_their_original(name: str) -> None:
    row, graph = SHAPES[name], twin(name)
    found = (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes)
    assert found == (row.nodes, row.edges, row.features, row.classes)
    assert imbalance_ratio(sizes_of(graph)) == pytest.approx(row.imbalance_ratio, abs=0.006)
    assert same_class_share(graph, tuple(range(row.classes))) == pytest.approx(HOMOPHILY[name], abs=0.03)
    assert graph.is_sparse == (name in WORDS)
    if graph.is_sparse:
        assert graph.x.values().numel() / graph.num_nodes == pytest.approx(WORDS[name], abs=2)
    assert graph.name == f"twin:{name}"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"classes": 1}, "classes is 1"),
        ({"nodes": 5}, "classes is 10"),
        ({"edges": -1}, "edges is -1"),
        ({"nodes": 50, "edges": 1_000}, "edges is 1000"),
        ({"imbalance": 0.5}, "imbalance is 0.5"),
        ({"nodes": 100, "edges": 200}, "cannot form"),
        ({"smallest": 0}, "cannot form"),
        ({"homophily_head": 1.2}, "homophily_head is 1.2"),
        ({"homophily_tail": -0.1}, "homophily_tail is -0.1"),
        ({"inside": 2.0}, "inside is 2.0"),
        ({"features": 0}, "features"),
        ({"signal": 0.0}, "signal"),
        (
            {
                "nodes": 60,
                "edges": 800,
                "classes": 20,
                "imbalance": 1,
                "smallest": 3,
                **dict.fromkeys(HOMOPHILOUS, 1),
            },
            "only 60 of 800",
        ),
    ],
)
def test_impossible_settings_are_one_sentence(change: dict[str, float], word: str) -> None:
    with pytest.raises(BadConfig, match=word):
        synthetic(**change)  # type: ignore[arg-type]
