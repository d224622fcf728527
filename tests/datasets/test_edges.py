"""Ends of edges, inside and outside, and what amounts say about the nodes."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedepd.datasets.columns import Table, list_column
from fedepd.datasets.edges import end_columns, find_ends, gathered, joined, number_columns, read_edges
from fedepd.datasets.roles import Roles
from fedepd.errors import BadData

IDS = ["a", "b", "c"]


def edges(*rows: tuple[str, str, object]) -> Table:
    columns = {
        name: list_column([row[place] for row in rows]) for place, name in enumerate(("from", "to", "amount"))
    }
    return Table("e.csv", columns, len(rows), range(2, 2 + len(rows)))


TABLE = edges(("a", "b", 5.0), ("a", "zz", 7.0), ("c", "c", 2.0), ("b", "a", 1.0), ("yy", "xx", 9.0))


def test_an_unknown_end_is_refused_with_its_line_and_both_cures() -> None:
    with pytest.raises(BadData, match=r"line 6: 'yy'.*2 such edges.*--unknown-ends drop.*external"):
        find_ends(TABLE, IDS, Roles())


def test_dropped_edges_are_no_edges_but_their_amounts_count() -> None:
    """a sends 5 to b and 7 to an unknown account. Only a-b is an edge, and a-b and b-a are one."""
    ends = find_ends(TABLE, IDS, Roles(unknown_ends="drop"))
    index, notes = joined(ends, ["amount"])
    assert index.tolist() == [[0], [1]]
    assert notes[0].startswith("2 edges have an end")
    assert "line 3" in notes[0]
    assert "1 self-loops were dropped, the first in e.csv line 4" in notes
    amount = np.array([5.0, 7, 2, 1, 9])
    assert gathered(ends, "out count").tolist() == [2, 1, 1]
    assert gathered(ends, "out sum", amount).tolist() == [12, 1, 2]
    assert gathered(ends, "out mean", amount).tolist() == [6, 1, 2]
    assert gathered(ends, "in max", amount).tolist() == [1, 5, 2]


def test_an_external_node_for_each_unknown_id() -> None:
    ends = find_ends(TABLE, IDS, Roles(unknown_ends="external"))
    assert ends.outside == ("zz",)
    assert ends.beside == (0,)
    assert joined(ends)[0].tolist() == [[0, 0], [1, 3]]
    assert "1 edges between two unknown ids were dropped" in ends.notes[1]


def test_an_external_node_for_each_owner() -> None:
    """a and b belong to two owners, and both know zz."""
    table = edges(("a", "zz", 1.0), ("zz", "b", 2.0), ("c", "zz", 4.0))
    ends = find_ends(table, IDS, Roles(unknown_ends="external"), torch.tensor([0, 1, 0]))
    assert ends.nodes.tolist() == [[0, 4, 2], [3, 1, 3]]
    assert ends.outside == ("zz", "zz (1)")
    assert gathered(ends, "in sum", np.array([1.0, 2, 4])).tolist() == [0, 2, 0, 5, 0]


def test_a_missing_amount_counts_as_an_edge_but_in_no_sum() -> None:
    ends = find_ends(edges(("a", "b", None), ("a", "c", 4.0)), IDS, Roles())
    amount = np.array([math.nan, 4.0])
    assert gathered(ends, "out count").tolist() == [2, 0, 0]
    assert gathered(ends, "out mean", amount).tolist() == [4, 0, 0]
    assert gathered(ends, "in max", amount).tolist() == [0, 0, 4]


def test_columns_of_ends_and_of_numbers() -> None:
    assert end_columns(TABLE, Roles()) == ("from", "to")
    assert end_columns(TABLE, Roles(target="amount")) == ("from", "amount")
    assert number_columns(find_ends(edges(("a", "b", 1.0)), IDS, Roles()), frozenset()) == ("amount",)


def test_a_table_without_edges() -> None:
    index, notes = read_edges(edges(), IDS, Roles())
    assert index.shape == (2, 0)
    assert len(notes) == 1
