"""``fedepd data``: list, show and fetch datasets; import, check and split a user's own graph."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedepd.cli.console import complain, console, say, say_json
from fedepd.cli.parser import Parser, add_edge_columns, add_node_columns, add_settings
from fedepd.errors import BadConfig, UnknownName
from fedepd.shown import listed, shown

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
        parser.add_argument("name", metavar="NAME" if action == "fetch" else "NAME|FILE.npz")
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
    values = _parser("show", "name", "data_dir", "json").parse(arguments)
    from fedepd.datasets import describe, load

    facts = describe(load(values.name, values.data_dir))
    if values.json:
        say_json(facts)
    else:
        _print_facts(facts)
    return 0


def _print_facts(facts: dict[str, object]) -> None:
    from rich.table import Table

    table = Table("fact", "value")
    for name, value in facts.items():
        table.add_row(shown(name.replace("_", " ")), _spelled(value))
    console().print(table)


def _spelled(value: Any) -> str:
    """A fact as a person would write it."""
    if isinstance(value, Mapping):
        return ", ".join(f"{shown(name)} {_spelled(part)}" for name, part in value.items())
    if value is None or isinstance(value, bool):
        return {None: "-", True: "yes", False: "no"}[value]
    if isinstance(value, float):
        return f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _fetch(arguments: list[str]) -> int:
    values = _parser("fetch", "name", "data_dir").parse(arguments)
    from fedepd.datasets.fetch import fetch

    say(fetch(values.name, values.data_dir))
    return 0


# --- a user's own files -------------------------------------------------------------------------------------


def _import(arguments: list[str]) -> int:
    values = _import_parser().parse(arguments)
    tables, matrices = (values.nodes, values.edges), (values.adjacency, values.labels)
    if sum([values.file is not None, any(tables), any(matrices)]) != 1:
        raise BadConfig(
            "give exactly one graph: --nodes and --edges, or a .graphml or .pt file, "
            "or --adjacency, --features-npz and --labels"
        )
    if Path(values.out).suffix != ".npz":
        raise BadConfig(f"the output '{values.out}' must end in .npz; correct -o")
    from fedepd.datasets import describe, write_npz
    from fedepd.datasets.interop import import_graphml, import_matrices, import_pyg, read_features
    from fedepd.datasets.tables import Roles, import_files

    names = {name: getattr(values, name) for name in ("id", "label", "owner", "source", "target")}
    roles = Roles(
        **names,
        features=_names(values.features),
        scale=values.scale,
        one_hot=_names(values.one_hot) or values.one_hot == "",
    )
    notes: list[str] = []
    if any(tables):
        if not all(tables):
            raise BadConfig(f"--{'edges' if values.nodes else 'nodes'} is missing; give both tables")
        if values.features and values.features_npz:
            raise BadConfig("both --features and --features-npz are given; give one of them")
        graph, notes = import_files(
            *tables, roles, read_features(values.features_npz) if values.features_npz else None
        )
    elif any(matrices):
        if not (all(matrices) and values.features_npz):
            raise BadConfig(
                "a graph from matrices needs --adjacency, --features-npz and --labels; give all three"
            )
        graph = import_matrices(values.adjacency, values.features_npz, values.labels)
    elif values.file.endswith(".pt"):
        graph = import_pyg(values.file)
    elif values.file.endswith(".graphml"):
        graph, notes = import_graphml(values.file, roles)
    else:
        raise BadConfig(
            f"'{values.file}' has an unknown ending; give a .graphml or .pt file, or --nodes and --edges"
        )
    write_npz(graph, values.out)
    for note in notes:
        complain(f"note: {note}")
    facts = describe(graph)
    classes = {"class names": listed(graph.label_names, 20), "owner names": listed(graph.owner_names, 20)}
    _print_facts({**{name: facts[name] for name in ("nodes", "edges", "features", "classes")}, **classes})
    say(f"written to {values.out}; next, 'fedepd data check {values.out}' checks it for training")
    return 0


def _import_parser() -> Parser:
    parser = _parser("import")
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE.graphml|FILE.pt",
        help="a GraphML file or a file of torch.save, instead of tables",
    )
    parser.add_argument("-o", "--out", required=True, metavar="FILE.npz", help="the graph file to write")
    for flag, text in {
        "--nodes": "table of nodes, CSV or Parquet",
        "--edges": "table of edges, CSV or Parquet",
        "--adjacency": "adjacency matrix saved by scipy.sparse.save_npz, instead of tables",
        "--labels": "labels of the nodes in an npy file; only with --adjacency",
        "--features-npz": "features of the nodes in an npz or npy file, instead of columns",
    }.items():
        parser.add_argument(flag, default=None, metavar="FILE", help=text)
    add_node_columns(parser)
    parser.add_argument(
        "--owner", default=None, metavar="COLUMN", help="column of the nodes' owners, who become the clients"
    )
    add_edge_columns(parser)
    parser.add_argument(
        "--features", default=None, metavar="A,B,C", help="columns to use as features (default: all others)"
    )
    parser.add_argument(
        "--scale", action="store_true", help="scale every number column to mean 0 and deviation 1"
    )
    parser.add_argument(
        "--one-hot",
        nargs="?",
        const="",
        default=None,
        metavar="A,B",
        help="columns to use as categories; without names: all columns of text",
    )
    return parser


def _names(listed: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in listed.split(",")) if listed else None


def _check(arguments: list[str]) -> int:
    values = _parser("check", "name", "data_dir", "json").parse(arguments)
    from rich.table import Table

    from fedepd.clients.doctor import check
    from fedepd.datasets import load

    checkup = check(load(values.name, values.data_dir))
    verdict = ("fine", "usable, with warnings", "not usable")[checkup.exit_code]
    if values.json:
        findings = [asdict(finding) for finding in checkup.findings]
        say_json({"verdict": verdict, "facts": checkup.facts, "findings": findings})
        return checkup.exit_code
    _print_facts(checkup.facts)
    table = Table("", "finding", "what it means", "what to do", show_lines=True)
    for finding in checkup.findings:
        table.add_row(finding.level, finding.what, finding.meaning, finding.cure)
    if checkup.findings:
        console().print(table)
    say(f"{values.name}: {verdict}")
    return checkup.exit_code


def _split(arguments: list[str]) -> int:
    from fedepd.clients.partition import PartitionConfig
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
    parser.add_argument(
        "--by", dest="partition", metavar="RULE", help="short for --partition: owner, openfgl, ..."
    )
    parser.add_argument(
        "--seed", metavar="INT", help="seed of the run that the split is made for (default: 0)"
    )
    for title, cls in (("partition", PartitionConfig), ("split", SplitConfig)):
        add_settings(parser, title, cls)
    values = parser.parse(arguments)
    settings = {
        name: value for name, value in vars(values).items() if name not in ("name", "data_dir", "out")
    }
    experiment = Experiment.make("fedavg", **settings)
    from fedepd.clients.clients_dir import write_clients
    from fedepd.clients.partition import partition
    from fedepd.clients.split import make_clients
    from fedepd.datasets import load

    graph, seed = load(values.name, values.data_dir), experiment.protocol.seed
    part = partition(graph, experiment.partition, seed)
    names = [f"client{number:0{len(str(part.num_clients - 1))}d}" for number in range(part.num_clients)]
    if part.rule == "owner" and graph.owner is not None and graph.owner_names:
        names = [graph.owner_names[number] for number in sorted(set(graph.owner.tolist()))]
    for path in write_clients(make_clients(graph, part, experiment.split, seed), names, values.out):
        say(path)
    return 0


ACTIONS: dict[str, tuple[str, Action]] = {
    "list": ("list the datasets and say which are on this machine", _list),
    "show": ("show size, classes and imbalance of one graph", _show),
    "fetch": ("download a dataset", _fetch),
    "import": ("make a graph file from tables or from files of other programs", _import),
    "check": ("check a graph before training; exit code 0: fine, 1: warnings, 2: not usable", _check),
    "split": ("write the part of the graph that each client holds, one folder per client", _split),
}
