"""The rules of a schema: what they make of cells, and how they are saved."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.datasets.columns import Table, list_column
from fedepd.datasets.edges import find_ends
from fedepd.datasets.roles import Roles
from fedepd.datasets.schema import FeatureRule, FeatureSchema, inside, refilled
from fedepd.errors import BadData
from fedepd.types import Graph

AGE = FeatureRule(
    "opened age", 10.0, 5.0, made="age", of="opened", day="2025-04-01", impute="mean", marked=True
)
SCHEMA = FeatureSchema(
    (
        FeatureRule("n", 2.0, 4.0, impute="median", fill=6.0, marked=True),
        AGE,
        FeatureRule("opened weekday", categories=("Mon", "Tue", ""), made="weekday", of="opened"),
        FeatureRule("in amount sum", made="in sum", of="amount"),
        FeatureRule("external", made="external"),
    ),
    Roles(missing=("-1",), decimal=",", unknown_ends="external"),
)
NODES = Table(
    "n",
    {"id": list_column(["a", "b"]), "n": list_column([10, -1]), "opened": list_column(["2025-03-31", ""])},
    2,
)
EDGES = Table(
    "e", {"s": list_column(["a", "z"]), "t": list_column(["b", "b"]), "amount": list_column([3.0, 4.0])}, 2
)


def test_every_kind_of_rule() -> None:
    """a: n is (10 - 2) / 4; opened one day before, a Monday: (1 - 10) / 5. b: n is missing, so it is
    (6 - 2) / 4 and marked; its date is missing and waits for a value. b got 3 and 4. z is outside."""
    ends = find_ends(EDGES, ["a", "b"], Roles(unknown_ends="external"))
    x = SCHEMA.apply(NODES, ends)
    assert SCHEMA.feature_names == (
        "n", "n is missing", "opened age", "opened age is missing", "opened weekday=Mon",
        "opened weekday=Tue", "opened weekday=(missing)", "in amount sum", "external",
    )  # fmt: skip
    expected = [[2, 0, -1.8, 0, 1, 0, 0, 0, 0], [1, 1, 0, 1, 0, 0, 1, 7, 0], [0, 0, 0, 0, 0, 0, 0, 0, 1]]
    assert np.allclose(x.numpy(), np.array(expected))
    with pytest.raises(BadData, match="made from edges; give their table"):
        SCHEMA.apply(NODES)


def test_a_schema_is_the_same_after_json() -> None:
    for again in (FeatureSchema.from_json(SCHEMA.to_json()), FeatureSchema.from_dict(SCHEMA.to_dict())):
        assert again == SCHEMA
        assert again.tables == Roles(missing=("-1",), decimal=",", unknown_ends="external")
        assert again.reading(Roles(id="k")).missing == ("-1",)
    assert [rule.name for _, rule in SCHEMA.places if rule.is_open] == ["opened age"]
    assert not any(rule.is_open for rule in refilled(SCHEMA, {2: 7.0}).rules)


def test_a_schema_of_plain_columns_is_written_as_ever() -> None:
    """Federations compare a hash of this text."""
    schema = FeatureSchema(
        (FeatureRule("age", 3.0, 1.5), FeatureRule("kind", categories=("x",))), Roles(id="k")
    )
    assert json.loads(schema.to_json()) == [
        {"name": "age", "mean": 3.0, "std": 1.5, "categories": None},
        {"name": "kind", "mean": 0.0, "std": 1.0, "categories": ["x"]},
    ]


PLAIN: dict[str, Any] = {"name": "a", "mean": 0.0, "std": 1.0, "categories": None}


@pytest.mark.parametrize(
    "more",
    [
        {"made": "magic"},
        {"made": "age"},
        {"made": "age", "day": "soon"},
        {"made": "month"},
        {"made": "in sum", "categories": ["x"]},
        {"impute": "mode"},
        {"fill": 1.0},
        {"impute": "mean", "fill": "x"},
        {"impute": "mean", "fill": float("inf")},
        {"marked": True},
        {"of": 3},
        {"unheard": 1},
    ],
)
def test_a_rule_that_somebody_else_wrote_is_checked(more: dict[str, Any]) -> None:
    with pytest.raises(BadData, match="feature schema is damaged"):
        FeatureSchema.from_json(json.dumps([{**PLAIN, **more}]))


@pytest.mark.parametrize("tables", [3, {"decimal": "x"}, {"id": "a"}])
def test_what_it_says_of_its_tables_is_checked(tables: Any) -> None:
    with pytest.raises(BadData, match="feature schema is damaged"):
        FeatureSchema.from_json(json.dumps([PLAIN, {"tables": tables}]))


def test_nodes_inside() -> None:
    x = SCHEMA.apply(NODES, find_ends(EDGES, ["a", "b"], Roles(unknown_ends="external")))
    graph = Graph(
        x, torch.zeros(2, 0, dtype=torch.int64), torch.zeros(3, dtype=torch.int64), 2,
        node_ids=np.array(["a", "b", "z"]), schema=SCHEMA.to_json(),
    )  # fmt: skip
    assert inside(graph) == ["a", "b"]
    assert inside(Graph(x, graph.edge_index, graph.y, 2, node_ids=graph.node_ids)) is None
