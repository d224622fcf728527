"""Options of ``fedepd data import`` that two tables seem to need, from what their cells look like."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedepd.datasets.columns import WITH_COMMA, Column, Table
from fedepd.datasets.dates import is_dates
from fedepd.datasets.edges import end_columns
from fedepd.datasets.fitting import MAX_CATEGORIES
from fedepd.datasets.numbers import mostly_numbers
from fedepd.datasets.roles import UNKNOWN, Roles
from fedepd.datasets.sources import read_sources
from fedepd.errors import FedEPDError

LABELS = ("label", "class", "target", "y", "fraud", "is_fraud", "isfraud", "category", "type")
"""How columns of classes are often called."""
OWNERS = (
    "owner",
    "client",
    "site",
    "branch",
    "bank",
    "hospital",
    "institution",
    "organisation",
    "organization",
)
"""How columns of those who hold the rows are often called."""
MAX_OWNERS = 100
MAX_ROWS = 2_000_000
"""Larger tables are not searched."""
GIVEN = (
    *("owner", "source", "target", "split_by", "day", "impute", "date_parts"),
    *("edge_features", "edge_weight", "edge_weight_as"),
)
"""Options that stay as they were."""


def suggested(
    nodes: str | Path | Sequence[str | Path], edges: str | Path | Sequence[str | Path], roles: Roles
) -> dict[str, str] | None:
    """Options by name, '' for one without a value.

    Args:
        nodes: The table of nodes.
        edges: The table of edges.
        roles: What was given. It stays where it can be true.

    Returns:
        None where the tables cannot be read, or do not tell what is needed.
    """
    try:
        decimal = roles.decimal
        table, links = read_sources(nodes, decimal), read_sources(edges, decimal)
        if decimal == "." and any(_has_commas(column) for column in table.columns.values()):
            decimal = ","
            table, links = read_sources(nodes, decimal), read_sources(edges, decimal)
        if not 0 < table.rows <= MAX_ROWS or links.rows > MAX_ROWS:
            return None
        return _options(_Look(table, links, roles, decimal))
    except FedEPDError:
        return None


@dataclass(frozen=True, eq=False)
class _Look:
    nodes: Table
    edges: Table
    roles: Roles
    decimal: str

    @property
    def words(self) -> frozenset[str]:
        return UNKNOWN | frozenset(self.roles.missing)


def _options(look: _Look) -> dict[str, str] | None:
    roles, nodes = look.roles, look.nodes
    own, label = _id(look), _label(look)
    if own is None or label is None:
        return None
    out = {"id": own, "label": label}
    for name in GIVEN:
        value = getattr(roles, name)
        if value and value != getattr(Roles(), name):
            named = ",".join(value) if isinstance(value, tuple) else "" if value is True else value
            out[name.replace("_", "-")] = named
    if roles.owner is not None and roles.owner not in nodes.columns:
        return None
    if look.decimal == ",":
        out["decimal"] = ","
    owner = roles.owner or _owner(look, {own, label})
    if owner is not None:
        out["owner"] = owner
    taken = {own, label, owner}
    names = [name for name in roles.features or nodes.columns if name in nodes.columns and name not in taken]
    out |= dict(_of_columns(look, [name for name in names if name not in roles.leave_out]))
    left = [*roles.leave_out, *(name for name in out.pop("too long", "").split("\0") if name)]
    if roles.features is not None:
        out["features"] = ",".join(name for name in names if name not in left)
    elif left:
        out["leave-out"] = ",".join(dict.fromkeys(left))
    out["scale"] = ""
    known = set(nodes.columns[own].texts())
    ends = [look.edges.columns[end].texts() for end in end_columns(look.edges, roles)]
    if any(cell not in known for side in ends for cell in side):
        out["unknown-ends"] = "drop" if roles.unknown_ends == "refuse" else roles.unknown_ends
    return out


def _of_columns(look: _Look, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What the columns of features need."""
    dates, long, odd, gaps, texts = [], [], dict[str, None](), False, False
    for name in names:
        column = look.nodes.columns[name]
        if is_dates(column, look.words):
            dates.append(name)
            gaps |= any(cell in look.words for cell in column.texts())
        elif (numbers := _numbers(column, look.words)) is not None:
            gaps |= bool(np.isnan(numbers).any())
        elif mostly_numbers(column, look.words):
            odd |= dict.fromkeys(text for _, text in column.odd(look.words))
            gaps = True
        elif _is_long(look.nodes, column, look.words):
            long.append(name)
        else:
            texts = True
    if texts or look.roles.one_hot:
        one_hot = look.roles.one_hot
        yield "one-hot", ",".join(one_hot) if isinstance(one_hot, tuple) else ""
    if dates:
        yield "dates", ",".join(dates)
    if gaps and look.roles.impute is None:
        yield "impute", "median"
    if words := [*look.roles.missing, *list(odd)[:10]]:
        yield "missing", ",".join(words)
    yield "too long", "\0".join(long)


def _numbers(column: Column, words: frozenset[str]) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    found = column.numbers_but(words)
    return None if isinstance(found, int) else found


def _is_long(table: Table, column: Column, words: frozenset[str]) -> bool:
    """Whether a column has too many different texts for categories."""
    seen = len(set(column.texts()) - words)
    return seen > MAX_CATEGORIES or seen > max(20, table.rows // 2)


def _has_commas(column: Column) -> bool:
    """Whether most of what is no number is one if a comma is the decimal point."""
    if not column.is_text or not isinstance(column.numbers_but(UNKNOWN), int):
        return False
    odd = [text for _, text in column.odd(UNKNOWN)]
    return 2 * sum("," in text and bool(WITH_COMMA.fullmatch(text)) for text in odd) > len(odd)


def _id(look: _Look) -> str | None:
    """The given column of ids, or the one whose cells are all different and are ends of edges."""
    if look.roles.id in look.nodes.columns:
        return look.roles.id
    ends = set[str]()
    for end in end_columns(look.edges, look.roles):
        if end not in look.edges.columns:
            return None
        ends |= set(look.edges.columns[end].texts())
    best, name = 0, None
    for each, column in look.nodes.columns.items():
        cells = column.texts()
        different = set(cells)
        if len(different) == len(cells) and len(different & ends) > best:
            best, name = len(different & ends), each
    return name


def _label(look: _Look) -> str | None:
    """The given column of classes, or the only one with a usual name."""
    if look.roles.label in look.nodes.columns:
        return look.roles.label
    found = [name for name in look.nodes.columns if name.lower() in LABELS]
    return found[0] if len(found) == 1 else None


def _owner(look: _Look, taken: set[str]) -> str | None:
    """The only column with a usual name of owners that every row has, unless it was given another role."""
    roles = look.roles
    named = roles.one_hot if isinstance(roles.one_hot, tuple) else ()
    other = {*taken, *(roles.features or ()), *roles.leave_out, *named}
    found = [
        name
        for name, column in look.nodes.columns.items()
        if name.lower() in OWNERS and name not in other and _tells_owners(set(column.texts()), look.words)
    ]
    return found[0] if len(found) == 1 else None


def _tells_owners(cells: set[str], words: frozenset[str]) -> bool:
    return 2 <= len(cells) <= MAX_OWNERS and not cells & words
