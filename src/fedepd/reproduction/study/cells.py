"""Cells: a cell is one row of a target on one graph with one seed.

A cell's folder is named by its config hash. So targets share cells, and no cell runs twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedepd.clients.scaling import with_features
from fedepd.datasets import DATASETS, available, graph_sha256, load
from fedepd.errors import BadConfig
from fedepd.files import regular_content, write_text
from fedepd.reproduction.study.targets import Row, Target, target_names
from fedepd.runs.experiment import Experiment, Protocol
from fedepd.runs.jobs import Job, Workers, outcomes
from fedepd.runs.tuned import TunedFile
from fedepd.shown import shown
from fedepd.types import Graph

CHECKPOINT_EVERY = 20
"""Rounds between two checkpoints of a cell.

Checkpoints are rare, because the time they take is measured too.
"""

MAX_NOTE = 2500
"""Most characters of the message that says why a cell failed."""


@dataclass(frozen=True)
class Planned:
    """A cell, and which row, dataset and seed of its target it is."""

    target: str
    row: Row
    dataset: str
    seed: int
    job: Job

    @property
    def text(self) -> str:
        return f"{shown(self.row.label)} on {shown(short_name(self.dataset))}, seed {self.seed}"

    @property
    def note(self) -> Path:
        """The file beside the run folder that says why the cell failed."""
        return self.job.out.with_suffix(".failed")

    @property
    def failure(self) -> str:
        """Why there is no result. Empty for a finished cell."""
        if self.job.is_finished:
            return ""
        try:
            return shown(regular_content(self.note, MAX_NOTE).decode("utf-8", "replace"), MAX_NOTE)
        except OSError:
            return "not run yet"


def short_name(dataset: str) -> str:
    """A dataset's name, or a file's name without its folder and suffix."""
    return Path(dataset).stem if dataset.endswith(".npz") else dataset


def datasets_of(target: Target, data_dir: str | Path | None) -> tuple[list[str], list[str]]:
    """The target's datasets that are on this machine, and a line for each one that must be fetched first.

    Our own targets also include other graphs from the data folder, unless they name such graphs themselves.
    If there is no dataset at all, the synthetic graph is used.
    """
    listed = [row for row in available(data_dir) if row.present]
    present, ours = [row.name for row in listed], target.name in target_names()
    files = [name for name in target.datasets if name not in DATASETS]
    missing = [name for name in target.datasets if name not in present and (name in DATASETS or ours)]
    at_hand = [name for name in target.datasets if name not in missing]
    spare = [row.name for row in listed if row.name not in DATASETS and not row.down_sampled]
    others = spare if ours and not files else []
    return [*at_hand, *others] or ["synthetic"], [_to_get(name) for name in missing]


def _to_get(name: str) -> str:
    """What to do about a dataset that is not on this machine."""
    if name not in DATASETS:
        return f"{name} is not on this machine; put {name}.npz into the folder graphs of the data folder"
    what = DATASETS[name].description.split(":")[0]
    return f"{what} is not on this machine; 'fedepd data fetch {name}' gets it"


def plan(
    targets: Sequence[Target],
    datasets: Mapping[str, Sequence[str]],
    out: Path,
    settings: Mapping[str, Any],
    seeds: int | None = None,
    data_dir: str | None = None,
    tuned: TunedFile | None = None,
) -> list[Planned]:
    """All cells of the targets, ordered by seed, so that a study that is stopped early still has every row.

    Every setting is checked here, before anything runs. A row's own settings win over ``tuned`` ones.
    """
    first = int(settings.get("seed", Protocol.seed))
    settings = {name: value for name, value in settings.items() if name != "seed"}
    for target in targets:
        check_acting(target, settings)
    found = []
    for dataset in dict.fromkeys(name for target in targets for name in datasets[target.name]):
        graph = load(dataset, data_dir)
        hashes: dict[str, str] = {}
        for target in (target for target in targets if dataset in datasets[target.name]):
            count = target.seeds_on(graph.num_nodes) if seeds is None else seeds
            given = for_rows(target, dataset, settings, tuned)
            for seed in range(first, first + count):
                for row in target.rows:
                    own = target.settings_of(row, {**given[row.method, row.preset], "seed": seed})
                    experiment = Experiment.recorded(row.method, row.preset, own)
                    folder = out / "cells" / _config_hash(experiment, graph, hashes)
                    job = Job(row.method, row.preset, dataset, folder, data_dir, own, CHECKPOINT_EVERY)
                    found.append(Planned(target.name, row, dataset, seed, job))
    return sorted(found, key=lambda planned: planned.seed)


def for_rows(
    target: Target, dataset: str, settings: Mapping[str, Any], tuned: TunedFile | None
) -> dict[tuple[str, str], dict[str, Any]]:
    """The settings given for all rows, by method and preset, with the tuned ones of each."""
    pairs = list(dict.fromkeys((row.method, row.preset) for row in target.rows))
    return (
        {pair: dict(settings) for pair in pairs} if tuned is None else tuned.for_all(pairs, dataset, settings)
    )


def check_acting(target: Target, given: Mapping[str, Any]) -> None:
    """Refuse a setting that changes nothing in any cell, for it would only train the same runs again.

    A row's own setting, and what its grid varies, must act in one cell of this row. A setting given for all
    rows must act in one cell of the target. The target's own common settings are not asked.
    """
    complaints: dict[tuple[str, str], list[str]] = {}
    for row in target.rows:
        own = target.settings_of(row, given)
        idle = Experiment.recorded(row.method, row.preset, own).idle(own)
        before_grid = str(
            [row.method, row.preset, {k: v for k, v in row.settings.items() if k not in target.grid}]
        )
        for name in [*row.settings, *(name for name in given if name not in row.settings)]:
            where = before_grid if name in row.settings else ""
            complaints.setdefault((where, name), []).append(idle.get(name, ""))
    for found in complaints.values():
        if all(found):
            raise BadConfig(f"{found[0]} (target '{shown(target.name)}')")


def _config_hash(experiment: Experiment, graph: Graph, hashes: dict[str, str]) -> str:
    """The config hash that the run itself will have.

    ``hashes`` caches the graph's hash by feature setting.
    """
    features = experiment.protocol.features
    if features not in hashes:
        hashes[features] = graph_sha256(with_features(graph, features))
    return replace(experiment, partition=experiment.partition.resolved(graph)).config_hash(hashes[features])


def to_run(planned: Iterable[Planned]) -> list[Planned]:
    """The unfinished cells, each once, even if several targets share it."""
    found: dict[Path, Planned] = {}
    for each in planned:
        if not each.job.is_finished:
            found.setdefault(each.job.out, each)
    return list(found.values())


def parse_shard(text: str) -> tuple[int, int]:
    """``2/3`` is the second of three shards."""
    found = re.fullmatch(r"([1-9][0-9]{0,4})/([1-9][0-9]{0,4})", text)
    number, count = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1 <= number <= count:
        raise BadConfig(f"shard is '{shown(text)}'; give a number and how many there are, such as 1/3")
    return number, count


def of_shard(planned: Iterable[Planned], shard: tuple[int, int]) -> list[Planned]:
    """The cells of one of several machines that share no folder. The name of a cell decides whose it is."""
    number, count = shard
    return [each for each in planned if int(each.job.out.name, 16) % count == number - 1]


def run_planned(
    planned: Sequence[Planned],
    workers: Workers,
    watch: Callable[[], None],
    ended: Callable[[Planned, str], None],
) -> int:
    """Run the cells and write down why a cell failed. Returns the number of failures.

    Several programs may work in one study's folder, also on several machines. One of them runs a cell.
    """
    if not planned:
        return 0
    by_folder = {each.job.out: each for each in planned}
    cells = planned[0].job.out.parent
    try:
        cells.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise BadConfig(
            f"cannot write to the output folder '{cells.parent}': {cause.strerror}; give another --out"
        ) from cause
    failures = 0
    with closing(outcomes([each.job for each in planned], workers, watch)) as outcome_of:
        for outcome in outcome_of:
            each = by_folder[outcome.job.out]
            if outcome.failure:
                failures += 1
                write_text(each.note, outcome.failure)
            else:
                each.note.unlink(missing_ok=True)
            ended(each, outcome.failure)
    return failures
