"""``fedepd federation submit``, ``status``, ``watch``, ``stop``, ``fetch`` and ``demo``: one run each."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedepd.cli.console import say, say_json
from fedepd.cli.federation_task import make_task, method_of, sizes_of, task_options
from fedepd.cli.parser import Parser
from fedepd.errors import BadConfig, BadMessage
from fedepd.shown import shown


def submit(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin, kits

    method = method_of(arguments)
    parser.add_argument("kit", metavar="KIT", help="the admin kit")
    task_options(parser, method)
    parser.add_argument(
        "--min-sites",
        type=int,
        default=None,
        metavar="N",
        help="number of sites that must answer in every round (default: all)",
    )
    parser.add_argument(
        "--deadline",
        type=float,
        default=None,
        metavar="SECONDS",
        help="time that a site has for an answer (default: 600)",
    )
    parser.add_argument(
        "--max-nodes",
        type=int,
        default=None,
        metavar="N",
        help="refuse a site that declares more nodes (default: 10 million)",
    )
    parser.add_argument(
        "--resume",
        action="store_true",
        help="continue the last run, or the one of --run, from its checkpoint",
    )
    parser.add_argument("--watch", action="store_true", help="then follow the run, as 'watch' does")
    values = parser.parse(arguments)
    if values.resume:
        task = admin.last_job(Path(values.kit), values.run).task
    else:
        known = kits.open_kit(Path(values.kit), "admin")
        features, classes = sizes_of(values, known, None, None)
        if features is None or classes is None:
            raise BadConfig("the numbers of features and classes are not known; add --features N --classes N")
        values.min_sites = len(known.sites) if values.min_sites is None else values.min_sites
        task = make_task(values, method, known.sites, features, classes, known.agreed)
    job = admin.submit(Path(values.kit), task, values.resume)
    say(f"run {task.run}, job {shown(job.id)}")
    return _follow(Path(values.kit), job, True) if values.watch else 0


def _run_options(parser: Parser, arguments: list[str], **more: dict[str, Any]) -> argparse.Namespace:
    parser.add_argument("kit", metavar="KIT", help="the admin kit")
    parser.add_argument(
        "--run", default=None, metavar="NAME", help="name of the run (default: the last one submitted)"
    )
    for name, options in more.items():
        parser.add_argument("--" + name.replace("_", "-"), **options)
    return parser.parse(arguments)


def status(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin, kits

    values = _run_options(parser, arguments, json={"action": "store_true", "help": "print only JSON"})
    kit = Path(values.kit)
    here = admin.connected(kit)
    now: dict[str, Any] = {"sites": {site: site in here for site in kits.open_kit(kit, "admin").sites}}
    if (kit / admin.RUNS).exists():
        with admin.session(kit) as session:
            now["run"] = admin.look(session, admin.last_job(kit, values.run))
    if values.json:
        say_json(now)
        return 0
    for site, there in now["sites"].items():
        say(f"{shown(site)}: {'connected' if there else 'not connected'}")
    say(admin.describe(now["run"]) if "run" in now else "no run was submitted yet")
    return 0


def watch(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin

    values = _run_options(
        parser,
        arguments,
        no_resume={"action": "store_true", "help": "only watch; do not resume a job that dies"},
    )
    return _follow(Path(values.kit), admin.last_job(Path(values.kit), values.run), not values.no_resume)


def _follow(kit: Path, job: Any, resume: bool) -> int:
    from fedepd.deploy import admin

    end = admin.supervise(kit, job, lambda now: say(admin.describe(now)), resume=resume)
    if end["state"] == "failed":
        raise BadMessage(shown(end["error"], 500))
    if end["state"] == "done":
        command = f"fedepd federation fetch {kit} -o FOLDER"
        say(f"done, digest {shown(end['digest'])}; '{command}' fetches the results")
    else:
        say("stopped")
    return 0


def stop(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin

    values = _run_options(parser, arguments)
    job = admin.last_job(Path(values.kit), values.run)
    admin.stop(Path(values.kit), job)
    command = f"fedepd federation submit {values.kit} --run {job.task.run} --resume"
    say(f"stopped run {job.task.run}; '{command}' continues it")
    return 0


def fetch(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin

    parser.add_argument("-o", "--out", required=True, metavar="FOLDER", help="new run folder")
    values = _run_options(parser, arguments)
    admin.fetch(Path(values.kit), admin.last_job(Path(values.kit), values.run), Path(values.out))
    say(f"saved in {values.out}; 'fedepd report {values.out}' makes a page of it")
    return 0


def demo(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.demo import demo

    parser.add_argument("--method", default="fedepd", metavar="NAME", help="method (default: fedepd)")
    parser.add_argument("--rounds", type=int, default=10, metavar="N", help="rounds (default: 10)")
    parser.add_argument("--sites", type=int, default=4, metavar="N", help="number of sites (default: 4)")
    parser.add_argument(
        "--lose",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="with four sites or more, kill one of them during the run (default: yes)",
    )
    parser.add_argument(
        "--data", default="synthetic", metavar="NAME|FILE.npz", help="graph to divide (default: synthetic)"
    )
    parser.add_argument(
        "-o",
        "--out",
        default=None,
        metavar="FOLDER",
        help="keep kits and results in this new folder (default: keep nothing)",
    )
    values = parser.parse(arguments)
    chosen = values.method, values.rounds, values.sites, values.data, values.out
    return 0 if demo(*chosen, say, values.lose) else 1
