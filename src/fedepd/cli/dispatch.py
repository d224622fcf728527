"""The command line. Results go to stdout, progress and errors to stderr.

A user's mistake gives one sentence and exit code 2.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from fedepd.cli.console import complain, say
from fedepd.cli.help import asks_for_help, show_help
from fedepd.errors import FedEPDError, UnknownName
from fedepd.shown import shown

# Python ends with a search for cycles among all objects. With torch loaded it takes half a second, and the
# process ends anyway. Frozen objects are left out of it.
atexit.register(gc.freeze)

COMMANDS = {
    "run": ("train one method on one graph", "fedepd.cli.runs:run"),
    "resume": ("finish an interrupted run", "fedepd.cli.model:resume"),
    "compare": (
        "train several methods over several seeds, print a table and write a report",
        "fedepd.cli.runs:compare",
    ),
    "sweep": (
        "train one method over values of its settings, and test all pairs",
        "fedepd.cli.sweep:sweep",
    ),
    "reproduce": (
        "make the paper's tables and figures, with a verdict on each of its claims",
        "fedepd.cli.reproduce:reproduce",
    ),
    "tune": (
        "search settings of several methods with equal effort, by validation alone",
        "fedepd.cli.tune:tune",
    ),
    "cluster": ("start workers for runs on several machines", "fedepd.cli.cluster:cluster"),
    "attack": (
        "measure what dishonest clients can do, with and without defences",
        "fedepd.cli.attack:attack",
    ),
    "audit": (
        "measure what a server can learn about clients, with and without protection",
        "fedepd.cli.audit:audit",
    ),
    "report": ("make report.html from a run folder or a folder of runs", "fedepd.cli.runs:report"),
    "board": ("show the runs of a folder on a live page, on this machine", "fedepd.cli.board:board"),
    "track": (
        "send finished runs to TensorBoard, MLflow or Weights & Biases",
        "fedepd.cli.track:track",
    ),
    "evaluate": (
        "score a run's model on the whole graph, with the edges between clients",
        "fedepd.cli.evaluate:evaluate",
    ),
    "export": (
        "make a model folder from a run: weights, labels, calibration, model card",
        "fedepd.cli.model:export",
    ),
    "point": (
        "show or change how a model folder's probabilities become decisions",
        "fedepd.cli.point:point",
    ),
    "predict": ("classify the nodes of a new graph with an exported model", "fedepd.cli.model:predict"),
    "explain": (
        "say which features and neighbours moved a model's decisions",
        "fedepd.cli.explain:explain",
    ),
    "monitor": (
        "compare new nodes with those that a model was trained on",
        "fedepd.cli.monitor:monitor",
    ),
    "data": ("list, show or fetch graphs; import, check or split your own", "fedepd.cli.data:run_action"),
    "examples": ("write tables to try the other commands on", "fedepd.cli.examples:examples"),
    "methods": ("list the methods", "fedepd.cli.runs:methods"),
    "completion": ("print a script for the tab key of bash, zsh or fish", "fedepd.cli.completion:completion"),
    "federation": ("train across sites that keep their graphs to themselves", "fedepd.cli.federation:main"),
    "bench": ("measure the cost of a round on this machine", "fedepd.cli.bench:bench"),
}
"""What each command does, and its function. The module is imported only when the command is used.

So ``fedepd --help`` does not wait for torch.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # A terminal that cannot show a character gets its number instead.
    for stream in (sys.stdout, sys.stderr):
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
    except BrokenPipeError:  # a subclass of OSError, so it comes first
        # Otherwise Python reports the error again when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as cause:  # what no reader caught: a name that is too long, a full or read-only disk
        file = shown(cause.filename or "a file")
        complain(f"cannot use '{file}': {cause.strerror or cause}; check its name, permissions and the disk")
        return 2
    except MemoryError:
        complain("there is not enough memory; give a smaller graph or smaller settings")
        return 2


def _main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        width = max(map(len, COMMANDS))
        lines = [f"  {name:<{width}}  {text}" for name, (text, _) in COMMANDS.items()]
        lines += ["", "'fedepd COMMAND --help' explains a command, and docs/glossary.md the words."]
        say("usage: fedepd COMMAND ...", "", "Federated learning on long-tailed graphs.", "", *lines)
        return 0 if arguments else 2
    if arguments[0] == "--version":
        from importlib.metadata import version

        say(version("fedepd"))
        return 0
    if arguments[0] not in COMMANDS:
        raise UnknownName("command", arguments[0], COMMANDS)
    if asks_for_help(arguments):
        return show_help(arguments, lambda: _command(arguments))
    return _command(arguments)


def _command(arguments: list[str]) -> int:
    module, function = COMMANDS[arguments[0]][1].split(":")
    command: Callable[[list[str]], int] = getattr(import_module(module), function)
    return command(arguments[1:])
