"""One method over all combinations of values of its settings: the runs, and what they tell."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from fedepd.errors import BadConfig
from fedepd.report.paired import Comparison, compare_seeds, holm, in_common, paired_p
from fedepd.report.runs import Run
from fedepd.runs.folder import check_new_run
from fedepd.runs.frames import settings_of
from fedepd.runs.jobs import Job
from fedepd.shown import shown
from fedepd.sweeps.comparison import check_seeds, named_methods, with_backbone

MOST = 500
"""Combinations of values that one sweep may have."""
PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,30}")
"""A value that may be part of a folder's name."""
Values = tuple[Any, ...]


@dataclass(frozen=True)
class Sweep:
    """What is tried. Mistakes are found by ``jobs``, before anything runs."""

    method: str
    """As METHOD or METHOD:PRESET."""
    grid: Mapping[str, Sequence[str]]
    """Settings and the values that each of them takes, as a person types them."""
    data: str
    out: Path
    seeds: int = 3
    settings: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = None

    def jobs(self) -> list[Job]:
        """The runs, each in a folder of its own: all seeds of the first combination, then of the next."""
        from fedepd.runs.experiment import Experiment

        check_seeds(self.seeds)
        check_new_run(self.out)
        method, preset = named_methods([self.method])[0]
        combinations = self._combinations()
        given = {**self.settings, **combinations[0]}
        chosen, notes = with_backbone((method, preset), given, self.data, self.data_dir)
        settings = {**self.settings, "backbone": chosen["backbone"]}
        jobs, seen = [], set()
        for number, own in enumerate(combinations):
            experiment = Experiment.make(method, preset, **{**settings, **own})
            resolved = json.dumps(experiment.resolved(), sort_keys=True)
            if resolved in seen:
                raise BadConfig(f"{in_words(own)} is the same as another combination; name every value once")
            seen.add(resolved)
            name, first = folder_name(number, own), experiment.protocol.seed
            for seed in range(first, first + self.seeds):
                each = {**settings, **own, "seed": seed}
                out = self.out / f"{name}-seed{seed}"
                jobs.append(Job(method, preset, self.data, out, self.data_dir, each, notes=notes))
        return jobs

    def _combinations(self) -> list[dict[str, str]]:
        if not self.grid:
            raise BadConfig("there is nothing to sweep; give --grid NAME=VALUE,VALUE")
        if "seed" in self.grid:
            raise BadConfig("seed is not a setting to sweep; --seeds says how many there are")
        for name, values in self.grid.items():
            if name in self.settings:
                raise BadConfig(f"{shown(name)} is fixed and swept; give it once")
            if len(values) < 2:
                raise BadConfig(f"--grid {shown(name)} has {len(values)} value; give at least two")
        found = [
            dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())
        ]
        if len(found) > MOST:
            raise BadConfig(f"the grid has {len(found):,} combinations, more than {MOST}; give fewer values")
        return found


def read_grid(given: Sequence[str]) -> dict[str, list[str]]:
    """``--grid`` as typed: settings and their values."""
    out: dict[str, list[str]] = {}
    for each in given:
        name, sign, values = each.partition("=")
        name = name.strip().replace("-", "_")
        if not sign or not name:
            raise BadConfig(f"--grid '{shown(each)}' has no values; write it as --grid mu=0.5,1,2")
        if name in out:
            raise BadConfig(f"--grid {shown(name)} is given twice; list its values with commas")
        out[name] = [value.strip() for value in values.split(",") if value.strip()]
    return out


def in_words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{shown(name)} = {shown(value)}" for name, value in values.items())


def folder_name(number: int, values: Mapping[str, str]) -> str:
    """The values where they may be part of a file's name, else the combination's number."""
    if all(PLAIN.fullmatch(value) for value in values.values()) and len(values) <= 4:
        return "-".join(f"{name}-{value}" for name, value in values.items())
    return f"combination-{number}"


# --- what the runs tell -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Combination:
    """One combination of values and its runs, by seed."""

    values: Values
    runs: tuple[Run, ...]

    def scores(self, metric: str) -> list[float]:
        """The headline model's test scores in percent, one per seed."""
        return [100 * run.metric(metric) for run in self.runs]

    @property
    def validation(self) -> float:
        """The mean over seeds of the score that selects rounds, in percent, on validation nodes."""
        found = [100 * validation_score(run) for run in self.runs]
        return sum(found) / len(found)


@dataclass(frozen=True)
class Swept:
    """The finished runs of a sweep."""

    names: tuple[str, ...]
    """The settings that were swept."""
    combinations: list[Combination]
    """In the order of the grid."""

    @property
    def best(self) -> Combination:
        """By validation. The earliest wins a tie."""
        return max(self.combinations, key=lambda each: each.validation)

    def words(self, combination: Combination) -> str:
        return in_words(dict(zip(self.names, combination.values, strict=True)))

    def tests(self, metric: str) -> list[tuple[Combination, Combination, Comparison, float]]:
        """Every pair of combinations, and p over the seeds that both have, corrected by Holm over all pairs.

        Choice: the test is paired by seed. All values have the same partition, split and initial weights at a
        seed, and seeds differ far more than values do. Welch's test would count that as chance.
        """
        pairs = list(itertools.combinations(self.combinations, 2))
        common = [_in_common(a, b, metric) for a, b in pairs]
        corrected = holm([paired_p(ours - theirs) for ours, theirs in common])
        outcomes = [compare_seeds(ours.tolist(), theirs.tolist()) for ours, theirs in common]
        return [(*pair, each, p) for pair, each, p in zip(pairs, outcomes, corrected, strict=True)]


def _in_common(one: Combination, other: Combination, metric: str) -> npt.NDArray[np.float64]:
    """The scores of both at the seeds that both have: [2, n]."""
    ours, theirs = (
        {run.seed: score for run, score in zip(each.runs, each.scores(metric), strict=True)}
        for each in (one, other)
    )
    seeds = sorted(ours.keys() & theirs.keys())
    return in_common([ours[seed] for seed in seeds], [theirs[seed] for seed in seeds])


def swept(runs: Sequence[Run], names: Sequence[str]) -> Swept:
    """The runs by their values of the swept settings, in ascending order of values.

    Numbers are ordered as numbers.
    """
    found: dict[str, list[Run]] = {}
    values: dict[str, Values] = {}
    for run in runs:
        own = {name.rsplit(".", 1)[-1]: value for name, value in settings_of(run.config)}
        each = tuple(own[name] for name in names)
        key = json.dumps(each)
        values[key] = each
        found.setdefault(key, []).append(run)
    ordered = sorted(found, key=lambda key: [_place(value) for value in values[key]])
    return Swept(
        tuple(names),
        [Combination(values[key], tuple(sorted(found[key], key=lambda run: run.seed))) for key in ordered],
    )


def _place(value: Any) -> tuple[int, float, str]:
    if isinstance(value, int | float):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def validation_score(run: Run) -> float:
    """The validation score of the run's round, as a share: the one that selected it, or macro-F1."""
    select = run.config["experiment"]["protocol"]["select"]
    metric = select.removeprefix("val_") if select.startswith("val_") else "macro_f1"
    line = next(line for line in run.rounds if line["round"] == run.summary["best_round"])
    value = line["val"][run.headline][metric]
    return float("nan") if value is None else float(value)
