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
from fedepd.deploy.task import FederationTask
from fedepd.errors import BadConfig
from fedepd.runs.experiment import setting_owners
from fedepd.runs.settings import read_toml
from fedepd.shown import shown


def task_options(parser: Parser, method: str) -> None:
    parser.add_argument(
        "--method", default="fedepd", metavar="NAME", help="see 'fedepd methods' (default: fedepd)"
    )
    parser.add_argument(
        "--preset", default="default", metavar="NAME", help="named settings of the method (default: default)"
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


def method_of(arguments: list[str]) -> str:
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
    from fedepd.deploy.rehearse import rehearse
    from fedepd.report.runs import read_run

    method = method_of(arguments)
    parser.add_argument(
        "files", nargs="+", metavar="FILE.npz", help="client files, in the order of the sites"
    )
    parser.add_argument(
        "--like",
        default=None,
        metavar="RUN",
        help="a fetched run of these sites: whoever was absent there is absent here, too",
    )
    task_options(parser, method)
    values = parser.parse(arguments)
    graphs = [read_npz(file, part=True) for file in values.files]
    features = values.num_features or graphs[0].num_features
    classes = values.num_classes or max(g.num_classes for g in graphs)
    task = make_task(values, method, [f"site-{k}" for k in range(len(graphs))], features, classes)
    lines, members = [], None
    if values.like is not None:
        run = read_run(values.like)
        lines, members = run.rounds, run.summary.get("members")
    ledger = rehearse(task, values.files, lines, members)
    if ledger.experiment.privacy.noisy:
        rounds = len(ledger.progress.lines)
        say(f"{rounds} rounds ran; the federation draws other noise, so there is no digest to compare")
    else:
        say(f"digest {ledger.digest()}")
    return 0


def preview(parser: Parser, arguments: list[str]) -> int:
    from rich.table import Table

    from fedepd.deploy import kits
    from fedepd.deploy.limits import LIMITS_FILE, Limits
    from fedepd.deploy.preview import preview

    method = method_of(arguments)
    parser.add_argument("kit", metavar="KIT", help="your kit")
    parser.add_argument("--data", required=True, metavar="FILE.npz", help="your graph")
    parser.add_argument("--json", action="store_true", help="print only JSON")
    task_options(parser, method)
    values = parser.parse(arguments)
    kit, graph = Path(values.kit), read_npz(values.data, part=True)
    known = kits.open_kit(kit, "client")
    check_agrees(graph, values.data, known.agreed)
    features, classes = sizes_of(values, known, graph.num_features, graph.num_classes)
    task = make_task(
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
