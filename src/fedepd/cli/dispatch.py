"""The command line. Results go to stdout, progress and complaints to stderr; a mistake is one sentence and exit code 2."""

from __future__ import annotations

import argparse
import difflib
import io
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, get_args, get_origin, get_type_hints

from fedepd.cli.console import complain, console, progress_bar, say
from fedepd.errors import BadConfig, FedEPDError, UnknownName
from fedepd.shown import shown

if TYPE_CHECKING:
    from fedepd.runs.jobs import Cell

COMMANDS = {
    "run": "train one method on one graph",
    "resume": "finish a run that was interrupted",
    "compare": "train several methods over several seeds, print a table, write a report",
    "reproduce": "make the paper's tables and figures, with a verdict on each of its claims",
    "attack": "let some clients be dishonest, with every defence beside none",
    "report": "make report.html from a run folder or a folder of runs",
    "export": "make a model folder from a run: weights, labels, calibration, model card",
    "predict": "classify the nodes of a new graph with such a model",
    "data": "list, show or fetch graphs; import, check and split your own",
    "methods": "list the methods",
    "federation": "train across sites whose graphs stay at home",
    "bench": "measure what a round costs here, beside a plain implementation",
}

ELSEWHERE = {
    "resume": "fedepd.cli.model:resume",
    "export": "fedepd.cli.model:export",
    "predict": "fedepd.cli.model:predict",
    "data": "fedepd.cli.data:run_action",
    "federation": "fedepd.cli.federation:main",
    "bench": "fedepd.cli.bench:bench",
    "attack": "fedepd.cli.attack:attack",
    "reproduce": "fedepd.cli.reproduce:reproduce",
}
"""Commands that are not in this file."""


class Parser(argparse.ArgumentParser):
    """argparse with errors of one sentence and a guess for a mistyped option."""

    def error(self, message: str) -> NoReturn:
        raise BadConfig(f"{message}; see '{self.prog} --help'")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        values, unknown = self.parse_known_args(arguments)
        if unknown:
            known = [flag for action in self._actions for flag in action.option_strings]
            near = difflib.get_close_matches(unknown[0].split("=")[0][:80], known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"see '{self.prog} --help'"
            kind = "option" if unknown[0].startswith("-") else "argument"
            raise BadConfig(f"unknown {kind} '{shown(unknown[0])}'; {hint}")
        return values


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    for stream in (sys.stdout, sys.stderr):  # a terminal of few characters gets the others as numbers
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return _main(list(arguments))
    except FedEPDError as mistake:
        complain(mistake)
        return 2
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except BrokenPipeError:  # before OSError, which it is too
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python complains once more when it flushes stdout at exit
        return 141
    except OSError as cause:  # the last net: a name that is too long, a disk that is full or read-only
        complain(f"cannot use '{shown(cause.filename or 'a file')}': {cause.strerror or cause}; check its name, its rights and the disk")
        return 2
    except MemoryError:
        complain("there is not enough memory for this; give a smaller graph or smaller settings")
        return 2


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        lines = [f"  {name:<{width}}  {text}" for name, text in COMMANDS.items()]
        lines += ["", "'fedepd COMMAND --help' explains each."]
        say("usage: fedepd COMMAND ...", "", "Federated learning on long-tailed graphs.", "", *lines)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from importlib.metadata import version

        say(version("fedepd"))
        return 0
    if arguments[0] not in COMMANDS:
        raise UnknownName("command", arguments[0], COMMANDS)
    if arguments[0] in ELSEWHERE:
        module, function = ELSEWHERE[arguments[0]].split(":")
        command: Callable[[list[str]], int] = getattr(import_module(module), function)
    else:
        command = globals()[f"command_{arguments[0]}"]
    return command(arguments[1:])


# --- run ---------------------------------------------------------------------------------------------------------------------------------


def command_run(arguments: list[str]) -> int:
    from fedepd.cli.model import by_resuming, show_result, stoppable
    from fedepd.runs.experiment import Experiment, read_toml
    from fedepd.runs.run import execute
    from fedepd.runs.source import Source

    named = arguments.pop(0) if arguments and not arguments[0].startswith("-") else None
    config_path = _value_of(arguments, "--config")
    file = read_toml(Path(config_path)) if config_path else {}
    method = str(named or file.get("method", "fedepd"))
    values = _run_parser(method).parse(arguments)
    settings = {**file, **{name: value for name, value in vars(values).items() if name not in RUN_ONLY}}
    if values.clients_dir is not None and "data" in settings:
        raise BadConfig(f"both --data '{settings['data']}' and --clients-dir '{values.clients_dir}' are given; give one of them")
    data, preset = (str(settings.pop(name, default)) for name, default in (("data", "synthetic"), ("preset", "default")))
    settings.pop("method", None)
    experiment = Experiment.make(method, preset, **settings)
    source = Source.make(data, values.data_dir, values.clients_dir)
    out = Path(values.out) if values.out is not None else None
    title = f"{method} on {values.clients_dir or data}"
    with stoppable(lambda: by_resuming(out)), progress_bar(title, experiment.protocol.rounds, values.quiet) as advance:
        graph = source.load(experiment)
        result = execute(experiment, graph, out, values.workers, lambda _: advance(1), values.checkpoint_every, source)
    return show_result(result, values.json)


RUN_ONLY = ("config", "out", "workers", "checkpoint_every", "data_dir", "clients_dir", "json", "quiet")


def _run_parser(method: str) -> Parser:
    from fedepd.methods import METHODS
    from fedepd.runs.experiment import GROUPS

    if method not in METHODS:
        raise UnknownName("method", method, METHODS)
    description = f"Train {METHODS[method].label}. Usage: fedepd run METHOD [options]; methods: {', '.join(METHODS)}."
    parser = Parser(prog=f"fedepd run {method}", allow_abbrev=False, argument_default=argparse.SUPPRESS, description=description)
    _add_data_options(parser)
    parser.add_argument("--clients-dir", default=None, metavar="FOLDER", help="instead of --data: the folder of 'fedepd data split'")
    parser.add_argument("--preset", metavar="NAME", help=f"named settings: {', '.join(METHODS[method].presets)}")
    parser.add_argument("--out", default=None, metavar="FOLDER", help="new folder for everything behind the numbers")
    add_checkpoint_option(parser)
    parser.add_argument("--json", action="store_true", default=False, help="print one JSON object and nothing else")
    add_settings(parser, f"settings of {METHODS[method].label}", METHODS[method])
    for name, cls in GROUPS.items():
        add_settings(parser, name, cls)
    return parser


def _add_data_options(parser: Parser) -> None:
    parser.add_argument("--data", metavar="NAME|FILE.npz", help="a dataset ('fedepd data list') or a file; default: synthetic")
    parser.add_argument("--data-dir", default=None, metavar="FOLDER", help="where datasets are; default: $FEDEPD_DATA, else the user cache")
    parser.add_argument("--config", default=None, metavar="FILE.toml", help="settings; the command line wins over the file")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="how much runs at a time; changes no bit of any result")
    parser.add_argument("--quiet", action="store_true", default=False, help="no progress display")


def add_checkpoint_option(parser: Parser) -> None:
    text = "with --out: save what 'fedepd resume' needs after every N rounds, or as often as costs at most 5 %% of the time; 0: never"
    parser.add_argument("--checkpoint-every", type=int, default=1, metavar="N", help=f"{text} (default: 1)")


def add_settings(parser: Parser, title: str, cls: type[Any], but: Sequence[str] = ()) -> None:
    """An option for every field of ``cls``, except for those named in ``but``."""
    group = parser.add_argument_group(title)
    hints = get_type_hints(cls)
    for f in (f for f in fields(cls) if f.name not in but):
        flag, kind, text = "--" + f.name.replace("_", "-"), hints[f.name], f"{f.metadata['help']} (default: {f.default})".replace("%", "%%")
        if kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            choices = get_args(kind) if get_origin(kind) is Literal else ()
            group.add_argument(flag, metavar="|".join(map(str, choices)) or getattr(kind, "__name__", "VALUE").upper(), help=text)


def _value_of(arguments: Sequence[str], flag: str) -> str | None:
    for position, here in enumerate(arguments):
        if here == flag and position + 1 < len(arguments):
            return arguments[position + 1]
        if here.startswith(flag + "="):
            return here.split("=", 1)[1]
    return None


# --- compare, report, methods ------------------------------------------------------------------------------------------------------------


def command_compare(arguments: list[str]) -> int:
    from fedepd.cli.model import stoppable
    from fedepd.runs.experiment import GROUPS
    from fedepd.runs.jobs import run_cells

    parser = Parser(prog="fedepd compare", allow_abbrev=False, argument_default=argparse.SUPPRESS,
                    description="Train several methods over several seeds; every method gets the same settings.")  # fmt: skip
    parser.add_argument("methods", nargs="+", metavar="METHOD[:PRESET]")
    _add_data_options(parser)
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="how many seeds, from --seed on (default: 3)")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="new folder: one run folder each, and report.html")
    for name, cls in GROUPS.items():
        add_settings(parser, name, cls)
    values = parser.parse(arguments)
    cells, rounds = _cells(values)
    title, how_to_go_on = f"{len(cells)} runs on {cells[0].data}", f"'fedepd resume {values.out}/RUN' finishes one of its runs"
    with stoppable(lambda: how_to_go_on), progress_bar(title, rounds * len(cells), values.quiet) as advance:
        seen = 0

        def watch() -> None:
            nonlocal seen
            now = sum(cell.rounds_done for cell in cells)
            advance(now - seen)
            seen = now

        run_cells(cells, values.workers, watch)
    return _report(Path(values.out))


def _cells(values: argparse.Namespace) -> tuple[list[Cell], int]:
    """The runs of a comparison and the rounds of each; mistakes are found before anything runs."""
    from fedepd.runs.experiment import Experiment, read_toml
    from fedepd.runs.folder import check_new_folder
    from fedepd.runs.jobs import Cell

    file = read_toml(Path(values.config)) if values.config else {}
    if named := [name for name in ("method", "preset") if name in file]:
        raise BadConfig(f"'{named[0]}' in '{values.config}' has no meaning in a comparison; name methods as METHOD[:PRESET] and remove it")
    settings = {**file, **{name: value for name, value in vars(values).items() if name not in (*RUN_ONLY, "methods", "seeds")}}
    data = str(settings.pop("data", "synthetic"))
    if values.seeds < 1:
        raise BadConfig(f"seeds is {values.seeds}; give at least 1")
    out = Path(values.out)
    check_new_folder(out)
    pairs = [(method, preset or "default") for method, _, preset in (spelled.partition(":") for spelled in values.methods)]
    for pair in pairs:
        if pairs.count(pair) > 1:
            raise BadConfig(f"method '{':'.join(pair)}' is named twice; name it once, seeds are repeated by --seeds")
    cells = []
    for method, preset in pairs:
        first = Experiment.make(method, preset, **settings).protocol
        folder = method if preset == "default" else f"{method}-{preset}"
        for seed in range(first.seed, first.seed + values.seeds):
            cells.append(Cell(method, preset, data, out / f"{folder}-seed{seed}", values.data_dir, {**settings, "seed": seed}))
    return cells, first.rounds


def command_report(arguments: list[str]) -> int:
    parser = Parser(prog="fedepd report", allow_abbrev=False, description="A self-contained page and a table from run folders.")
    parser.add_argument("folder", metavar="FOLDER", help="a run folder, or a folder of run folders")
    parser.add_argument("-o", "--out", default=None, metavar="FILE.html", help="default: report.html inside the folder")
    values = parser.parse(arguments)
    return _report(Path(values.folder), values.out)


def _report(folder: Path, out: str | None = None) -> int:
    from fedepd.report.page import build_report
    from fedepd.report.runs import read_runs
    from fedepd.report.tables import rich_table

    runs = read_runs(folder)
    console().print(rich_table(runs))
    say(f"report: {build_report(folder, out, runs)}")
    return 0


def command_methods(arguments: list[str]) -> int:
    parser = Parser(prog="fedepd methods", description="List the methods.")
    parser.parse(arguments)
    from rich.table import Column, Table

    from fedepd.methods import METHODS

    table = Table(Column("name", no_wrap=True), Column("method", no_wrap=True), "headline model", "presets", "settings")
    for name, cls in METHODS.items():
        headline = "global" if cls.has_global else "personal"
        table.add_row(name, cls.label, headline, ", ".join(cls.presets), ", ".join(f.name for f in fields(cls)))
    console().print(table)
    return 0
