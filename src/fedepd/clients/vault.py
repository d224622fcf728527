"""The vault: nodes that no training, no validation and no development score may touch, whatever the seed.

They are set aside before the split. A search sees many seeds, and each of them splits the nodes anew. So test
nodes of one seed are training nodes of another, but nodes of the vault never are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from fedepd.datasets import nodes_sha256
from fedepd.rng import key
from fedepd.types import HIDDEN, ClientData, Graph


def vault(graph: Graph, share: float) -> Tensor:
    """The nodes that are set aside, bool [n]: of each class the share with the smallest hashes.

    A hash is of the node's number and of the dataset's edges and labels. So the vault is the same for every
    seed, method, way to cut the graph into clients, and form of the features.

    Choice: a class's share is counted over the whole graph, not at each client. With ``shuffle_nodes`` every
    seed has other clients, so a count at each of them would set other nodes aside for every seed. A client
    has its share of a class on average.
    Choice: the share is rounded down, so a class with fewer than 1 / share nodes has none in the vault.

    Examples:
        >>> import torch
        >>> from fedepd import load
        >>> from fedepd.clients.vault import vault
        >>> int(vault(load("synthetic"), 0.2).sum()) > 0
        True
    """
    y, name = graph.y.numpy(), nodes_sha256(graph)
    labelled = np.flatnonzero(y >= 0)
    hashes = np.array([key("vault", name, node) for node in labelled.tolist()], dtype=np.int64)
    order = labelled[np.lexsort((hashes, y[labelled]))]  # by class, then by hash
    _, first, class_of, sizes = np.unique(
        y[order], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.arange(order.size) - first[class_of]
    aside = torch.zeros(graph.num_nodes, dtype=torch.bool)
    aside[torch.from_numpy(order[rank < (share * sizes).astype(np.int64)[class_of]])] = True
    return aside


def known_labels(graph: Graph, clients: Sequence[ClientData]) -> Graph:
    """The whole graph with the labels that its clients know."""
    y = torch.full_like(graph.y, HIDDEN)
    for client in clients:
        y[client.global_ids] = client.graph.y
    return replace(graph, y=y)


def too_small(graph: Graph, share: float) -> str:
    """One line about the vault and the classes that have no node in it. Empty without a vault."""
    if not share:
        return ""
    held = graph.y[vault(graph, share)]
    classes = torch.unique(graph.y[graph.y >= 0])
    few = int((~torch.isin(classes, held)).sum())
    said = f"{held.numel():,} nodes are in the vault (vault = {share:g})"
    if not few:
        return f"{said}, and every class has some there"
    return f"{said}; {few} of {classes.numel()} classes are too small to have one there"
