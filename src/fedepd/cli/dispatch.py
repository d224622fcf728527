"""The command line. Results go to stdout, progress and complaints to stderr; a mistake is one sentence and exit code 2."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from fedepd.cli.console import complain, say
from fedepd.errors import FedEPDError, UnknownName
from fedepd.shown import shown

COMMANDS = {
    "run": ("train one method on one graph", "fedepd.cli.runs:run"),
    "resume": ("finish a run that was interrupted", "fedepd.cli.model:resume"),
    "compare": (
        "train several methods over several seeds, print a table, write a report",
        "fedepd.cli.runs:compare",
    ),
    "reproduce": (
        "make the paper's tables and figures, with a verdict on each of its claims",
        "fedepd.cli.reproduce:reproduce",
    ),
    "attack": ("let some clients be dishonest, with every defence beside none", "fedepd.cli.attack:attack"),
    "report": ("make report.html from a run folder or a folder of runs", "fedepd.cli.runs:report"),
    "export": (
        "make a model folder from a run: weights, labels, calibration, model card",
        "fedepd.cli.model:export",
    ),
    "predict": ("classify the nodes of a new graph with such a model", "fedepd.cli.model:predict"),
    "data": ("list, show or fetch graphs; import, check and split your own", "fedepd.cli.data:run_action"),
    "methods": ("list the methods", "fedepd.cli.runs:methods"),
    "federation": ("train across sites whose graphs stay at home", "fedepd.cli.federation:main"),
    "bench": ("measure what a round costs here, beside a plain implementation", "fedepd.cli.bench:bench"),
}
"""What it does, and where it is: imported when it is asked for, so that ``fedepd --help`` does not wait for torch."""


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
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # else Python complains once more when it flushes stdout at exit
        return 141
    except OSError as cause:  # the last net: a name that is too long, a disk that is full or read-only
        complain(
            f"cannot use '{shown(cause.filename or 'a file')}': {cause.strerror or cause}; check its name, its rights and the disk"
        )
        return 2
    except MemoryError:
        complain("there is not enough memory for this; give a smaller graph or smaller settings")
        return 2


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        lines = [f"  {name:<{width}}  {text}" for name, (text, _) in COMMANDS.items()]
        lines += ["", "'fedepd COMMAND --help' explains each."]
        say("usage: fedepd COMMAND ...", "", "Federated learning on long-tailed graphs.", "", *lines)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from importlib.metadata import version

        say(version("fedepd"))
        return 0
    if arguments[0] not in COMMANDS:
        raise UnknownName("command", arguments[0], COMMANDS)
    module, function = COMMANDS[arguments[0]][1].split(":")
    command: Callable[[list[str]], int] = getattr(import_module(module), function)
    return command(arguments[1:])
