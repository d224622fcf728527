"""All that a run learns from labels outside the training mask: scores, sizes and facts for the report.

Two rooms below see all labels too. ``datasets`` loads and describes graphs. ``clients`` cuts them and makes
the masks. From there on the labels of validation and test nodes are read here only. Training code gets
``ClientData.hidden()``, and what the server gets was computed here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from fedepd.datasets.facts import clustering, homophily
from fedepd.network.kernels import classes_of
from fedepd.types import HIDDEN, ClientData, Graph, Partition, Sizes

SPLITS = ("val", "test")


def evaluated(has_global: bool) -> list[str]:
    """The names of the confusion matrices of an evaluation, in order."""
    kinds = ("global", "personal") if has_global else ("personal",)
    return [f"{kind}_{split}" for kind in kinds for split in sorted(SPLITS)]


def confusion(predicted: Tensor, y: Tensor, mask: Tensor, num_classes: int) -> Tensor:
    """Counts of (true class, predicted class) over the labelled nodes of the mask: int64 [C, C]."""
    known = y.numpy()  # numpy's operations on few nodes take a tenth of torch's time
    chosen = np.flatnonzero(mask.numpy() & (known != HIDDEN))
    pairs = known.take(chosen) * num_classes + predicted.numpy().take(chosen)
    counts = np.bincount(pairs, minlength=num_classes**2)
    return torch.from_numpy(counts.reshape(num_classes, num_classes))


def confusions(logits: Tensor, data: ClientData) -> dict[str, Tensor]:
    """One confusion matrix per held-out split. The client's labels must not be hidden."""
    return counted(classes_of(logits), data)


def counted(predicted: Tensor, data: ClientData) -> dict[str, Tensor]:
    """The same for predicted classes [n]."""
    return {
        split: confusion(predicted, data.graph.y, mask, data.graph.num_classes)
        for split, mask in _masks(data).items()
    }


def held_out(logits: Tensor, data: ClientData) -> dict[str, tuple[Tensor, Tensor]]:
    """To calibrate by: rows of ``logits`` [n, C] and classes, of each held-out split's labelled nodes."""
    y = data.graph.y
    chosen = {split: mask & (y != HIDDEN) for split, mask in _masks(data).items()}
    return {split: (logits[mask], y[mask]) for split, mask in chosen.items()}


def compared(
    predicted: Sequence[Tensor],
    data: ClientData,
    counted: Tensor | None = None,
    told: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> list[Tensor]:
    """How models differ from the first one on labelled validation nodes, as ``rounds.gains`` reads it.

    Args:
        predicted: What each model says of all nodes, [n] each.
        data: The client's data. Its labels must not be hidden.
        counted: The classes whose nodes are counted, bool [C]; None: all.
        told: What is told of predictions [v] about nodes of classes [v]; None: all.

    Returns:
        The first model's confusion matrix [C, C], and the changes [3, C, C] to each other model.
    """
    y, classes = data.graph.y, data.graph.num_classes
    chosen = data.val_mask & (y != HIDDEN)
    if counted is not None:
        chosen &= counted[y.clamp(min=0)]
    true = y[chosen]
    first, *others = ((p[chosen] if told is None else told(p[chosen], true)) for p in predicted)
    pairs = torch.bincount(true * classes + first, minlength=classes**2).reshape(classes, classes)
    return [pairs, *(changes(first, other, true, classes) for other in others)]


def changes(first: Tensor, second: Tensor, y: Tensor, num_classes: int) -> Tensor:
    """Nodes about which two models differ, int64 [3, C, C].

    By who is right (the first, the second, neither), by what the first says and by what the second says.
    """
    who = torch.where(first == y, 0, torch.where(second == y, 1, 2))
    cells = ((who * num_classes + first) * num_classes + second)[first != second]
    return torch.bincount(cells, minlength=3 * num_classes**2).reshape(3, num_classes, num_classes)


def _masks(data: ClientData) -> dict[str, Tensor]:
    return dict(zip(SPLITS, (data.val_mask, data.test_mask), strict=True))


def tested_nodes(data: ClientData) -> Tensor:
    """The labelled test nodes, bool [n]."""
    return data.test_mask & (data.graph.y != HIDDEN)


def unseen_share(clients: Sequence[ClientData]) -> float:
    """The share of test nodes whose class has no training node at their client; NaN without test nodes."""
    orphans = [(~torch.isin(c.graph.y[c.test_mask], c.graph.y[c.train_mask])).sum() for c in clients]
    tested = sum(int(c.test_mask.sum()) for c in clients)
    return sum(map(int, orphans)) / tested if tested else float("nan")


def client_class(graph: Graph, partition: Partition) -> Tensor:
    """Labelled nodes of each client and class, int64 [K, C]."""
    labelled, shape = graph.y != HIDDEN, (partition.num_clients, graph.num_classes)
    pairs = partition.owner[labelled] * graph.num_classes + graph.y[labelled]
    return torch.bincount(pairs, minlength=shape[0] * shape[1]).reshape(shape)


def sizes(data: ClientData) -> Sizes:
    """The sizes that a client declares about itself. Its labels must not be hidden."""
    classes, y = data.graph.num_classes, data.graph.y

    def by_class(mask: Tensor) -> Tensor:
        return torch.bincount(y[mask & (y != HIDDEN)], minlength=classes)

    train, val, test = (by_class(mask) for mask in (data.train_mask, data.val_mask, data.test_mask))
    return Sizes(data.graph.num_nodes, int(data.train_mask.sum()), train, val, test)


def client_facts(data: ClientData, kept: Tensor) -> dict[str, float | int | None]:
    """For the report: the sizes of a client, and what its method did to its edges."""
    graph = data.graph

    def of_edges(edges: Tensor) -> tuple[float | None, int]:
        degrees = np.bincount(edges.numpy().reshape(-1), minlength=graph.num_nodes)
        return homophily(edges, graph.y), int((degrees == 0).sum())

    before = of_edges(graph.edge_index)
    after = before if kept is graph.edge_index else of_edges(kept)
    return {
        "client": data.client_id,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "train": int(data.train_mask.sum()),
        "val": int(data.val_mask.sum()),
        "test": int(data.test_mask.sum()),
        "classes": len(np.unique(graph.y.numpy()[graph.y.numpy() >= 0])),
        "edges_kept": kept.shape[1],
        "homophily_before": before[0],
        "homophily_after": after[0],
        "isolated_before": before[1],
        "isolated_after": after[1],
        "clustering": clustering(graph.edge_index, graph.num_nodes),
    }
