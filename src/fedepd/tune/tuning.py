"""All searches side by side: the same trials, rounds, graphs and seeds for every method."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedepd.datasets import graph_sha256, load
from fedepd.errors import BadConfig
from fedepd.methods import method_class
from fedepd.runs.jobs import Workers, outcomes
from fedepd.runs.tuned import TunedFile
from fedepd.tune.cells import FIRST_SEED, Cell, cells_of, developed
from fedepd.tune.search import BATCH, Search, Trial, knobs_of

CELLS = "cells"


@dataclass(frozen=True)
class Tuning:
    """What is searched, and how much effort each method gets."""

    methods: tuple[tuple[str, str], ...]
    """Names and presets."""
    data: tuple[str, ...]
    trials: int = 24
    seeds: tuple[int, ...] = (FIRST_SEED,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Flat settings for all trials. One that would be searched is fixed by it."""
    per_graph: bool = False
    """Whether each graph has a search of its own."""
    data_dir: str | None = None
    earlier: TunedFile | None = None
    """Settings that were found before. Each search tries its own right after the default."""

    def __post_init__(self) -> None:
        if self.trials < 1:
            raise BadConfig(f"trials is {self.trials}; give at least 1")
        if not self.seeds:
            raise BadConfig("seeds is 0; give at least 1")
        for what, named in (("method", self.methods), ("graph", self.data)):
            for each in named:
                if list(named).count(each) > 1:
                    name = each if isinstance(each, str) else ":".join(each)
                    raise BadConfig(f"the {what} '{name}' is named twice; name it once")
        for method, preset in self.methods:
            method_class(method)
            # Shared settings may be idle for one method, but they must be right for all.
            developed(method, preset, {**self.settings, "seed": min(self.seeds)})

    def searches(self) -> list[Search]:
        """In joint searches one per method, else one per method and graph."""
        graphs = [(each,) for each in self.data] if self.per_graph else [self.data]
        return [
            Search(
                method,
                preset,
                each,
                knobs_of(method, preset, list(self.settings)),
                earlier=self._earlier(method, preset, each),
            )
            for each in graphs
            for method, preset in self.methods
        ]

    def _earlier(self, method: str, preset: str, graphs: Sequence[str]) -> Mapping[str, Any]:
        """What ``earlier`` has for a search. A setting that is fixed here is left out."""
        if self.earlier is None:
            return {}
        data = graphs[0] if len(graphs) == 1 else None
        known = self.earlier.settings_of(method, preset, data)
        if known is None:
            self.earlier.applied(method, preset, data, {})  # says what the file has
        return {name: value for name, value in (known or {}).items() if name not in self.settings}


@dataclass(frozen=True)
class Found:
    """What a tuning found."""

    tuning: Tuning
    searches: list[Search]
    extra: int
    """Trials that every method got beyond the usual number; 0 where no best value was at an end."""
    rounds: int
    vault: float
    """The share of each class that no trial has seen."""


Watch = Callable[[], None]
Ended = Callable[[Search, Trial], None]


def tune(
    tuning: Tuning,
    out: Path,
    workers: Workers = 1,
    watch: Watch | None = None,
    ended: Ended = lambda *_: None,
) -> Found:
    """Run all searches. Their results do not depend on the number of workers.

    Args:
        tuning: What to search.
        out: A folder for the cells. What is there already is not run again.
        workers: How many cells run at the same time, or a cluster.
        watch: Called a few times a second.
        ended: Called with each trial that ended.

    Returns:
        All trials of all searches.
    """
    if isinstance(workers, int) and workers < 1:
        raise BadConfig(f"workers is {workers}; give at least 1")
    hashes = {name: graph_sha256(load(name, tuning.data_dir)) for name in tuning.data}
    first = tuning.methods[0]
    common = developed(*first, {**tuning.settings, "seed": min(tuning.seeds)})
    if tuning.earlier is not None:
        tuning.earlier.check_vault(common.split.vault)
    searches, cells = tuning.searches(), out / CELLS
    try:
        cells.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise BadConfig(
            f"cannot write to the output folder '{out}': {cause.strerror}; give another --out"
        ) from cause
    work = _Work(tuning, cells, hashes, workers, watch, ended)
    work.trials_of(searches, tuning.trials)
    extra = extra_trials(tuning, searches)
    if extra:
        for search in searches:
            search.extend()
        work.trials_of(searches, extra, extra=True)
    return Found(tuning, searches, extra, common.protocol.rounds, common.split.vault)


def extra_trials(tuning: Tuning, searches: Sequence[Search]) -> int:
    """How many more trials every search gets. 0 where no best value is at an end of its ladder.

    Choice: a quarter of the usual number, or more where one search needs more to try every step beyond. All
    searches get as many, with an edge or without.
    Choice: none where only the default and a setting that was found before are compared.
    """
    if tuning.earlier is not None and tuning.trials <= 2:
        return 0
    steps = max(len(search.at_edge()) for search in searches)
    return max(steps, tuning.trials // 4) if steps else 0


@dataclass(frozen=True)
class _Work:
    tuning: Tuning
    folder: Path
    hashes: Mapping[str, str]
    workers: Workers
    watch: Watch | None
    ended: Ended

    def trials_of(self, searches: Sequence[Search], count: int, extra: bool = False) -> None:
        """``count`` more trials of every search, some at a time."""
        for start in range(0, count, BATCH):
            size = min(BATCH, count - start)
            asked = [(search, search.ask(extra)) for search in searches for _ in range(size)]
            for stage in range(max(len(search.graphs) for search in searches)):
                self._score([pair for pair in asked if pair[1].state == "open"], stage)
            for search, trial in asked:
                if trial.state == "open":
                    search.tell(trial, "complete")
                    self.ended(search, trial)

    def _score(self, asked: Sequence[tuple[Search, Trial]], stage: int) -> None:
        """All open trials on their next graph; then those without hope are closed."""
        cells = [self._cells(search, trial, stage) for search, trial in asked]
        failures = self._run([cell for each in cells for cell in each])
        for (search, trial), own in zip(asked, cells, strict=True):
            trial.failure = next((failures[cell.out] for cell in own if cell.out in failures), "")
            if trial.failure:
                search.tell(trial, "failed")
            else:
                search.add_score(trial, statistics.fmean(cell.score for cell in own))
        # Only now, so that the decision about one trial does not depend on the place of another.
        hopeless = [pair for pair in asked if pair[1].state == "open" and pair[0].is_hopeless(pair[1])]
        for search, trial in hopeless:
            search.tell(trial, "pruned")
        for search, trial in asked:
            if trial.state != "open":
                self.ended(search, trial)

    def _cells(self, search: Search, trial: Trial, stage: int) -> list[Cell]:
        name, tuning = search.graphs[stage], self.tuning
        settings = {**tuning.settings, **trial.settings}
        where, data = (self.folder, tuning.data_dir), (name, self.hashes[name])
        return cells_of(where, (search.method, search.preset), data, settings, tuning.seeds)

    def _run(self, cells: Sequence[Cell]) -> dict[Path, str]:
        """Run what is not finished, each once. Returns why cells failed."""
        waiting = {cell.out: cell for cell in cells if not cell.is_finished}
        with closing(outcomes(list(waiting.values()), self.workers, self.watch)) as found:
            return {outcome.job.out: outcome.failure for outcome in found if outcome.failure}
