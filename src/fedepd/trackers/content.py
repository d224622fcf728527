"""What a tracker gets of a run: counts and scores of all nodes together, never anything of a single node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Any

from fedepd.report import curves, matrices, plots
from fedepd.report.drawing import Drawing
from fedepd.report.runs import Run, group
from fedepd.runs import folder as run_folder
from fedepd.runs.folder import Json
from fedepd.runs.frames import class_names, round_row, settings_of
from fedepd.shown import plain, slug
from fedepd.trackers.contract import Results, Settings

OF_DATASET = ("name", "sha256", "nodes", "edges", "features", "classes", "imbalance_ratio")
COSTS = ("bytes_up", "bytes_down", "seconds", "cpu_seconds", "peak_rss_mb")
FILES = (run_folder.CONFIG, run_folder.SUMMARY, run_folder.CALIBRATION, run_folder.OPERATING)
"""The files that are given as they are, if the run has them."""


def settings(config: Json) -> Settings:
    """Every resolved setting by its dotted name, and what is known of the graph."""
    own = {f"dataset.{name}": config["dataset"].get(name) for name in OF_DATASET}
    found = {**dict(settings_of(config)), **own, "config_hash": config["config_hash"]}
    return {plain(name): _leaf(value) for name, value in found.items()}


def _leaf(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    return plain(value)


def round_numbers(line: Json) -> dict[str, float]:
    """The numbers of a line of rounds.jsonl, by the names that ``fedepd.read_runs`` has for them."""
    row = round_row(line)
    del row["round"]
    spent = {"epsilon_spent": line["privacy"]["epsilon_spent"]} if "privacy" in line else {}
    return _known((f"round/{name}", value) for name, value in {**row, **spent}.items())


def results(run: Run) -> Results:
    """What is known of a finished run: its numbers, the report's figures, and its small files."""
    files = [run.path / name for name in FILES if (run.path / name).is_file()]
    drawings = {name: svg.png() for name, svg in _drawings(run)}
    return Results(_known(_final(run)), int(run.summary["best_round"]), drawings, files)


def _final(run: Run) -> Iterator[tuple[str, Any]]:
    summary = run.summary
    for model, averages in summary["metrics"].items():
        for average, values in averages.items():
            yield from ((f"test/{model}/{average}/{score}", value) for score, value in values.items())
    for tier, found in summary.get("by_tier", {}).items():
        for score in ("precision", "recall", "f1"):
            yield f"tiers/{tier}/{score}", _middle(found[score])
    classes = summary.get("by_class", [])
    names = class_names(run, len(classes))
    for each in classes:
        number, name = str(each["class"]), slug(names[each["class"]])
        # Choice: the class's number comes first, because two names may differ in letters that no tracker
        # takes.
        yield f"recall/{number if name == number else f'{number}-{name}'}", _middle(each["recall"])
    yield from ((f"total/{name}", summary.get(name)) for name in COSTS)
    if "privacy" in summary:
        yield "total/epsilon_spent", summary["privacy"]["epsilon_spent"]


def _middle(interval: list[float] | None) -> float | None:
    """Of a value and both ends of its interval."""
    return None if interval is None else interval[0]


def _known(numbers: Iterable[tuple[str, Any]]) -> dict[str, float]:
    """Those that were measured."""
    return {name: float(value) for name, value in numbers if value is not None and isfinite(value)}


def _drawings(run: Run) -> Iterator[tuple[str, Drawing]]:
    """The report's figures of one run."""
    alone = group([run])
    yield "bytes-by-field", plots.communication(alone)
    if not run.scored:
        return
    yield "accuracy-by-class", plots.per_class(alone)
    yield "head-medium-tail", plots.tier_bars(alone)
    yield "convergence", plots.convergence_lines(alone)
    if run.partition["client_class"].any():  # the server does not know it, if it saw sums only
        yield "partition", plots.partition_heatmap(run)
    for name, svg in (
        ("confusion", matrices.confusion_map(alone[0])),
        ("precision-recall", curves.precision_recall(alone[0])),
    ):
        if isinstance(svg, Drawing):  # nothing, where there is nothing to draw
            yield name, svg
