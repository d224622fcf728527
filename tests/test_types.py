from __future__ import annotations

import pytest
import torch

from fedepd.errors import BadData
from fedepd.types import HIDDEN, Graph, undirected
from toy import toy_client


def graph(**changed: object) -> Graph:
    parts = {"x": torch.eye(4, 3), "edge_index": torch.tensor([[0, 1, 2], [1, 2, 3]]), "y": torch.tensor([0, 1, 0, 1])}
    return Graph.make(**{**parts, **changed})  # type: ignore[arg-type]


def test_any_edge_list_becomes_each_undirected_edge_once() -> None:
    """(1,0) and (0,1) are one edge, (2,2) is a self-loop, (3,1) is given twice: 0-1 and 1-3 remain, sorted, source < target."""
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
