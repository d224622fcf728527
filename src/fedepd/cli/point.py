"""``fedepd point``: another operating point for a model folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedepd.cli.console import say
from fedepd.cli.parser import Parser
from fedepd.cli.subject import add_subject_options, files_of
from fedepd.errors import BadConfig

if TYPE_CHECKING:
    from fedepd.model.model import Model


def point(arguments: list[str]) -> int:
    values = _parser().parse(arguments)
    from fedepd.model.aim import aim_of_words
    from fedepd.model.model import load_model, read_model
    from fedepd.model.pointed import point_in_words
    from fedepd.model.repoint import known_nodes, set_point

    folder, given = Path(values.model), values.data is not None or values.nodes is not None
    aim = aim_of_words(values.cost, values.recall, values.alerts, values.per)
    if values.likeliest and (aim is not None or given):
        raise BadConfig("--likeliest takes the point away; give it without an aim and without nodes")
    if aim is not None and not given:
        raise BadConfig("labelled nodes choose the point; give --data FILE.npz, or --nodes and --edges")
    if aim is None and given:
        raise BadConfig("nodes are given, but no aim; give one of --cost, --recall and --alerts")
    if values.likeliest:
        set_point(folder, None)
    elif aim is not None:
        import torch

        torch.set_num_threads(1)
        labels = _labels(values, read_model(folder))
        set_point(folder, aim, known_nodes(folder, files_of(values), labels))
    load_model(folder)
    said = point_in_words(folder) or ["no operating point: a node is called its likeliest class"]
    say(*said, f"model: {folder}; model card: {folder / 'README.md'}")
    return 0


def _labels(values: argparse.Namespace, model: Model) -> dict[str, str] | None:
    """Labels of their own file, or of the table of nodes. None: they are in the npz file."""
    from fedepd.model.monitor import read_labels

    place = values.labels or values.nodes
    own, label = values.id or model.roles.get("id", "id"), model.roles.get("label", "label")
    return None if place is None else read_labels(place, own, label)


def _parser() -> Parser:
    parser = Parser(
        prog="fedepd point",
        allow_abbrev=False,
        description="Show the operating point of a model folder, or choose another one by labelled nodes. "
        "The folder and its model card change together, or not at all.",
    )
    parser.add_argument("model", metavar="MODEL", help="a folder made by 'fedepd export'")
    add_subject_options(parser, "its labels are read, unless --labels has others")
    parser.add_argument(
        "--labels",
        default=None,
        metavar="FILE",
        help="table of ids and labels, CSV or Parquet (default: the labels of --data or --nodes)",
    )
    parser.add_argument(
        "--likeliest", action="store_true", help="take the point away: call a node its likeliest class"
    )
    add_aim_options(parser, "the nodes that are given")
    return parser


def add_aim_options(parser: Parser, of: str = "the nodes of the run's graph") -> None:
    """What an operating point shall reach. ``of``: how many nodes the alerts are of by default."""
    group = parser.add_argument_group(
        "operating point", "how probabilities become decisions, chosen on validation nodes; give one of them"
    )
    group.add_argument(
        "--cost",
        default=None,
        metavar="FILE.csv",
        help="call what costs least: a row per called class, a column per true class",
    )
    group.add_argument(
        "--recall",
        action="append",
        default=[],
        metavar="CLASS=SHARE",
        help="find this share of a class, such as takeover=0.8 (may be repeated)",
    )
    group.add_argument(
        "--alerts",
        action="append",
        default=[],
        metavar="N|CLASS=N",
        help="alert so many nodes: of all classes but the largest, or of one class (may be repeated)",
    )
    group.add_argument(
        "--per",
        type=int,
        default=None,
        metavar="NODES",
        help=f"the alerts are so many of this many nodes (default: {of})",
    )
