"""``fedepd monitor``: are the new rows still like those that a model was trained on?"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedepd.cli.console import complain, say, say_json
from fedepd.cli.parser import Parser
from fedepd.cli.subject import add_subject_options, first_file, subject_of
from fedepd.errors import BadConfig

if TYPE_CHECKING:
    from fedepd.model.model import Model
    from fedepd.model.reference import Reference


def monitor(arguments: list[str]) -> int:
    """Exit code 1 where a limit is passed."""
    values = _parser().parse(arguments)
    import torch

    from fedepd.model.drift import Limits, watch
    from fedepd.model.model import load_model
    from fedepd.model.monitor import (
        PAGE,
        add_to_history,
        check_new,
        check_when,
        history_of,
        line_of,
        read_labels,
    )
    from fedepd.model.monitor_page import render, verdict
    from fedepd.report.document import write_page

    torch.set_num_threads(1)
    limits, out = Limits.read(values.limits), Path(values.out)
    when = check_when(values.when or Path(first_file(values)).stem)
    check_new(history_of(out), when, out)  # before anything is computed
    model = load_model(values.model)
    reference = _reference(values, model)
    subject = subject_of(values, model)
    labels = None
    if values.labels is not None:
        own = values.id or model.roles.get("id", "id")
        labels = read_labels(values.labels, own, model.roles.get("label", "label"))
    watched = watch(model, reference, subject, limits, labels)
    line = line_of(watched, model, when, Path(first_file(values)).name)
    page = render(watched, [*history_of(out), line], limits)
    add_to_history(out, line)
    write_page(out / PAGE, page)
    for note in watched.notes:
        complain(f"note: {note}")
    if values.json:
        say_json(line)
    else:
        say(verdict(watched, when), f"page: {out / PAGE}")
    return 1 if watched.passed else 0


def _reference(values: argparse.Namespace, model: Model) -> Reference:
    from fedepd.clients.scaling import with_features
    from fedepd.datasets.npz import read_unlabelled
    from fedepd.model.reference import read_reference, reference_of

    if values.reference is None:
        found = read_reference(Path(values.model))
        if found is None:
            raise BadConfig(
                f"'{values.model}' keeps no shares of its training rows; export the run again, or give older "
                "rows with --reference FILE.npz"
            )
        return found
    graph = model.check_features(read_unlabelled(values.reference, model.info.num_classes))
    import numpy as np

    whole = with_features(graph, model.experiment.protocol.features)
    return reference_of(model, whole, np.arange(graph.num_nodes))


def _parser() -> Parser:
    parser = Parser(
        prog="fedepd monitor",
        allow_abbrev=False,
        description="Compare new nodes with those that a model was trained on. The exit code is 1 where a "
        "limit is passed.",
    )
    parser.add_argument("model", metavar="MODEL", help="a folder made by 'fedepd export'")
    add_subject_options(parser)
    parser.add_argument(
        "--labels",
        default=None,
        metavar="FILE",
        help="table of ids and labels that are known by now, CSV or Parquet",
    )
    parser.add_argument(
        "--reference",
        default=None,
        metavar="FILE.npz",
        help="compare with these nodes, not with the training rows",
    )
    parser.add_argument(
        "--when",
        default=None,
        metavar="TEXT",
        help="what this time is called, such as 2026-02 (default: the name of the new file)",
    )
    parser.add_argument(
        "--limits",
        default="",
        metavar="NAME=NUMBER,...",
        help="psi (default 0.25), alerts (a ratio, 2), homophily (0.1), ece (0.1)",
    )
    parser.add_argument(
        "-o",
        "--out",
        default="monitor",
        metavar="FOLDER",
        help="folder of monitor.html and of monitor.jsonl, which grows by one line each time "
        "(default: monitor)",
    )
    parser.add_argument("--json", action="store_true", help="print only one JSON object")
    return parser
