"""``fedepd data import``: a graph file from tables, or from files of other programs."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from fedepd.cli.console import complain, say
from fedepd.cli.facts import print_facts
from fedepd.cli.parser import Parser, add_edge_columns, add_node_columns
from fedepd.errors import BadConfig, BadData
from fedepd.shown import listed

if TYPE_CHECKING:
    from fedepd.datasets.tables import Roles
    from fedepd.types import Graph

FOR_TABLES = (
    *("impute", "dates", "edge_features", "edge_weight", "unknown_ends", "split_by", "decimal"),
    "missing",
)
"""Options that only tables have."""


def import_(arguments: list[str]) -> int:
    values = _parser().parse(arguments)
    tables, matrices = (values.nodes, values.edges), (values.adjacency, values.labels)
    if sum([values.file is not None, any(tables), any(matrices)]) != 1:
        raise BadConfig(
            "give exactly one graph: --nodes and --edges, or a .graphml or .pt file, "
            "or --adjacency, --features-npz and --labels"
        )
    if Path(values.out).suffix != ".npz":
        raise BadConfig(f"the output '{values.out}' must end in .npz; correct -o")
    from fedepd.datasets import describe

    graph, notes = _tables(values, arguments) if any(tables) else _other(values)
    _write(graph, values.out, notes)
    for note in notes:
        complain(f"note: {note}")
    facts = describe(graph)
    classes = {"class names": listed(graph.label_names, 20), "owner names": listed(graph.owner_names, 20)}
    shown_facts = ("nodes", "edges", "edge_weights", "features", "classes")
    print_facts({**{name.replace("_", " "): facts[name] for name in shown_facts if name in facts}, **classes})
    say(f"written to {values.out}; next, 'fedepd data check {values.out}' checks it for training")
    return 0


def _write(graph: Graph, out: str, notes: list[str]) -> None:
    """The notes are in the file, too, for ``fedepd data check``."""
    import numpy as np

    from fedepd.datasets import write_npz

    write_npz(graph, out, {"notes": np.array(notes, dtype=np.str_)} if notes else None)


def _tables(values: argparse.Namespace, arguments: list[str]) -> tuple[Graph, list[str]]:
    if not (values.nodes and values.edges):
        raise BadConfig(f"--{'edges' if values.nodes else 'nodes'} is missing; give both tables")
    if values.features and values.features_npz:
        raise BadConfig("both --features and --features-npz are given; give one of them")
    from fedepd.datasets.interop import read_features
    from fedepd.datasets.tables import import_files

    roles = _roles(values)
    x = read_features(values.features_npz) if values.features_npz else None
    try:
        return import_files(values.nodes, values.edges, roles, x)
    except BadData:
        if x is None and (better := _suggested(values, roles)) is not None:
            complain(f"note: from what the tables look like, this may work: {better}")
        raise


def _suggested(values: argparse.Namespace, roles: Roles) -> str | None:
    """A command that may work, with the options that the tables seem to need; None if there is none."""
    from fedepd.datasets.suggest import suggested

    options = suggested(values.nodes, values.edges, roles)
    if options is None:
        return None
    words = ["fedepd", "data", "import", "--nodes", *values.nodes, "--edges", *values.edges]
    for name, value in options.items():
        words += [f"--{name}"] if value == "" else [f"--{name}", value]
    return shlex.join([*words, "-o", values.out])


def _other(values: argparse.Namespace) -> tuple[Graph, list[str]]:
    """A graph from files of other programs."""
    usual = _parser()
    for name in FOR_TABLES:
        if getattr(values, name) != usual.get_default(name):
            raise BadConfig(f"--{name.replace('_', '-')} needs --nodes and --edges; leave it out")
    from fedepd.datasets.interop import import_graphml, import_matrices, import_pyg

    if values.file is None:
        if not (values.adjacency and values.labels and values.features_npz):
            raise BadConfig(
                "a graph from matrices needs --adjacency, --features-npz and --labels; give all three"
            )
        return import_matrices(values.adjacency, values.features_npz, values.labels), []
    if values.file.endswith(".pt"):
        return import_pyg(values.file), []
    if values.file.endswith(".graphml"):
        return import_graphml(values.file, _roles(values))
    raise BadConfig(
        f"'{values.file}' has an unknown ending; give a .graphml or .pt file, or --nodes and --edges"
    )


def _roles(values: argparse.Namespace) -> Roles:
    from fedepd.datasets.tables import Roles

    same = ("id", "label", "owner", "source", "target", "scale", "impute", "decimal", "day", "split_by")
    return Roles(
        **{name: getattr(values, name) for name in (*same, "unknown_ends", "edge_weight", "edge_weight_as")},
        features=_names(values.features),
        leave_out=_names(values.leave_out) or (),
        missing=_names(values.missing) or (),
        date_parts=_names(values.date_parts) or (),
        one_hot=_some_or_all(values.one_hot),
        dates=_some_or_all(values.dates),
        edge_features=_some_or_all(values.edge_features),
    )


def _names(given: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in given.split(",")) if given else None


def _some_or_all(given: str | None) -> bool | tuple[str, ...]:
    """The columns that an option names; True if it is given without names."""
    return _names(given) or given == ""


def _parser() -> Parser:
    from fedepd.datasets.dates import PARTS
    from fedepd.datasets.roles import Ends, Impute, Weighing

    parser = Parser(
        prog="fedepd data import",
        allow_abbrev=False,
        description="make a graph file from tables or from files of other programs",
    )
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE.graphml|FILE.pt",
        help="a GraphML file or a file of torch.save, instead of tables",
    )
    parser.add_argument("-o", "--out", required=True, metavar="FILE.npz", help="the graph file to write")
    _add_sources(parser)
    add_node_columns(parser)
    parser.add_argument(
        "--owner", default=None, metavar="COLUMN", help="column of the nodes' owners, who become the clients"
    )
    add_edge_columns(parser)
    group = parser.add_argument_group("features")
    _add_columns(group)
    group.add_argument(
        "--scale", action="store_true", help="scale every number column to mean 0 and deviation 1"
    )
    group.add_argument(
        "--impute",
        choices=get_args(Impute),
        default=None,
        help="put this in place of missing numbers, computed by every run over its training rows; one more "
        "feature per column marks them (default: a missing number is refused)",
    )
    group.add_argument(
        "--missing", default=None, metavar="A,B", help="more words that mean a missing cell, such as -999"
    )
    group.add_argument(
        "--decimal", choices=(".", ","), default=".", help="what stands before decimals (default: .)"
    )
    group.add_argument(
        "--date-parts",
        default="age",
        metavar="|".join(PARTS),
        help="what dates become: age in days, month, weekday, with commas between (default: age)",
    )
    group.add_argument(
        "--day",
        default=None,
        metavar="YYYY-MM-DD",
        help="the day from which ages are counted back (default: the latest day in the column)",
    )
    group = parser.add_argument_group("edges and split")
    group.add_argument(
        "--unknown-ends",
        choices=get_args(Ends),
        default="refuse",
        help="edges to nodes that --nodes lacks: refuse them, drop them, or keep the other end as an "
        "external node without label (default: refuse)",
    )
    group.add_argument(
        "--edge-weight",
        default=None,
        metavar="COLUMN",
        help="column of --edges that says how much an edge counts beside the others of a node, summed over "
        "repeated edges (default: all count alike)",
    )
    group.add_argument(
        "--edge-weight-as",
        choices=get_args(Weighing),
        default="log1p",
        help="what the sum becomes: log(1 + sum), or the sum itself (default: log1p)",
    )
    group.add_argument(
        "--split-by",
        default=None,
        metavar="COLUMN",
        help="column of dates or numbers; every run trains on the oldest nodes of each class at each client "
        "and tests on the newest (default: nodes are drawn)",
    )
    return parser


def _add_sources(parser: Parser) -> None:
    many = "CSV, Parquet, Excel (FILE.xlsx#SHEET) or a database (URL#TABLE); several files are put together"
    for flag, text in {"--nodes": f"table of nodes: {many}", "--edges": "table of edges, likewise"}.items():
        parser.add_argument(flag, nargs="+", default=None, metavar="FILE", help=text)
    for flag, text in {
        "--adjacency": "adjacency matrix saved by scipy.sparse.save_npz, instead of tables",
        "--labels": "labels of the nodes in an npy file; only with --adjacency",
        "--features-npz": "features of the nodes in an npz or npy file, instead of columns",
    }.items():
        parser.add_argument(flag, default=None, metavar="FILE", help=text)


def _add_columns(group: Any) -> None:
    group.add_argument(
        "--features", default=None, metavar="A,B,C", help="columns to use as features (default: all others)"
    )
    group.add_argument("--leave-out", default=None, metavar="A,B", help="columns not to use")
    for flag, text in {
        "--one-hot": "columns to use as categories; without names: all columns of text",
        "--dates": "columns that hold dates; without names: all columns of dates",
        "--edge-features": "columns of --edges whose count, sum, mean and maximum become features of the "
        "nodes at both ends; without names: all columns of numbers",
    }.items():
        group.add_argument(flag, nargs="?", const="", default=None, metavar="A,B", help=text)
