"""``fedepd reproduce``: make the paper's tables and figures. It uses worker processes and can be resumed."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from fedepd.cli.console import complain, console, say
from fedepd.cli.parser import (
    CLUSTER,
    Parser,
    add_cluster_options,
    add_settings,
    add_tuned_option,
    workers_of,
)
from fedepd.errors import BadConfig
from fedepd.shown import sentence, slug

if TYPE_CHECKING:
    from fedepd.report.runs import Run
    from fedepd.reproduction.pages.output import Written
    from fedepd.reproduction.study.cells import Planned
    from fedepd.reproduction.study.kept import KeptStudy
    from fedepd.reproduction.study.targets import Target
    from fedepd.runs.jobs import Workers

Hooks = tuple[Callable[[], None], Callable[["Planned", str], None]]
OWN = (
    "target",
    "methods",
    "list",
    "data",
    "data_dir",
    "seeds",
    "workers",
    "out",
    "quiet",
    "no_run",
    "tuned",
    "shard",
    "scores",
    *CLUSTER,
)
"""Options that are not settings of a run."""


def reproduce(arguments: list[str]) -> int:
    from fedepd.cli.model import stoppable
    from fedepd.reproduction.study.cells import of_shard, parse_shard, plan, to_run
    from fedepd.reproduction.study.targets import of_methods, read_targets
    from fedepd.runs.tuned import TunedFile

    values = _parser().parse(arguments)
    if values.list or values.target is None:
        return _list_targets(0 if values.list else 2)
    if values.seeds is not None and values.seeds < 1:
        raise BadConfig(f"seeds is {values.seeds}; give at least 1")
    settings = {name: value for name, value in vars(values).items() if name not in OWN}
    targets, out = read_targets(values.target), Path(values.out)
    if values.methods is not None:
        if len(targets) > 1:
            raise BadConfig("--methods is about the rows of one target; name one instead of 'all'")
        targets = [of_methods(targets[0], values.methods)]
    command = f"fedepd reproduce {shlex.join(arguments)}"
    tuned = TunedFile.read(values.tuned) if values.tuned is not None else None
    datasets = _datasets(targets, values)
    workers = workers_of(values)
    shard = parse_shard(values.shard) if values.shard is not None else (1, 1)
    planned = plan(targets, datasets, out, settings, values.seeds, values.data_dir, tuned)
    kept = _kept(values.scores, planned)
    failures = 0
    if not values.no_run:
        mine = of_shard(planned, shard)
        waiting = [each for each in to_run(mine) if kept is None or not kept.has(each)]
        bar = display(waiting, len({each.job.out for each in mine}), values.workers, values.quiet)
        with stoppable(lambda: f"'{command}' continues from here"), bar as hooks:
            failures = _run(waiting, workers, hooks, kept)
    write_results(values.target, targets, planned, out, command, kept.all_runs() if kept else None)
    if kept is not None:
        _tell(kept)
    if failures == 1:
        complain("1 run failed; the same command tries it again")
    elif failures:
        complain(f"{failures} runs failed; the same command tries them again")
    return 1 if failures else 0


def _kept(file: str | None, planned: Sequence[Planned]) -> KeptStudy | None:
    """The file of kept scores with all that is finished, before anything runs. So a mistake is told early."""
    from fedepd.reproduction.study.kept import KeptStudy

    if file is None:
        return None
    kept = KeptStudy(Path(file), planned)
    kept.update()
    kept.all_runs()
    return kept


def _run(waiting: Sequence[Planned], workers: Workers, hooks: Hooks, kept: KeptStudy | None) -> int:
    """Run the cells, and keep the scores of those that finish, also where the study is stopped."""
    from fedepd.reproduction.study.cells import run_planned

    if kept is None:
        return run_planned(waiting, workers, *hooks)
    watch, ended = hooks

    def ended_and_kept(each: Planned, failure: str) -> None:
        ended(each, failure)
        kept.now_and_then()

    try:
        return run_planned(waiting, workers, watch, ended_and_kept)
    finally:
        kept.update()


def _tell(kept: KeptStudy) -> None:
    count = "1 cell" if len(kept.lines) == 1 else f"{len(kept.lines)} cells"
    say(f"scores: {kept.path} keeps {count}")
    if kept.foreign:
        cells = "1 cell was" if len(kept.foreign) == 1 else f"{len(kept.foreign)} cells were"
        complain(f"{cells} run by another version of fedepd, so the scores are not kept; remove the folders")


def _parser() -> Parser:
    from fedepd.runs.experiment import GROUPS

    parser = Parser(
        prog="fedepd reproduce",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="Make a table or a figure of the paper, or all of them. Finished runs are not repeated.",
    )
    parser.add_argument(
        "target",
        nargs="?",
        default=None,
        metavar="TARGET",
        help="a name from --list, 'all', or your own FILE.toml",
    )
    parser.add_argument("--list", action="store_true", default=False, help="list the targets")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=None,
        metavar="METHOD[:PRESET]",
        help="the rows, in place of those of the target; see 'fedepd methods'",
    )
    parser.add_argument(
        "--data",
        nargs="+",
        default=None,
        metavar="NAME|FILE.npz",
        help="graphs to use (default: those of the target that are on this machine)",
    )
    parser.add_argument(
        "--data-dir",
        default=None,
        metavar="FOLDER",
        help="folder of the datasets (default: $FEDEPD_DATA, else the user cache)",
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=None,
        metavar="N",
        help="number of seeds, counted from --seed (default: as the target says, 5)",
    )
    workers = "how many runs at a time (default: 2); the results are the same for any number"
    parser.add_argument("--workers", type=int, default=2, metavar="N", help=workers)
    add_cluster_options(parser)
    parser.add_argument(
        "--out",
        default="runs/reproduce",
        metavar="FOLDER",
        help="where runs and results are written (default: runs/reproduce)",
    )
    parser.add_argument(
        "--no-run",
        action="store_true",
        default=False,
        help="write the results of finished runs only, and start none",
    )
    parser.add_argument(
        "--shard",
        default=None,
        metavar="I/N",
        help="a part of the runs, for N machines that share no folder; on a shared one, start the same "
        "command on each machine",
    )
    add_tuned_option(parser)
    parser.add_argument(
        "--scores",
        default=None,
        metavar="FILE",
        help="keep the scores of finished runs in this text file; runs that it has are not repeated, and "
        "their folders are not needed",
    )
    parser.add_argument("--quiet", action="store_true", default=False, help="show no progress")
    for name, cls in GROUPS.items():
        add_settings(parser, name, cls)
    return parser


def _list_targets(code: int) -> int:
    from rich.table import Table

    from fedepd.reproduction.study.targets import NOT_THE_PAPERS, read_target, target_names

    table = Table("target", "what it makes", "datasets of the paper")
    for target in map(read_target, target_names()):
        table.add_row(target.name, target.title, ", ".join(target.datasets))
    table.add_row("all", f"all of the above except {', '.join(NOT_THE_PAPERS)}, on one page", "")
    console().print(table)
    return code


def _datasets(targets: Sequence[Target], values: argparse.Namespace) -> dict[str, list[str]]:
    from fedepd.reproduction.study.cells import datasets_of

    if values.data:
        return {target.name: list(dict.fromkeys(values.data)) for target in targets}
    found = {target.name: datasets_of(target, values.data_dir) for target in targets}
    for line in dict.fromkeys(line for _, missing in found.values() for line in missing):
        complain(line)
    return {name: datasets for name, (datasets, _) in found.items()}


@contextmanager
def display(waiting: Sequence[Planned], total: int, workers: int, quiet: bool) -> Iterator[Hooks]:
    """Progress: one live bar over all rounds on a terminal, otherwise a line per finished cell.

    Yields two functions: one that redraws the bar, and one to call when a cell has ended.
    """
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    place, done = console(stderr=True), total - len(waiting)
    title = TextColumn("{task.description}", markup=False)
    columns = (title, BarColumn(), TaskProgressColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    live = place.is_terminal and not quiet
    open_cells = {each.job.out: each for each in waiting}
    with Progress(
        *columns, console=place, disable=not live, transient=True, speed_estimate_period=600
    ) as bar:
        task = bar.add_task(f"{done}/{total} cells", total=sum(each.job.rounds for each in waiting))
        finished = 0

        def watch() -> None:
            if live:
                at_work = list(open_cells.values())[:workers]  # cells start in this order
                now = finished + sum(each.job.rounds_done for each in at_work)
                bar.update(
                    task, completed=now, description=f"{done}/{total} cells done, {len(at_work)} running"
                )

        def ended(each: Planned, failure: str) -> None:
            nonlocal done, finished
            done, finished = done + 1, finished + each.job.rounds
            del open_cells[each.job.out]
            if failure or not (live or quiet):
                place.print(sentence(f"{done}/{total} {each.text}: {failure or 'done'}"), soft_wrap=True)

        yield watch, ended


def write_results(
    name: str,
    targets: Sequence[Target],
    planned: Sequence[Planned],
    out: Path,
    command: str,
    read: dict[Path, Run] | None = None,
) -> list[Written]:
    """Write the files of all targets and their page, and print where they are.

    ``read``: runs that are known before, by their folders.
    """
    from fedepd.reproduction.judging.judgement import in_words
    from fedepd.reproduction.pages.output import write_target
    from fedepd.reproduction.pages.page import write_reproduction
    from fedepd.reproduction.study.results import read_results

    read = {} if read is None else read
    written = [write_target(read_results(target, planned, read), out) for target in targets]
    for each in written:
        claims = f"; the paper's claims: {in_words(each.verdicts)}" if each.verdicts else ""
        say(f"{each.results.target.name}: {each.folder}{claims}")
    page = out / f"{slug(Path(name).stem)}.html"
    say(f"page: {write_reproduction(written, page, command)}")
    return written
