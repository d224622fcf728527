"""``fedepd federation``: what coordinators and owners type."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fedepd.cli.console import console, say, say_json
from fedepd.cli.parser import Parser
from fedepd.datasets.npz import read_npz
from fedepd.deploy.agreement import NOTHING_AGREED, Agreement, agreement_of, check_agrees, schema_sha256
from fedepd.deploy.task import FederationTask
from fedepd.errors import BadConfig, BadMessage, UnknownName
from fedepd.runs.experiment import read_toml, setting_owners
from fedepd.shown import listed, shown


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help"):
        lines = [f"  {name:<8}  {text}" for name, (text, _) in ACTIONS.items()]
        say("usage: fedepd federation ACTION ...", "", *lines)
        return 0 if arguments else 2
    action = arguments[0]
    if action not in ACTIONS:
        raise UnknownName("federation action", action, ACTIONS)
    if find_spec("nvflare") is None:
        raise BadConfig(
            "'fedepd federation' needs NVFlare, which is not installed; run: pip install 'fedepd[federation]'"
        )
    logging.getLogger().addHandler(logging.NullHandler())  # else NVFlare's warnings stand between the lines
    text, run = ACTIONS[action]
    return run(
        Parser(prog=f"fedepd federation {action}", allow_abbrev=False, description=text), arguments[1:]
    )


# --- kits --------------------------------------------------------------------------------------------------------------------------------


def _init(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.kits import provision

    parser.add_argument(
        "--sites", required=True, metavar="A,B,C", help="names of the sites; their order numbers the clients"
    )
    parser.add_argument(
        "--host", required=True, metavar="NAME", help="the server's name as every site resolves it"
    )
    parser.add_argument(
        "--port", type=int, default=8002, metavar="N", help="the one port sites connect to (default: 8002)"
    )
    parser.add_argument(
        "--features", type=int, metavar="N", help="feature width, so that 'join' can check it"
    )
    parser.add_argument(
        "--classes", type=int, metavar="N", help="number of classes, so that 'join' can check it"
    )
    parser.add_argument(
        "--example",
        metavar="FILE.npz",
        help="a graph with the agreed class names and columns; every site is held to them",
    )
    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="new folder for the kits")
    values = parser.parse(arguments)
    sizes = {
        name: getattr(values, name) for name in ("features", "classes") if getattr(values, name) is not None
    }
    agreed = NOTHING_AGREED
    if values.example is not None:
        graph = read_npz(values.example, part=True)
        sizes, agreed = _sizes_of(values, graph.num_features, graph.num_classes), agreement_of(graph)
    kits = provision(Path(values.out), values.sites.split(","), values.host, values.port, sizes, agreed)
    for name, kit in kits.items():
        say(f"{name}: {kit}")
    say(
        f"Keep '{values.out}/authority' secret and backed up: it can make new kits. Give each site its own kit over a safe channel."
    )
    return 0


def _sizes_of(values: argparse.Namespace, features: int, classes: int) -> dict[str, int]:
    """The example's sizes; a number that says otherwise is a mistake of whoever typed it."""
    for name, known in (("features", features), ("classes", classes)):
        if getattr(values, name) not in (None, known):
            raise BadConfig(
                f"--{name} is {getattr(values, name)}, '{values.example}' has {known}; leave --{name} out"
            )
    return {"features": features, "classes": classes}


def _start(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.kits import prepare_server

    parser.add_argument("kit", metavar="KIT", help="the server's kit")
    _allow_option(
        parser, "a method or backbone of another package that jobs may name, in full: package.module.Class"
    )
    values = parser.parse(arguments)
    return _become(prepare_server(Path(values.kit), values.allow))


def _allow_option(parser: Parser, text: str) -> None:
    parser.add_argument("--allow", action="append", default=[], metavar="CLASS", help=text)


def _join(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.kits import check_pin, open_kit, prepare_site
    from fedepd.deploy.limits import LIMITS_FILE
    from fedepd.deploy.owner import check_privacy

    parser.add_argument("kit", metavar="KIT", help="your kit, as the coordinator gave it to you")
    parser.add_argument(
        "--data", required=True, metavar="FILE.npz", help="your graph; it is read here and stays here"
    )
    _allow_option(
        parser,
        "an own class that jobs may name, or a method or backbone of another package, in full: package.module.Class",
    )
    parser.add_argument(
        "--pin",
        default=None,
        metavar="SHA256",
        help="the root certificate's fingerprint; another kit is refused",
    )
    parser.add_argument(
        "--looser-limits",
        action="store_true",
        help="accept a limits.toml that permits more than the safe limits",
    )
    parser.add_argument("--check", action="store_true", help="check and write the policy, but do not start")
    values = parser.parse(arguments)
    folder = Path(values.kit)
    if values.pin is not None:
        check_pin(open_kit(folder, "client"), values.pin)
    kit = prepare_site(folder, Path(values.data), values.allow, values.looser_limits)
    say(
        f"site {kit.name}, server {kit.host}:{kit.port}, the federation's root certificate is SHA-256 {kit.fingerprint}"
    )
    filters = check_privacy(folder, values.allow)
    say(
        f"filters on what leaves: {', '.join(filters) or 'none'}; further classes allowed: {', '.join(values.allow) or 'none'}"
    )
    say(f"what a run may ask of this site: {folder / 'local' / LIMITS_FILE}")
    if runs := sorted(path.name for path in (folder / "state").glob("*") if path.name != "answers"):
        say(
            f"saved state of earlier runs: {listed(runs)}; a kit that is new to you has none, so remove {folder / 'state'} then"
        )
    return 0 if values.check else _become(kit)


def _become(kit: Any) -> int:
    """Turn this process into the participant: signals and exit codes are then its own."""
    from fedepd.deploy.kits import launch_command, launch_environment

    command = launch_command(kit.folder, kit.kind, kit.name)
    os.chdir(kit.folder)
    sys.stdout.flush()  # what was said here would be lost with this program
    os.execve(command[0], command, launch_environment())


# --- tasks -------------------------------------------------------------------------------------------------------------------------------


def _task_options(parser: Parser, method: str) -> None:
    parser.add_argument(
        "--method", default="fedepd", metavar="NAME", help="see 'fedepd methods' (default: fedepd)"
    )
    parser.add_argument("--preset", default="default", metavar="NAME")
    parser.add_argument(
        "--features", dest="num_features", type=int, metavar="N", help="width of the sites' features"
    )
    parser.add_argument(
        "--classes", dest="num_classes", type=int, metavar="N", help="classes of the whole federation"
    )
    parser.add_argument(
        "--config", default=None, metavar="FILE.toml", help="settings; the command line wins over the file"
    )
    parser.add_argument(
        "--run", default=None, metavar="NAME", help="name of the run (default: method and time)"
    )
    group = parser.add_argument_group("settings of the run, as of 'fedepd run'")
    for name in task_settings(method):
        flag = "--feature-form" if name == "features" else "--" + name.replace("_", "-")
        group.add_argument(flag, dest=name, default=argparse.SUPPRESS, metavar="VALUE")


def task_settings(method: str) -> list[str]:
    """What may be set: all but how to cut one graph into clients, because here the sites are the clients."""
    return [name for name, (group, _) in setting_owners(method).items() if group != "partition"]


def _method(arguments: list[str]) -> str:
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--method", default=None)
    first.add_argument("--config", default=None)
    found, _ = first.parse_known_args(arguments)
    return str(
        found.method or (read_toml(Path(found.config)).get("method") if found.config else None) or "fedepd"
    )


def _task(
    values: argparse.Namespace,
    method: str,
    sites: Sequence[str],
    num_features: int,
    num_classes: int,
    agreed: Agreement = NOTHING_AGREED,
) -> FederationTask:
    settings = read_toml(Path(values.config)) if values.config else {}
    preset = str(settings.pop("preset", values.preset)) if values.preset == "default" else values.preset
    settings = {name: value for name, value in settings.items() if name != "method"}
    settings |= {name: getattr(values, name) for name in task_settings(method) if hasattr(values, name)}
    run = values.run or f"{method.replace('_', '-')}-{time.strftime('%Y%m%d-%H%M%S')}"
    given = {name: getattr(values, name, None) for name in ("min_sites", "deadline", "max_nodes")}
    limits: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if agreed.label_names or agreed.schema:
        limits |= {"label_names": agreed.label_names, "schema_sha256": schema_sha256(agreed.schema)}
    task = FederationTask(run, method, preset, settings, num_features, num_classes, tuple(sites), **limits)
    task.experiment().check_given(settings)
    return task


def _sizes(
    values: argparse.Namespace, kit: Any, features: int | None, classes: int | None
) -> tuple[int | None, int | None]:
    """What was typed, else what the kit says, else what is given; a kit made with --example is not contradicted."""
    for name, typed, known in (
        ("features", values.num_features, kit.features),
        ("classes", values.num_classes, kit.classes),
    ):
        if (kit.agreed.label_names or kit.agreed.schema) and typed not in (None, known):
            raise BadConfig(f"--{name} is {typed}, the federation agreed on {known}; leave --{name} out")
    return values.num_features or kit.features or features, values.num_classes or kit.classes or classes


def _submit(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin, kits

    method = _method(arguments)
    parser.add_argument("kit", metavar="KIT", help="the admin kit")
    _task_options(parser, method)
    parser.add_argument(
        "--min-sites",
        type=int,
        default=None,
        metavar="N",
        help="a round closes without the others (default: all sites)",
    )
    parser.add_argument(
        "--deadline", type=float, default=None, metavar="SECONDS", help="for a site's answer (default: 600)"
    )
    parser.add_argument(
        "--max-nodes",
        type=int,
        default=None,
        metavar="N",
        help="no site is believed to have more (default: 10 million)",
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the last run, or with --run, from its checkpoint"
    )
    parser.add_argument("--watch", action="store_true", help="then do as 'watch'")
    values = parser.parse(arguments)
    if values.resume:
        task = admin.last_job(Path(values.kit), values.run).task
    else:
        known = kits.open_kit(Path(values.kit), "admin")
        features, classes = _sizes(values, known, None, None)
        if features is None or classes is None:
            raise BadConfig(
                "the run needs the width of the features and the number of classes; add --features N --classes N"
            )
        values.min_sites = len(known.sites) if values.min_sites is None else values.min_sites
        task = _task(values, method, known.sites, features, classes, known.agreed)
    job = admin.submit(Path(values.kit), task, values.resume)
    say(f"run {task.run}, job {shown(job.id)}")
    return _follow(Path(values.kit), job, True) if values.watch else 0


def _rehearse(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.rehearse import rehearse

    method = _method(arguments)
    parser.add_argument("files", nargs="+", metavar="FILE.npz", help="client files in the order of the sites")
    _task_options(parser, method)
    values = parser.parse(arguments)
    graphs = [read_npz(file, part=True) for file in values.files]
    features, classes = (
        values.num_features or graphs[0].num_features,
        values.num_classes or max(g.num_classes for g in graphs),
    )
    task = _task(values, method, [f"site-{k}" for k in range(len(graphs))], features, classes)
    say(f"digest {rehearse(task, values.files).digest()}")
    return 0


def _preview(parser: Parser, arguments: list[str]) -> int:
    from rich.table import Table

    from fedepd.deploy import kits
    from fedepd.deploy.limits import LIMITS_FILE, Limits
    from fedepd.deploy.preview import preview

    method = _method(arguments)
    parser.add_argument("kit", metavar="KIT", help="your kit")
    parser.add_argument("--data", required=True, metavar="FILE.npz", help="your graph")
    parser.add_argument("--json", action="store_true", help="print JSON and nothing else")
    _task_options(parser, method)
    values = parser.parse(arguments)
    kit, graph = Path(values.kit), read_npz(values.data, part=True)
    known = kits.open_kit(kit, "client")
    check_agrees(graph, values.data, known.agreed)
    features, classes = _sizes(values, known, graph.num_features, graph.num_classes)
    task = _task(
        values,
        method,
        known.sites,
        features or graph.num_features,
        classes or graph.num_classes,
        known.agreed,
    )
    own = kit / "local" / LIMITS_FILE
    limits = Limits.read(own) if own.exists() else Limits()
    seen = preview(task, known.name, Path(values.data), limits)
    if values.json:
        say_json({**asdict(seen), "bytes_per_round": seen.bytes_per_round})
        return 0
    table = Table("field", "shape", "bytes", "when", title=f"What leaves the house with {method}")
    for each in seen.fields:
        table.add_row(
            shown(each.field), " x ".join(map(str, each.shape)) or "number", f"{each.bytes:,}", each.when
        )
    console().print(table)
    say(f"{seen.bytes_per_round:,} bytes per round; features, edges and node labels stay here")
    for name, counts in seen.counts.items():
        say(f"{name} by class: {' '.join(map(str, counts))}")
    say(f"measured here: {seen.recovery.sentence()}")
    say(
        f"limits of this site ({LIMITS_FILE if own.exists() else 'the safe ones, as join will write them'}):",
        *(f"  {line}" for line in seen.limits),
    )
    say(
        f"this site would refuse the run: {seen.refusal}" if seen.refusal else "this run is within the limits"
    )
    say(*(f"warning: {warning}" for warning in seen.warnings))
    return 0


# --- runs --------------------------------------------------------------------------------------------------------------------------------


def _run_options(parser: Parser, arguments: list[str], **more: dict[str, Any]) -> argparse.Namespace:
    parser.add_argument("kit", metavar="KIT", help="the admin kit")
    parser.add_argument("--run", default=None, metavar="NAME", help="default: the last one submitted")
    for name, options in more.items():
        parser.add_argument("--" + name.replace("_", "-"), **options)
    return parser.parse(arguments)


def _status(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin, kits

    values = _run_options(
        parser, arguments, json={"action": "store_true", "help": "print JSON and nothing else"}
    )
    kit = Path(values.kit)
    here = admin.connected(kit)
    now: dict[str, Any] = {"sites": {site: site in here for site in kits.open_kit(kit, "admin").sites}}
    if (kit / admin.RUNS).exists():
        with admin.session(kit) as session:
            now["run"] = admin.look(session, admin.last_job(kit, values.run))
    if values.json:
        say_json(now)
        return 0
    say(
        *(
            f"{shown(site)}: {'connected' if there else 'not connected'}"
            for site, there in now["sites"].items()
        )
    )
    say(admin.describe(now["run"]) if "run" in now else "no run was submitted yet")
    return 0


def _watch(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin

    values = _run_options(
        parser,
        arguments,
        no_resume={"action": "store_true", "help": "only watch; a job that dies stays dead"},
    )
    return _follow(Path(values.kit), admin.last_job(Path(values.kit), values.run), not values.no_resume)


def _follow(kit: Path, job: Any, resume: bool) -> int:
    from fedepd.deploy import admin

    end = admin.supervise(kit, job, lambda now: say(admin.describe(now)), resume=resume)
    if end["state"] == "failed":
        raise BadMessage(shown(end["error"], 500))
    done = end["state"] == "done"
    say(
        f"done, digest {shown(end['digest'])}; 'fedepd federation fetch {kit} -o FOLDER' brings it home"
        if done
        else "stopped"
    )
    return 0


def _stop(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin

    values = _run_options(parser, arguments)
    job = admin.last_job(Path(values.kit), values.run)
    admin.stop(Path(values.kit), job)
    say(
        f"stopped run {job.task.run}; 'fedepd federation submit {values.kit} --run {job.task.run} --resume' goes on"
    )
    return 0


def _fetch(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin

    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="new run folder")
    values = _run_options(parser, arguments)
    admin.fetch(Path(values.kit), admin.last_job(Path(values.kit), values.run), Path(values.out))
    say(f"kept in {values.out}; 'fedepd report {values.out}' draws it")
    return 0


def _demo(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.demo import demo

    parser.add_argument("--method", default="fedepd", metavar="NAME")
    parser.add_argument("--rounds", type=int, default=10, metavar="N")
    parser.add_argument("--sites", type=int, default=3, metavar="N")
    parser.add_argument("--data", default="synthetic", metavar="NAME|FILE.npz")
    parser.add_argument(
        "-o",
        "--out",
        default=None,
        metavar="FOLDER",
        help="keep kits and results there (default: nothing is kept)",
    )
    values = parser.parse(arguments)
    return 0 if demo(values.method, values.rounds, values.sites, values.data, values.out, say) else 1


ACTIONS: dict[str, tuple[str, Callable[[Parser, list[str]], int]]] = {
    "init": ("coordinator: make a kit for the server, for yourself and for every site", _init),
    "start": ("coordinator: run the server of a kit", _start),
    "submit": ("coordinator: start a run", _submit),
    "status": ("coordinator: which sites are connected, how far the run is", _status),
    "watch": ("coordinator: follow the run round by round and resume it when it dies", _watch),
    "stop": ("coordinator: end the run", _stop),
    "fetch": ("coordinator: bring the results home as a run folder", _fetch),
    "preview": ("owner: what would leave the house", _preview),
    "join": ("owner: check the data, write the kit's policy, run the site", _join),
    "rehearse": (
        "the same task over client files in this process; its digest is what the federation must reach",
        _rehearse,
    ),
    "demo": ("a server and three sites on this machine", _demo),
}
