"""How far a client can be relied on for a class, for FedTAD: from its training nodes and their neighbours.

f_i = [x_i | r_i] are a node's features beside the return probabilities of a random walk from it, of one to
five steps.
With ρ_i = (1 + Σ cos(f_i, f_j)) / (neighbours + 1), summed over i's neighbours j, the reliability of class c
is the sum of ρ_i over its training nodes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.network.sparse import adjacency, inverse_degrees, row_dots, to_scipy
from fedepd.types import ClientData

Floats = NDArray[np.float64]
WALK = 5
"""The longest walk that returns."""
_BLOCK = 256
"""Nodes from which walks start at a time."""
_MOST = 2 * 10**10
"""Nodes times edges, beyond which only walks of two steps are looked at."""
_CHUNK = 1 << 12
"""Edges at a time, so that no [e, d] matrix exists."""


def reliability(data: ClientData) -> Tensor:
    """φ, by class: float32 [C]. A class without training nodes has 0.

    Choice: never below 0. With dense features, cosines can be negative, and a negative weight would turn the
    distillation of a class around.
    """
    graph = data.graph
    adj = adjacency(graph.edge_index, graph.num_nodes)
    trust = torch.from_numpy(node_trust(adj, to_scipy(graph.x) if graph.is_sparse else graph.x.numpy()))
    sums = torch.zeros(graph.num_classes, dtype=torch.float64)
    sums.index_add_(0, graph.y[data.train_mask], trust[data.train_mask])
    return sums.clamp_(min=0).to(torch.float32)


def node_trust(adj: sp.csr_matrix, x: Any) -> Floats:
    """ρ of every node, [n], from the 0/1 adjacency matrix and features [n, d]."""
    codes = returns(adj)
    lengths = np.sqrt(row_dots(x, x) + row_dots(codes, codes))
    # A node without features and neighbours has no direction: its cosine with anything is 0.
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    pairs = sp.triu(adj, 1).tocoo()
    total = np.ones(adj.shape[0])
    for start in range(0, pairs.nnz, _CHUNK):
        i, j = pairs.row[start : start + _CHUNK], pairs.col[start : start + _CHUNK]
        cosines = (row_dots(x[i], x[j]) + row_dots(codes[i], codes[j])) * scale[i] * scale[j]
        np.add.at(total, i, cosines)
        np.add.at(total, j, cosines)
    return np.asarray(total / (np.diff(adj.indptr) + 1), dtype=np.float64)


def returns(adj: sp.csr_matrix) -> Floats:
    """The probabilities that a walk is where it began after 1, 2, ... ``WALK`` steps: [n, 5].

    They are the diagonals of the powers of D^-1 A. N = D^-1/2 A D^-1/2 has the same, and is symmetric: those
    of N⁴ and N⁵ are the row sums of N²∘N² and N²∘N³. No power is held as a whole.

    Choice: on a graph where nodes times edges are more than 2e10, walks of three steps and more are left out.
    """
    scale = sp.diags(np.sqrt(inverse_degrees(adj)))
    one = sp.csr_matrix(scale @ adj @ scale, dtype=np.float64)
    out = np.zeros((adj.shape[0], WALK))
    out[:, 1] = np.asarray(one.multiply(one).sum(1)).reshape(-1)
    if adj.shape[0] * one.nnz > _MOST:
        return out
    for start in range(0, adj.shape[0], _BLOCK):
        part = slice(start, start + _BLOCK)
        first = one[part].T.toarray()  # [n, b], as all below
        second = one @ first
        third = one @ second
        for step, (a, b) in enumerate(((first, second), (second, second), (second, third)), start=2):
            out[part, step] = np.einsum("ij,ij->j", a, b)
    return out
