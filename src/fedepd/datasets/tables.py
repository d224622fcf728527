"""A graph from a table of nodes and a table of edges.

The graph keeps the names of nodes, classes and columns, so that predictions can use the same names.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd import memory
from fedepd.arrays import reason
from fedepd.datasets.columns import Column, Table, arrow_table, listed, needs, read_table
from fedepd.datasets.npz import MAX_CLASSES
from fedepd.datasets.remembered import remembered
from fedepd.errors import BadData
from fedepd.files import parse_json
from fedepd.shown import shown
from fedepd.types import HIDDEN, Graph

if TYPE_CHECKING:
    import pandas

MAX_CATEGORIES = 1000
"""Most categories of a column.

A column with more values, or with mostly distinct ones, is text or an identifier.
"""

MAX_NAME = 200
"""Most characters of an id, class or owner. Names are kept in arrays that are as wide as the longest name."""

MISSING = frozenset({"", "NA", "NaN", "nan", "null", "NULL"})
"""How a missing label or owner is written."""


@dataclass(frozen=True)
class Roles:
    """Which column has which meaning, and how features are made."""

    id: str = "id"
    label: str = "label"
    owner: str | None = None
    source: str | None = None
    """The column of an edge's first end. None: the column "source" if there is one, else the first column."""
    target: str | None = None
    """The column of an edge's second end.

    None: the column "target" if there is one, else the second column.
    """
    features: tuple[str, ...] | None = None
    """The columns to use as features. None: every column of the table of nodes that has no other role."""
    scale: bool = False
    """Whether every column of numbers is scaled to mean 0 and deviation 1."""
    one_hot: bool | tuple[str, ...] = False
    """The columns to use as categories. True: every column that does not hold numbers."""


@dataclass(frozen=True)
class FeatureRule:
    """How one column becomes features: (value - mean) / std, or one 0/1 feature per category."""

    name: str
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] | None = None

    @property
    def feature_names(self) -> list[str]:
        if self.categories is None:
            return [self.name]
        return [f"{self.name}={category}" for category in self.categories]


@dataclass(frozen=True)
class FeatureSchema:
    """How columns become features, so that a new table is treated like the table of the training."""

    rules: tuple[FeatureRule, ...]

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for rule in self.rules for name in rule.feature_names)

    @classmethod
    def fit(cls, table: Table, roles: Roles) -> FeatureSchema:
        """The means, deviations and categories of a table's feature columns.

        Choice: they are computed over all nodes of all owners, as if the owners had agreed on them. A real
        federation must agree on them in advance.
        """
        taken = {roles.id, roles.label, roles.owner}
        names = roles.features
        if names is None:
            names = tuple(name for name in table.columns if name not in taken)
        for name, times in Counter(names).items():
            if name in taken or times > 1:
                why = "named twice" if times > 1 else "the id, label or owner"
                raise BadData(f"feature '{shown(name)}' of {table.name} is {why}; remove it from --features")
        if not names:
            raise BadData(
                f"{table.name} has no feature columns besides {sorted(filter(None, taken))}; "
                f"add some or give --features-npz"
            )
        chosen = roles.one_hot if isinstance(roles.one_hot, tuple) else ()
        known = set(names)
        if unknown := [name for name in chosen if name not in known]:
            raise BadData(
                f"'{shown(unknown[0])}' in --one-hot is not a feature of {table.name}; "
                f"choose from {listed(names)}"
            )
        category = frozenset(chosen)
        return cls(
            tuple(_rule(table, name, roles.scale, name in category, roles.one_hot is True) for name in names)
        )

    def apply(self, table: Table) -> Tensor:
        """The features of every row, float32 [n, d]. An unknown or missing category gives only zeros."""
        width = len(self.feature_names)
        memory.check(
            memory.COPIES * 4 * table.rows * width, f"{table.name}: {table.rows:,} rows of {width:,} features"
        )
        out = np.zeros((table.rows, width), dtype=np.float32)
        at = 0
        for rule in self.rules:
            column = table.column(rule.name, "add it, because the features are made from it")
            if rule.categories is None:
                out[:, at] = (finite(table, rule.name, column) - rule.mean) / rule.std
            else:
                position = {category: at + number for number, category in enumerate(rule.categories)}
                hits = [(row, position[text]) for row, text in enumerate(column.texts()) if text in position]
                out[tuple(np.array(hits, dtype=np.int64).reshape(-1, 2).T)] = 1
            at += len(rule.feature_names)
        return torch.from_numpy(out)

    def to_json(self) -> str:
        return json.dumps([asdict(rule) for rule in self.rules], ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> FeatureSchema:
        try:
            return cls(tuple(_rule_from(rule) for rule in parse_json(text, "it")))
        except (BadData, ValueError, TypeError, KeyError, OverflowError) as error:
            raise BadData(
                f"the feature schema is damaged ({reason(error)}); import the tables again"
            ) from None


def _rule_from(fields: dict[str, Any]) -> FeatureRule:
    """One rule of a schema, checked, because somebody else may have written it."""
    categories = fields["categories"]
    rule = FeatureRule(**{**fields, "categories": categories and tuple(categories)})
    if (
        not isinstance(rule.name, str)
        or not math.isfinite(rule.mean)
        or not math.isfinite(rule.std)
        or rule.std <= 0
    ):
        raise ValueError("a name, mean or std has a wrong type or value")
    if rule.categories is not None and not all(isinstance(category, str) for category in rule.categories):
        raise ValueError("a category is not a text")
    return rule


def _rule(table: Table, name: str, scale: bool, category: bool, category_if_text: bool) -> FeatureRule:
    column = table.column(name, "correct --features")
    numbers = column.numbers
    if category or (category_if_text and isinstance(numbers, int)):
        return FeatureRule(name, categories=_categories(table, name, column))
    values = finite(table, name, column)
    if not scale:
        return FeatureRule(name)
    deviation = float(values.std())
    return FeatureRule(name, float(values.mean()), deviation if deviation > 0 else 1.0)


def _categories(table: Table, name: str, column: Column) -> tuple[str, ...]:
    seen = Counter(text for text in column.texts() if text not in MISSING)
    if len(seen) > MAX_CATEGORIES or len(seen) > max(20, table.rows // 2):
        raise BadData(
            f"{table.name}: column '{shown(name)}' has {len(seen):,} different values and looks like "
            f"text or an identifier; leave it out with --features, or turn it into numbers first "
            f"(for example a text embedding) and give these with --features-npz"
        )
    return tuple(sorted(seen))


def finite(table: Table, name: str, column: Column) -> NDArray[np.float64]:
    """The numbers of a column. A missing cell, a text or a number too large is refused with its line."""
    numbers = column.numbers
    if isinstance(numbers, int):
        text = _short(column.texts()[numbers])
        raise BadData(
            f"{table.place(numbers)}: column '{shown(name)}' holds the text '{text}'; correct the number, "
            f"or leave the column out with --features, or turn categories into numbers with --one-hot"
        )
    bad = np.flatnonzero(~np.isfinite(numbers) | (np.abs(numbers) > np.finfo(np.float32).max))
    if bad.size:
        value = numbers[bad[0]]
        what = "has no value" if math.isnan(value) else f"is {value:g}, too large"
        more = f" ({bad.size:,} such rows)" if bad.size > 1 else ""
        cure = "fill it in, for example with the column's mean, or drop the row"
        raise BadData(f"{table.place(int(bad[0]))}: column '{shown(name)}' {what}{more}; {cure}")
    return numbers


def _short(text: str) -> str:
    return shown(" ".join(text.split()), 40)


def import_tables(
    nodes: Table, edges: Table, roles: Roles | None = None, x: Tensor | None = None, name: str = "graph"
) -> tuple[Graph, list[str]]:
    """A graph, and notes about what was dropped or merged, one sentence each.

    ``x`` replaces the feature columns and has one row per node.
    """
    roles = roles or Roles()
    ids = node_ids(nodes, roles.id)
    edge_index, notes = read_edges(edges, ids, roles)
    y, label_names = _named(nodes, roles.label, "name the column of classes with --label", HIDDEN)
    if unlabelled := int((y == HIDDEN).sum()):
        notes.append(
            f"{unlabelled:,} of {nodes.rows:,} nodes have no label: they pass messages, "
            f"but are not used for training, validation or testing"
        )
    owner, owner_names = None, tuple[str, ...]()
    if roles.owner is not None:
        owner, owner_names = _named(nodes, roles.owner, "correct --owner", None)
    schema = ""
    if x is None:
        rules = FeatureSchema.fit(nodes, roles)
        x, schema = rules.apply(nodes), rules.to_json()
    elif x.shape[0] != nodes.rows:
        raise BadData(
            f"the feature file has {x.shape[0]:,} rows, but {nodes.name} has {nodes.rows:,}; "
            f"give one row per node, in the order of the table"
        )
    try:
        graph = Graph.make(
            x=x,
            edge_index=edge_index,
            y=y,
            num_classes=len(label_names),
            name=name,
            label_names=label_names,
            owner=owner,
            owner_names=owner_names,
            node_ids=np.array(ids, dtype=np.str_),
            schema=schema,
            roles=remembered(vars(roles)),
        )
    except BadData as error:
        raise BadData(f"{nodes.name}: {error}") from None
    return graph, notes


def new_graph(
    nodes: Table, edges: Table, schema: FeatureSchema, num_classes: int, roles: Roles | None = None
) -> Graph:
    """A graph of nodes to predict, all without labels. It is not checked as training data would be."""
    roles = roles or Roles()
    ids = node_ids(nodes, roles.id)
    edge_index, _ = read_edges(edges, ids, roles)
    y = torch.full((nodes.rows,), HIDDEN)
    return Graph(
        schema.apply(nodes),
        edge_index,
        y,
        num_classes,
        node_ids=np.array(ids, dtype=np.str_),
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


def read_edges(edges: Table, ids: Sequence[str], roles: Roles) -> tuple[Tensor, list[str]]:
    """Undirected edges by node number [2, e], each once, and notes about what was dropped."""
    names = list(edges.columns)
    if len(names) < 2:
        raise BadData(
            f"{edges.name} has only the column '{shown(names[0])}'; "
            f"give two columns for the ends of each edge, and check that commas separate the cells"
        )
    both = "source" in names and "target" in names
    source = roles.source or ("source" if both else names[0])
    target = roles.target or ("target" if both else names[1])
    number = {node: position for position, node in enumerate(ids)}
    ends = []
    for column in (source, target):
        cells = edges.column(column, "name the columns of the edges' ends with --source and --target").texts()
        found = np.array([number.get(cell, -1) for cell in cells], dtype=np.int64)
        if (found < 0).any():
            row = int(found.argmin())
            more = f" ({int((found < 0).sum()):,} such edges)" if (found < 0).sum() > 1 else ""
            what = f"'{_short(cells[row])}' in column '{shown(column)}' is not the id of a node{more}"
            raise BadData(f"{edges.place(row)}: {what}; add the node or drop the edge")
        ends.append(found)
    pairs = np.stack([np.minimum(*ends), np.maximum(*ends)])  # [2, rows]
    loops = pairs[0] == pairs[1]
    kept = np.unique(pairs[:, ~loops], axis=1)
    notes = []
    if loops.any():
        notes.append(
            f"{int(loops.sum()):,} self-loops were dropped, the first in {edges.place(int(loops.argmax()))}"
        )
    if repeated := int((~loops).sum()) - kept.shape[1]:
        notes.append(
            f"{repeated:,} edges repeat another one in the same or the other direction; "
            f"{kept.shape[1]:,} undirected edges remain"
        )
    if unused := [name for name in names if name not in (source, target)]:
        notes.append(f"these edge columns are not used: {listed(unused)}")
    return torch.from_numpy(kept), notes


def _named(table: Table, column: str, cure: str, missing: int | None) -> tuple[Tensor, tuple[str, ...]]:
    """The names in a column as numbers 0, 1, ... in sorted order [n], and the names.

    A missing name becomes ``missing``. If that is None, it is refused.
    """
    names, texts = class_names(table, column, cure), table.column(column, cure).texts()
    number = {name: position for position, name in enumerate(names)}
    if missing is None:
        for row, text in enumerate(texts):
            if text not in number:
                what = f"the node has no value in column '{shown(column)}'"
                raise BadData(f"{table.place(row)}: {what}; fill it in or drop the row")
    return torch.tensor([number.get(text, HIDDEN) for text in texts], dtype=torch.int64), names


def class_names(
    table: Table, column: str, cure: str = "name the column of classes with --label"
) -> tuple[str, ...]:
    """The different names in a column, numbers in their order and before all others."""
    names = sorted(set(table.column(column, cure).texts()) - MISSING, key=_by_number)
    if len(names) > MAX_CLASSES or max(map(len, names), default=0) > MAX_NAME:
        what = f"holds {len(names):,} different values, some long, and looks like text"
        raise BadData(f"{table.name}: column '{shown(column)}' {what}; {cure}")
    return tuple(names)


def _by_number(name: str) -> tuple[bool, int, str]:
    whole = name.isascii() and name.removeprefix("-").isdigit() and len(name) < 20
    return not whole, int(name) if whole else 0, name


def import_files(
    nodes: str | Path, edges: str | Path, roles: Roles | None = None, x: Tensor | None = None
) -> tuple[Graph, list[str]]:
    """A graph from two files, CSV or Parquet each, and notes about what was dropped."""
    return import_tables(read_table(nodes), read_table(edges), roles, x, Path(nodes).stem)


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
