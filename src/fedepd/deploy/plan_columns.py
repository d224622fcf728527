"""The columns of a plan: numbers, categories, flags, dates, and what edges say about nodes.

Missing numbers get the mean over all sites. It comes from the sums that scale the column, which count the
rows that have a number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedepd.datasets.dates import day_of
from fedepd.datasets.schema import OF_EDGES
from fedepd.datasets.tables import FeatureRule
from fedepd.errors import BadConfig, UnknownName
from fedepd.shapes import FLAG, TEXT, Table
from fedepd.shown import shown

KINDS = ("number", "category", "flag", "date", "edges")
SCALABLE = ("number", "date", "edges")
BELONGS = {
    "scaled": SCALABLE,
    "values": ("category",),
    "missing": ("number", "date"),
    "day": ("date",),
    "made": ("edges",),
    "of": ("edges",),
}
"""The keys of a column, and the kinds that have them."""
NEEDED = {
    "scaled": "scaled = true or false",
    "values": 'values = ["A", "B"] with all its values',
    "day": 'day = "2025-03-31", from which ages are counted back',
    "made": f"made = one of {', '.join(OF_EDGES)}",
}
"""What a kind must say of those keys."""
FILLED = "mean"
"""What takes the place of a missing number: what the sites' sums can tell. A median they cannot."""
COLUMN: Table = {
    "name": TEXT,
    "kind": TEXT,
    "scaled?": FLAG,
    "values?": [TEXT],
    **dict.fromkeys(("missing?", "day?", "made?", "of?"), TEXT),
}


@dataclass(frozen=True)
class PlanColumn:
    """One column of every site's table of nodes, or one feature from its table of edges."""

    name: str
    kind: str
    """number, category, flag (0 or 1), date, or edges."""
    scaled: bool = False
    """Of numbers: whether they are scaled to mean 0 and deviation 1, by statistics over all sites."""
    values: tuple[str, ...] = ()
    """Of a category: what a cell may hold."""
    missing: str = ""
    """"mean" where cells may be empty: the mean over all sites takes their place, and one more feature marks
    them. Empty: they are refused."""
    day: str = ""
    """Of a date: the day from which its age is counted back."""
    made: str = ""
    """Of edges: what is made of them at each node, such as "out sum" (``schema.OF_EDGES``)."""
    of: str = ""
    """Of edges: the column of numbers that it is made from. A count needs none."""

    @property
    def rule(self) -> FeatureRule:
        gaps: dict[str, Any] = {"impute": self.missing, "marked": True} if self.missing else {}
        if self.kind == "date":
            return FeatureRule(f"{self.name} age", made="age", of=self.name, day=self.day, **gaps)
        if self.kind == "edges":
            return FeatureRule(self.name, made=self.made, of=self.of)
        return FeatureRule(self.name, categories=self.values if self.kind == "category" else None, **gaps)

    @property
    def width(self) -> int:
        """Number of features."""
        return len(self.rule.feature_names)


def column_of(table: Mapping[str, Any], place: int) -> PlanColumn:
    """The column of one ``[[column]]``, the ``place``-th. What no site could make of it is refused."""
    name, kind = table["name"], table["kind"]
    where = f"column {place} '{shown(name)}'"
    if kind == "text":
        raise BadConfig(
            f"{where} is of kind text, which cannot be a feature; "
            f"leave it out, or turn it into numbers or categories at every site"
        )
    if kind not in KINDS:
        raise UnknownName(f"kind of {where}", shown(kind), KINDS)
    for key, owners in BELONGS.items():
        if key in table and kind not in owners:
            raise BadConfig(f"{where} has {key}, which only the kind {' or '.join(owners)} has; remove it")
        if key not in table and kind in owners and key in NEEDED:
            raise BadConfig(f"{where} is of kind {kind} without {key}; add {NEEDED[key]}")
    texts = {key: table.get(key, "") for key in ("missing", "day", "made", "of")}
    column = PlanColumn(name, kind, table.get("scaled", False), tuple(table.get("values", ())), **texts)
    _check_making(column, where, "missing" in table)
    return column


def _check_making(column: PlanColumn, where: str, missing: bool) -> None:
    """Refuse gaps, dates and features of edges that no site could make."""
    if missing and column.missing != FILLED:
        raise BadConfig(
            f"{where} has missing = '{shown(column.missing)}'; write missing = \"{FILLED}\", because sums "
            f"over the sites tell no other value, or leave it out"
        )
    if missing and not column.scaled:
        raise BadConfig(
            f"{where} has missing without scaled = true; add it, because the mean that takes the place of "
            f"missing numbers comes from the sums that scale the column"
        )
    if column.kind == "date" and (day_of(column.day) is None or column.day.count("-") != 2):
        raise BadConfig(f"{where} has day = '{shown(column.day)}'; write a date such as 2025-03-31")
    if column.kind != "edges":
        return
    if column.made not in OF_EDGES:
        raise UnknownName(f"made of {where}", shown(column.made), OF_EDGES)
    if column.made.endswith("count") == bool(column.of):
        said = "has of, but a count needs no column; remove it" if column.of else "has no of; name a column"
        raise BadConfig(f"{where} {said} of the table of edges")
