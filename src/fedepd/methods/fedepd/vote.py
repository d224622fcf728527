"""FedEPD's vote on pruning: whether the training nodes of all clients get easier to classify by it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.cache import remembered
from fedepd.methods.fedepd.purify import EPSILON, feature_arrays
from fedepd.network.sparse import to_scipy, two_steps, weighted_adjacency
from fedepd.rng import seeded_numpy
from fedepd.types import ClientData, Graph, Reply

SAMPLE = 1000
"""Most training nodes that are asked."""
RIDGE = 0.1
"""Penalty, for features of unit size."""
COLUMNS = 2048
"""Features whose products are summed at a time."""
FEW = 32
"""Columns of a dense X that are in float64 at a time."""


def pruning_votes(data: ClientData, edges: Tensor) -> Tensor:
    """How many training nodes are classified right after two convolutions over ``edges``, and over all edges:
    [2].

    A ridge classifier, which is fitted without the node that it classifies, stands for the network to come.
    """
    train = data.train_mask.numpy()
    key = (
        train,
        data.graph.y.numpy()[train],
        edges.numpy(),
        data.graph.edge_index.numpy(),
        *feature_arrays(data.graph),
        *(() if data.graph.edge_weight is None else (data.graph.edge_weight.numpy(),)),
    )
    hits = remembered(
        "left-out-hits",
        key,
        lambda: np.array([left_out_hits(data, e) for e in (edges, data.graph.edge_index)]),
        lambda found: (
            found.shape == (2,)
            and found.dtype.kind == "i"
            and found.min() >= 0
            and bool(found.max() <= train.sum())
        ),
    )
    return torch.from_numpy(hits.astype(np.float32))


def left_out_hits(data: ClientData, edges: Tensor) -> int:
    """How many training nodes a ridge classifier that is fitted to the others classifies right.

    At most ``SAMPLE`` nodes are asked.
    """
    nodes = data.train_mask.numpy().nonzero()[0]
    if nodes.shape[0] > SAMPLE:
        nodes = np.sort(
            seeded_numpy("pruning gate", data.graph.num_nodes).choice(nodes, SAMPLE, replace=False)
        )
    if nodes.shape[0] == 0:
        return 0
    labels = data.graph.y[torch.from_numpy(nodes)]
    products = _gram(two_steps(weighted_adjacency(data.graph, edges), nodes), data.graph)
    # Products of features that have mean 0, and rows whose mean square norm is 1.
    products -= products.mean(0) + products.mean(1)[:, None] - products.mean()
    products /= max(float(products.trace()) / nodes.shape[0], EPSILON)
    targets = torch.eye(data.graph.num_classes, dtype=torch.float64)[labels]  # [t, C]
    # The 1 is for the intercept.
    inverse = torch.linalg.inv(products + 1.0 + RIDGE * torch.eye(nodes.shape[0], dtype=torch.float64))
    # What the fit without the row itself says of it, in closed form.
    left_out = targets - inverse @ targets / inverse.diagonal()[:, None]
    return int((left_out.argmax(1) == labels).sum())


def _gram(rows: sp.csr_matrix, graph: Graph) -> Tensor:
    """All scalar products of the rows of ``rows @ X``, some columns of X at a time: float64 [t, t].

    torch computes them, because its products keep to the one thread of a run and NumPy's do not. So no vote
    depends on the number of cores.
    """
    x = to_scipy(graph.x).tocsc() if graph.is_sparse else graph.x.numpy()
    total = torch.zeros(rows.shape[0], rows.shape[0], dtype=torch.float64)
    for start in range(0, x.shape[1], COLUMNS):
        part = torch.from_numpy(_product(rows, x[:, start : start + COLUMNS]))
        total += part @ part.T
    return total


def _product(rows: sp.csr_matrix, x: Any) -> NDArray[np.float64]:
    """``rows @ x``, dense. SciPy copies a dense X in float64, so it gets a few columns at a time."""
    if sp.issparse(x):
        return np.asarray((rows @ x).toarray())
    out = np.empty((rows.shape[0], x.shape[1]))
    for start in range(0, x.shape[1], FEW):
        out[:, start : start + FEW] = rows @ x[:, start : start + FEW].astype(np.float32, copy=False)
    return out


def for_pruning(votes: Tensor) -> bool:
    """Whether votes [2] are for pruning. With a tie, or before the vote, they are not."""
    return bool(votes[0] > votes[1])


def counted_votes(counted: Tensor, replies: Mapping[int, Reply]) -> Tensor:
    """The votes of the first round that has any, [2]. No client has more votes than training nodes."""
    if bool(counted.any()):
        return counted
    return sum((r.tensors["pruning.votes"].clamp(0, r.num_train) for r in replies.values()), torch.zeros(2))
