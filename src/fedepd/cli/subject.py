"""The options by which ``predict``, ``explain``, ``monitor`` and ``point`` are given a graph."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from fedepd.cli.console import complain
from fedepd.cli.parser import Parser, add_edge_columns

if TYPE_CHECKING:
    from fedepd.model.model import Model
    from fedepd.model.subject import Files, Subject


def add_subject_options(parser: Parser, labels: str = "its labels are not read") -> None:
    """The new graph, its context, and the columns of its tables. ``labels``: what happens to its own."""
    parser.add_argument("--data", default=None, metavar="FILE.npz", help=f"the new graph; {labels}")
    parser.add_argument(
        "--nodes",
        nargs="+",
        default=None,
        metavar="FILE",
        help="instead of --data: table of nodes, with the same columns as in training; several files are put "
        "together",
    )
    parser.add_argument(
        "--edges", nargs="+", default=None, metavar="FILE", help="with --nodes: table of edges, likewise"
    )
    parser.add_argument(
        "--context",
        default=None,
        metavar="FILE.npz",
        help="older nodes that edges may lead to; they pass messages, and only the new nodes are asked about",
    )
    parser.add_argument(
        "--context-nodes",
        nargs="+",
        default=None,
        metavar="FILE",
        help="instead of --context: table of the older nodes",
    )
    parser.add_argument(
        "--context-edges",
        nargs="+",
        default=None,
        metavar="FILE",
        help="with --context-nodes: table of their edges",
    )
    parser.add_argument(
        "--id",
        default=None,
        metavar="COLUMN",
        help="column of the node ids (default: the one that the model was trained with, else id)",
    )
    add_edge_columns(parser)


def files_of(values: argparse.Namespace) -> Files:
    """What the options name."""
    from fedepd.model.subject import Files

    names = ("data", "nodes", "edges", "context", "context_nodes", "context_edges", "id", "source", "target")
    return Files(**{name: getattr(values, name) for name in names})


def subject_of(values: argparse.Namespace, model: Model) -> Subject:
    """Read what the options name. Notes about it go to stderr."""
    from fedepd.model.subject import read_subject

    subject = read_subject(model, files_of(values))
    for note in subject.notes:
        complain(f"note: {note}")
    return subject


def first_file(values: argparse.Namespace) -> str:
    """The file of the new graph, or the first one of its nodes; empty where neither is given."""
    return values.data or (values.nodes[0] if values.nodes else "")
