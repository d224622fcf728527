"""A graph under an official name is the paper's graph, or it is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd.datasets.published import TABLE1, Table1, check_table1
from fedepd.errors import BadData
from fedepd.types import Graph

GRAPH = Graph.make(torch.eye(4), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 0, 0, 1]), name="tiny")
ROW = Table1("Tiny", nodes=4, features=4, printed_edges=4, classes=2, imbalance_ratio=3.0, edges=2)
"""Class sizes 3 and 1: the ratio is 3. The paper's way of counting here is both directions."""


def test_the_graph_of_the_table_is_taken() -> None:
    assert check_table1(GRAPH, ROW) is GRAPH
    assert check_table1(GRAPH, ROW, printed_edges=4) is GRAPH


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nodes": 5}, "4 nodes, but Tiny in Table 1 has 5"),
        ({"features": 3}, "4 features"),
        ({"edges": 3}, "2 undirected edges"),
        ({"imbalance_ratio": 3.01}, "an imbalance ratio of 3.00"),
    ],
)
def test_any_other_is_refused_by_what_differs(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(BadData, match=says):
        check_table1(GRAPH, replace(ROW, **changes))


def test_edges_are_counted_the_paper_s_way_where_the_files_allow_it() -> None:
    with pytest.raises(BadData, match="2 edges, counted as in the paper, but Tiny in Table 1 has 4"):
        check_table1(GRAPH, ROW, printed_edges=2)


def test_a_ratio_may_differ_in_the_third_digit() -> None:
    check_table1(GRAPH, replace(ROW, imbalance_ratio=3.004))


def test_the_table_has_the_paper_s_six() -> None:
    assert list(TABLE1) == ["corafull", "arxiv", "electronics", "clothing", "roman_empire", "email"]
