"""Facts of a graph as a table for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fedepd.cli.console import console
from fedepd.shown import shown

if TYPE_CHECKING:
    from fedepd.clients.statistics import ClientStatistics


def print_facts(facts: dict[str, object]) -> None:
    """Print names and values."""
    from rich.table import Table

    table = Table("fact", "value")
    for name, value in facts.items():
        table.add_row(shown(name.replace("_", " ")), spelled(value))
    console().print(table)


def print_clients(found: Sequence[ClientStatistics]) -> None:
    """Print what each client holds."""
    from rich.table import Table

    titles = [name for name in found[0].as_json() if name != "name" or any(each.name for each in found)]
    # Without padding, because the whole table fits into 80 columns only so.
    table = Table(*(title.replace("_", " ") for title in titles), padding=0)
    for each in found:
        values = each.as_json()
        table.add_row(*(shown(values[t]) if t == "name" else spelled(values[t]) for t in titles))
    console().print(table)


def spelled(value: Any) -> str:
    """A fact as a person would write it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{shown(name)} {spelled(part)}" for name, part in value.items())
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)
