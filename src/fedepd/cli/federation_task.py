"""``fedepd federation preview`` and ``rehearse``, and the task that a user describes by options."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedepd.cli.console import console, say, say_json
from fedepd.cli.parser import Parser
from fedepd.datasets.npz import read_npz
from fedepd.deploy.agreement import NOTHING_AGREED, Agreement, check_agrees, schema_sha256
from fedepd.deploy.manifest import MANIFEST
from fedepd.deploy.plan import Plan, read_plan
from fedepd.deploy.plan_task import plan_task
from fedepd.deploy.task import FederationTask
from fedepd.errors import BadConfig, UnknownName
from fedepd.runs.experiment import Experiment, setting_owners
from fedepd.runs.settings import coerced, in_words, read_toml
from fedepd.shown import shown


def task_options(parser: Parser, method: str) -> None:
    parser.add_argument(
        "--method",
        default=None,
        metavar="NAME",
        help="see 'fedepd methods' (default: the plan's, else fedepd)",
    )
    parser.add_argument(
        "--preset", default=None, metavar="NAME", help="named settings of the method (default: default)"
    )
    parser.add_argument(
        "--features", dest="num_features", type=int, metavar="N", help="number of features at every site"
    )
    parser.add_argument(
        "--classes", dest="num_classes", type=int, metavar="N", help="number of classes in the federation"
    )
    parser.add_argument(
        "--config",
        default=None,
        metavar="FILE.toml",
        help="file of settings; options on the command line override it",
    )
    parser.add_argument(
        "--run", default=None, metavar="NAME", help="name of the run (default: method and time)"
    )
    group = parser.add_argument_group("settings of the run, explained by 'fedepd run METHOD --help'")
    for name in task_settings(method):
        flag = "--feature-form" if name == "features" else "--" + name.replace("_", "-")
        group.add_argument(flag, dest=name, default=argparse.SUPPRESS, metavar="VALUE")


def task_settings(method: str) -> list[str]:
    """The settings that a federation has.

    A partition has no meaning here, because the sites are the clients.
    """
    return [name for name, (group, _) in setting_owners(method).items() if group != "partition"]


def method_of(arguments: list[str], plan: Plan | None = None) -> str:
    """The method whose settings are options: the plan's, or as given."""
    if plan is not None:
        return plan.method
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--method", default=None)
    first.add_argument("--config", default=None)
    found, _ = first.parse_known_args(arguments)
    in_file = read_toml(Path(found.config)).get("method") if found.config and not found.method else None
    return str(found.method or in_file or "fedepd")


def make_task(
    values: argparse.Namespace,
    method: str,
    sites: Sequence[str],
    num_features: int,
    num_classes: int,
    agreed: Agreement = NOTHING_AGREED,
) -> FederationTask:
    settings = read_toml(Path(values.config)) if values.config else {}
    preset = values.preset or str(settings.get("preset", "default"))
    settings = {name: value for name, value in settings.items() if name not in ("method", "preset")}
    settings |= {name: getattr(values, name) for name in task_settings(method) if hasattr(values, name)}
    run = values.run or _named_by_time(method.replace("_", "-"))
    given = {name: getattr(values, name, None) for name in ("min_sites", "deadline", "max_nodes")}
    limits: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if agreed.label_names or agreed.schema:
        limits |= {"label_names": agreed.label_names, "schema_sha256": schema_sha256(agreed.schema)}
    limits |= {"weighted": True} if agreed.weighted else {}
    task = FederationTask(run, method, preset, settings, num_features, num_classes, tuple(sites), **limits)
    task.experiment().check_given(settings)
    return task


def _named_by_time(first: str) -> str:
    return f"{first}-{time.strftime('%Y%m%d-%H%M%S')}"


def plan_of(arguments: Sequence[str], kind: str) -> Plan | None:
    """The plan of the kit that the arguments name, because the plan's method decides which options there are.

    None if no argument is a kit. The command then says so itself.
    """
    from fedepd.deploy import kits

    for each in arguments:
        if not each.startswith("-") and (Path(each) / MANIFEST).is_file():
            return kits.open_kit(Path(each), kind).plan
    return None


def planned_task(values: argparse.Namespace, plan: Plan, sites: Sequence[str]) -> FederationTask:
    """The task of a run by a plan.

    The coordinator chooses the run's name, the seed and the deadline. Anything else that is given must be as
    the plan says.
    """
    settings = read_toml(Path(values.config)) if values.config else {}
    settings |= {name: getattr(values, name) for name in task_settings(plan.method) if hasattr(values, name)}
    seed = Experiment.recorded(plan.method, plan.preset, {"seed": settings.pop("seed", 0)}).protocol.seed
    limits = {name: getattr(values, name, None) for name in ("min_sites", "deadline", "max_nodes")}
    known: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    for flag, given, planned in (
        ("--features", values.num_features, plan.num_features),
        ("--classes", values.num_classes, len(plan.classes)),
        ("--method", values.method or settings.pop("method", None), plan.method),
        ("--preset", values.preset or settings.pop("preset", None), plan.preset),
    ):
        _check_planned(flag, given, planned)
    task = plan_task(plan, values.run or _named_by_time(plan.task), sites, seed, **known)
    own = setting_owners(plan.method)
    for name, value in settings.items():
        if name not in own:
            raise UnknownName("setting", name, own)
        flag = "--feature-form" if name == "features" else f"--{name.replace('_', '-')}"
        planned = getattr(getattr(task.experiment(), own[name][0]), name)
        _check_planned(flag, coerced(name, value, own[name][1]), planned)
    return task


def _check_planned(flag: str, given: Any, planned: Any) -> None:
    if given not in (None, planned):
        raise BadConfig(
            f"{flag} is {shown(in_words(given))}, but the plan says {shown(in_words(planned))}; "
            f"leave {flag} out"
        )


def sizes_of(
    values: argparse.Namespace, kit: Any, features: int | None, classes: int | None
) -> tuple[int | None, int | None]:
    """The numbers of features and classes: as typed, else as in the kit, else as given.

    A typed number must not contradict a kit that was made with --example.
    """
    for name, typed, known in (
        ("features", values.num_features, kit.features),
        ("classes", values.num_classes, kit.classes),
    ):
        if (kit.agreed.label_names or kit.agreed.schema) and typed not in (None, known):
            raise BadConfig(f"--{name} is {typed}, but the federation agreed on {known}; leave --{name} out")
    return values.num_features or kit.features or features, values.num_classes or kit.classes or classes


def rehearse(parser: Parser, arguments: list[str]) -> int:
    from fedepd.deploy.rehearse import rehearse, rehearse_like

    plan = _given_plan(arguments)
    method = method_of(arguments, plan)
    parser.add_argument(
        "files", nargs="+", metavar="FILE.npz", help="client files, in the order of the sites"
    )
    parser.add_argument(
        "--like",
        default=None,
        metavar="RUN",
        help="a fetched run of these sites: whoever was absent there is absent here, too",
    )
    parser.add_argument(
        "--plan", default=None, metavar="FILE.toml", help="the federation's plan; its settings are the run's"
    )
    task_options(parser, method)
    values = parser.parse(arguments)
    sites = [f"site-{k}" for k in range(len(values.files))]
    if plan is not None:
        task = planned_task(values, plan, sites)
    else:
        graphs = [read_npz(file, part=True) for file in values.files]
        features = values.num_features or graphs[0].num_features
        classes = values.num_classes or max(g.num_classes for g in graphs)
        weighted = Agreement(weighted=any(g.edge_weight is not None for g in graphs))
        task = make_task(values, method, sites, features, classes, weighted)
    like = values.like
    ledger = rehearse(task, values.files) if like is None else rehearse_like(task, values.files, like)
    if ledger.experiment.privacy.noisy:
        rounds = len(ledger.progress.lines)
        say(f"{rounds} rounds ran; the federation draws other noise, so there is no digest to compare")
    else:
        say(f"digest {ledger.digest()}")
    return 0


def _given_plan(arguments: Sequence[str]) -> Plan | None:
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--plan", default=None)
    found, _ = first.parse_known_args(arguments)
    return None if found.plan is None else read_plan(Path(found.plan))


def preview(parser: Parser, arguments: list[str]) -> int:
    from rich.table import Table

    from fedepd.deploy import kits
    from fedepd.deploy.limits import LIMITS_FILE, Limits
    from fedepd.deploy.preview import preview

    plan = plan_of(arguments, "client")
    method = method_of(arguments, plan)
    parser.add_argument("kit", metavar="KIT", help="your kit")
    parser.add_argument(
        "--data",
        default=None,
        metavar="FILE.npz",
        help="your graph (default: what 'import' put into the kit)",
    )
    parser.add_argument("--json", action="store_true", help="print only JSON")
    task_options(parser, method)
    values = parser.parse(arguments)
    kit = Path(values.kit)
    known = kits.open_kit(kit, "client")
    data = kits.graph_in(kit) if values.data is None else Path(values.data)
    graph = read_npz(data, part=True)
    check_agrees(graph, data, known.agreed)
    if known.plan is not None:
        task = planned_task(values, known.plan, known.sites)
    else:
        features, classes = sizes_of(values, known, graph.num_features, graph.num_classes)
        sizes = features or graph.num_features, classes or graph.num_classes
        task = make_task(values, method, known.sites, *sizes, known.agreed)
    own = kit / "local" / LIMITS_FILE
    limits = Limits.read(own) if own.exists() else Limits()
    seen = preview(task, known.name, data, limits)
    if values.json:
        say_json({**asdict(seen), "bytes_per_round": seen.bytes_per_round})
        return 0
    title = f"What leaves this site with {method}"
    table = Table("field", "shape", "bytes", "when", "who sees this site's numbers", title=title)
    for each in seen.fields:
        shape = " x ".join(map(str, each.shape)) or "number"
        table.add_row(shown(each.field), shape, f"{each.bytes:,}", each.when, each.seen)
    console().print(table)
    say(f"{seen.bytes_per_round:,} bytes per round; features, edges and node labels are not sent")
    for name, counts in seen.counts.items():
        say(f"{name} by class: {' '.join(map(str, counts))}")
    say(*(f"kept at home: {line}" for line in seen.withheld))
    if seen.noise:
        say(f"noise: {seen.noise}")
    say(f"measured on your graph, if an answer were seen alone: {seen.recovery.sentence()}")
    origin = LIMITS_FILE if own.exists() else "the safe ones, which join will write"
    say(f"limits of this site ({origin}):", *(f"  {line}" for line in seen.limits))
    if seen.refusal:
        say(f"this site would refuse the run: {seen.refusal}")
    else:
        say("this run is within the limits")
    say(*(f"warning: {warning}" for warning in seen.warnings))
    return 0
