"""Facts of any graph: how large its classes are, and how its edges join them."""

from __future__ import annotations

import torch
from torch import Tensor

from fedepd.types import HIDDEN, Graph


def class_sizes(graph: Graph) -> Tensor:
    """The number of labelled nodes per class, int64 [C]."""
    return torch.bincount(graph.y[graph.y != HIDDEN], minlength=graph.num_classes)


def homophily(edges: Tensor, y: Tensor) -> float | None:
    """The share of edges that join nodes of one class, among edges with two labelled ends;

    None if there are none.
    """
    src, dst = edges
    labelled = (y[src] != HIDDEN) & (y[dst] != HIDDEN)
    if not bool(labelled.any()):
        return None
    return float((y[src] == y[dst])[labelled].to(torch.float64).mean())
