"""What each client holds, counted by hand."""

from __future__ import annotations

import pytest
import torch

from fedepd.clients.statistics import client_statistics
from fedepd.types import Graph, Partition


def test_two_clients_by_hand() -> None:
    """Client 0: a triangle of classes 0, 0, 1. Client 1: two nodes of class 1 and an edge. One edge crosses.

    Classes: [2, 1] and [0, 2] of [2, 3]. Client 0 to all: shares (2/3, 1/3) and (2/5, 3/5), middle (8/15,
    7/15): half of 2/3 log2(5/4) + 1/3 log2(5/7) + 2/5 log2(3/4) + 3/5 log2(9/7) = 0.0522.
    """
    edges = torch.tensor([[0, 0, 1, 2, 3], [1, 2, 2, 3, 4]])
    graph = Graph.make(torch.eye(5), edges, torch.tensor([0, 0, 1, 1, 1]))
    found = client_statistics(graph, Partition(torch.tensor([0, 0, 0, 1, 1]), 2, "owner"), ("a", "b"))
    first, second = found
    assert (first.client, first.name, first.nodes, first.edges, first.classes) == (0, "a", 3, 3, 2)
    assert first.label_divergence == pytest.approx(0.0522, abs=1e-4)
    assert first.homophily == pytest.approx(1 / 3)
    assert (first.degree, first.clustering) == (2.0, 1.0)
    assert (second.homophily, second.degree, second.clustering, second.classes) == (1.0, 1.0, 0.0, 1)
    assert second.as_json()["name"] == "b"


def test_a_client_without_labels_has_no_divergence_and_no_homophily() -> None:
    graph = Graph.make(torch.eye(4), torch.tensor([[0, 2], [1, 3]]), torch.tensor([0, 1, -1, -1]))
    found = client_statistics(graph, Partition(torch.tensor([0, 0, 1, 1]), 2, "owner"))
    assert (found[1].label_divergence, found[1].homophily, found[1].classes) == (None, None, 0)
