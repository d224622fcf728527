"""``fedepd attack``: what dishonest clients can do to a method, with and without each defence."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from fedepd.cli.console import console
from fedepd.cli.parser import CLUSTER, Parser, add_cluster_options, add_settings, workers_of
from fedepd.errors import BadConfig, UnknownName

if TYPE_CHECKING:
    from fedepd.reproduction.study.targets import Target

OWN = (
    "method", "preset", "data", "data_dir", "attack", "robust", "seeds", "workers", "out", "quiet", *CLUSTER
)  # fmt: skip
"""Options that are not settings of a run."""
DEFENCES = "off,clip,median,trimmed,multi-krum"


def attack(arguments: list[str]) -> int:
    from fedepd.cli.model import stoppable
    from fedepd.cli.reproduce import display, write_results
    from fedepd.reproduction.study.cells import plan, run_planned, to_run

    values = _parser().parse(arguments)
    if values.seeds < 1:
        raise BadConfig(f"seeds is {values.seeds}; give at least 1")
    workers = workers_of(values)
    settings = {name: value for name, value in vars(values).items() if name not in OWN}
    target = _target(values)
    planned = plan(
        [target],
        {target.name: list(dict.fromkeys(values.data))},
        Path(values.out),
        settings,
        values.seeds,
        values.data_dir,
    )
    waiting, command = to_run(planned), f"fedepd attack {shlex.join(arguments)}"
    shown = display(waiting, len({each.job.out for each in planned}), values.workers, values.quiet)
    with stoppable(lambda: f"'{command}' continues from here"), shown as hooks:
        failures = run_planned(waiting, workers, *hooks)
    written = write_results(target.name, [target], planned, Path(values.out), command)
    for heading, table in written[0].tables.items():
        _show(
            heading,
            table.headers,
            [[cell.text + cell.spread for cell in row] for section in table.sections for row in section],
        )
    return 1 if failures else 0


def _parser() -> Parser:
    from fedepd.rounds.attack import NAMES
    from fedepd.runs.experiment import GROUPS

    parser = Parser(
        prog="fedepd attack",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="Make some clients dishonest and print the scores of the honest ones for each attack and "
        "each defence. Finished runs are kept and not repeated.",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        default=["synthetic"],
        metavar="NAME|FILE.npz",
        help="graphs (default: synthetic)",
    )
    parser.add_argument(
        "--data-dir",
        default=None,
        metavar="FOLDER",
        help="folder of the datasets (default: $FEDEPD_DATA, else the user cache)",
    )
    parser.add_argument(
        "--method", default="fedepd", metavar="NAME", help="see 'fedepd methods' (default: fedepd)"
    )
    parser.add_argument("--preset", default="default", metavar="NAME", help="named settings of the method")
    attacks = ",".join(NAMES[1:])
    parser.add_argument(
        "--attack",
        default=attacks,
        metavar="A,B",
        help=f"attacks to try; 'honest' is always included (default: {attacks})",
    )
    rules = f"defences to try; each but 'off' also caps the clients' weights (default: {DEFENCES})"
    parser.add_argument("--robust", default=DEFENCES, metavar="A,B", help=rules)
    parser.add_argument(
        "--attackers", type=int, default=2, metavar="N", help="number of dishonest clients (default: 2)"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="number of seeds, counted from --seed (default: 3)"
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=2,
        metavar="N",
        help="number of runs at the same time; results do not depend on it (default: 2)",
    )
    parser.add_argument(
        "--out",
        default="runs/attack",
        metavar="FOLDER",
        help="folder for runs and tables (default: runs/attack)",
    )
    parser.add_argument("--quiet", action="store_true", default=False, help="show no progress")
    add_cluster_options(parser)
    for name, cls in GROUPS.items():
        if name != "attack":
            add_settings(parser, name, cls, but=("robust", "cap_weights"))
    return parser


def _target(values: argparse.Namespace) -> Target:
    from fedepd.methods import METHODS
    from fedepd.reproduction.study.targets import Row, Target, over_grid
    from fedepd.rounds.attack import NAMES
    from fedepd.rounds.defence import Rule

    if values.method not in METHODS:
        raise UnknownName("method", values.method, METHODS)
    attacks = _listed("attack", values.attack, NAMES)
    rules = _listed("value of robust", values.robust, get_args(Rule))
    grid = {"attack": tuple(dict.fromkeys(["honest", *attacks]))}
    rows = tuple(
        Row(values.method, values.preset, rule, {"robust": rule, "cap_weights": rule != "off"})
        for rule in rules
    )
    title = f"What {values.attackers} dishonest clients can do to {METHODS[values.method].label}"
    common = {"tolerate": max(1, values.attackers)}
    return Target(
        "attack", title, "robustness", over_grid(rows, grid), tuple(values.data), values.seeds, common, grid
    )


def _listed(kind: str, text: str, choices: tuple[str, ...]) -> list[str]:
    names = list(dict.fromkeys(text.split(",")))
    for name in names:
        if name not in choices:
            raise UnknownName(kind, name, choices)
    return names


def _show(heading: str, headers: list[str], rows: list[list[str]]) -> None:
    from rich.table import Table

    table = Table(*headers, title=heading)
    for row in rows:
        table.add_row(*row)
    console().print(table)
