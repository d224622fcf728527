"""``fedepd federation``: the actions of coordinators and data owners."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.util import find_spec

from fedepd.cli import (
    federation_demo,
    federation_kits,
    federation_model,
    federation_plan,
    federation_runs,
    federation_task,
    federation_worth,
)
from fedepd.cli.console import say
from fedepd.cli.parser import Parser
from fedepd.errors import BadConfig, UnknownName


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
    logging.getLogger().addHandler(logging.NullHandler())  # keeps NVFlare's warnings out of the output
    text, run = ACTIONS[action]
    return run(
        Parser(prog=f"fedepd federation {action}", allow_abbrev=False, description=text), arguments[1:]
    )


ACTIONS: dict[str, tuple[str, Callable[[Parser, list[str]], int]]] = {
    "plan": ("coordinator: write a plan: classes, columns, method and privacy", federation_plan.plan),
    "init": ("coordinator: make kits for the server, for yourself and for every site", federation_kits.init),
    "start": ("coordinator: run the server from its kit", federation_kits.start),
    "submit": ("coordinator: start a run", federation_runs.submit),
    "status": ("coordinator: show which sites are connected and how far the run is", federation_runs.status),
    "watch": ("coordinator: follow the run round by round, and resume it if it dies", federation_runs.watch),
    "stop": ("coordinator: stop the run", federation_runs.stop),
    "fetch": ("coordinator: fetch the results as a run folder", federation_runs.fetch),
    "inspect": ("owner: show the plan of your kit in plain words", federation_plan.inspect),
    "import": ("owner: read your own tables by the plan of your kit", federation_plan.import_),
    "preview": ("owner: show what would leave your site, before you join", federation_task.preview),
    "join": ("owner: check your data, write the kit's policy and run the site", federation_kits.join),
    "model": ("owner: write the model that your site has got from a run", federation_model.model),
    "worth": (
        "owner: after a run, compare your model with one trained here alone, and see what left your site",
        federation_worth.worth,
    ),
    "leave": ("owner: stop your site, and remove its state if you wish", federation_model.leave),
    "rehearse": (
        "run a task on client files in one process; the federation must reach the same digest",
        federation_task.rehearse,
    ),
    "demo": ("four banks on this machine, from their tables to their models", federation_demo.demo),
}
