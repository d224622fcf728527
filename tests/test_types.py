from __future__ import annotations

import pytest
import torch

from bounded import bounded
from fedepd import types
from fedepd.errors import BadData
from fedepd.types import HIDDEN, Graph, undirected
from toy import toy_client


def graph(**changed: object) -> Graph:
    parts = {
        "x": torch.eye(4, 3),
        "edge_index": torch.tensor([[0, 1, 2], [1, 2, 3]]),
        "y": torch.tensor([0, 1, 0, 1]),
    }
    return Graph.make(**{**parts, **changed})  # type: ignore[arg-type]


def test_any_edge_list_becomes_each_undirected_edge_once() -> None:
    """(1,0) and (0,1) are one edge, (2,2) is a self-loop, (3,1) is given twice.

    0-1 and 1-3 remain, sorted, source < target.
    """
    edges = torch.tensor([[1, 0, 2, 3, 3], [0, 1, 2, 1, 1]])
    assert undirected(edges, 4).tolist() == [[0, 1], [1, 3]]
    assert undirected(torch.empty(2, 0, dtype=torch.int64), 4).shape == (2, 0)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"edge_index": torch.tensor([[0], [4]])}, "names node 4, but nodes are numbered 0..3"),
        ({"edge_index": torch.tensor([[-1], [0]])}, "names node -1"),
        ({"edge_index": torch.tensor([[0.0], [1.0]])}, "must be integers"),
        ({"edge_index": torch.tensor([0, 1])}, "must be"),
        ({"x": torch.eye(3)}, "y has 4 nodes"),
        ({"x": torch.empty(4, 0)}, "has no columns"),
        ({"x": torch.full((4, 2), float("nan"))}, "NaN or infinite"),
        ({"y": torch.tensor([0, 1, -2, 1])}, "labels outside"),
        ({"y": torch.tensor([0, 1, 5, 1]), "num_classes": 2}, "labels outside"),
        ({"y": torch.zeros(4, dtype=torch.int64)}, "single class"),
        ({"owner": torch.tensor([0, 0, -1, 1])}, "owner must"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(changed: dict[str, object], says: str) -> None:
    with pytest.raises(BadData, match=says):
        graph(**changed)


def test_to_torch_geometric_and_back() -> None:
    pytest.importorskip("torch_geometric")
    first = graph()
    data = first.to_pyg()
    assert data.edge_index.shape == (2, 2 * first.num_edges)
    again = Graph.from_pyg(data)
    assert torch.equal(again.x, first.x)
    assert torch.equal(again.edge_index, first.edge_index)
    assert torch.equal(again.y, first.y)
    del data.y
    with pytest.raises(BadData, match="has no 'y'"):
        Graph.from_pyg(data)


def test_hiding_leaves_training_labels_alone_and_the_client_itself_too() -> None:
    client = toy_client()
    before = client.graph.y.clone()
    hidden = client.hidden()
    assert torch.equal(hidden.graph.y[client.train_mask], before[client.train_mask])
    assert bool((hidden.graph.y[~client.train_mask] == HIDDEN).all())
    assert torch.equal(client.graph.y, before)


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"x": torch.eye(4, 3, device="meta")}, "x is on the device 'meta'"),
        ({"y": torch.zeros(4, dtype=torch.int64, device="meta")}, "y is on the device 'meta'"),
        (
            {"edge_index": torch.zeros(2, 1, dtype=torch.int64, device="meta")},
            "edge_index is on the device 'meta'",
        ),
        ({"y": torch.tensor([0.0, 1.0, 0.0, 1.0])}, "one whole number per node"),
        ({"y": torch.zeros(4, dtype=torch.complex64)}, "one whole number per node"),
        ({"y": torch.tensor(1)}, "one whole number per node"),
        ({"y": torch.zeros(4, 1, dtype=torch.int64)}, "one whole number per node"),
        (
            {"y": torch.tensor([0, 1, 0, 2**62])},
            "num_classes is 4611686018427387905 for 4 labelled nodes, but at most 100 is allowed",
        ),
        ({"num_classes": 101}, "num_classes is 101 for 4 labelled nodes, but at most 100 is allowed"),
        ({"num_classes": 2**63}, "num_classes is 9223372036854775808"),
        (
            {"num_classes": 10**6, "part": True},
            "num_classes is 1000000, and a run with so many classes would need",
        ),
        ({"edge_index": torch.ones(2, 1, dtype=torch.complex64)}, "must be integers"),
        ({"edge_index": torch.ones(2, 1, dtype=torch.bool)}, "must be integers"),
        ({"edge_index": torch.tensor([[0], [2**63 - 1]])}, "names node 9223372036854775807"),
        ({"name": "\x1b[31m", "x": torch.empty(4, 0)}, r"graph '\?\[31m'"),
    ],
)
def test_graphs_made_to_do_harm(changed: dict[str, object], says: str) -> None:
    with bounded(), pytest.raises(BadData, match=says):
        graph(**changed)


def test_as_many_classes_as_the_nodes_bear_out() -> None:
    assert graph(num_classes=100).num_classes == 100
    assert graph(num_classes=1000, part=True).num_classes == 1000


def weighted(**changed: object) -> Graph:
    """a-b twice, once in each direction, then b-c, and a self-loop."""
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]])
    weight = torch.tensor([1.0, 0.5, 4.0, -7.0])
    return graph(**{"edge_index": edges, "edge_weight": weight, **changed})


def test_weights_of_repeated_edges_are_summed_and_loops_do_not_count() -> None:
    found = weighted()
    assert found.edge_index.tolist() == [[0, 1], [1, 2]]
    assert found.edge_weight is not None
    assert found.edge_weight.tolist() == [1.5, 4.0]
    assert found.edge_weight.dtype == torch.float32


def test_some_edges_keep_their_weights() -> None:
    found = weighted().with_edges(torch.tensor([[1], [2]]))
    assert found.edge_weight is not None
    assert found.edge_weight.tolist() == [4.0]
    none = weighted().with_edges(torch.empty(2, 0, dtype=torch.int64)).edge_weight
    assert none is not None
    assert none.shape == (0,)
    assert graph().with_edges(graph().edge_index).edge_weight is None
    with pytest.raises(BadData, match="no weight for some of the edges"):
        weighted().weights_of(torch.tensor([[0], [2]]))


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e30])
def test_a_weight_that_no_network_can_use_is_refused(value: float) -> None:
    with pytest.raises(BadData, match="edge_weight must give each of the 2 edges a number between"):
        weighted(edge_weight=torch.tensor([0.0, 1.0, value, 1.0]))


@pytest.mark.parametrize("weight", [torch.ones(3), torch.ones(4, 1), torch.ones(4, dtype=torch.complex64)])
def test_weights_of_another_shape_are_refused(weight: torch.Tensor) -> None:
    with pytest.raises(BadData, match="one real number for each of the 4 edges"):
        weighted(edge_weight=weight)


def test_torch_geometric_has_the_weights_too() -> None:
    """Both directions are summed on the way back, so that all weights double; only ratios count."""
    pytest.importorskip("torch_geometric")
    again = Graph.from_pyg(weighted().to_pyg())
    assert again.edge_weight is not None
    assert again.edge_weight.tolist() == [3.0, 8.0]


def test_a_graph_says_what_it_is_and_shows_foreign_names_safely() -> None:
    named = graph(name="a\x1b[2J", label_names=("<b>", "ok"), edge_weight=torch.ones(3))
    assert repr(named) == "Graph('a?[2J', 4 nodes, 3 weighted edges, 3 features, 2 classes)"
    assert "<td>&lt;b&gt;</td><td>2</td>" in named._repr_html_()


def test_a_notebook_shows_the_largest_classes_first() -> None:
    """Classes 0 and 1 have one and three nodes, and the other twelve none: twelve are shown, two are not."""
    many = graph(y=torch.tensor([1, 1, 0, 1]), num_classes=14)
    shown = many._repr_html_()
    assert shown.index("<td>1</td><td>3</td>") < shown.index("<td>0</td><td>1</td>")
    assert "and 2 more" in shown


def test_masks_of_torch_geometric_are_said_to_be_unused() -> None:
    data = graph().to_pyg()
    data.train_mask = torch.ones(4, dtype=torch.bool)
    with pytest.warns(UserWarning, match="train_mask of 'graph' will not be used"):
        Graph.from_pyg(data)


@pytest.mark.hostile
def test_more_nodes_or_features_than_32_bits_count_are_refused() -> None:
    """The check is on counts: an expanded y or x claims 2^31 and holds one number."""
    with pytest.raises(BadData, match="2,147,483,648 nodes are more than 2,147,483,647; give a part"):
        undirected(torch.empty(2, 0, dtype=torch.int64), 2**31)
    with pytest.raises(BadData, match="2,147,483,648 features are more than 2,147,483,647; leave out"):
        graph(x=torch.zeros(1, 1).expand(4, 2**31))


def test_sorted_and_unsorted_edges_become_the_same() -> None:
    edges = torch.tensor([[0, 0, 1], [1, 2, 2]])
    for given in (edges, edges.flip(1), edges.flip(0), torch.cat([edges, edges], dim=1)):
        assert torch.equal(undirected(given, 3), edges)


def test_a_number_that_is_not_finite_is_found_wherever_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are checked two rows at a time; the last row is in the third part."""
    monkeypatch.setattr(types, "CHECKED", 2)
    x = torch.ones(5, 1)
    edges, y = torch.tensor([[0], [1]]), torch.tensor([0, 1, 0, 1, 0])
    Graph.make(x, edges, y)
    x[4] = float("inf")
    with pytest.raises(BadData, match="NaN or infinite"):
        Graph.make(x, edges, y)
