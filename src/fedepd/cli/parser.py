"""The argparse parser of every command: an error is one sentence, and every setting has an option."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, get_type_hints

from fedepd.errors import BadConfig
from fedepd.options import choices_of
from fedepd.shown import shown

if TYPE_CHECKING:
    from fedepd.runs.jobs import Workers

METAVARS: dict[Any, str] = {str: "NAME", int: "INT", float: "FLOAT"}


NOT_HERE = dict.fromkeys(
    ("--device", "--gpu", "--gpus", "--cuda"), "fedepd computes on the CPU only, so leave it out"
)
"""Options that people expect, each with what is true instead."""


def nearest(flag: str, known: Sequence[str]) -> str:
    """The option that was probably meant; empty where none is near.

    Dashes do not count. They made '--rho' look like '--threshold'.
    Choice: an option is near if four fifths of the letters match, or one name is the beginning of the other.
    """
    bare = {name.lstrip("-"): name for name in reversed(known) if name.startswith("--")}
    given = flag.lstrip("-")
    if close := difflib.get_close_matches(given, bare, n=1, cutoff=0.8):
        return bare[close[0]]
    begun = [name for name in bare if len(given) >= 4 and name.startswith(given)]
    return bare[min(begun, key=len)] if begun else ""


WORDS = "docs/glossary.md explains the words."


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are one sentence and suggest the right name of a mistyped option."""

    removed: Mapping[str, str] = {}
    """Options that are no more, each with a sentence about it."""

    def format_help(self) -> str:
        return f"{super().format_help()}\n{WORDS}\n"

    def error(self, message: str) -> NoReturn:
        raise BadConfig(f"{message}; see '{self.prog} --help'")

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        values, unknown = self.parse_known_args(self._switched(arguments))
        if unknown:
            if (flag := unknown[0].split("=")[0][:80]) in self.removed:
                raise BadConfig(self.removed[flag])
            if flag in NOT_HERE:
                raise BadConfig(f"unknown option '{flag}'; {NOT_HERE[flag]}")
            known = [flag for action in self._actions for flag in action.option_strings]
            near = nearest(flag, known)
            hint = f"did you mean '{near}'?" if near else f"see '{self.prog} --help'"
            kind = "option" if unknown[0].startswith("-") else "argument"
            raise BadConfig(f"unknown {kind} '{shown(unknown[0])}'; {hint}")
        return values

    def _switched(self, arguments: Sequence[str]) -> list[str]:
        """``--guard on`` as ``--guard``, and ``--guard off`` as ``--no-guard``."""
        switches = {
            flag
            for action in self._actions
            if isinstance(action, argparse.BooleanOptionalAction)
            for flag in action.option_strings
            if not flag.startswith("--no-")
        }
        out: list[str] = []
        for word in arguments:
            if word in ("on", "off") and out and out[-1] in switches:
                out[-1] = out[-1] if word == "on" else "--no-" + out[-1].removeprefix("--")
            else:
                out.append(word)
        return out


def add_checkpoint_option(parser: Parser) -> None:
    parser.add_argument(
        "--checkpoint-every",
        type=int,
        default=1,
        metavar="N",
        help="with --out: save a checkpoint for 'fedepd resume' every N rounds, or less often so that saving "
        "takes at most 5 %% of the time; 0: never (default: 1)",
    )


def add_shards_option(parser: Parser) -> None:
    parser.add_argument(
        "--shards",
        type=int,
        default=1,
        metavar="N",
        help="number of processes that share the clients, in place of --workers, for many small clients; "
        "results do not depend on it (default: 1)",
    )


def add_tuned_option(parser: Parser) -> None:
    parser.add_argument(
        "--tuned",
        default=None,
        metavar="FILE.toml",
        help="settings that 'fedepd tune' found; they apply to the methods named in the file",
    )


def add_track_option(parser: Parser) -> None:
    parser.add_argument(
        "--track",
        default=None,
        metavar="TRACKER",
        help="with --out: also log settings, every round, test scores and figures to tensorboard:DIR, "
        "mlflow:URI, wandb or wandb:PROJECT (wandb writes files only, unless $WANDB_MODE says otherwise)",
    )


def add_cluster_options(parser: Parser) -> None:
    group = parser.add_argument_group("cluster", "the runs on other machines; see 'fedepd cluster'")
    group.add_argument(
        "--cluster", default=None, metavar="tls://HOST:PORT", help="the scheduler, in place of --workers"
    )
    group.add_argument(
        "--certificates", default=None, metavar="FOLDER", help="what 'fedepd cluster certificates' made"
    )
    group.add_argument(
        "--shared",
        action="store_true",
        default=False,
        help="all machines see the output folder under the same path, so that no run is sent back",
    )


CLUSTER = ("cluster", "certificates", "shared")
"""The options of ``add_cluster_options``."""


def workers_of(values: argparse.Namespace) -> Workers:
    """Processes here, or the cluster that was named."""
    if values.cluster is None:
        if values.certificates is not None or values.shared:
            raise BadConfig("certificates and shared belong to --cluster; give it, or leave them out")
        return int(values.workers)
    from fedepd.cluster.pool import ClusterPool

    if values.certificates is None:
        raise BadConfig("a cluster needs --certificates; 'fedepd cluster certificates FOLDER' makes them")
    return ClusterPool(values.cluster, Path(values.certificates), values.shared)


def add_node_columns(parser: Parser) -> None:
    """Which columns of a table of nodes are ids and classes."""
    parser.add_argument("--id", default="id", metavar="COLUMN", help="column of the node ids (default: id)")
    parser.add_argument(
        "--label",
        default="label",
        metavar="COLUMN",
        help="column of the classes; an empty cell means unknown (default: label)",
    )


def add_edge_columns(parser: Parser) -> None:
    """Which columns of a table of edges name its ends."""
    for flag, which in (("--source", "first"), ("--target", "second")):
        parser.add_argument(
            flag,
            default=None,
            metavar="COLUMN",
            help=f"column of an edge's {which} end (default: {flag[2:]}, else the {which} column)",
        )


def add_settings(
    parser: Parser,
    title: str,
    cls: type[Any],
    but: Sequence[str] = (),
    defaults: Mapping[str, str] | None = None,
) -> None:
    """An option for every field of ``cls``, except for those named in ``but``.

    ``defaults``: what is taken by this command where a field is not given, if it is not the field's default.
    """
    group = parser.add_argument_group(title)
    hints = get_type_hints(cls)
    for f in (f for f in fields(cls) if f.name not in but):
        flag, kind = "--" + f.name.replace("_", "-"), hints[f.name]
        default = (defaults or {}).get(f.name, f.default)
        text = f"{f.metadata['help']} (default: {default})".replace("%", "%%")
        if kind is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            group.add_argument(
                flag,
                metavar="|".join(map(str, choices_of(f, kind))) or METAVARS.get(kind, "VALUE"),
                help=text,
            )
