"""``fedepd data``: list, show and fetch datasets; import, check and split a user's own graph."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from fedepd.cli.console import console, say, say_json
from fedepd.cli.data_check import check_graph
from fedepd.cli.data_import import import_
from fedepd.cli.facts import print_clients, print_facts
from fedepd.cli.parser import Parser, add_settings
from fedepd.errors import UnknownName
from fedepd.shown import shown

if TYPE_CHECKING:
    from fedepd.clients.statistics import ClientStatistics
    from fedepd.types import Graph

Action = Callable[[list[str]], int]


def run_action(arguments: list[str]) -> int:
    width = max(map(len, ACTIONS))
    if not arguments or arguments[0] in ("-h", "--help"):
        say(
            "usage: fedepd data ACTION ...",
            "",
            *(f"  {name:<{width}}  {text}" for name, (text, _) in ACTIONS.items()),
        )
        return 0 if arguments else 2
    if arguments[0] not in ACTIONS:
        raise UnknownName("data action", arguments[0], ACTIONS)
    return ACTIONS[arguments[0]][1](arguments[1:])


def _parser(action: str, *options: str) -> Parser:
    """A parser for one action, with those of the shared options that it has."""
    parser = Parser(prog=f"fedepd data {action}", allow_abbrev=False, description=ACTIONS[action][0])
    if "name" in options:
        parser.add_argument("name", metavar="NAME" if action == "fetch" else "NAME|FILE.npz|FOLDER")
    if "data_dir" in options:
        parser.add_argument(
            "--data-dir",
            default=None,
            metavar="FOLDER",
            help="folder of the datasets (default: $FEDEPD_DATA, else the user cache)",
        )
    if "json" in options:
        parser.add_argument("--json", action="store_true", help="print only JSON")
    return parser


def _list(arguments: list[str]) -> int:
    values = _parser("list", "data_dir", "json").parse(arguments)
    from rich.table import Table

    from fedepd.datasets import available

    rows = available(values.data_dir)
    if values.json:
        say_json([asdict(row) for row in rows])
        return 0
    table = Table("name", "on this machine", "what it is")
    for row in rows:
        table.add_row(shown(row.name), "yes" if row.present else "no", row.description)
    console().print(table)
    return 0


def _show(arguments: list[str]) -> int:
    parser = _parser("show", "name", "data_dir", "json")
    parser.argument_default = argparse.SUPPRESS
    add_partition(parser, "seed of the run whose clients are shown (default: 0)")
    values = parser.parse(arguments)
    from fedepd.datasets import describe, load

    settings = {name: v for name, v in vars(values).items() if name not in ("name", "data_dir", "json")}
    graph = load(values.name, values.data_dir)
    facts = describe(graph)
    found = _clients_of(graph, settings) if settings else []
    if values.json:
        say_json({**facts, "clients": [each.as_json() for each in found]} if found else facts)
        return 0
    print_facts(facts)
    if found:
        print_clients(found)
    return 0


def add_partition(parser: Parser, seed: str) -> None:
    """How the graph is cut into clients."""
    from fedepd.clients.partition import PartitionConfig

    parser.add_argument(
        "--by", dest="partition", metavar="RULE", help="short for --partition: owner, openfgl, ..."
    )
    parser.add_argument("--seed", metavar="INT", help=seed)
    add_settings(parser, "partition", PartitionConfig)


def _clients_of(graph: Graph, settings: dict[str, str]) -> list[ClientStatistics]:
    from fedepd.clients.partition import partition
    from fedepd.clients.statistics import client_statistics
    from fedepd.runs.experiment import Experiment
    from fedepd.runs.simulation import owner_names

    experiment = Experiment.make("fedavg", **settings)
    config = experiment.partition.resolved(graph)
    names = tuple(owner_names(graph, config))
    return client_statistics(graph, partition(graph, config, experiment.protocol.seed), names)


def _fetch(arguments: list[str]) -> int:
    values = _parser("fetch", "name", "data_dir").parse(arguments)
    from fedepd.datasets.fetch import fetch

    say(fetch(values.name, values.data_dir))
    return 0


# --- a user's own files -------------------------------------------------------------------------------------


def _check(arguments: list[str]) -> int:
    parser = _parser("check", "name", "data_dir", "json")
    parser.add_argument(
        "--vault", type=float, default=0.0, metavar="SHARE", help="say how many nodes such a vault sets aside"
    )
    values = parser.parse(arguments)
    return check_graph(values.name, values.data_dir, values.json, values.vault)


def _split(arguments: list[str]) -> int:
    from fedepd.clients.split import SplitConfig
    from fedepd.runs.experiment import Experiment

    parser = _parser("split", "name", "data_dir")
    parser.argument_default = argparse.SUPPRESS
    parser.add_argument(
        "-o",
        "--out",
        required=True,
        metavar="FOLDER",
        help="new folder; it gets one NAME/graph.npz per client",
    )
    add_partition(parser, "seed of the run that the split is made for (default: 0)")
    add_settings(parser, "split", SplitConfig)
    values = parser.parse(arguments)
    settings = {
        name: value for name, value in vars(values).items() if name not in ("name", "data_dir", "out")
    }
    experiment = Experiment.make("fedavg", **settings)
    from fedepd.clients.clients_dir import write_clients
    from fedepd.clients.imputing import filled_together
    from fedepd.clients.partition import partition
    from fedepd.clients.split import make_clients
    from fedepd.datasets import load

    graph, seed = load(values.name, values.data_dir), experiment.protocol.seed
    part = partition(graph, experiment.partition, seed)
    names = [f"client{number:0{len(str(part.num_clients - 1))}d}" for number in range(part.num_clients)]
    if part.rule == "owner" and graph.owner is not None and graph.owner_names:
        names = [graph.owner_names[number] for number in sorted(set(graph.owner.tolist()))]
    clients = filled_together(make_clients(graph, part, experiment.split, seed))
    for path in write_clients(clients, names, values.out):
        say(path)
    return 0


def _pack(arguments: list[str]) -> int:
    parser = _parser("pack", "name", "data_dir")
    parser.add_argument("folder", metavar="FOLDER", help="new folder, which is then a graph for every --data")
    parser.add_argument(
        "--float16", action="store_true", help="round the features to float16: half the size, about 3 digits"
    )
    values = parser.parse(arguments)
    from pathlib import Path

    from fedepd.clients.client_file import CLIENT_ARRAYS
    from fedepd.clients.rounded import in_float16
    from fedepd.datasets import is_graph_file, load
    from fedepd.datasets.npz import arrays_of, pack
    from fedepd.folders import check_new_folder

    check_new_folder(Path(values.folder))
    graph = load(values.name, values.data_dir, compact=True)
    graph = in_float16(graph) if values.float16 else graph
    more = arrays_of(values.name, (), (*CLIENT_ARRAYS, "notes")) if is_graph_file(values.name) else {}
    pack(graph, values.folder, more)
    say(values.folder)
    return 0


ACTIONS: dict[str, tuple[str, Action]] = {
    "list": ("list the datasets and say which are on this machine", _list),
    "show": (
        "show size, classes and imbalance of one graph, and with --by or --clients what each client holds",
        _show,
    ),
    "fetch": ("download a dataset", _fetch),
    "import": ("make a graph file from tables or from files of other programs", import_),
    "check": ("check a graph before training; exit code 0: fine, 1: warnings, 2: not usable", _check),
    "pack": ("write a graph as a folder whose features are read from disk as they are needed", _pack),
    "split": ("write the part of the graph that each client holds, one folder per client", _split),
}
