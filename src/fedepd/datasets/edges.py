"""A table of edges: which nodes it joins, and what its columns say about the nodes at both ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.datasets.columns import Column, Table, listed
from fedepd.datasets.roles import UNKNOWN, Roles
from fedepd.errors import BadData
from fedepd.shown import shown

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SIDES = ("out", "in")
"""The edges of which a node is the first end, and those of which it is the second."""
AMOUNTS = ("sum", "mean", "max")
"""What is made of the numbers of a column, on each side. Besides, the edges are counted."""


@dataclass(frozen=True, eq=False)
class Ends:
    """The two ends of every row of a table of edges."""

    table: Table
    columns: tuple[str, str]
    """The columns that hold them."""
    nodes: Ints
    """The numbers of the nodes [2, rows]; -1 where an end is not known. Such a row is no edge."""
    inside: int
    """How many nodes have a row of their own in the table of nodes."""
    outside: tuple[str, ...] = ()
    """The ids of the nodes beyond them."""
    beside: tuple[int, ...] = ()
    """For each of those, a node inside that it is joined with."""
    notes: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """All nodes."""
        return self.inside + len(self.outside)


def end_columns(edges: Table, roles: Roles) -> tuple[str, str]:
    """The columns of an edge's two ends."""
    names = list(edges.columns)
    if len(names) < 2:
        raise BadData(
            f"{edges.name} has only the column '{shown(names[0])}'; "
            f"give two columns for the ends of each edge, and check that commas separate the cells"
        )
    both = "source" in names and "target" in names
    return roles.source or ("source" if both else names[0]), roles.target or ("target" if both else names[1])


def find_ends(edges: Table, ids: Sequence[str], roles: Roles, owner: Tensor | None = None) -> Ends:
    """The nodes that each row joins. ``owner`` [n] keeps the outside nodes of two owners apart.

    Choice: an outside node that is joined with the nodes of several owners becomes one node for each of them,
    because no owner sees the edges of another.
    """
    columns = end_columns(edges, roles)
    number = {node: position for position, node in enumerate(ids)}
    cure = "name the columns of the edges' ends with --source and --target"
    cells = [edges.column(column, cure).texts() for column in columns]
    found = np.stack([np.fromiter(map(number.get, side, repeat(-1)), np.int64, len(side)) for side in cells])
    if not (found < 0).any():
        return Ends(edges, columns, found, len(ids))
    if roles.unknown_ends == "refuse":
        raise _unknown_end(edges, columns, cells, found)
    some = int((found < 0).any(0).sum())
    row = int((found < 0).any(0).argmax())
    first = f"the first in {edges.place(row)}"
    if roles.unknown_ends == "drop":
        note = f"{some:,} edges have an end that is not in the table of nodes and were dropped, {first}"
        return Ends(edges, columns, found, len(ids), notes=(note,))
    return _with_outside(Ends(edges, columns, found, len(ids)), cells, ids, owner, first)


def _unknown_end(edges: Table, columns: tuple[str, str], cells: Sequence[list[str]], found: Ints) -> BadData:
    side = 0 if (found[0] < 0).any() else 1
    row = int((found[side] < 0).argmax())
    times = int((found < 0).any(0).sum())
    more = f" ({times:,} such edges)" if times > 1 else ""
    name = shown(" ".join(cells[side][row].split()), 40)
    return BadData(
        f"{edges.place(row)}: '{name}' in column '{shown(columns[side])}' is not the id of a node{more}; "
        f"leave such edges out with --unknown-ends drop, keep them with --unknown-ends external, "
        f"or add the nodes"
    )


def _with_outside(
    ends: Ends, cells: Sequence[list[str]], ids: Sequence[str], owner: Tensor | None, first: str
) -> Ends:
    """The same, where each unknown id is a node beyond those inside."""
    nodes = ends.nodes.copy()
    lost = (nodes < 0).all(0)
    groups = np.zeros(len(ids), dtype=np.int64) if owner is None else owner.numpy()
    made: dict[tuple[str, int], int] = {}
    beside: list[int] = []
    for row in np.flatnonzero((nodes < 0).any(0) & ~lost).tolist():
        side = 0 if nodes[0, row] < 0 else 1
        known = int(nodes[1 - side, row])
        key = cells[side][row], int(groups[known])
        if key not in made:
            made[key] = len(made)
            beside.append(known)
        nodes[side, row] = ends.inside + made[key]
    apart = len({name for name, _ in made})
    several = f" ({len(made):,}, one for each owner)" if len(made) > apart else ""
    notes = [f"{apart:,} ids that are not in the table of nodes became external nodes{several}, {first}"]
    if lost.any():
        notes.append(f"{int(lost.sum()):,} edges between two unknown ids were dropped")
    return Ends(
        ends.table, ends.columns, nodes, ends.inside, _named(list(made), ids), tuple(beside), tuple(notes)
    )


def _named(made: Sequence[tuple[str, int]], ids: Sequence[str]) -> tuple[str, ...]:
    """An id for each outside node that no other node has."""
    taken, out = set(ids), []
    for name, group in made:
        fitting = name or "(no id)"
        while fitting in taken:
            fitting = f"{fitting} ({group})"
        taken.add(fitting)
        out.append(fitting)
    return tuple(out)


def joined(ends: Ends, used: Sequence[str] = ()) -> tuple[Tensor, list[str]]:
    """Undirected edges by node number [2, e], each once, and notes about what was dropped.

    ``used``: the columns that became features or weights.
    """
    edges, kept_rows = ends.table, (ends.nodes >= 0).all(0)
    pairs = np.sort(ends.nodes[:, kept_rows], axis=0)  # [2, kept]
    loops = pairs[0] == pairs[1]
    low, high = pairs[:, ~loops]
    keys = np.sort(low * ends.count + high)  # np.unique takes 60 times as long
    kept = np.stack(np.divmod(keys[np.diff(keys, prepend=-1) > 0], ends.count))
    notes = list(ends.notes)
    if loops.any():
        first = int(np.flatnonzero(kept_rows)[loops][0])
        notes.append(f"{int(loops.sum()):,} self-loops were dropped, the first in {edges.place(first)}")
    if repeated := int((~loops).sum()) - kept.shape[1]:
        notes.append(
            f"{repeated:,} edges repeat another one in the same or the other direction; "
            f"{kept.shape[1]:,} undirected edges remain"
        )
    if unused := [name for name in edges.columns if name not in (*ends.columns, *used)]:
        cure = "" if used else "; --edge-features makes features of numbers"
        notes.append(f"these edge columns are not used: {listed(unused)}{cure}")
    return torch.from_numpy(kept), notes


def read_edges(edges: Table, ids: Sequence[str], roles: Roles) -> tuple[Tensor, list[str]]:
    """Undirected edges by node number [2, e], each once, and notes about what was dropped."""
    return joined(find_ends(edges, ids, roles))


# --- what edges say about nodes -----------------------------------------------------------------------------


def amounts(ends: Ends, name: str, missing_too: bool, words: frozenset[str]) -> Floats:
    """The numbers of a column of edges. A missing one is NaN if ``missing_too``, else refused."""
    from fedepd.datasets.numbers import finite

    column = ends.table.column(name, "correct --edge-features")
    return finite(ends.table, name, column, UNKNOWN | words if missing_too else words, missing_too)


def number_columns(ends: Ends, words: frozenset[str]) -> tuple[str, ...]:
    """The columns of edges that hold numbers, besides the two ends."""
    return tuple(
        name
        for name, column in ends.table.columns.items()
        if name not in ends.columns and _holds(column, words)
    )


def _holds(column: Column, words: frozenset[str]) -> bool:
    numbers = column.numbers_but(UNKNOWN | words)
    return not isinstance(numbers, int) and bool(np.isfinite(numbers).any())


def gathered(ends: Ends, how: str, values: Floats | None = None) -> Floats:
    """One number for each node, [all nodes], from the edges on one side of it.

    Args:
        ends: The ends of all edges. Repeated edges and self-loops count.
        how: "out count", "in sum", and so on: see ``SIDES`` and ``AMOUNTS``.
        values: The number of each edge; NaN where it is missing. Not needed for a count.

    Returns:
        Float64. It is 0 where there is no edge, or none with a number.

    Examples:
        >>> from fedepd.datasets.columns import Table, list_column
        >>> table = Table("edges", {"a": list_column(["x", "x"]), "b": list_column(["y", "z"])}, 2)
        >>> ends = find_ends(table, ["x", "y", "z"], Roles())
        >>> gathered(ends, "out sum", np.array([1.0, 5.0])).tolist()
        [6.0, 0.0, 0.0]
    """
    side, _, what = how.partition(" ")
    nodes = ends.nodes[SIDES.index(side)]
    used = nodes >= 0 if values is None else (nodes >= 0) & ~np.isnan(values)
    nodes = nodes[used]
    counts = np.bincount(nodes, minlength=ends.count).astype(np.float64)
    if what == "count" or values is None:
        return counts
    some = values[used]
    if what == "max":
        out = np.full(ends.count, -np.inf)
        np.maximum.at(out, nodes, some)
        return np.where(counts > 0, out, 0.0)
    total = np.bincount(nodes, weights=some, minlength=ends.count).astype(np.float64)
    return total / np.maximum(counts, 1) if what == "mean" else total
