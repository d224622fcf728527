"""``fedepd bench``: what a round costs on this machine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from fedepd.cli.console import console, mention
from fedepd.cli.parser import Parser
from fedepd.errors import UnknownName

TWINS = ("twin:corafull", "twin:electronics", "twin:arxiv", "twin:computers")


def bench(arguments: list[str]) -> int:
    from fedepd.bench import history, openfgl, suite
    from fedepd.datasets import available
    from fedepd.methods import METHODS
    from fedepd.network.backbones import BACKBONES

    values = _parser().parse(arguments)
    for method in values.methods:
        if method not in METHODS:
            raise UnknownName("method", method, METHODS)
    for backbone in values.backbones:
        if backbone not in BACKBONES:
            raise UnknownName("backbone", backbone, BACKBONES)
    at_hand = [
        row.name
        for row in available()
        if row.present and not row.down_sampled and ":" not in row.name and row.name != "synthetic"
    ]
    earlier = history.read_history(Path(values.out)) if values.history else []
    data = values.data or (["synthetic"] if values.quick else [*TWINS, *at_hand])
    table, growth = suite.bench(
        Path(values.out),
        data,
        values.methods,
        values.rounds,
        values.scaling,
        values.quick,
        mention,
        values.backbones,
    )
    _print_table(table)
    for name in dict.fromkeys(data):
        if told := openfgl.beside(name, values.methods):
            console().print(told, highlight=False)
    if values.history:
        _print_changes(Path(values.out), earlier, history.record_of(table, values.rounds))
    for (axis, method), slope in suite.exponents(growth).items():
        console().print(
            f"{method}: seconds per round grow with the number of {axis} to the power {slope:.2f}",
            highlight=False,
        )
    console().print(f"kept in {values.out}", highlight=False)
    return 0


def _parser() -> Parser:
    from fedepd.methods import METHODS

    parser = Parser(
        prog="fedepd bench",
        allow_abbrev=False,
        description="Measure CPU seconds and memory per round of each method, and those of a plain "
        "torch_geometric loop in the same run. The ratio of the two can be compared between machines, "
        "seconds cannot.",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="NAME",
        help="graphs (default: four synthetic twins and the real graphs on this machine)",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(METHODS.built_in),
        metavar="METHOD",
        help="methods (default: all of our own)",
    )
    parser.add_argument(
        "--backbones",
        nargs="+",
        default=[],
        metavar="BACKBONE",
        help="also measure FedAvg on each of these backbones",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=5,
        metavar="N",
        help="number of measured rounds; the first round is not counted (default: 5)",
    )
    parser.add_argument(
        "--scaling",
        action="store_true",
        help="also measure the growth with edges, clients and classes (slow, needs 4 GB of memory)",
    )
    parser.add_argument("--quick", action="store_true", help="use small graphs, to see that it works")
    parser.add_argument(
        "--out",
        default="benchmarks/out",
        metavar="FOLDER",
        help="folder for the CSV and the picture (default: benchmarks/out)",
    )
    parser.add_argument(
        "--history",
        action="store_true",
        help="keep the figures with their commit in history.jsonl of --out, and say what has changed",
    )
    return parser


def _print_changes(folder: Path, earlier: list[dict[str, Any]], record: dict[str, Any]) -> None:
    from fedepd.bench.history import alike, changes, keep

    keep(folder, record)
    before = len(alike(earlier, record))
    unchanged = f"nothing changed beyond noise against {before} run{'s' * (before != 1)} before"
    first = "the history has no earlier run on this machine with as many rounds"
    for line in changes(earlier, record) or [unchanged if before else first]:
        console().print(line, highlight=False)


def _print_table(rows: list[dict[str, object]]) -> None:
    from rich import box
    from rich.table import Table

    from fedepd.bench.suite import COLUMNS

    for data in dict.fromkeys(row["data"] for row in rows):
        table = Table(
            box=box.SIMPLE,
            padding=(0, 1),
            pad_edge=False,
            title=f"{data}: CPU seconds; ratio: time of the reference's round / time of the method's",
        )
        for title in ("method", *COLUMNS.values()):
            table.add_column(
                title, justify="left" if title == "method" else "right", no_wrap=title != "method"
            )
        for row in rows:
            if row["data"] == data:
                failed = str(row.get("failed", ""))
                numbers = [failed] if failed else [_spelled(row.get(name, math.nan)) for name in COLUMNS]
                table.add_row(str(row["method"]), *numbers)
        console().print(table)


def _spelled(value: object) -> str:
    number = float(str(value))
    if math.isnan(number):
        return "-"
    if number >= 100:
        return f"{number:.0f}"
    return f"{number:.2g}" if number < 0.1 else f"{number:.3g}"
