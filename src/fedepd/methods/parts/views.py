"""A second view of a client's graph, with fewer edges and columns, for methods that compare two."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedepd.methods.base import Client
from fedepd.network.contract import Inputs
from fedepd.network.patterns import with_values
from fedepd.types import ClientData


def dropped_view(client: Client[Any], inputs: Inputs, edges: float, columns: float) -> Inputs:
    """The client's graph without a share of its undirected edges and of its feature columns.

    ``inputs`` are those of the whole graph, which come back where nothing is dropped. The operator is that of
    the kept graph, with its degrees. Both are drawn anew in every round.
    """
    if edges == 0 and columns == 0:
        return inputs
    data, draws = client.data, client.draws("dropped view")
    kept_edges = torch.from_numpy(draws.random(data.graph.num_edges) >= edges)
    kept_columns = torch.from_numpy((draws.random(data.graph.num_features) >= columns).astype(np.float32))
    return client.model.inputs(without_columns(data, kept_columns), data.graph.edge_index[:, kept_edges])


def without_columns(data: ClientData, kept: Tensor) -> ClientData:
    """The client with zeros in the columns where ``kept`` [d] is 0. Sparse features keep their pattern."""
    x = data.graph.x
    masked = with_values(x, x.values() * kept[x.col_indices()]) if data.graph.is_sparse else x * kept
    return replace(data, graph=replace(data.graph, x=masked))
