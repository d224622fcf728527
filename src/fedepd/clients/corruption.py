"""Training data made worse on purpose: noise and gaps in features, edges and labels of every client.

The shares are OpenFGL's ("processing"): feature noise and sparsity, topology noise and sparsity, label noise
and sparsity. A client trains on its corrupted graph. It is scored on its clean one.

Choice: OpenFGL also predicts on the corrupted features and edges. We score what was learnt, so at prediction
features, edges and held-out labels are clean. Only the labels of training nodes stay corrupted there, because
nobody at the client knows better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.errors import BadConfig, UnknownName
from fedepd.network.sparse import csr_tensor, to_scipy
from fedepd.rng import seeded_numpy
from fedepd.shown import shown
from fedepd.types import HIDDEN, ClientData, Graph, undirected, widened

MOST = 10.0
"""The largest noise of features and the largest number of new edges, as multiples."""
EASY_PAIRS = 2_000_000
"""Up to so many pairs of nodes, all pairs without an edge are listed; beyond, new edges are drawn."""
DRAWN = 4096
"""Pairs that are drawn at once. It is fixed, so that a larger share only adds edges to those of a smaller."""
MISSING = "-missing"


@dataclass(frozen=True)
class Corruption:
    """How a client's training data is made worse. 0 leaves it as it is.

    Examples:
        >>> from fedepd.clients.corruption import Corruption
        >>> Corruption.read("labels=0.1, edges-missing=0.30").text
        'edges-missing=0.3,labels=0.1'
    """

    features: float = 0.0
    """Standard deviation of Gaussian noise, as a multiple of the root mean square of all numbers but 0.

    Choice: OpenFGL's noise has no unit. Ours is the same where that root is 1, as it is for bags of words and
    scaled columns. In sparse features the noise falls on every number that is not 0, and on as many zeros of
    its row. Noise on all zeros would take gigabytes.
    """
    features_missing: float = 0.0
    """Share of each node's numbers other than 0 that become 0, rounded down."""
    edges: float = 0.0
    """Number of new random edges, as a multiple of the number of edges."""
    edges_missing: float = 0.0
    """Share of the edges that are dropped."""
    labels: float = 0.0
    """Share of the training nodes that get another class, any with the same chance."""
    labels_missing: float = 0.0
    """Share of the training nodes that lose their label. They stay in the graph."""

    @classmethod
    def read(cls, text: str) -> Corruption:
        """From a text such as ``features=0.3,edges-missing=0.2``; empty or ``none``: nothing.

        Args:
            text: Names with their shares, separated by commas.

        Returns:
            The corruption.

        Raises:
            UnknownName: A name does not exist.
            BadConfig: A share is missing, given twice, no number, or out of its range.
        """
        if text.strip() in ("", "none"):
            return cls()
        given: dict[str, float] = {}
        for part in text.split(","):
            name, equals, value = (piece.strip() for piece in part.partition("="))
            if name not in NAMES:
                raise UnknownName("corruption", shown(name), NAMES)
            if not equals or _field(name) in given:
                fault = "has no share" if not equals else "is given twice"
                raise BadConfig(f"corrupt: '{name}' {fault}; write it once, as {name}=0.2")
            given[_field(name)] = _share(name, value)
        return cls(**given)

    @property
    def text(self) -> str:
        """The one way to write it: names in our order, without those that are 0. Empty: nothing."""
        return ",".join(f"{name}={share:g}" for name, share in self.shares.items() if share)

    @property
    def shares(self) -> dict[str, float]:
        """Every name with its share."""
        return {name: getattr(self, _field(name)) for name in NAMES}


def _field(name: str) -> str:
    return name.replace("-", "_")


NAMES = tuple(field.name.replace("_", "-") for field in fields(Corruption))
"""The names in a text."""


def _share(name: str, text: str) -> float:
    multiple = name in ("features", "edges")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (0 <= value <= MOST if multiple else 0 <= value < 1):
        allowed = f"a number from 0 to {MOST:g}" if multiple else "a share from 0 to below 1"
        raise BadConfig(f"corrupt: {name} is '{shown(text)}'; give {allowed}")
    return float(f"{value:g}")


def with_wrong_labels(client: ClientData, how: Corruption, seed: int) -> ClientData:
    """The client with fewer and with wrong training labels. All held-out labels stay."""
    graph, train = client.graph, client.train_mask.nonzero().reshape(-1).numpy()
    if not (how.labels or how.labels_missing) or not train.size:
        return client
    y, mask = graph.y.clone(), client.train_mask.clone()
    lost = _chosen(train, how.labels_missing, seed, "labels-missing", client.client_id)
    mask[lost] = False
    y[lost] = HIDDEN
    draws = seeded_numpy(seed, "corrupt", "labels", client.client_id)
    order, steps = draws.permutation(train.size), draws.integers(1, graph.num_classes, size=train.size)
    # One order over all training nodes, so that a larger share adds to a smaller one.
    order = order[~np.isin(train[order], lost)]
    wrong = order[: round(how.labels * order.size)]
    at = torch.from_numpy(train[wrong])
    y[at] = (y[at] + torch.from_numpy(steps[wrong])) % graph.num_classes
    return replace(client, graph=replace(graph, y=y), train_mask=mask)


def trained_on(client: ClientData, how: Corruption, seed: int) -> ClientData:
    """What the client trains on: the same nodes and labels, with corrupted features and edges."""
    graph, who = client.graph, client.client_id
    if how.features or how.features_missing:
        graph = replace(graph, x=_corrupted_features(widened(graph.x), how, seed, who))
    if how.edges or how.edges_missing:
        graph = replace(graph, edge_index=_corrupted_edges(graph, how, seed, who))
    return client if graph is client.graph else replace(client, graph=graph)


def _chosen(among: NDArray[np.int64], share: float, seed: int, name: str, client: int) -> NDArray[np.int64]:
    """A share of the numbers, at random. A larger share holds a smaller one."""
    order = seeded_numpy(seed, "corrupt", name, client).permutation(among)
    return order[: round(share * among.size)]


def _corrupted_features(x: Tensor, how: Corruption, seed: int, client: int) -> Tensor:
    dense = x.layout == torch.strided
    rows = sp.csr_matrix(x.numpy()) if dense else sp.csr_matrix(to_scipy(x), copy=True)
    rows.sort_indices()
    size = math.sqrt(float(np.mean(np.square(rows.data, dtype=np.float64)))) if rows.nnz else 0.0
    draws = seeded_numpy(seed, "corrupt", "features", client)
    if dense:
        noise = draws.standard_normal(x.shape, dtype=np.float32)
        return torch.from_numpy(_thinned(rows, how, seed, client).toarray() + how.features * size * noise)
    noisy = _thinned(rows, how, seed, client)
    if how.features:
        noisy = noisy + _sparse_noise(rows, how.features * size, draws)
    return csr_tensor(sp.csr_matrix(noisy, dtype=np.float32))


def _thinned(rows: sp.csr_matrix, how: Corruption, seed: int, client: int) -> sp.csr_matrix:
    """Of each row's numbers, the first by a random order become 0."""
    if not how.features_missing:
        return rows
    counts = np.diff(rows.indptr)
    row_of = np.repeat(np.arange(rows.shape[0]), counts)
    draw = seeded_numpy(seed, "corrupt", "features-missing", client).random(rows.nnz)
    order = np.lexsort((draw, row_of))
    rank = np.empty(rows.nnz, dtype=np.int64)
    rank[order] = np.arange(rows.nnz) - rows.indptr[:-1][row_of[order]]
    kept = rank >= (how.features_missing * counts).astype(np.int64)[row_of]
    return sp.csr_matrix((rows.data[kept], (row_of[kept], rows.indices[kept])), shape=rows.shape)


def _sparse_noise(rows: sp.csr_matrix, size: float, draws: np.random.Generator) -> sp.csr_matrix:
    """Noise on every stored number, and on as many columns of the row drawn at random."""
    row_of = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    columns = np.concatenate([rows.indices, draws.integers(rows.shape[1], size=rows.nnz)])
    values = np.float32(size) * draws.standard_normal(2 * rows.nnz, dtype=np.float32)
    return sp.csr_matrix((values, (np.concatenate([row_of, row_of]), columns)), shape=rows.shape)


def _corrupted_edges(graph: Graph, how: Corruption, seed: int, client: int) -> Tensor:
    edges, n = graph.edge_index.numpy(), graph.num_nodes
    lost = _chosen(np.arange(edges.shape[1]), how.edges_missing, seed, "edges-missing", client)
    kept = np.delete(edges, lost, axis=1)
    taken = edges[0] * n + edges[1]  # [e]: a dropped edge does not come back as a new one
    new = _new_pairs(taken, n, round(how.edges * edges.shape[1]), seed, client)
    return undirected(torch.from_numpy(np.concatenate([kept, np.stack([new // n, new % n])], axis=1)), n)


def _new_pairs(taken: NDArray[np.int64], n: int, wanted: int, seed: int, client: int) -> NDArray[np.int64]:
    """Up to ``wanted`` pairs a < b that have no edge, each as a * n + b."""
    draws = seeded_numpy(seed, "corrupt", "edges", client)
    pairs = n * (n - 1) // 2
    if pairs <= EASY_PAIRS:
        first, second = np.triu_indices(n, 1)
        return draws.permutation(np.setdiff1d(first * n + second, taken))[:wanted]
    wanted, found = min(wanted, pairs - taken.size), np.empty(0, dtype=np.int64)
    while found.size < wanted:
        blocks = -(-(wanted - found.size) // DRAWN)
        ends = np.concatenate([draws.integers(n, size=(DRAWN, 2)) for _ in range(blocks)])
        low, high = ends.min(1), ends.max(1)
        more = np.concatenate([found, (low * n + high)[low < high]])
        _, first_at = np.unique(more, return_index=True)
        found = more[np.sort(first_at)]
        found = found[~np.isin(found, taken)]
    return found[:wanted]
