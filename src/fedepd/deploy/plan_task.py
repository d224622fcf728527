"""From a plan to the task of a run, and whether a run keeps to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from fedepd.deploy.agreement import schema_sha256
from fedepd.deploy.plan import Plan
from fedepd.deploy.task import FederationTask
from fedepd.errors import BadConfig, FedEPDError
from fedepd.rounds.guard import FEWEST
from fedepd.runs.settings import in_words
from fedepd.shown import shown

OPEN = ("seed",)
"""Settings that the coordinator chooses when a run is submitted."""


def plan_task(plan: Plan, run: str, sites: Sequence[str], seed: int = 0, **more: Any) -> FederationTask:
    """The task of a run by this plan.

    Args:
        plan: The plan.
        run: The name of the run.
        sites: The names of the sites, in order.
        seed: The run's seed.
        **more: ``deadline``, ``max_nodes`` or a larger ``min_sites``.

    Returns:
        The task, checked as every task is.

    Raises:
        BadConfig: A setting of the plan does not exist or changes nothing, or there are too few sites.
    """
    if len(sites) < plan.min_sites:
        raise BadConfig(
            f"there are {len(sites)} sites, but the plan says min_sites = {plan.min_sites}; "
            f"name more sites, or change the plan"
        )
    if (asked := more.setdefault("min_sites", plan.min_sites)) < plan.min_sites:
        raise BadConfig(
            f"min_sites is {asked}, but the plan says min_sites = {plan.min_sites}; leave --min-sites out"
        )
    task = FederationTask(
        run,
        plan.method,
        plan.preset,
        {**plan.settings, "seed": seed},
        plan.num_features,
        len(plan.classes),
        tuple(sites),
        label_names=plan.classes,
        schema_sha256=schema_sha256(plan.agreed.schema),
        scaled=plan.scaled,
        counted=plan.counted,
        weighted=plan.agreed.weighted,
        **more,
    )
    task.experiment().check_given(plan.settings)
    return task


def check_runs(plan: Plan, where: str) -> None:
    """Refuse a plan that no federation can run, whichever sites it has. ``where`` names the plan.

    The method must be one that may be imported here.
    """
    sites = [f"site-{k}" for k in range(max(FEWEST, plan.min_sites))]
    try:
        plan_task(plan, plan.task, sites)
    except FedEPDError as cause:
        raise BadConfig(f"{where}: {cause}") from cause


def contradiction(plan: Plan, task: FederationTask) -> str | None:
    """How a task contradicts the plan in a kit, in one sentence; None if it keeps to it.

    The coordinator may choose the run's name, the seed, the deadline, and more sites that must answer.
    """
    seed = task.experiment().protocol.seed
    wanted = plan_task(plan, task.run, task.sites, seed, max_nodes=task.max_nodes)
    return (
        _difference("method", task.method, wanted.method)
        or _difference("features", task.num_features, wanted.num_features)
        or _difference("classes", task.num_classes, wanted.num_classes)
        or _classes(task, plan)
        or _settings(task, wanted)
        or _columns(task, wanted)
        or _difference("weighted", task.weighted, wanted.weighted)
        or _sites(task, plan)
    )


def _difference(what: str, asked: Any, planned: Any) -> str | None:
    if asked == planned:
        return None
    told = (f"{what} = {shown(in_words(value))}" for value in (asked, planned))
    return "the run asks for {}, but the plan in this kit says {}".format(*told)


def _classes(task: FederationTask, plan: Plan) -> str | None:
    if not task.label_names:
        return f"the run does not name its classes, but the plan in this kit names {len(plan.classes)}"
    for number, (asked, planned) in enumerate(zip(task.label_names, plan.classes, strict=True)):
        if asked != planned:
            told = f"calls class {number} '{shown(asked)}'"
            return f"the run {told}, but the plan in this kit calls it '{shown(planned)}'"
    return None


def _columns(task: FederationTask, wanted: FederationTask) -> str | None:
    if task.schema_sha256 != wanted.schema_sha256:
        return "the columns of the run are not those of the plan in this kit"
    return _difference("scaled", list(task.scaled), list(wanted.scaled)) or _difference(
        "counted", list(task.counted), list(wanted.counted)
    )


def _sites(task: FederationTask, plan: Plan) -> str | None:
    return (
        _difference("min_sites", task.min_sites, plan.min_sites) if task.min_sites < plan.min_sites else None
    )


def _settings(task: FederationTask, wanted: FederationTask) -> str | None:
    """The first setting that differs; those that were not given have their defaults on both sides."""
    asked, planned = _flat(task), _flat(wanted)
    for name in planned:  # the method is the same, so that the names are the same
        if said := _difference(name, asked[name], planned[name]):
            return said
    return None


def _flat(task: FederationTask) -> Mapping[str, Any]:
    e = task.experiment()
    parts = (e.privacy, e.method, e.protocol, e.split, e.model, e.training, e.defence)
    return {name: value for part in parts for name, value in asdict(part).items()}
