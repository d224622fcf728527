"""``fedepd data check``: what a graph is like, what its columns became, and what was found, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from fedepd.cli.console import console, say, say_json
from fedepd.cli.facts import spelled
from fedepd.shown import shown

if TYPE_CHECKING:
    from fedepd.clients.doctor import Checkup
    from fedepd.clients.made_from import MadeFrom

MOST_COLUMNS, MOST_NOTES = 20, 12
"""More than these are only counted on the screen. ``--json`` has all."""


def check_graph(name: str, data_dir: str | None, as_json: bool, vault: float = 0.0) -> int:
    """Check a graph and print everything about it.

    Args:
        name: A dataset or a file.
        data_dir: Where datasets are.
        as_json: Print only JSON.
        vault: A share of the nodes, as ``--vault`` of a run takes it. What it would set aside is said.

    Returns:
        0: fine; 1: usable, with warnings; 2: not usable.

    Raises:
        BadConfig: ``vault`` is not a share.
    """
    from fedepd.clients.doctor import check
    from fedepd.clients.made_from import made_from
    from fedepd.clients.split import SplitConfig
    from fedepd.clients.vault import too_small
    from fedepd.datasets import load

    SplitConfig(vault=vault)  # it refuses what is no share
    graph = load(name, data_dir)
    aside = too_small(graph, vault)
    checkup, columns, notes = check(graph), made_from(graph), import_notes(name)
    verdict = ("fine", "usable, with warnings", "not usable")[checkup.exit_code]
    if as_json:
        parts = {"findings": [asdict(each) for each in checkup.findings], "facts": checkup.facts}
        made = {"columns": [asdict(each) for each in columns], "notes": notes}
        say_json({"verdict": verdict, **parts, **made, **({"vault": aside} if aside else {})})
        return checkup.exit_code
    _print_facts(checkup)
    _print_columns(columns)
    _print_findings(checkup, notes)
    if aside:
        say(aside)
    say(f"{name}: {verdict}")
    return checkup.exit_code


def import_notes(name: str) -> list[str]:
    """What ``fedepd data import`` wrote into the file; empty if it did not write it."""
    from fedepd.datasets.npz import arrays_of
    from fedepd.datasets.packed import is_packed
    from fedepd.errors import BadData

    if not is_packed(name) and (not name.endswith(".npz") or not Path(name).is_file()):
        return []
    try:
        found = arrays_of(name, (), ("notes",)).get("notes")
    except BadData:
        return []
    if found is None or found.ndim != 1 or found.dtype.kind != "U":
        return []
    return [shown(note, 400) for note in found.tolist()]


def _print_facts(checkup: Checkup) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from fedepd.clients.made_from import MEANINGS

    table = Table("fact", "value", "what it means", box=SIMPLE_HEAD, pad_edge=False)
    for name, value in checkup.facts.items():
        table.add_row(shown(name), spelled(value), MEANINGS.get(name, ""))
    console().print(table)


def _print_columns(columns: Sequence[MadeFrom]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    if not columns:
        return
    table = Table("column", "what it became", "missing", box=SIMPLE_HEAD, pad_edge=False)
    for each in columns[:MOST_COLUMNS]:
        table.add_row(each.column, each.becomes, each.missing)
    if len(columns) > MOST_COLUMNS:
        table.add_row(f"and {len(columns) - MOST_COLUMNS:,} more", "--json has them all", "")
    console().print(table)


def _print_findings(checkup: Checkup, notes: Sequence[str]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table("", "what was found, what it means, and what to do", box=SIMPLE_HEAD, pad_edge=False)
    for each in checkup.findings:
        table.add_row(each.level, f"{each.what}: {each.meaning}. To do: {each.cure}.")
    for note in notes[:MOST_NOTES]:
        table.add_row("import", note)
    if len(notes) > MOST_NOTES:
        table.add_row("import", f"and {len(notes) - MOST_NOTES:,} more notes; --json has them all")
    if table.row_count:
        console().print(table)
