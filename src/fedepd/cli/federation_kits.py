"""``fedepd federation init``, ``start`` and ``join``: make a kit, and run the server or a site from one."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from fedepd.cli.console import say
from fedepd.cli.parser import Parser
from fedepd.datasets.npz import read_npz
from fedepd.deploy.agreement import NOTHING_AGREED, Agreement, agreement_of, check_agrees
from fedepd.errors import BadConfig
from fedepd.shown import listed, shown


def init(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.kits import provision

    parser.add_argument(
        "--sites",
        required=True,
        metavar="A,B,C",
        help="names of the sites; their order gives the client numbers",
    )
    parser.add_argument(
        "--host", required=True, metavar="NAME", help="host name of the server; every site must resolve it"
    )
    parser.add_argument(
        "--port", type=int, default=8002, metavar="N", help="port that the sites connect to (default: 8002)"
    )
    parser.add_argument(
        "--features", type=int, metavar="N", help="number of features, so that 'join' can check it"
    )
    parser.add_argument(
        "--classes", type=int, metavar="N", help="number of classes, so that 'join' can check it"
    )
    parser.add_argument(
        "--example",
        metavar="FILE.npz",
        help="a graph with the agreed class names and columns; every site must have the same",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE.toml",
        help="the plan of 'fedepd federation plan'; it goes into every kit, signed with them",
    )
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="new folder for the kits")
    values = parser.parse(arguments)
    sizes, agreed, plan = _agreed(values)
    sites = values.sites.split(",")
    kits = provision(Path(values.out), sites, values.host, values.port, sizes, agreed, plan)
    for name, kit in kits.items():
        say(f"{name}: {kit}")
    say(f"Keep '{values.out}/authority' secret and make a backup: whoever has it can make new kits.")
    say("Give each site its own kit over a safe channel.")
    return 0


def _agreed(values: argparse.Namespace) -> tuple[dict[str, int], Agreement, bytes | None]:
    """What the kits say about classes and columns: sizes, meaning, and the content of the plan."""
    from fedepd.deploy.plan import parse_plan, plan_bytes
    from fedepd.deploy.plan_task import check_runs

    sizes = {
        name: getattr(values, name) for name in ("features", "classes") if getattr(values, name) is not None
    }
    graph = None if values.example is None else read_npz(values.example, part=True)
    if values.plan is not None:
        content = plan_bytes(Path(values.plan))
        plan = parse_plan(content, Path(values.plan))
        check_runs(plan, f"the plan '{shown(values.plan, 300)}'")
        if graph is not None:
            check_agrees(graph, values.example, plan.agreed)
        return _sizes_of(values, values.plan, plan.num_features, len(plan.classes)), plan.agreed, content
    if graph is None:
        return sizes, NOTHING_AGREED, None
    sizes = _sizes_of(values, values.example, graph.num_features, graph.num_classes)
    return sizes, agreement_of(graph), None


def _sizes_of(values: argparse.Namespace, file: str, features: int, classes: int) -> dict[str, int]:
    """The sizes of an example or a plan. A typed number that differs from them is refused."""
    for name, known in (("features", features), ("classes", classes)):
        if getattr(values, name) not in (None, known):
            raise BadConfig(
                f"--{name} is {getattr(values, name)}, but '{shown(file, 300)}' has {known}; "
                f"leave --{name} out"
            )
    return {"features": features, "classes": classes}


def start(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.kits import prepare_server

    parser.add_argument("kit", metavar="KIT", help="the server's kit")
    allow_option(
        parser, "a method or backbone of another package that jobs may name, in full: package.module.Class"
    )
    values = parser.parse(arguments)
    return _become(prepare_server(Path(values.kit), values.allow))


def allow_option(parser: Parser, text: str) -> None:
    parser.add_argument("--allow", action="append", default=[], metavar="CLASS", help=text)


def pin_option(parser: Parser) -> None:
    parser.add_argument(
        "--pin",
        default=None,
        metavar="SHA256",
        help="fingerprint of the federation's root certificate; a kit with another one is refused",
    )


def join(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.kits import check_pin, open_kit, prepare_site
    from fedepd.deploy.limits import LIMITS_FILE
    from fedepd.deploy.owner import check_privacy
    from fedepd.deploy.signing import key_fingerprint
    from fedepd.deploy.taken import runs_in

    parser.add_argument("kit", metavar="KIT", help="the kit that you got from the coordinator")
    parser.add_argument(
        "--data",
        default=None,
        metavar="FILE.npz",
        help="your graph; it does not leave this machine (default: what 'import' put into the kit)",
    )
    allow_option(
        parser,
        "a class of your own that jobs may name, or a method or backbone of another package, in full: "
        "package.module.Class",
    )
    pin_option(parser)
    parser.add_argument(
        "--looser-limits",
        action="store_true",
        help="accept a limits.toml that permits more than the safe limits",
    )
    parser.add_argument(
        "--check", action="store_true", help="check the data and write the policy, but do not run the site"
    )
    values = parser.parse(arguments)
    folder = Path(values.kit)
    if values.pin is not None:
        check_pin(open_kit(folder, "client"), values.pin)
    data = None if values.data is None else Path(values.data)
    kit = prepare_site(folder, data, values.allow, values.looser_limits)
    say(f"site {kit.name}, server {kit.host}:{kit.port}")
    say(f"fingerprint of the federation's root certificate: SHA-256 {kit.fingerprint}")
    for site, key in kit.keys.items():
        say(f"fingerprint of the key of {site}: {key_fingerprint(key)}")
    filters = check_privacy(folder, values.allow)
    say(f"filters on what leaves this site: {', '.join(filters) or 'none'}")
    say(f"further classes that jobs may use: {', '.join(values.allow) or 'none'}")
    say(f"limits on what a run may ask of this site: {folder / 'local' / LIMITS_FILE}")
    if runs := runs_in(folder):
        say(
            f"saved state of earlier runs: {listed(runs)}; "
            f"if this kit is new to you, somebody else put it there, so remove {folder / 'state'}"
        )
    return 0 if values.check else _become(kit)


def _become(kit: Any) -> int:
    """Replace this process by the party's, which then gets the signals and gives the exit code."""
    from fedepd.deploy.kits import launch_command, launch_environment

    command = launch_command(kit.folder, kit.kind, kit.name)
    os.chdir(kit.folder)
    sys.stdout.flush()  # unflushed output would be lost when the process is replaced
    os.execve(command[0], command, launch_environment())
