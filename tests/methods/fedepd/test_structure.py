"""A client's two graphs; the equations themselves are in test_equations.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from fedepd.methods.fedepd.structure import Graphs, class_homophily, low_pass_rows
from fedepd.network.sparse import adjacency, normalised
from fedepd.types import ClientData
from toy import toy_client


def first_five(data: ClientData) -> torch.Tensor:
    return torch.arange(data.graph.num_edges) < 5


def test_what_is_derived_is_made_once_and_only_the_last_is_kept() -> None:
    data, made = toy_client(), []

    def derive(edges: torch.Tensor) -> Any:  # a number stands for what a method would make
        made.append(edges.shape[1])
        return len(made)

    graphs = Graphs(data, first_five(data), derive)
    found: list[Any] = [graphs.on(pruned) for pruned in (True, True, False, True)]
    assert found == [1, 1, 2, 3]
    assert made == [5, data.graph.num_edges, 5]


def test_votes_are_of_training_nodes() -> None:
    data = toy_client()
    votes = Graphs(data, first_five(data), lambda _: None).votes()  # type: ignore[arg-type,return-value]
    assert votes.shape == (2,)
    assert 0 <= int(votes.min()) <= int(votes.max()) <= int(data.train_mask.sum())


def test_low_pass_rows_are_those_of_the_training_nodes() -> None:
    data = toy_client()
    whole = normalised(adjacency(data.graph.edge_index, data.graph.num_nodes)).toarray()
    rows = low_pass_rows(data, data.graph.edge_index).times(torch.eye(data.graph.num_nodes))
    np.testing.assert_allclose(rows.numpy(), whole[data.train_mask.numpy()], rtol=1e-6)


def test_homophily_without_edges_is_that_of_isolated_nodes() -> None:
    data = toy_client(edges=False)
    assert class_homophily(data, data.graph.edge_index, 0.25).tolist() == [0.25, 0.25, 0.25]
