"""A site's own tables, or its own graph file, read by the plan in its kit.

Order of columns is free, and columns that the plan does not name are left out. Everything else that differs
from the plan is one sentence with the file, the line and the cure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd import memory
from fedepd.clients.client_file import Unscaled, read_file, write_unsplit_file
from fedepd.datasets.columns import Column, Table, listed
from fedepd.datasets.conform import conformed_classes, conformed_features
from fedepd.datasets.edges import Ends, find_ends, joined
from fedepd.datasets.roles import UNKNOWN
from fedepd.datasets.table_files import read_table
from fedepd.datasets.tables import MISSING, FeatureSchema, Roles, finite, node_ids
from fedepd.datasets.weights import weighed
from fedepd.deploy.agreement import weighing, weighing_in_words
from fedepd.deploy.contents import SITE_DATA
from fedepd.deploy.plan import Plan, PlanColumn
from fedepd.errors import BadConfig, BadData
from fedepd.shown import shown
from fedepd.types import HIDDEN, Graph

Floats = NDArray[np.float64] | NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Imported:
    """A site's graph by the plan, not yet written."""

    graph: Graph
    unscaled: Unscaled | None
    notes: list[str]
    """What was left out or is missing, one sentence each."""
    counts: dict[str, int]
    """Labelled nodes of each class, by name."""

    def write(self, kit: Path) -> Path:
        """Put the graph into the kit, whole or not at all."""
        path = kit / SITE_DATA
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_unsplit_file(self.graph, path, self.unscaled)
        return path


def import_tables(
    plan: Plan,
    nodes: Path,
    edges: Path,
    roles: Roles | None = None,
    renamed: Mapping[str, str] | None = None,
    ignore_unknown: bool = False,
) -> Imported:
    """A site's graph from its table of nodes and its table of edges.

    Args:
        plan: The plan.
        nodes: A CSV or Parquet file.
        edges: Likewise.
        roles: Which columns hold ids, classes and the ends of edges.
        renamed: The plan's name of a column by the table's name of it.
        ignore_unknown: A category that the plan lacks becomes zeros, instead of being refused.

    Returns:
        The graph, with notes for its owner.
    """
    roles = roles or Roles()
    table = _renamed(read_table(nodes), renamed or {}, plan, roles)
    for role, name in (("--id", roles.id), ("--label", roles.label)):
        if name in {column.name for column in plan.columns}:
            raise BadConfig(
                f"column '{shown(name)}' is a feature of the plan and cannot be {role}; name another column"
            )
    ids = node_ids(table, roles.id)
    ends = find_ends(read_table(edges), ids, roles)
    made = [column.of for column in plan.columns if column.of]
    roles_of_edges = plan.edges or Roles()
    amounts = [roles_of_edges.edge_weight] if roles_of_edges.edge_weight else []
    edge_index, notes = joined(ends, [*made, *amounts])
    edge_index, weight, weighed_notes = weighed(ends, edge_index, roles_of_edges, planned=True)
    notes += weighed_notes
    memory.check(
        memory.COPIES * 4 * table.rows * plan.num_features,
        f"{table.name}: {table.rows:,} rows of {plan.num_features:,} features",
    )
    parts = []
    for column in plan.columns:
        if column.kind == "edges":
            parts.append(_of_edges(plan, column, table, ends))
            continue
        cells = table.column(column.name, f"add it, because the plan needs this {column.kind}, or use --map")
        parts.append(_features(plan, table, cells, column, ignore_unknown, notes))
    y, unknown = _numbered(table.column(roles.label, NO_LABEL).texts(), plan.classes)
    if unknown:
        row, name = unknown[0]
        place = f"{table.place(row)}: column '{shown(roles.label)}'"
        raise _unknown_class(place, name, len(unknown), plan)
    used = {roles.id, roles.label, *(column.name for column in plan.columns)}
    if unused := [name for name in table.columns if name not in used]:
        notes.append(f"these columns are not in the plan and are left out: {listed(unused)}")
    return _imported(plan, parts, (edge_index, weight), y, np.array(ids, dtype=np.str_), notes)


NO_NUMBER = "fill it in, for example with the column's mean, or drop the row"
NO_LABEL = "name the column of classes with --label, or add an empty one if no node has a known class"


def _renamed(table: Table, renamed: Mapping[str, str], plan: Plan, roles: Roles) -> Table:
    known = [*(column.name for column in plan.columns), roles.id, roles.label]
    for old, new in renamed.items():
        table.column(old, f"correct --map {shown(old)}={shown(new)}")
        if new not in known:
            raise BadConfig(
                f"--map names '{shown(new)}', which is not in the plan; choose from {listed(known)}"
            )
    names = [renamed.get(name, name) for name in table.columns]
    for name in renamed.values():
        if names.count(name) > 1:
            raise BadConfig(
                f"with --map, {table.name} has the column '{shown(name)}' twice; map the other one to a new "
                f"name, or remove it"
            )
    return replace(table, columns=dict(zip(names, table.columns.values(), strict=True)))


def _of_edges(plan: Plan, column: PlanColumn, table: Table, ends: Ends) -> Floats:
    """What a site's edges say about its nodes, [n, 1]. Every row of their table counts."""
    if column.of:
        ends.table.column(column.of, "add it, because the plan makes a feature of its numbers")
    return plan.schema.values(column.rule, table, ends)[:, None]


def _with_gaps(plan: Plan, table: Table, column: PlanColumn, notes: list[str]) -> Floats:
    """Numbers or ages, and where they are missing, [n, 2]. A missing one is NaN."""
    values = plan.schema.values(column.rule, table)
    gaps = np.isnan(values)
    if gaps.any():
        notes.append(
            f"{int(gaps.sum()):,} of {table.rows:,} rows have no value in column '{shown(column.name)}': the "
            f"mean over all sites takes its place when a run begins, and a feature marks them"
        )
    return np.stack([values, gaps.astype(np.float64)], 1)


def _features(
    plan: Plan, table: Table, cells: Column, column: PlanColumn, ignore: bool, notes: list[str]
) -> Floats:
    """The features of one column, [n, width]: numbers in float64, categories in float32."""
    if column.kind == "category":
        return _categories(table, cells, column, ignore, notes)
    where = f"column '{shown(column.name)}'"
    if column.kind == "date" and not column.missing:
        return plan.schema.values(column.rule, table)[:, None]
    if column.kind == "date" or (column.missing and not isinstance(cells.numbers_but(UNKNOWN), int)):
        return _with_gaps(plan, table, column, notes)
    if isinstance(cells.numbers, int):
        row = cells.numbers
        said = f"{where} holds the text '{shown(cells.texts()[row], 40)}'"
        raise BadData(f"{table.place(row)}: {said}, but the plan has a {column.kind} there; correct the cell")
    numbers = finite(table, column.name, cells, cure=NO_NUMBER)
    if column.kind == "flag":
        check_flag(numbers, where, table.place)
    return numbers[:, None]


def check_flag(numbers: Floats, where: str, place: Callable[[int], str]) -> None:
    wrong = np.flatnonzero((numbers != 0) & (numbers != 1))
    if wrong.size:
        more = f" ({wrong.size:,} such rows)" if wrong.size > 1 else ""
        said = f"{where} is {numbers[wrong[0]]:g}, but the plan has a flag there{more}"
        raise BadData(f"{place(int(wrong[0]))}: {said}; write 0 or 1")


def _categories(table: Table, cells: Column, column: PlanColumn, ignore: bool, notes: list[str]) -> Floats:
    numbers, unknown = _numbered(cells.texts(), column.values, missing=())
    if unknown and not ignore:
        row, text = unknown[0]
        said = f"has the value '{shown(text, 40)}', which is not in the plan" if text else "has no value"
        more = f" ({len(unknown):,} such rows)" if len(unknown) > 1 else ""
        raise BadData(
            f"{table.place(row)}: column '{shown(column.name)}' {said}{more}; correct it "
            f"(values: {listed(column.values)}), or add --unknown-category ignore to leave it open"
        )
    if unknown:
        texts = sorted({text for _, text in unknown})
        notes.append(
            f"{len(unknown):,} of {table.rows:,} rows have no known value in column '{shown(column.name)}' "
            f"({listed([text or 'empty' for text in texts], 5)}): their features are 0"
        )
    out = np.zeros((table.rows, column.width), dtype=np.float32)
    rows = np.flatnonzero(numbers.numpy() >= 0)
    out[rows, numbers.numpy()[rows]] = 1
    return out


def _numbered(
    texts: Sequence[str], names: Sequence[str], missing: Sequence[str] | frozenset[str] = MISSING
) -> tuple[Tensor, list[tuple[int, str]]]:
    """The position of each text among the names, ``HIDDEN`` if it has none, and the rows of unknown texts."""
    number = {name: position for position, name in enumerate(names)}
    unknown = [(row, text) for row, text in enumerate(texts) if text not in number and text not in missing]
    return torch.tensor([number.get(text, HIDDEN) for text in texts], dtype=torch.int64), unknown


def _unknown_class(place: str, name: str, times: int, plan: Plan) -> BadData:
    more = f" ({times:,} such rows)" if times > 1 else ""
    return BadData(
        f"{place} has the class '{shown(name, 40)}', which the plan does not have{more}; correct it "
        f"(classes: {listed(plan.classes)}), leave the cell empty, or ask the coordinator for another plan"
    )


def _imported(
    plan: Plan,
    parts: Sequence[Floats],
    edges: tuple[Tensor, Tensor | None],
    y: Tensor,
    ids: NDArray[np.str_] | None,
    notes: list[str],
) -> Imported:
    """``parts`` are the features of each column of the plan, ``edges`` the edges and their weights."""
    counted = torch.bincount(y[y >= 0], minlength=len(plan.classes)).tolist()
    counts = dict(zip(plan.classes, counted, strict=True))
    labelled, rows = sum(counted), y.shape[0]
    if labelled == 0:
        notes.append(
            f"none of {rows:,} rows has a class: this site only evaluates, so it trains nothing and gets the "
            f"model at the end"
        )
    elif labelled < rows:
        notes.append(
            f"{rows - labelled:,} of {rows:,} rows have no class: they pass messages, but are not used for "
            f"training, validation or testing"
        )
    if labelled and (absent := [name for name, count in counts.items() if count == 0]):
        notes.append(f"no row here has the class {listed(absent)}, which is fine: other sites may have it")
    x = torch.from_numpy(np.concatenate([part.astype(np.float32) for part in parts], 1))
    unscaled = None
    if plan.scaled:
        raw = [part[:, :1] for part, column in zip(parts, plan.columns, strict=True) if column.scaled]
        unscaled = Unscaled(plan.scaled, np.concatenate(raw, 1).astype(np.float64))
        x[:, list(plan.scaled)] = 0
    graph = Graph.make(
        x=x,
        edge_index=edges[0],
        edge_weight=edges[1],
        y=y,
        num_classes=len(plan.classes),
        part=True,
        name=plan.task,
        label_names=plan.classes,
        node_ids=ids,
        schema=plan.agreed.schema,
    )
    return Imported(graph, unscaled, notes, counts)


# --- a graph file of 'fedepd data import' -------------------------------------------------------------------


def import_file(plan: Plan, path: Path, ignore_unknown: bool = False) -> Imported:
    """A site's graph from a file of ``fedepd data import``, whose columns say how they were made."""
    where, file = f"file '{shown(path, 300)}'", read_file(path)
    if file.unscaled is not None:
        raise BadConfig(f"{where} was made by a plan already; give it to 'join' with --data, or give tables")
    if made := [column for column in plan.columns if column.kind in ("date", "edges") or column.missing]:
        raise BadConfig(
            f"the plan's column '{shown(made[0].name)}' has dates, gaps or amounts of edges, which only "
            f"tables show; give --nodes and --edges instead of --data"
        )
    try:
        x, notes = conformed_features(file.graph, plan.schema, ignore_unknown)
        y = conformed_classes(file.graph, plan.classes)
    except BadData as cause:
        raise BadData(f"{where}: {cause}") from cause
    if file.masks is not None:
        notes.append("the file's own split is not used, because the plan says how nodes are split")
    ends = np.cumsum([column.width for column in plan.columns])
    parts = np.split(x, ends[:-1], 1)
    for part, column in zip(parts, plan.columns, strict=True):
        if column.kind == "flag":
            check_flag(part[:, 0], f"column '{shown(column.name)}'", lambda row: f"{where} row {row + 1}")
    edges = file.graph.edge_index, _planned_weights(plan, file.graph, where, notes)
    return _imported(plan, parts, edges, y, file.graph.node_ids, notes)


def _planned_weights(plan: Plan, graph: Graph, where: str, notes: list[str]) -> Tensor | None:
    """The weights of a file's edges, if the plan has some. They must have been made as the plan says."""
    has = graph.edge_weight is not None
    if plan.edges is None:
        notes += ["the file's weights of edges are not in the plan and are left out"] if has else []
        return None
    own = FeatureSchema.from_json(graph.schema) if has else None
    if own is None or weighing(own) != weighing(plan.schema):
        by, planned = weighing_in_words(own) if own else "nothing", weighing_in_words(plan.schema)
        raise BadData(
            f"{where} weighs edges by {by}, but the plan by {planned}; give --nodes and --edges instead of "
            "--data"
        )
    return graph.edge_weight
