"""What the columns of two tables mean, and how features are made of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from fedepd.datasets.dates import PARTS, given_day
from fedepd.errors import BadConfig, UnknownName
from fedepd.shown import shown

MISSING = frozenset({"", "NA", "NaN", "nan", "null", "NULL"})
"""How a missing label, owner or category is written."""

UNKNOWN = MISSING | {"N/A", "n/a", "na", "#N/A", "None", "none", "NONE", "-", "--", "?", ".", "missing"}
"""What stands for a missing number where a column holds numbers otherwise."""

Impute = Literal["median", "mean"]
Ends = Literal["refuse", "drop", "external"]
Weighing = Literal["none", "log1p"]

REMEMBERED = ("decimal", "missing", "unknown_ends", "edge_weight", "edge_weight_as")
"""What a schema remembers of how its tables were read, so that new tables are read alike."""


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
    leave_out: tuple[str, ...] = ()
    """Columns of the table of nodes that are not used."""
    scale: bool = False
    """Whether every column of numbers is scaled to mean 0 and deviation 1."""
    one_hot: bool | tuple[str, ...] = False
    """The columns to use as categories. True: every column that does not hold numbers."""
    impute: Impute | None = None
    """What takes the place of a missing number. None: a missing number is refused."""
    missing: tuple[str, ...] = ()
    """Words that stand for a missing cell, besides the empty cell, NA, NaN and null."""
    decimal: str = "."
    """What stands before the decimals of numbers in a file of text: a point or a comma."""
    dates: bool | tuple[str, ...] = False
    """The columns that hold dates. True: every column of text that holds nothing else."""
    date_parts: tuple[str, ...] = ("age",)
    """What a date becomes: "age" (in days), "month", "weekday"."""
    day: str | None = None
    """The day from which ages are counted back. None: the latest day of the column."""
    edge_features: bool | tuple[str, ...] = False
    """The columns of the table of edges that become features of the nodes at both ends.

    True: every column of numbers.
    """
    unknown_ends: Ends = "refuse"
    """What becomes of an edge to a node that the table of nodes lacks.

    "drop": it is left out. "external": the other end becomes a node without label and features.
    """
    edge_weight: str | None = None
    """The column of the table of edges that says how much an edge counts. None: all edges count alike."""
    edge_weight_as: Weighing = "log1p"
    """What becomes of an edge's number, summed over its rows: log(1 + number), or the number itself."""
    split_by: str | None = None
    """The column of dates or numbers by which nodes are split: the oldest ones train."""

    def __post_init__(self) -> None:
        if self.impute is not None and self.impute not in get_args(Impute):
            raise UnknownName("value of impute", shown(self.impute), get_args(Impute))
        if self.unknown_ends not in get_args(Ends):
            raise UnknownName("value of unknown_ends", shown(self.unknown_ends), get_args(Ends))
        if self.edge_weight_as not in get_args(Weighing):
            raise UnknownName("value of edge_weight_as", shown(self.edge_weight_as), get_args(Weighing))
        if self.decimal not in (".", ","):
            raise BadConfig(f"decimal is '{shown(self.decimal)}'; give '.' or ','")
        for part in self.date_parts:
            if part not in PARTS:
                raise UnknownName("part of a date", shown(part), PARTS)
        if self.day is not None:
            given_day(self.day)
        if self.features is not None and self.leave_out:
            raise BadConfig("both --features and --leave-out are given; give one of them")

    @property
    def absent(self) -> frozenset[str]:
        """How a missing label, owner or category is written."""
        return MISSING | frozenset(self.missing)

    def remembered(self) -> dict[str, Any]:
        """What a schema remembers of its tables, as JSON would hold it. What is as usual is left out."""
        usual = Roles()
        mine = {name: getattr(self, name) for name in REMEMBERED}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in mine.items()
            if value != getattr(usual, name)
        }

    @classmethod
    def recalled(cls, kept: Mapping[str, Any]) -> Roles:
        """The roles that a schema remembers. Raises ``ValueError`` if somebody else wrote them."""
        for name, value in kept.items():
            texts = value if name == "missing" and isinstance(value, list) else [value]
            if name not in REMEMBERED or not all(isinstance(text, str) for text in texts):
                raise ValueError("what it says of its tables is wrong")
        told: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in kept.items()
        }
        try:
            return cls(**told)
        except (BadConfig, UnknownName) as error:
            raise ValueError("what it says of its tables is wrong") from error
