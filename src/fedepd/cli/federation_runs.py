"""``fedepd federation submit``, ``status``, ``watch``, ``stop`` and ``fetch``: one run each."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from fedepd.cli.console import say, say_json
from fedepd.cli.federation_task import (
    make_task,
    method_of,
    plan_of,
    planned_task,
    sizes_of,
    task_options,
)
from fedepd.cli.parser import Parser
from fedepd.deploy.task import FederationTask
from fedepd.errors import BadConfig, BadMessage
from fedepd.shown import listed, shown


def submit(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy import admin, kits

    method = method_of(arguments, plan_of(arguments, "admin"))
    parser.add_argument("kit", metavar="KIT", help="the admin kit")
    task_options(parser, method)
    parser.add_argument(
        "--min-sites",
        type=int,
        default=None,
        metavar="N",
        help="number of sites that must answer in every round (default: the plan's, else all)",
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
        task = _new_task(values, method, kits.open_kit(Path(values.kit), "admin"))
    job = admin.submit(Path(values.kit), task, values.resume)
    say(f"run {task.run}, job {shown(job.id)}")
    return _follow(Path(values.kit), job, True) if values.watch else 0


def _new_task(values: argparse.Namespace, method: str, kit: Any) -> FederationTask:
    if kit.plan is not None:
        return planned_task(values, kit.plan, kit.sites)
    features, classes = sizes_of(values, kit, None, None)
    if features is None or classes is None:
        raise BadConfig("the numbers of features and classes are not known; add --features N --classes N")
    values.min_sites = len(kit.sites) if values.min_sites is None else values.min_sites
    return make_task(values, method, kit.sites, features, classes, kit.agreed)


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
        job = admin.last_job(kit, values.run)
        now |= {"name": job.task.run, "classes": job.task.label_names}
        with admin.session(kit) as session:
            now["run"] = admin.look(session, job)
    if values.json:
        say_json(now)
        return 0
    for site, there in now["sites"].items():
        say(f"{shown(site)}: {'connected' if there else 'not connected'}")
    if "run" in now:
        say(_heading(job.task))
    say(admin.describe(now["run"]) if "run" in now else "no run was submitted yet")
    return 0


def _heading(task: FederationTask) -> str:
    """The run by name, and its sites and classes."""
    classes = f"{task.num_classes} classes"
    if task.label_names:
        classes = f"classes {listed(task.label_names, 20)}"
    return f"run {task.run}, method {shown(task.method)}, sites {listed(task.sites, 20)}, {classes}"


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

    say(_heading(job.task))
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
