"""Features in float16: half the memory of float32, and about three digits.

They are stored so, and every product widens them to float32 first. So a run has the bits of one on features
that were rounded to float16 and kept in float32.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.errors import BadData
from fedepd.shown import shown
from fedepd.types import Graph

ROWS = 1 << 12
"""Rows that are looked at at a time, in float64."""
LARGEST = 65504.0
"""The largest number of float16."""
MOST_LOST = 0.01
"""Choice: rounding may move a column by this share of its standard deviation (root mean squares of both).
Numbers of mean 0 move by 0.0002 of theirs. Days since 1970 would move by a week, and tiny numbers vanish.
"""


def in_float16(graph: Graph) -> Graph:
    """The graph with features rounded to float16.

    Raises:
        BadData: They are sparse, one is too large, or a column would lose what tells its nodes apart.
    """
    if graph.x.dtype == torch.float16:
        return graph
    where, cure = f"graph '{shown(graph.name)}'", "keep the features in float32"
    if graph.is_sparse:
        raise BadData(f"{where} has sparse features, which float16 would not make much smaller; {cure}")
    out = torch.empty(graph.x.shape, dtype=torch.float16)
    first = graph.x[:1].to(torch.float64).numpy()
    sums = np.zeros((3, graph.num_features))  # of x - first, of its square, and of the squared rounding
    for start in range(0, graph.num_nodes, ROWS):
        block = graph.x[start : start + ROWS]
        if float(block.abs().max()) > LARGEST:
            row, column = (block.abs() > LARGEST).nonzero()[0].tolist()
            number = float(block[row, column])
            raise BadData(
                f"{where}: feature {column} of node {start + row} is {number:g}, and float16 ends at "
                f"{LARGEST:.0f}; scale the column, or {cure}"
            )
        rounded = block.to(torch.float16)
        out[start : start + ROWS] = rounded
        sums += _sums(block, rounded, first)
    _check_kept(sums / graph.num_nodes, where, cure)
    return replace(graph, x=out)


def _sums(block: Tensor, rounded: Tensor, first: NDArray[np.float64]) -> NDArray[np.float64]:
    x = block.to(torch.float64).numpy()
    lost = x - rounded.to(torch.float64).numpy()
    x -= first  # a constant column has a deviation of 0 exactly
    return np.stack([x.sum(0), np.einsum("nd,nd->d", x, x), np.einsum("nd,nd->d", lost, lost)])


def _check_kept(means: NDArray[np.float64], where: str, cure: str) -> None:
    variance = np.maximum(means[1] - means[0] ** 2, 0)
    bad = np.flatnonzero((means[2] > MOST_LOST**2 * variance) & (variance > 0))
    if bad.size:
        share = np.sqrt(means[2][bad[0]] / variance[bad[0]])
        raise BadData(
            f"{where}: float16 would move feature {bad[0]} by {100 * share:.3g} % of its deviation, and "
            f"{100 * MOST_LOST:g} % is the most that may be lost; scale the column, or {cure}"
        )
