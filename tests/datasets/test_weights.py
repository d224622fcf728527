"""A column of edges as weights: summed, transformed, and refused with its line."""

from __future__ import annotations

import math

import pytest
import torch

from fedepd.datasets.columns import Table, list_column
from fedepd.datasets.edges import find_ends, joined
from fedepd.datasets.roles import Roles
from fedepd.datasets.schema import FeatureSchema
from fedepd.datasets.tables import import_tables
from fedepd.datasets.weights import weighed
from fedepd.errors import BadData, UnknownName

IDS = ["a", "b", "c"]


def edges(*rows: tuple[str, str, object]) -> Table:
    columns = {
        name: list_column([row[place] for row in rows]) for place, name in enumerate(("from", "to", "amount"))
    }
    return Table("e.csv", columns, len(rows), range(2, 2 + len(rows)))


def weighed_by(table: Table, **roles: str) -> tuple[list[list[int]], list[float], list[str]]:
    chosen = Roles(edge_weight="amount", **roles)  # type: ignore[arg-type]
    ends = find_ends(table, IDS, chosen)
    index, weight, notes = weighed(ends, joined(ends)[0], chosen)
    assert weight is not None
    assert weight.dtype == torch.float32
    return index.tolist(), weight.tolist(), notes


TWICE = edges(("a", "b", 5.0), ("b", "c", 2.0), ("b", "a", 1.0), ("c", "c", -9.0))


def test_repeated_edges_are_summed_in_both_directions_and_loops_do_not_count() -> None:
    """a-b has 5 and 1. The self-loop is no edge, so nobody asks for its weight."""
    assert weighed_by(TWICE, edge_weight_as="none")[:2] == ([[0, 1], [1, 2]], [6.0, 2.0])


def test_the_logarithm_is_that_of_the_sum() -> None:
    """log(1 + 5 + 1), not log(1 + 5) + log(1 + 1)."""
    _, weight, notes = weighed_by(TWICE)
    assert weight == pytest.approx([math.log(7), math.log(3)], rel=1e-6)
    said = (
        "an edge counts by log(1 + amount), summed over its rows; --edge-weight-as none takes the sum itself"
    )
    assert notes == [said]


def test_an_edge_of_weight_0_is_dropped_and_said() -> None:
    index, weight, notes = weighed_by(edges(("a", "b", 0.0), ("b", "c", 2.0)), edge_weight_as="none")
    assert (index, weight) == ([[1], [2]], [2.0])
    assert notes[1] == "1 edges have a 'amount' of 0 in sum and were dropped; 1 remain"


def test_without_the_role_there_are_no_weights() -> None:
    ends = find_ends(TWICE, IDS, Roles())
    assert weighed(ends, joined(ends)[0], Roles())[1:] == (None, [])


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (-1.0, r"e.csv line 3: column 'amount' is -1, but .* 0 or more; correct it or drop the row"),
        (math.nan, r"e.csv line 3: column 'amount' has no value, but .*; fill it in or drop the row"),
        (math.inf, r"e.csv line 3: column 'amount' is inf, but .* finite"),
    ],
)
def test_a_weight_that_is_none_is_refused_with_its_line(bad: float, said: str) -> None:
    with pytest.raises(BadData, match=said):
        weighed_by(edges(("a", "b", 1.0), ("b", "c", bad)))


def test_several_are_counted() -> None:
    with pytest.raises(BadData, match=r"line 2: column 'amount' is -1 \(2 such rows\)"):
        weighed_by(edges(("a", "b", -1.0), ("b", "c", -2.0)))


def test_a_text_is_refused_with_its_line_and_a_cure() -> None:
    with pytest.raises(BadData, match=r"line 3: .* holds the text 'much', .*; correct it, or name another"):
        weighed_by(edges(("a", "b", "1"), ("b", "c", "much")))
    with pytest.raises(BadData, match=r"line 2: .* the text '1,5', .*; add --decimal , if"):
        weighed_by(edges(("a", "b", "1,5"), ("b", "c", "2")))


def test_a_word_for_a_missing_number_is_a_missing_weight() -> None:
    with pytest.raises(BadData, match="line 3: column 'amount' has no value"):
        weighed_by(edges(("a", "b", "1"), ("b", "c", "n/a")))


def test_a_sum_beyond_float32_is_refused_with_a_unit() -> None:
    with pytest.raises(
        BadData, match=r"is 3e\+30 for an edge, more than 1e\+18; give the column in a larger"
    ):
        weighed_by(edges(("a", "b", 3e30)), edge_weight_as="none")
    assert weighed_by(edges(("a", "b", 3e30)))[1] == pytest.approx([math.log(3e30)], rel=1e-6)


def test_an_end_or_an_unknown_column_is_no_weight() -> None:
    for name, said in (("from", "is an end of the edges"), ("sum", "correct --edge-weight")):
        roles = Roles(edge_weight=name)
        ends = find_ends(TWICE, IDS, roles)
        with pytest.raises(BadData, match=said):
            weighed(ends, joined(ends)[0], roles)


def test_an_unknown_transform_is_refused() -> None:
    with pytest.raises(UnknownName, match="edge_weight_as"):
        Roles(edge_weight_as="sqrt")  # type: ignore[arg-type]


def test_an_imported_graph_has_weights_and_its_schema_remembers_the_column() -> None:
    nodes = Table(
        "n.csv",
        {"id": list_column(IDS), "label": list_column(["x", "y", "x"]), "age": list_column([1.0, 2.0, 3.0])},
        3,
    )
    graph, notes = import_tables(nodes, TWICE, Roles(edge_weight="amount", edge_weight_as="none"))
    assert graph.edge_weight is not None
    assert graph.edge_weight.tolist() == [6.0, 2.0]
    assert not any("not used" in note for note in notes)
    tables = FeatureSchema.from_json(graph.schema).tables
    assert tables is not None
    assert (tables.edge_weight, tables.edge_weight_as) == ("amount", "none")
