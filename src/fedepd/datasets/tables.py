"""A graph from a table of nodes and a table of edges.

The graph keeps the names of nodes, classes and columns, so that predictions can use the same names.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from fedepd.datasets.columns import Table, arrow_table, needs
from fedepd.datasets.dates import days
from fedepd.datasets.edges import Ends, find_ends, joined, read_edges
from fedepd.datasets.fitting import MAX_CATEGORIES, fitted
from fedepd.datasets.npz import MAX_CLASSES
from fedepd.datasets.numbers import finite
from fedepd.datasets.remembered import remembered
from fedepd.datasets.roles import MISSING, UNKNOWN, Roles
from fedepd.datasets.schema import OF_EDGES, FeatureRule, FeatureSchema
from fedepd.datasets.sources import read_sources
from fedepd.datasets.weights import weighed
from fedepd.errors import BadData
from fedepd.shown import shown
from fedepd.types import HIDDEN, Graph

if TYPE_CHECKING:
    import pandas

__all__ = ["MAX_CATEGORIES", "MAX_NAME", "MISSING", "FeatureRule", "FeatureSchema", "Roles", "class_names"]
__all__ += ["finite", "from_pandas", "import_files", "import_tables", "new_graph", "node_ids", "read_edges"]

MAX_NAME = 200
"""Most characters of an id, class or owner. Names are kept in arrays that are as wide as the longest name."""


def _short(text: str) -> str:
    return shown(" ".join(text.split()), 40)


def import_tables(
    nodes: Table, edges: Table, roles: Roles | None = None, x: Tensor | None = None, name: str = "graph"
) -> tuple[Graph, list[str]]:
    """A graph, and notes about what was dropped, merged or decided, one sentence each.

    ``x`` replaces the feature columns and has one row per node.
    """
    roles = roles or Roles()
    ids = node_ids(nodes, roles.id)
    y, label_names = _named(nodes, roles.label, "name the column of classes with --label", HIDDEN, roles)
    owner, owner_names = None, tuple[str, ...]()
    if roles.owner is not None:
        owner, owner_names = _named(nodes, roles.owner, "correct --owner", None, roles)
    ends = find_ends(edges, ids, roles, owner)
    schema, told, used = "", list[str](), [roles.edge_weight] if roles.edge_weight else []
    if x is None:
        rules, told = fitted(nodes, roles, ends)
        x, schema = rules.apply(nodes, ends), rules.to_json()
        used += [rule.of for rule in rules.rules if rule.of and rule.made in OF_EDGES]
    else:
        _check_given(x, nodes, roles)
    edge_index, notes = joined(ends, used)
    edge_index, weight, about = weighed(ends, edge_index, roles)
    notes += about
    if unlabelled := int((y == HIDDEN).sum()):
        notes.append(
            f"{unlabelled:,} of {nodes.rows:,} nodes have no label: they pass messages, "
            f"but are not used for training, validation or testing"
        )
    beside = list(ends.beside)
    order = _order(nodes, roles, y, len(beside))
    try:
        graph = Graph.make(
            x=x,
            edge_index=edge_index,
            y=torch.cat([y, torch.full((len(beside),), HIDDEN)]),
            num_classes=len(label_names),
            name=name,
            label_names=label_names,
            owner=None if owner is None else torch.cat([owner, owner[beside]]),
            owner_names=owner_names,
            node_ids=np.array([*ids, *ends.outside], dtype=np.str_),
            schema=schema,
            **order,
            roles=remembered(vars(roles)),
            edge_weight=weight,
        )
    except BadData as error:
        raise BadData(f"{nodes.name}: {error}") from None
    return graph, notes + told


def _check_given(x: Tensor, nodes: Table, roles: Roles) -> None:
    if x.shape[0] != nodes.rows:
        raise BadData(
            f"the feature file has {x.shape[0]:,} rows, but {nodes.name} has {nodes.rows:,}; "
            f"give one row per node, in the order of the table"
        )
    for option, given in (
        ("edge-features", roles.edge_features),
        ("dates", roles.dates),
        ("impute", roles.impute),
    ):
        if given:
            raise BadData(f"--{option} is given, but all features are in the feature file; leave it out")
    if roles.unknown_ends == "external":
        raise BadData("the feature file has no rows for external nodes; use --unknown-ends drop")


def _order(nodes: Table, roles: Roles, y: Tensor, outside: int) -> dict[str, Any]:
    """The fields of a graph that is split by time."""
    if roles.split_by is None:
        return {}
    column = nodes.column(roles.split_by, "correct --split-by")
    words = UNKNOWN | frozenset(roles.missing)
    numbers = column.numbers_but(words)
    if isinstance(numbers, int):
        found = days(nodes, roles.split_by, column, words)
        numbers = np.array([math.nan if day is None else day.toordinal() for day in found])
    lost = np.flatnonzero(~np.isfinite(numbers) & (y.numpy() >= 0))
    if lost.size:
        raise BadData(
            f"{nodes.place(int(lost[0]))}: column '{shown(roles.split_by)}' has no value, but nodes are "
            f"split by it ({lost.size:,} such rows with a label); fill it in, or drop the row or its label"
        )
    time = torch.from_numpy(np.concatenate([numbers, np.full(outside, math.nan)]))
    return {"time": time, "time_name": roles.split_by}


def new_graph(
    nodes: Table,
    edges: Table,
    schema: FeatureSchema,
    num_classes: int,
    roles: Roles | None = None,
    ends: Ends | None = None,
) -> Graph:
    """A graph of nodes to predict, all without labels. It is not checked as training data would be.

    ``ends``: of the edges, where somebody has looked for them already.
    """
    roles = roles or schema.tables or Roles()
    ids = node_ids(nodes, roles.id)
    ends = ends or find_ends(edges, ids, roles)
    edge_index, weight, _ = weighed(ends, joined(ends)[0], roles)
    return Graph(
        schema.apply(nodes, ends),
        edge_index,
        torch.full((ends.count,), HIDDEN),
        num_classes,
        edge_weight=weight,
        node_ids=np.array([*ids, *ends.outside], dtype=np.str_),
        schema=schema.to_json(),
    )


def node_ids(nodes: Table, column: str) -> list[str]:
    """Every node's id. Each id must occur once."""
    if nodes.rows == 0:
        raise BadData(f"{nodes.name} has no rows after its line 1; give one row per node")
    ids = nodes.column(column, "name the column of node ids with --id").texts()
    first: dict[str, int] = {}
    for row, node in enumerate(ids):
        if not 0 < len(node) <= MAX_NAME:
            what = f"the node's id has {len(node):,} characters" if node else "the node has no id"
            raise BadData(
                f"{nodes.place(row)}: {what} in column '{shown(column)}'; "
                f"give it an id of 1 to {MAX_NAME} characters or drop the row"
            )
        if first.setdefault(node, row) != row:
            before = nodes.place(first[node]).removeprefix(f"{nodes.name} ")
            raise BadData(
                f"{nodes.place(row)}: node '{_short(node)}' is already in {before}; keep one row per node"
            )
    return ids


def _named(
    table: Table, column: str, cure: str, missing: int | None, roles: Roles
) -> tuple[Tensor, tuple[str, ...]]:
    """The names in a column as numbers 0, 1, ... in sorted order [n], and the names.

    A missing name becomes ``missing``. If that is None, it is refused.
    """
    names, texts = class_names(table, column, cure, roles.absent), table.column(column, cure).texts()
    number = {name: position for position, name in enumerate(names)}
    if missing is None:
        for row, text in enumerate(texts):
            if text not in number:
                what = f"the node has no value in column '{shown(column)}'"
                raise BadData(f"{table.place(row)}: {what}; fill it in or drop the row")
    return torch.tensor([number.get(text, HIDDEN) for text in texts], dtype=torch.int64), names


def class_names(
    table: Table,
    column: str,
    cure: str = "name the column of classes with --label",
    absent: frozenset[str] = MISSING,
) -> tuple[str, ...]:
    """The different names in a column, numbers in their order and before all others."""
    names = sorted(set(table.column(column, cure).texts()) - absent, key=_by_number)
    if len(names) > MAX_CLASSES or max(map(len, names), default=0) > MAX_NAME:
        what = f"holds {len(names):,} different values, some long, and looks like text"
        raise BadData(f"{table.name}: column '{shown(column)}' {what}; {cure}")
    return tuple(names)


def _by_number(name: str) -> tuple[bool, int, str]:
    whole = name.isascii() and name.removeprefix("-").isdigit() and len(name) < 20
    return not whole, int(name) if whole else 0, name


Source = str | Path | Sequence[str | Path]
"""One or several files, sheets or tables of databases; see ``sources``."""


def import_files(
    nodes: Source, edges: Source, roles: Roles | None = None, x: Tensor | None = None
) -> tuple[Graph, list[str]]:
    """A graph from two tables, and notes about what was dropped. A table may come from several sources."""
    decimal = roles.decimal if roles else "."
    first = nodes if isinstance(nodes, (str, Path)) else nodes[0]
    name = Path(str(first).partition("#")[0]).stem
    return import_tables(read_sources(nodes, decimal), read_sources(edges, decimal), roles, x, name)


def from_pandas(nodes: pandas.DataFrame, edges: pandas.DataFrame, name: str = "graph", **roles: Any) -> Graph:
    """A graph from two data frames. An index with the name of the id column counts as that column."""
    chosen = Roles(**roles)
    if chosen.id not in nodes.columns and nodes.index.name == chosen.id:
        nodes = nodes.reset_index()
    arrow = needs("pyarrow")
    try:
        tables = [
            arrow_table(arrow.Table.from_pandas(frame, preserve_index=False), f"the data frame of {what}")
            for what, frame in (("nodes", nodes), ("edges", edges))
        ]
    except arrow.ArrowException as error:
        raise BadData(
            f"a data frame has a column of mixed types ({' '.join(str(error).split())}); "
            f"give each column one type"
        ) from None
    return import_tables(tables[0], tables[1], chosen, name=name)[0]
