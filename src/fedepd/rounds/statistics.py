"""Federated statistics: what all clients measure together before the first round, as sums and nothing else.

For every column that is yet to be scaled: rows, sum and sum of squares. For every category: its rows. The
sums are whole numbers of any size, cut into limbs that fit a vector (``rounds.sums``). So they have the same
bits in any order, in any grouping, and under any masks. Rows of each class are not among them, because the
clients declare them anyway (``Sizes``).

Under the guard, no small number is told:

- Where the server sees single answers, a client with fewer than ``min_count`` rows sends zeros. A client also
  sends zeros for a column of categories if one of them has fewer rows than that, but more than none. To leave
  out that one alone would not do: what the others lack of all rows would tell it.
- Where the server sees sums only, everything is in the sum.
- In what is kept and shown, a category with fewer rows in total is "fewer than ``min_count``". A column with
  fewer rows in total keeps mean 0 and deviation 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedepd.clients.client_file import ClientFile
from fedepd.clients.scaling import (
    NOTHING,
    ColumnSums,
    Scaling,
    deviation_of,
    mean_of,
    scaled_by,
    scaling_of,
    sums_of,
)
from fedepd.datasets.tables import FeatureSchema
from fedepd.errors import BadConfig, BadData, BadMessage
from fedepd.rounds.guard import OPEN, Privacy
from fedepd.rounds.sums import Layout, Vector, summed
from fedepd.shown import shown
from fedepd.types import ClientData, Graph, Tensors

SCALING = "features.scaling"
"""The entry of every message that says how columns are scaled: means and deviations, float64 [2, s]."""
LIMB_BITS = 48
"""Each limb of a client is below 2^48, so that the limbs of 2^15 clients add up within an int64."""
TOTAL_LIMBS, SQUARE_LIMBS = 7, 12
"""A number is below 2^256 steps, and its square below 2^512. With 2^40 rows that is 296 and 552 bits."""
NOT_IN_THE_BUDGET = (
    "dp_epsilon is given, but the sums by which the sites scale columns are not in its budget; "
    "scale the columns in the tables before, or leave dp_epsilon out"
)
FEW_ROWS = "fewer than {} rows here, so nothing about its columns is sent"
HEX = re.compile(r"-?0x[0-9a-f]{1,200}")


def of_method(message: Tensors) -> Tensors:
    """The message without the entries that belong to no method."""
    return {name: value for name, value in message.items() if name not in (OPEN, SCALING)}


def statistics_layout(scaled: int, counted: int) -> Layout:
    """The parts of every client's vector, for so many scaled columns and counted categories."""
    limbs = (("totals", (scaled, TOTAL_LIMBS)), ("squares", (scaled, SQUARE_LIMBS)))
    return (("rows", (scaled,)), *limbs, ("categories", (counted,)))


def own_sums(data: ClientData | ClientFile, privacy: Privacy) -> list[ColumnSums]:
    """What a client tells of its columns."""
    if data.unscaled is None:
        return []
    if _alone(privacy) and data.graph.num_nodes < privacy.min_count:
        return [NOTHING] * len(data.unscaled.columns)
    return sums_of(data.unscaled)


def own_counts(data: ClientData | ClientFile, counted: Sequence[int], privacy: Privacy) -> list[int]:
    """What a client tells of its categories: the rows that have each."""
    rows = {column: int((data.graph.x[:, column] != 0).sum()) for column in counted}
    if _alone(privacy):
        enough = data.graph.num_nodes >= privacy.min_count
        for group in _groups(data.graph, counted):
            if not enough or any(0 < rows[column] < privacy.min_count for column in group):
                rows |= dict.fromkeys(group, 0)
    return list(rows.values())


def withheld(data: ClientData, counted: Sequence[int], privacy: Privacy) -> list[str]:
    """What of the statistics stays at home, in words."""
    if not _alone(privacy):
        return []
    few, names = privacy.min_count, feature_names(data.graph)
    if data.graph.num_nodes < few:
        return [f"this site has {FEW_ROWS.format(few)}"]
    told = dict(zip(counted, own_counts(data, counted, privacy), strict=True))
    groups = [
        [column for column in group if told[column] == 0 and bool(data.graph.x[:, column].any())]
        for group in _groups(data.graph, counted)
    ]
    return [
        f"category {', '.join(_named(names, column) for column in group[:8])}: one of them has fewer than "
        f"{few} rows here, so none of them is counted"
        for group in groups
        if group
    ]


def _alone(privacy: Privacy) -> bool:
    """Whether the server sees this client's numbers by themselves, and small ones must stay at home."""
    return privacy.guard and not privacy.secure


def _groups(graph: Graph, counted: Sequence[int]) -> list[list[int]]:
    """The counted features of each column of categories. All are one column where nobody says more."""
    if not graph.schema:
        return [list(counted)]
    groups, at = [], 0
    for rule in FeatureSchema.from_json(graph.schema).rules:
        width = len(rule.feature_names)
        groups.append([column for column in counted if at <= column < at + width])
        at += width
    return [*groups, [column for column in counted if column >= at]]


def feature_names(graph: Graph) -> tuple[str, ...]:
    """The names of the features, in order; empty if the graph does not say them."""
    return FeatureSchema.from_json(graph.schema).feature_names if graph.schema else ()


def categories_of(graph: Graph) -> tuple[int, ...]:
    """The positions of the features that are categories, as far as the graph says it."""
    positions, at = list[int](), 0
    for rule in FeatureSchema.from_json(graph.schema).rules if graph.schema else ():
        width = len(rule.feature_names)
        positions += range(at, at + width) if rule.categories is not None else ()
        at += width
    return tuple(column for column in positions if column < graph.num_features)


def measured_together(
    clients: Sequence[ClientData | ClientFile], privacy: Privacy
) -> tuple[list[ClientData | ClientFile], dict[str, Any] | None]:
    """Clients with complete features, and what they measured together, by the sums of a federation.

    None if all features are complete already.
    """
    scaled = next((each.unscaled.columns for each in clients if each.unscaled is not None), ())
    if not scaled:
        return list(clients), None
    if privacy.noisy:
        raise BadConfig(NOT_IN_THE_BUDGET)
    graph = clients[0].graph
    counted = categories_of(graph)
    vectors = [
        statistics_vector(own_sums(each, privacy), own_counts(each, counted, privacy)) for each in clients
    ]
    rows = sum(each.graph.num_nodes for each in clients)
    found = statistics_of(summed(vectors), range(len(clients)), scaled, counted, privacy, rows)
    return [scaled_by(each, found.scaling) for each in clients], found.saved(feature_names(graph))


def statistics_vector(columns: Sequence[ColumnSums], counts: Sequence[int]) -> Vector:
    """What a client adds to the sum of all statistics."""
    parts = [each.rows for each in columns]
    parts += [limb for each in columns for limb in limbs(each.total, TOTAL_LIMBS)]
    parts += [limb for each in columns for limb in limbs(each.squares, SQUARE_LIMBS)]
    return np.array([*parts, *counts], dtype=np.int64)


def limbs(number: int, count: int) -> list[int]:
    """A whole number in parts of 48 bits, the lowest first. The last one has its sign."""
    low = 2**LIMB_BITS - 1
    return [number >> LIMB_BITS * at & low for at in range(count - 1)] + [number >> LIMB_BITS * (count - 1)]


def _number(parts: Sequence[int]) -> int:
    """The whole number whose limbs these are, or the sum of such numbers whose limbs were added up."""
    return sum(part << LIMB_BITS * at for at, part in enumerate(parts))


@dataclass(frozen=True)
class Statistics:
    """What the clients measured together."""

    scaled: tuple[int, ...]
    """The positions of the columns."""
    columns: tuple[ColumnSums, ...]
    counted: tuple[int, ...]
    """The positions of the categories."""
    counts: tuple[int | None, ...]
    """Rows of each category; None where they are few."""
    clients: tuple[int, ...]
    """Whose numbers are in the sums."""
    few: int = 0
    """Under the guard: numbers of rows below this one are not shown."""

    @property
    def scaling(self) -> Scaling:
        return scaling_of(self.columns)

    def message(self) -> Tensors:
        """What every message says of it from now on."""
        return {SCALING: torch.from_numpy(self.scaling)} if self.scaled else {}

    def saved(self, names: Sequence[str] = ()) -> dict[str, Any]:
        """As JSON can hold it. ``names``: the features' names, where they are known."""
        columns = [
            {
                **_place(names, column),
                "rows": sums.rows or None,
                "total": hex(sums.total),
                "squares": hex(sums.squares),
                "mean": mean_of(sums),
                "deviation": deviation_of(sums),
            }
            for column, sums in zip(self.scaled, self.columns, strict=True)
        ]
        categories = [
            {**_place(names, column), "rows": rows}
            for column, rows in zip(self.counted, self.counts, strict=True)
        ]
        return {
            "clients": list(self.clients),
            "few": self.few,
            "columns": columns,
            "categories": categories,
        }

    @classmethod
    def read(cls, saved: Mapping[str, Any], where: str) -> Statistics:
        """From what ``saved`` gave, whose shape was checked. Raises ``BadData`` if it cannot be."""
        columns = saved["columns"]
        if not all(HEX.fullmatch(each[part]) for each in columns for part in ("total", "squares")):
            raise BadData(f"{where} holds sums that are no whole numbers; restore it from a backup")
        sums = [
            ColumnSums(each["rows"] or 0, int(each["total"], 16), int(each["squares"], 16))
            for each in columns
        ]
        if any(fault_of(each) for each in sums):
            raise BadData(f"{where} holds sums that no rows have; restore it from a backup")
        return cls(
            tuple(each["column"] for each in columns),
            tuple(sums),
            tuple(each["column"] for each in saved["categories"]),
            tuple(each["rows"] for each in saved["categories"]),
            tuple(saved["clients"]),
            saved["few"],
        )


def _place(names: Sequence[str], column: int) -> dict[str, Any]:
    return {"column": column, **({"name": names[column]} if column < len(names) else {})}


def _named(names: Sequence[str], column: int) -> str:
    return f"'{shown(names[column])}'" if column < len(names) else str(column)


def statistics_of(
    total: Vector,
    clients: Sequence[int],
    scaled: Sequence[int],
    counted: Sequence[int],
    privacy: Privacy,
    most_rows: int,
) -> Statistics:
    """What the sum of all vectors says. ``most_rows``: as many as ``clients`` can have.

    Raises:
        BadMessage: No rows have such sums, so a client's answer was wrong.
    """
    s, few = len(scaled), privacy.min_count if privacy.guard else 0
    totals, squares = s, s * (1 + TOTAL_LIMBS)
    numbers: list[int] = total.tolist()
    columns = []
    for at, column in enumerate(scaled):
        first, second = totals + at * TOTAL_LIMBS, squares + at * SQUARE_LIMBS
        sums = ColumnSums(
            numbers[at],
            _number(numbers[first : first + TOTAL_LIMBS]),
            _number(numbers[second : second + SQUARE_LIMBS]),
        )
        if fault := fault_of(sums, most_rows):
            raise BadMessage(f"the clients' statistics cannot be used: in column {column} {fault}")
        columns.append(sums if sums.rows >= max(few, 1) else NOTHING)
    counts = numbers[s * (1 + TOTAL_LIMBS + SQUARE_LIMBS) :]
    for column, rows in zip(counted, counts, strict=True):
        if not 0 <= rows <= most_rows:
            raise BadMessage(f"the clients' statistics cannot be used: category {column} has {rows} rows")
    kept = tuple(None if 0 < rows < few else rows for rows in counts)
    return Statistics(tuple(scaled), tuple(columns), tuple(counted), kept, tuple(clients), few)


def fault_of(sums: ColumnSums, most_rows: int = 2**63) -> str | None:
    """Why no rows have such sums; None if some have."""
    rows, total, squares = sums
    if not 0 <= rows <= most_rows:
        return f"there are {rows} rows"
    if squares < 0 or rows * squares < total * total:
        return "the squares are too small for the sum"
    if squares >> 512 > rows:
        return "the numbers are too large"
    return None


def scaling_fault(scaling: Tensor, columns: int) -> str | None:
    """What is wrong with the scaling in a message; None if nothing is."""
    if scaling.dtype != torch.float64 or tuple(scaling.shape) != (2, columns):
        return f"is {scaling.dtype} {list(scaling.shape)}, not torch.float64 {[2, columns]}"
    if not bool(torch.isfinite(scaling).all()) or not bool((scaling[1] > 0).all()):
        return "holds a mean that is no number, or a deviation that is not above 0"
    return None


def in_words(saved: Mapping[str, Any]) -> list[str]:
    """The statistics of a run for people, one line per column or category."""
    few, lines = f"fewer than {saved['few']} rows", []
    for each in saved["columns"]:
        name = shown(each.get("name", f"column {each['column']}"))
        if each["rows"] is None:
            lines.append(f"{name}: not scaled, {few}")
        else:
            lines.append(
                f"{name}: mean {each['mean']:.6g}, deviation {each['deviation']:.6g}, {each['rows']:,} rows"
            )
    for each in saved["categories"]:
        name = shown(each.get("name", f"column {each['column']}"))
        lines.append(f"{name}: {few if each['rows'] is None else format(each['rows'], ',') + ' rows'}")
    return lines
