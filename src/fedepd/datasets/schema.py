"""How columns become features: the rules, as they are saved and as a table is read by them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import date
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd import memory
from fedepd.arrays import reason
from fedepd.datasets.columns import Column, Table
from fedepd.datasets.dates import ages, day_of, days, months, weekdays
from fedepd.datasets.edges import AMOUNTS, SIDES, Ends, amounts, gathered
from fedepd.datasets.numbers import finite
from fedepd.datasets.roles import REMEMBERED, UNKNOWN, Roles
from fedepd.errors import BadData
from fedepd.files import parse_json
from fedepd.types import Graph

Floats = NDArray[np.float64]

OF_DATES = ("age", "month", "weekday")
OF_EDGES = tuple(f"{side} {what}" for side in SIDES for what in ("count", *AMOUNTS))
OUTSIDE = "external"
"""The feature that is 1 at nodes that the table of nodes lacks."""
NO_CATEGORY = ""
"""The category of a row whose cell is missing."""
NEEDED = "add it, because the features are made from it"
NEVER_MISSING = (
    "fill it in or drop the row, because the features were made without --impute and have no number for it"
)


@dataclass(frozen=True)
class FeatureRule:
    """How one column becomes features: (value - mean) / std, or one 0/1 feature per category."""

    name: str
    mean: float = 0.0
    std: float = 1.0
    categories: tuple[str, ...] | None = None
    """The values that are told apart. ``NO_CATEGORY`` stands for a missing cell."""
    made: str = ""
    """How the values are made: one of ``OF_DATES`` or ``OF_EDGES``, or ``OUTSIDE``. Empty: they are cells."""
    of: str = ""
    """The column that they are made from, if it is not the one called ``name``."""
    day: str = ""
    """Of an age: the day from which it is counted back."""
    impute: str = ""
    """"median" or "mean" where a missing number is replaced. Empty: it is refused.

    An edge without a number is left out of sums, means and maxima.
    """
    fill: float | None = None
    """What replaces it. None: the run that uses the graph finds it from its training rows."""
    marked: bool = False
    """Whether one more feature says where a number was missing."""

    @property
    def feature_names(self) -> list[str]:
        if self.categories is None:
            return [self.name, f"{self.name} is missing"] if self.marked else [self.name]
        return [f"{self.name}={category or '(missing)'}" for category in self.categories]

    @property
    def column(self) -> str:
        """The column of the table that it reads; empty if there is none in the table of nodes."""
        return "" if self.made in (*OF_EDGES, OUTSIDE) else self.of or self.name

    @property
    def is_open(self) -> bool:
        """Whether missing numbers wait for a value."""
        return bool(self.impute) and self.fill is None and self.made not in OF_EDGES

    def saved(self) -> dict[str, Any]:
        """As JSON holds it. What is younger than the first version is left out where it says nothing."""
        usual = {f.name: f.default for f in fields(self)}
        first = ("name", "mean", "std", "categories")
        return {name: value for name, value in asdict(self).items() if name in first or value != usual[name]}


@dataclass(frozen=True)
class FeatureSchema:
    """How columns become features, so that a new table is treated like the table of the training."""

    rules: tuple[FeatureRule, ...]
    tables: Roles | None = field(default=None, compare=False)
    """How the tables were read. None: nobody said."""

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(name for rule in self.rules for name in rule.feature_names)

    @property
    def places(self) -> Iterator[tuple[int, FeatureRule]]:
        """Every rule with the position of its first feature."""
        at = 0
        for rule in self.rules:
            yield at, rule
            at += len(rule.feature_names)

    @property
    def needs_edges(self) -> bool:
        return any(rule.made in OF_EDGES for rule in self.rules)

    @property
    def words(self) -> frozenset[str]:
        """What stands for a missing cell, besides the usual words."""
        return frozenset(self.tables.missing) if self.tables else frozenset()

    def reading(self, roles: Roles) -> Roles:
        """The same roles for tables that are written as those of the training were."""
        kept = self.tables or Roles()
        return replace(roles, **{name: getattr(kept, name) for name in REMEMBERED})

    def apply(self, table: Table, ends: Ends | None = None) -> Tensor:
        """The features of every node, float32 [n, d]. An unknown category gives only zeros.

        Args:
            table: The table of nodes.
            ends: The edges, where features are made from them. Nodes that only they name come last: all their
                features are 0, but those that are made from edges, and the mark.

        Returns:
            The features. A missing number that waits for a value is 0.

        Raises:
            BadData: A cell cannot be used.
        """
        width, rows = len(self.feature_names), table.rows if ends is None else ends.count
        memory.check(memory.COPIES * 4 * rows * width, f"{table.name}: {rows:,} rows of {width:,} features")
        out = np.zeros((rows, width), dtype=np.float32)
        for at, rule in self.places:
            if rule.made == OUTSIDE:
                out[table.rows :, at] = 1
            elif rule.made in OF_EDGES:
                if ends is None:
                    raise BadData(
                        f"{table.name}: the feature '{rule.name}' is made from edges; give their table, too"
                    )
                out[:, at] = (self.values(rule, table, ends) - rule.mean) / rule.std
            elif rule.categories is None:
                values = self.values(rule, table)
                gaps = np.isnan(values)
                values[gaps] = rule.mean if rule.fill is None else rule.fill
                out[: table.rows, at] = (values - rule.mean) / rule.std
                if rule.marked:
                    out[: table.rows, at + 1] = gaps
            else:
                self._categories(rule, table, out[:, at : at + len(rule.categories)])
        return torch.from_numpy(out)

    def values(self, rule: FeatureRule, table: Table, ends: Ends | None = None) -> Floats:
        """The numbers of one rule before they are scaled; NaN where one is missing and may be."""
        if rule.made in OF_EDGES:
            assert ends is not None
            of = rule.made.endswith("count")
            return gathered(
                ends, rule.made, None if of else amounts(ends, rule.of, bool(rule.impute), self.words)
            )
        column = table.column(rule.column, NEEDED)
        if rule.made == "age":
            column = Column(ages(self.days(rule, table), self.day(rule)))
        words = UNKNOWN | self.words if rule.impute else self.words
        return finite(table, rule.column, column, words, bool(rule.impute), NEVER_MISSING).copy()

    def days(self, rule: FeatureRule, table: Table) -> list[date | None]:
        """The day of every row, for a rule that is made from dates."""
        return days(table, rule.column, table.column(rule.column, NEEDED), UNKNOWN | self.words)

    @staticmethod
    def day(rule: FeatureRule) -> date:
        found = day_of(rule.day)
        assert found is not None  # _rule_from has looked
        return found

    def texts(self, rule: FeatureRule, table: Table) -> list[str]:
        """The category of every row, ``NO_CATEGORY`` where the cell is missing."""
        if rule.made:
            make = months if rule.made == "month" else weekdays
            return make(self.days(rule, table)).texts()
        absent = (self.tables or Roles()).absent
        cells = table.column(rule.column, NEEDED).texts()
        return [NO_CATEGORY if cell in absent else cell for cell in cells]

    def _categories(self, rule: FeatureRule, table: Table, out: NDArray[np.float32]) -> None:
        position = {category: number for number, category in enumerate(rule.categories or ())}
        texts = self.texts(rule, table)
        hits = [(row, position[text]) for row, text in enumerate(texts) if text in position]
        out[tuple(np.array(hits, dtype=np.int64).reshape(-1, 2).T)] = 1

    def to_dict(self) -> dict[str, Any]:
        """The rules, and how the tables were read if that was not as usual."""
        kept = self.tables.remembered() if self.tables is not None else {}
        return {"columns": [rule.saved() for rule in self.rules], **({"tables": kept} if kept else {})}

    def to_json(self) -> str:
        """A list of the rules. What was not as usual about the tables comes last."""
        both = self.to_dict()
        return json.dumps(
            both["columns"] + [{"tables": kept} for kept in (both.get("tables"),) if kept], ensure_ascii=False
        )

    @classmethod
    def from_dict(cls, saved: Mapping[str, Any]) -> FeatureSchema:
        """The schema of which ``to_dict`` made ``saved``. Raises ``BadData`` if it is damaged."""
        kept = saved.get("tables")
        return cls.from_json(json.dumps([*saved["columns"], *([{"tables": kept}] if kept else [])]))

    @classmethod
    def from_json(cls, text: str) -> FeatureSchema:
        try:
            entries = parse_json(text, "it")
            told = [each["tables"] for each in entries if "tables" in each]
            rules = tuple(_rule_from(each) for each in entries if "tables" not in each)
            if len(told) > 1:
                raise ValueError("it says twice how its tables were read")
            return cls(rules, Roles.recalled(told[0]) if told else None)
        except (BadData, ValueError, TypeError, KeyError, OverflowError, AttributeError) as error:
            raise BadData(
                f"the feature schema is damaged ({reason(error)}); import the tables again"
            ) from None


def _rule_from(fields: dict[str, Any]) -> FeatureRule:
    """One rule of a schema, checked, because somebody else may have written it."""
    categories = fields["categories"]
    rule = FeatureRule(**{**fields, "categories": categories and tuple(categories)})
    texts = (rule.name, rule.made, rule.of, rule.day, rule.impute)
    if (
        not all(isinstance(text, str) for text in texts)
        or not math.isfinite(rule.mean)
        or not math.isfinite(rule.std)
        or rule.std <= 0
    ):
        raise ValueError("a name, mean or std has a wrong type or value")
    if rule.categories is not None and not all(isinstance(category, str) for category in rule.categories):
        raise ValueError("a category is not a text")
    _check_making(rule)
    return rule


def _check_making(rule: FeatureRule) -> None:
    if rule.made not in ("", *OF_DATES, *OF_EDGES, OUTSIDE):
        raise ValueError("a feature is made in an unknown way")
    if (rule.made in ("month", "weekday")) > (rule.categories is not None):
        raise ValueError("a month or weekday has no categories")
    if rule.made in ("age", *OF_EDGES, OUTSIDE) and rule.categories is not None:
        raise ValueError("a number that is made has categories")
    if (rule.made == "age") != bool(rule.day) or (rule.day and day_of(rule.day) is None):
        raise ValueError("the day of an age is not a date")
    if rule.impute not in ("", "median", "mean") or not isinstance(rule.marked, bool):
        raise ValueError("what fills gaps is unknown")
    if rule.fill is not None and not (isinstance(rule.fill, (int, float)) and math.isfinite(rule.fill)):
        raise ValueError("what fills gaps is not a number")
    if (rule.marked or rule.fill is not None) and not (rule.impute and rule.categories is None):
        raise ValueError("what fills gaps is said without how")


def refilled(schema: FeatureSchema, fills: dict[int, float]) -> FeatureSchema:
    """The schema with a value for missing numbers, by the position of the feature."""
    rules = [replace(rule, fill=fills[at]) if at in fills else rule for at, rule in schema.places]
    return replace(schema, rules=tuple(rules))


def inside(graph: Graph) -> list[str] | None:
    """The ids of the nodes that have a row of their own; None if all nodes have, or have no ids."""
    if OUTSIDE not in graph.schema or graph.node_ids is None or graph.is_sparse:
        return None
    places = FeatureSchema.from_json(graph.schema).places
    at = next((at for at, rule in places if rule.made == OUTSIDE), graph.num_features)
    if at >= graph.num_features:
        return None
    names: list[str] = graph.node_ids[graph.x[:, at].numpy() == 0].tolist()
    return names
