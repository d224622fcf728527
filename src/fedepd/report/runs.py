"""Run folders as they lie on disk, and which of them belong together."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import fedepd.runs.folder as run_folder
from fedepd.errors import BadData
from fedepd.files import absolute
from fedepd.report.agreement import check_arrays, check_numbers, check_rounds
from fedepd.runs.folder import Arrays, Json
from fedepd.shown import drawn, shown

LABEL = 160
"""Characters of a group's label: a name and the settings that tell it from others."""


@dataclass(frozen=True, eq=False)
class Run:
    """One finished run. The small files are read at once, the others when they are first asked for."""

    path: Path
    summary: Json
    config: Json

    @property
    def seed(self) -> int:
        return int(self.summary["seed"])

    @property
    def dataset(self) -> Json:
        """Name, sizes and hash of the graph."""
        return dict(self.config["dataset"])

    @property
    def headline(self) -> str:
        """Whose numbers stand for the method: its ``global`` model, or its clients' ``personal`` ones."""
        return str(self.summary["headline"])

    def metric(self, name: str, model: str = "headline", average: str = "pooled") -> float:
        """A test metric as a fraction; NaN where it was not measured or there is no such model."""
        of_model = self.summary["metrics"].get(self.headline if model == "headline" else model, {})
        value = of_model.get(average, {}).get(name)
        return float("nan") if value is None else float(value)

    @cached_property
    def env(self) -> Json:
        found: Json = run_folder.read(self.path, run_folder.ENV)
        return found

    @cached_property
    def clients(self) -> list[Json]:
        """What each client holds, by client number."""
        return run_folder.read_clients(self.path)

    @cached_property
    def rounds(self) -> list[Json]:
        """What happened in each round."""
        lines = run_folder.read_rounds(self.path)
        name = run_folder.called(self.path, run_folder.ROUNDS)
        check_rounds(self.summary, self.config, lines, f"'{name}'")
        return lines

    @cached_property
    def confusion(self) -> Arrays:
        """``global_test`` and its like: int64 [K, C, C]."""
        return run_folder.read_confusion(self.path, self.headline)

    @cached_property
    def calibration(self) -> Json | None:
        """What ``fedepd export`` has measured, if it has."""
        path = self.path / run_folder.CALIBRATION
        return run_folder.read(self.path, run_folder.CALIBRATION) if path.is_file() else None

    @cached_property
    def partition(self) -> Arrays:
        """``client_class`` int64 [K, C] and ``class_sizes`` int64 [C]."""
        return run_folder.read_partition(self.path)


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one method with one set of settings on one dataset, by seed: they differ in nothing else."""

    label: str
    """Fit for a table and a legend, wherever it came from."""
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "label", drawn(self.label, LABEL))

    @property
    def first(self) -> Run:
        """The run with the lowest seed, shown where a mean over seeds would make no sense."""
        return self.runs[0]

    @property
    def method(self) -> str:
        return str(self.first.summary["method"])


def read_run(path: str | Path) -> Run:
    """The finished run in a folder; its numbers are those of its confusion matrices, or it is refused."""
    folder = absolute(path)
    if not run_folder.is_finished(folder):
        state = "an unfinished run" if run_folder.is_begun(folder) else "not a run folder"
        raise BadData(
            f"'{path}' is {state}: it has no {run_folder.SUMMARY}; let `fedepd run` finish, or name another folder"
        )
    summary, config = (run_folder.read(folder, file) for file in (run_folder.SUMMARY, run_folder.CONFIG))
    run = Run(folder, summary, config)
    check_arrays(run.confusion, run.partition, run.config, shown(folder.name))
    check_numbers(run.summary, run.config, run.confusion, run.partition["class_sizes"], shown(folder.name))
    return run


def read_runs(path: str | Path) -> list[Run]:
    """The finished runs in a run folder or in a folder of run folders; ``unfinished`` names those left out."""
    runs = [read_run(folder) for folder in _run_folders(Path(path)) if run_folder.is_finished(folder)]
    if not runs:
        started = ", ".join(folder.name for folder in unfinished(path))
        found = f"only unfinished runs ({started})" if started else "no run"
        raise BadData(
            f"'{path}' holds {found}; name a folder that `fedepd run --out` has written, or a folder of such folders"
        )
    return sorted(
        runs,
        key=lambda run: (
            run.dataset["name"],
            run.summary["method_label"],
            run.summary["preset"],
            run.seed,
            run.path.name,
        ),
    )


def unfinished(path: str | Path) -> list[Path]:
    """Run folders without summary.json, which ``read_runs`` leaves out."""
    return [folder for folder in _run_folders(Path(path)) if not run_folder.is_finished(folder)]


def group(runs: Iterable[Run]) -> list[Group]:
    """Runs that differ in their seed alone, together, each group with a label no other group of its dataset has."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(
            json.dumps([_dataset_key(run), _name(run), settings(run)], sort_keys=True), []
        ).append(run)
    members = [tuple(sorted(same, key=lambda run: run.seed)) for same in found.values()]
    for same in members:
        for one, other in itertools.pairwise(same):
            if one.seed == other.seed:
                raise BadData(
                    f"'{shown(one.path.name)}' and '{shown(other.path.name)}' are the same run ({shown(_name(one))} on "
                    f"{shown(one.dataset['name'])}, seed {one.seed});"
                    " remove one of them, or their mean counts it twice"
                )
    firsts = [same[0] for same in members]
    return [Group(_label(same[0], firsts), same) for same in members]


def by_dataset(groups: Iterable[Group]) -> list[list[Group]]:
    """Groups on the same graph, together."""
    found: dict[tuple[str, str], list[Group]] = {}
    for each in groups:
        found.setdefault(_dataset_key(each.first), []).append(each)
    return list(found.values())


def settings(run: Run) -> Json:
    """Every resolved setting except the seed, under its dotted name."""
    return {
        name: value for name, value in _flatten(run.config["experiment"]) if name.rsplit(".", 1)[-1] != "seed"
    }


def _label(run: Run, others: list[Run]) -> str:
    """The method's name, with the settings that tell it from other groups of that name on the same dataset."""
    rivals = [
        other for other in others if (_dataset_key(other), _name(other)) == (_dataset_key(run), _name(run))
    ]
    own, theirs = settings(run), [settings(other) for other in rivals]
    differing = [
        name
        for name in sorted({name for each in theirs for name in each})
        if len({json.dumps(e.get(name)) for e in theirs}) > 1
    ]
    words = [] if run.summary["preset"] == "default" else [shown(run.summary["preset"])]
    for name in differing:
        short, value = name.removeprefix("method."), own.get(name)
        if value is False:
            words.append(f"no {shown(short)}")
        elif value not in (True, None):
            words.append(shown(f"{short}={value}"))
    name = shown(run.summary["method_label"])
    return f"{name} ({', '.join(words)})" if words else name


def _name(run: Run) -> str:
    return f"{run.summary['method_label']}/{run.summary['preset']}"


def _dataset_key(run: Run) -> tuple[str, str]:
    # Choice: the hash too, because a file of the same name with other content is another dataset.
    return str(run.dataset["name"]), str(run.dataset.get("sha256"))


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flatten(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _run_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise BadData(f"'{path}' is not a folder; name one that `fedepd run --out` has written")
    folders = [path.resolve(), *sorted(child for child in path.resolve().iterdir() if child.is_dir())]
    runs = [folder for folder in folders if run_folder.is_begun(folder) or run_folder.is_finished(folder)]
    return runs[:1] if runs[:1] == folders[:1] else runs
