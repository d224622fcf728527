"""``fedepd tune``: search the settings of several methods with equal effort. It can be resumed."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from fedepd.cli.console import console, mention, progress_bar, say
from fedepd.cli.parser import CLUSTER, Parser, add_cluster_options, add_settings, workers_of
from fedepd.errors import BadConfig
from fedepd.shown import sentence

if TYPE_CHECKING:
    import rich.table

    from fedepd.tune.search import Search, Trial
    from fedepd.tune.tuning import Found

OWN = (
    "methods",
    "data",
    "data_dir",
    "trials",
    "seeds",
    "per_graph",
    "earlier",
    "workers",
    "out",
    "quiet",
    *CLUSTER,
)
"""Options that are not settings of a run."""
HIDDEN = ("score_on", "seed", "rounds")
"""Settings of a run that a search gives itself, or may not have at all."""
ROUNDS = 60


def tune(arguments: list[str]) -> int:
    from fedepd.cli.model import stoppable
    from fedepd.runs.tuned import TunedFile
    from fedepd.tune.output import write_found
    from fedepd.tune.page import said, title_of
    from fedepd.tune.tuning import Tuning
    from fedepd.tune.tuning import tune as search_all

    values = _parser().parse(arguments)
    if values.seeds < 1:
        raise BadConfig(f"seeds is {values.seeds}; give at least 1")
    workers = workers_of(values)
    settings = {name: value for name, value in vars(values).items() if name not in (*OWN, "seed")}
    pairs = [
        (method, preset or "default") for method, _, preset in (m.partition(":") for m in values.methods)
    ]
    tuning = Tuning(
        tuple(pairs),
        tuple(values.data),
        values.trials,
        tuple(range(values.seed, values.seed + values.seeds)),
        settings,
        values.per_graph,
        values.data_dir,
        TunedFile.read(values.earlier) if values.earlier is not None else None,
    )
    command = f"fedepd tune {shlex.join(arguments)}"
    searches = len(pairs) * (len(values.data) if values.per_graph else 1)
    title, out = f"{searches} searches", Path(values.out)
    with (
        stoppable(lambda: f"'{command}' continues from here"),
        progress_bar(title, searches * tuning.trials, values.quiet) as advance,
    ):

        def ended(search: Search, trial: Trial) -> None:
            advance(1)
            if not values.quiet and not console(stderr=True).is_terminal:
                score = f"{100 * trial.mean:.1f}" if trial.scores else "no score"
                text = f"{title_of(search)}, trial {trial.number}: {score} ({trial.failure or trial.state})"
                mention(sentence(text))

        found = search_all(tuning, out, workers, None, ended)
    tuned, page = write_found(found, out, command)
    console().print(_table(found))
    say(*said(found), f"tuned settings: {tuned}", f"page: {page}")
    return 0


def _table(found: Found) -> rich.table.Table:
    """The best setting of every search, as what it changes of the default."""
    from rich.table import Table

    from fedepd.tune.page import title_of

    table = Table("method", "score", "default", "settings that differ from the default")
    for search in found.searches:
        best, default = search.best, search.trials[0]
        changed = [f"{n} {v:g}" for n, v in best.settings.items() if best.rungs[n] != default.rungs[n]]
        scores = [f"{100 * trial.mean:.1f}" if trial.scores else "-" for trial in (best, default)]
        table.add_row(title_of(search), *scores, ", ".join(changed) or "none")
    return table


def _parser() -> Parser:
    from fedepd.runs.experiment import GROUPS
    from fedepd.tune.cells import FIRST_SEED

    parser = Parser(
        prog="fedepd tune",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
        description="Search the settings of several methods, with the same effort for each. Validation nodes "
        "alone decide. A setting that is given here is the same in all trials. Needs the extra 'tune'.",
    )
    parser.add_argument(
        "methods", nargs="+", metavar="METHOD[:PRESET]", help="methods to tune, see 'fedepd methods'"
    )
    parser.add_argument(
        "--data",
        nargs="+",
        default=["synthetic"],
        metavar="NAME|FILE.npz",
        help="graphs; hopeless settings are stopped between them, so name quick ones first",
    )
    parser.add_argument(
        "--data-dir",
        default=None,
        metavar="FOLDER",
        help="folder of the datasets (default: $FEDEPD_DATA, else the user cache)",
    )
    parser.add_argument("--trials", type=int, default=24, metavar="N", help="trials per method (default: 24)")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, metavar="N", help=f"rounds of a trial (default: {ROUNDS})"
    )
    parser.add_argument(
        "--seed", type=int, default=FIRST_SEED, metavar="INT", help=f"first seed (default: {FIRST_SEED})"
    )
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="seeds per graph (default: 1)")
    parser.add_argument(
        "--per-graph",
        action="store_true",
        default=False,
        help="one setting for each graph instead of one for all",
    )
    parser.add_argument(
        "--earlier",
        default=None,
        metavar="FILE.toml",
        help="try the settings that an earlier search found right after the default; with --trials 2 nothing "
        "else is tried",
    )
    workers = "how many runs at a time (default: 1); the results are the same for any number"
    parser.add_argument("--workers", type=int, default=1, metavar="N", help=workers)
    add_cluster_options(parser)
    parser.add_argument(
        "--out",
        default="runs/tune",
        metavar="FOLDER",
        help="where runs and results are written (default: runs/tune)",
    )
    parser.add_argument("--quiet", action="store_true", default=False, help="show no progress")
    for name, cls in GROUPS.items():
        add_settings(parser, name, cls, HIDDEN)
    return parser
