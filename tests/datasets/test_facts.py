"""Homophily by hand."""

from __future__ import annotations

import torch

from fedepd.datasets.facts import homophily

EDGES = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])


def test_the_share_of_labelled_edges_inside_a_class() -> None:
    """Edges 0-1, 0-2, 1-2 have labels at both ends, and 0-1 joins one class; node 3 is unlabelled."""
    assert homophily(EDGES, torch.tensor([0, 0, 1, -1])) == 1 / 3


def test_there_is_none_without_a_labelled_edge() -> None:
    assert homophily(EDGES, torch.tensor([-1, 0, -1, 0])) is None
    assert homophily(torch.empty(2, 0, dtype=torch.int64), torch.tensor([0, 1])) is None
