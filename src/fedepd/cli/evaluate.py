"""``fedepd evaluate``: a run's model on the whole graph, with the edges between clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedepd.cli.console import console, say_json
from fedepd.cli.model import add_data_options
from fedepd.cli.parser import Parser
from fedepd.shown import shown

if TYPE_CHECKING:
    from fedepd.model.whole import Whole

ROWS = {
    "own": "each client's own graph, as in the run",
    "whole": "the whole graph, with edges between clients",
}


def evaluate(arguments: list[str]) -> int:
    parser = Parser(
        prog="fedepd evaluate",
        allow_abbrev=False,
        description="Score a finished run's model on the whole graph, with the edges between clients.",
    )
    parser.add_argument("folder", metavar="RUN", help="the folder given to 'fedepd run --out'")
    add_data_options(parser)
    parser.add_argument("--json", action="store_true", help="print only one JSON object")
    values = parser.parse(arguments)
    from fedepd.model.whole import on_whole_graph

    found = on_whole_graph(values.folder, values.data, values.data_dir)
    if values.json:
        say_json(found.as_json())
    else:
        _print(found)
    return 0


def _print(found: Whole) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from fedepd.metrics import METRICS

    summary = found.run.summary
    title = (
        f"{shown(summary['method_label'])} on {shown(summary['dataset'])}, seed {summary['seed']} (test, %)"
    )
    table = Table(title=title, box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column(f"{found.run.headline} model on")
    for name in METRICS:
        table.add_column(name.removesuffix("_acc"), justify="right", no_wrap=True)
    for name, scores in found.scores().items():
        numbers = [f"{100 * scores[m]:.2f}" if scores[m] == scores[m] else "-" for m in METRICS]
        table.add_row(ROWS[name], *numbers)
    console().print(table)
    share = f" ({found.between / found.edges:.1%})" if found.edges else ""
    console().print(
        f"{found.between:,} of {found.edges:,} edges{share} join nodes of two clients. "
        f"{found.touched:,} of {found.nodes:,} test nodes have one.",
        soft_wrap=True,
    )
