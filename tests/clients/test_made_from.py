"""What became of columns, in words."""

from __future__ import annotations

from dataclasses import replace

import torch

from fedepd.clients.doctor import check
from fedepd.clients.made_from import MEANINGS, made_from
from fedepd.datasets.columns import Table, list_column
from fedepd.datasets.roles import Roles
from fedepd.datasets.tables import import_tables

NODES = Table(
    "n",
    {
        "id": list_column(list("abcd")),
        "label": list_column(["x", "y", "x", "y"]),
        "n": list_column([1, None, 3, 5]),
        "kind": list_column(["p", "", "q", "q"]),
        "opened": list_column(["2025-01-01", "2025-01-02", "2025-01-03", "2025-01-04"]),
    },
    4,
)
EDGES = Table("e", {"s": list_column(["a"]), "t": list_column(["z"]), "amount": list_column([3.0])}, 1)
ROLES = Roles(
    impute="mean", one_hot=True, dates=True, edge_features=True, unknown_ends="external", split_by="opened"
)


def test_every_column_is_said() -> None:
    graph, _ = import_tables(NODES, EDGES, ROLES)
    lines = {each.column: (each.becomes, each.missing) for each in made_from(graph)}
    assert lines == {
        "n": ("number", "1: mean of training rows"),
        "kind": ("3 categories: p, q, (missing)", "1: own category"),
        "opened age": ("days before 2025-01-04", ""),
        "out count": ("number of edges that go out", ""),
        "out amount": ("sum, mean, max over the edges that go out", ""),
        "in count": ("number of edges that come in", ""),
        "in amount": ("sum, mean, max over the edges that come in", ""),
        "external": ("1 where the node is not in the table of nodes, else 0", ""),
    }
    assert made_from(replace(graph, schema="")) == []
    assert made_from(replace(graph, x=torch.ones(5, 2))) == []


def test_every_fact_has_a_meaning() -> None:
    graph, _ = import_tables(NODES, EDGES, ROLES)
    facts = check(graph).facts
    assert facts["split"] == "oldest first by opened"
    assert facts.keys() <= MEANINGS.keys()
