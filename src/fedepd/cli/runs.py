"""``fedepd run``, ``compare``, ``report`` and ``methods``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedepd.cli.console import complain, console, mention, progress_bar, say
from fedepd.cli.parser import (
    CLUSTER,
    Parser,
    add_checkpoint_option,
    add_cluster_options,
    add_settings,
    add_shards_option,
    add_track_option,
    add_tuned_option,
    workers_of,
)
from fedepd.errors import BadConfig

if TYPE_CHECKING:
    from fedepd.runs.jobs import Job, Workers
    from fedepd.sweeps.comparison import Comparison


def run(arguments: list[str]) -> int:
    from fedepd.cli.model import by_resuming, show_result, stoppable
    from fedepd.network.backbones import AUTO
    from fedepd.runs.experiment import Experiment
    from fedepd.runs.run import execute
    from fedepd.runs.settings import read_toml
    from fedepd.runs.source import Source
    from fedepd.runs.tuned import TunedFile
    from fedepd.trackers.follow import following

    named = arguments.pop(0) if arguments and not arguments[0].startswith("-") else None
    config_path = _value_of(arguments, "--config")
    file = read_toml(Path(config_path)) if config_path else {}
    method = str(named or file.get("method", "fedepd"))
    values = _run_parser(method).parse(arguments)
    settings = {**file, **{name: value for name, value in vars(values).items() if name not in RUN_ONLY}}
    if values.clients_dir is not None and "data" in settings:
        raise BadConfig(
            f"both --data '{settings['data']}' and --clients-dir '{values.clients_dir}' are given; "
            f"give one of them"
        )
    data, preset = (
        str(settings.pop(name, default)) for name, default in (("data", "synthetic"), ("preset", "default"))
    )
    settings.pop("method", None)
    if values.tuned is not None:
        named_data = data if values.clients_dir is None else None
        settings = TunedFile.read(values.tuned).applied(method, preset, named_data, settings)
    told = "backbone" in settings
    experiment = Experiment.make(method, preset, **{"backbone": AUTO, **settings})
    source = Source.make(data, values.data_dir, values.clients_dir)
    out = Path(values.out) if values.out is not None else None
    title = f"{method} on {values.clients_dir or data}"
    with (
        stoppable(lambda: by_resuming(out)),
        progress_bar(title, experiment.protocol.rounds, values.quiet) as advance,
        following(values.track, out, warn=tracker_warning),
    ):
        graph = source.load(experiment.protocol.features)
        result = execute(
            experiment,
            graph,
            out,
            values.workers,
            lambda _: advance(1),
            values.checkpoint_every,
            source,
            told,
            shards=values.shards,
        )
    return show_result(result, values.json)


CHOSEN = {"backbone": "auto"}
"""What these commands take where a setting is not given, other than a study or a federation would."""
RUN_ONLY = (
    "config",
    "tuned",
    "out",
    "workers",
    "shards",
    "checkpoint_every",
    "data_dir",
    "clients_dir",
    "json",
    "quiet",
    "track",
)


def _run_parser(method: str) -> Parser:
    from fedepd.methods import METHODS, method_class
    from fedepd.runs.experiment import GROUPS
    from fedepd.runs.settings import removed

    cls_of_method = method_class(method)
    names = ", ".join(METHODS.names())
    description = f"Train {cls_of_method.label}. Usage: fedepd run METHOD [options]; methods: {names}."
    parser = Parser(
        prog=f"fedepd run {method}",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description=description,
    )
    add_data_options(parser)
    parser.add_argument(
        "--clients-dir",
        default=None,
        metavar="FOLDER",
        help="instead of --data: a folder made by 'fedepd data split'",
    )
    parser.add_argument(
        "--preset", metavar="NAME", help=f"named settings: {', '.join(cls_of_method.presets)}"
    )
    parser.add_argument(
        "--out",
        default=None,
        metavar="FOLDER",
        help="new folder to save the run in: settings, models, every round's numbers",
    )
    add_checkpoint_option(parser)
    add_shards_option(parser)
    parser.add_argument("--json", action="store_true", default=False, help="print only one JSON object")
    add_settings(parser, f"settings of {cls_of_method.label}", cls_of_method)
    for name, cls in GROUPS.items():
        add_settings(parser, name, cls, defaults=CHOSEN)
    parser.removed = {
        start + name.replace("_", "-"): removed(name, left)
        for name, left in cls_of_method.retired.items()
        for start in ("--", "--no-")
    }
    return parser


def add_data_options(parser: Parser) -> None:
    parser.add_argument(
        "--data",
        metavar="NAME|FILE.npz",
        help="a dataset (see 'fedepd data list') or a file (default: synthetic)",
    )
    parser.add_argument(
        "--data-dir",
        default=None,
        metavar="FOLDER",
        help="folder of the datasets (default: $FEDEPD_DATA, else the user cache)",
    )
    parser.add_argument(
        "--config",
        default=None,
        metavar="FILE.toml",
        help="file of settings; options on the command line override it",
    )
    add_tuned_option(parser)
    add_track_option(parser)
    parser.add_argument(
        "--workers",
        type=int,
        default=1,
        metavar="N",
        help="number of runs, or of clients of one run, at the same time; "
        "results do not depend on it (default: 1)",
    )
    parser.add_argument("--quiet", action="store_true", default=False, help="show no progress")


def _value_of(arguments: Sequence[str], flag: str) -> str | None:
    for position, here in enumerate(arguments):
        if here == flag and position + 1 < len(arguments):
            return arguments[position + 1]
        if here.startswith(flag + "="):
            return here.split("=", 1)[1]
    return None


def compare(arguments: list[str]) -> int:
    from fedepd.runs.experiment import GROUPS
    from fedepd.sweeps.against import against_names, left_out

    parser = Parser(
        prog="fedepd compare",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="Train several methods over several seeds. Every method gets the same settings.",
    )
    parser.add_argument(
        "methods", nargs="+", metavar="METHOD[:PRESET]", help="methods to compare, see 'fedepd methods'"
    )
    add_data_options(parser)
    add_seeds_option(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="FOLDER",
        help="new folder; it gets one run folder per run, and report.html",
    )
    parser.add_argument(
        "--against",
        metavar="A,B",
        help="also run what answers whether the method is worth it: alone (the same method at each client "
        "alone), pooled (on the whole graph), no-graph (without edges), logistic and boosting (scikit-learn, "
        "on pooled rows and alone)",
    )
    for name, cls in GROUPS.items():
        add_settings(parser, name, cls, but=("scope", "edges"), defaults=CHOSEN)
    add_cluster_options(parser)
    values = parser.parse(arguments)
    workers = workers_of(values)
    jobs = _comparison(values).jobs()
    missing = left_out(against_names(getattr(values, "against", ""), values.methods), jobs)
    run_all(jobs, workers, values, missing)
    return _report(Path(values.out))


def add_seeds_option(parser: Parser) -> None:
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="number of seeds, counted from --seed (default: 3)"
    )


def run_all(
    jobs: Sequence[Job], workers: Workers, values: argparse.Namespace, notes: Sequence[str] = ()
) -> None:
    """Run all jobs under a progress bar, after what a reader must know about them."""
    from fedepd.cli.model import stoppable
    from fedepd.runs.jobs import run_jobs
    from fedepd.trackers.follow import following

    for note in dict.fromkeys([*(note for job in jobs for note in job.notes), *notes]):
        mention(f"note: {note}")
    title = f"{len(jobs)} runs on {jobs[0].data}"
    hint = f"'fedepd resume {values.out}/RUN' finishes one of its runs"
    rounds = sum(job.rounds for job in jobs)
    folders = [job.out for job in jobs]
    with (
        stoppable(lambda: hint),
        progress_bar(title, rounds, values.quiet) as advance,
        following(values.track, Path(values.out), folders, tracker_warning),
    ):
        seen = 0

        def watch() -> None:
            nonlocal seen
            now = sum(job.rounds_done for job in jobs)
            advance(now - seen)
            seen = now

        run_jobs(jobs, workers, watch)


def tracker_warning(text: str) -> None:
    complain(f"warning: {text}")


def _comparison(values: argparse.Namespace) -> Comparison:
    """What was asked for on the command line and in the file of settings."""
    from fedepd.sweeps.comparison import Comparison

    settings = common_settings(values, (*RUN_ONLY, "methods", "seeds", "against", *CLUSTER))
    data, out = str(settings.pop("data", "synthetic")), Path(values.out)
    against = getattr(values, "against", "")
    return Comparison(
        values.methods, data, out, values.seeds, settings, values.data_dir, values.tuned, against
    )


def common_settings(values: argparse.Namespace, but: Sequence[str]) -> dict[str, Any]:
    """The settings of all runs of a comparison, from the file and then from the command line."""
    from fedepd.runs.settings import read_toml

    file = read_toml(Path(values.config)) if values.config else {}
    if named := [name for name in ("method", "preset") if name in file]:
        raise BadConfig(
            f"'{named[0]}' in '{values.config}' has no meaning in a comparison; "
            f"remove it and name the methods as METHOD[:PRESET]"
        )
    return {**file, **{name: value for name, value in vars(values).items() if name not in but}}


def report(arguments: list[str]) -> int:
    parser = Parser(
        prog="fedepd report",
        allow_abbrev=False,
        description="Make a self-contained page and print a table from run folders.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="a run folder, or a folder of run folders")
    parser.add_argument(
        "-o",
        "--out",
        default=None,
        metavar="FILE.html",
        help="page to write (default: report.html inside the folder)",
    )
    values = parser.parse(arguments)
    return _report(Path(values.folder), values.out)


def _report(folder: Path, out: str | None = None) -> int:
    from fedepd.report.answer import answers
    from fedepd.report.decisions import notices
    from fedepd.report.page import build_report
    from fedepd.report.runs import group, read_runs
    from fedepd.report.tables import rich_table

    runs = read_runs(folder)
    page = build_report(folder, out, runs)  # before a word is said, because it may refuse a file
    for found in answers(group(runs)):
        console().print(f"{found.first} {found.more}".strip(), soft_wrap=True)
    console().print(rich_table(runs))
    if any(run.adapted for run in runs):
        console().print(rich_table(runs, model="adapted"))
    for each in group(runs):
        for line in notices(each):
            complain(f"warning: {line}")
    say(f"report: {page}")
    return 0


def methods(arguments: list[str]) -> int:
    parser = Parser(prog="fedepd methods", description="List the methods.")
    parser.parse(arguments)
    from rich.table import Column, Table

    from fedepd.methods import METHODS

    table = Table(
        Column("name", no_wrap=True),
        Column("method", no_wrap=True),
        "headline model",
        "presets",
        "settings",
        "from",
    )
    for name, cls in METHODS.items():
        headline = "global" if cls.has_global else "personal"
        settings = ", ".join(f.name for f in fields(cls))
        table.add_row(name, cls.label, headline, ", ".join(cls.presets), settings, METHODS.origin(name))
    console().print(table)
    return 0
