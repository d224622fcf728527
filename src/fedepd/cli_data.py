"""``fedepd data``: what is at hand, and own files in."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from fedepd.cli import Parser, console
from fedepd.errors import UnknownName


def run_action(arguments: list[str]) -> int:
    actions = {"list": "what is at hand and what is missing", "show": "sizes and shape of one graph", "fetch": "download a dataset"}
    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: fedepd data ACTION ...\n", *(f"  {name:<6}  {text}" for name, text in actions.items()), sep="\n")
        return 0 if arguments else 2
    action = arguments[0]
    if action not in actions:
        raise UnknownName("data action", action, actions)
    parser = Parser(prog=f"fedepd data {action}", allow_abbrev=False, description=actions[action])
    if action != "list":
        parser.add_argument("name", metavar="NAME|FILE.npz" if action == "show" else "NAME")
    parser.add_argument("--data-dir", default=None, metavar="FOLDER", help="default: $FEDEPD_DATA, else the user cache")
    if action != "fetch":
        parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    values = parser.parse(arguments[1:])
    return {"list": _data_list, "show": _data_show, "fetch": _data_fetch}[action](values)


def _data_list(values: argparse.Namespace) -> int:
    from rich.table import Table

    from fedepd.datasets import available

    rows = available(values.data_dir)
    if values.json:
        print(json.dumps([asdict(row) for row in rows]))
        return 0
    table = Table("name", "at hand", "what it is")
    for row in rows:
        table.add_row(row.name, "yes" if row.present else "no", row.description)
    console().print(table)
    return 0


def _data_show(values: argparse.Namespace) -> int:
    from rich.table import Table

    from fedepd.datasets import describe, load
    from fedepd.record import clean

    facts = describe(load(values.name, values.data_dir))
    if values.json:
        print(json.dumps(clean(facts)))
        return 0
    table = Table("fact", "value")
    for name, value in facts.items():
        spelled = f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
        table.add_row(name.replace("_", " "), spelled)
    console().print(table)
    return 0


def _data_fetch(values: argparse.Namespace) -> int:
    from fedepd.datasets.fetch import fetch

    print(fetch(values.name, values.data_dir))
    return 0
