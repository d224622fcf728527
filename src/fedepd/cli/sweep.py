"""``fedepd sweep``: one method over values of its settings."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedepd.cli.console import console, say
from fedepd.cli.parser import CLUSTER, Parser, add_cluster_options, add_settings, workers_of
from fedepd.cli.runs import CHOSEN, RUN_ONLY, add_data_options, add_seeds_option, common_settings, run_all
from fedepd.errors import BadConfig

if TYPE_CHECKING:
    import rich.table

    from fedepd.report.tables import Table

ON_THE_PAGE_ONLY = ("Head", "Medium", "Tail")


def sweep(arguments: list[str]) -> int:
    from fedepd.report.document import write_page
    from fedepd.report.runs import read_runs
    from fedepd.sweeps import page
    from fedepd.sweeps.sweep import Sweep, read_grid, swept

    named = arguments.pop(0) if arguments and not arguments[0].startswith("-") else None
    values = _parser(named).parse(arguments)
    if named is None:
        raise BadConfig("no method is named; write 'fedepd sweep METHOD --grid NAME=VALUE,VALUE ...'")
    grid, out, workers = read_grid(values.grid), Path(values.out), workers_of(values)
    settings = common_settings(values, (*RUN_ONLY, "seeds", "grid", *CLUSTER))
    data = str(settings.pop("data", "synthetic"))
    jobs = Sweep(named, grid, data, out, values.seeds, settings, values.data_dir).jobs()
    run_all(jobs, workers, values)
    runs = read_runs(out)
    target = out / "sweep.html"
    write_page(target, page.render(runs, list(grid)))
    found = swept(runs, list(grid))
    console().print(_terminal(page.values_table(found, digits=1)))
    for line in page.answer(found):
        console().print(line, soft_wrap=True)
    say(f"page: {target}")
    return 0


def _terminal(table: Table) -> rich.table.Table:
    """The table for a terminal. The tiers' columns are left out, so that it fits 80 columns."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    kept = [place for place, name in enumerate(table.headers) if name not in ON_THE_PAGE_ONLY]
    grid = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1))
    for place in kept:
        grid.add_column(table.headers[place], justify="left" if place == kept[-1] else "right")
    for row in table.sections[0]:
        grid.add_row(*(Text(row[place].text + row[place].spread) for place in kept))
    return grid


def _parser(named: str | None) -> Parser:
    from fedepd.methods import method_class
    from fedepd.runs.experiment import GROUPS

    parser = Parser(
        prog="fedepd sweep",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="Train a method with every combination of some values of its settings, over several "
        "seeds, and test all pairs. Usage: fedepd sweep METHOD[:PRESET] --grid NAME=VALUE,VALUE ... --out "
        "FOLDER. Validation nodes choose; test nodes say what the choice is worth.",
    )
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="NAME=A,B,C",
        help="a setting and its values; may be given several times, for all combinations",
    )
    add_data_options(parser)
    add_seeds_option(parser)
    parser.add_argument(
        "--out", required=True, metavar="FOLDER", help="new folder for the run folders and sweep.html"
    )
    if named is not None:
        cls = method_class(named.partition(":")[0])
        add_settings(parser, f"settings of {cls.label}", cls)
    for name, cls in GROUPS.items():
        add_settings(parser, name, cls, defaults=CHOSEN)
    add_cluster_options(parser)
    return parser
