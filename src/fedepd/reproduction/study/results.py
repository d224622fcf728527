"""What the cells of a target have measured: one entry per row and dataset, complete or not."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from fedepd.datasets.published import TABLE1
from fedepd.report.numbers import mean_of
from fedepd.report.runs import Group, Run, read_run
from fedepd.reproduction.study.cells import Planned, short_name
from fedepd.reproduction.study.targets import Row, Target
from fedepd.shown import csv_text, shown

METRICS = ("bacc", "macro_f1", "acc")
"""The paper's metrics, the ones it stresses first."""
PROXY, MADE = " ‡", " §"
"""Marks of a graph with proxy features, and of one whose long tail was made by dropping nodes."""
COLUMNS = ["dataset", "proxy_features", "row", "method", "preset", "settings", "seed", "config_hash"]
COLUMNS += ["model", "average", "select", "best_round", "metric", "value", "failure"]


class Scoring(NamedTuple):
    """Which model is scored, and how the scores of clients are combined."""

    name: str
    model: str
    average: str
    words: str
    select: str = ""
    """The score that selects the round. Empty: the run's own."""


HEADLINE = Scoring("headline", "headline", "pooled", "")
# Choice: the paper does not say which model it scores. Its test bed (OpenFGL) by default scores each client's
# own model after its local epochs. That gives every method higher scores than the averaged model, which is
# what a new client would get. We show both, and our headline stays the global model.
OPENFGL = Scoring("openfgl", "personal", "client_mean", "scored as OpenFGL does by default")
ADAPTED = Scoring("adapted", "adapted", "pooled", "adapted models")
PREFERRED = Scoring("preferred", "preferred", "pooled", "models that validation prefers")
# Choice: a selection by macro-F1 favours methods that optimise it. So the same runs are also shown with the
# rounds that the other score selects. Adapted models begin at the round of the run's own selection alone.
BY_ACC = Scoring("by-acc", "headline", "pooled", "rounds selected by validation accuracy", "val_acc")
BY_F1 = Scoring("by-macro-f1", "headline", "pooled", "rounds selected by validation macro-F1", "val_macro_f1")


@dataclass(frozen=True, eq=False)
class Entry:
    """One row on one dataset over its seeds."""

    row: Row
    dataset: str
    runs: Mapping[int, Run]
    """Seed -> finished run, in ascending order."""
    failures: Mapping[int, str]
    """Seed -> why there is no run."""

    @property
    def group(self) -> Group:
        return Group(shown(self.row.label), tuple(self.runs.values()))

    def values(self, metric: str, scoring: Scoring = HEADLINE) -> dict[int, float]:
        """Seed -> score in percent. A row about one model is scored by this model in every table."""
        model = self.row.model or scoring.model
        return {
            seed: 100 * run.metric(metric, model, scoring.average, scoring.select)
            for seed, run in self.runs.items()
        }

    def mean(self, metric: str, scoring: Scoring = HEADLINE) -> float:
        return mean_of(self.values(metric, scoring).values())


@dataclass(frozen=True, eq=False)
class Results:
    """All entries of a target."""

    target: Target
    entries: Sequence[Entry]
    """Ordered by dataset, then by the target's rows."""

    @property
    def datasets(self) -> list[str]:
        return list(dict.fromkeys(entry.dataset for entry in self.entries))

    @cached_property
    def runs(self) -> list[Run]:
        return [run for entry in self.entries for run in entry.runs.values()]

    @cached_property
    def scorings(self) -> list[Scoring]:
        """The headline, and the other scorings that a run has."""
        others = [
            each
            for each in (BY_ACC, BY_F1)
            if any(run.summary.get("other_selection", {}).get("select") == each.select for run in self.runs)
        ]
        adapted = [ADAPTED, PREFERRED] if any(run.adapted for run in self.runs) else []
        return [HEADLINE, *adapted, *others]

    def of(self, dataset: str) -> list[Entry]:
        return [entry for entry in self.entries if entry.dataset == dataset]

    def finished(self, dataset: str, references: bool = True) -> list[Entry]:
        """The entries of a dataset that have at least one run."""
        return [entry for entry in self.of(dataset) if entry.runs and (references or not entry.row.reference)]

    def title(self, dataset: str, words: bool = False) -> str:
        """The dataset's title in the paper, or its name. Proxy features are marked by a sign or in words."""
        if self.is_official(dataset):
            return TABLE1[dataset].title
        names = [short_name(name) for name in self.datasets]
        name = shown(short_name(dataset) if names.count(short_name(dataset)) == 1 else dataset)
        if [shown(other) for other in self.datasets].count(name) > 1:  # long paths that differ at their ends
            name = f"{shown(name, 70)} #{self.datasets.index(dataset) + 1}"
        proxy = (" (proxy features)" if words else PROXY) if self.is_proxy(dataset) else ""
        return name + proxy + ((" (down-sampled)" if words else MADE) if is_made(dataset) else "")

    def is_proxy(self, dataset: str) -> bool:
        return any(
            bool(run.dataset.get("proxy_features"))
            for entry in self.of(dataset)
            for run in entry.runs.values()
        )

    def is_official(self, dataset: str) -> bool:
        """Whether the dataset is the paper's own, so that its numbers can be compared with the paper's."""
        return dataset in TABLE1 and not self.is_proxy(dataset)


def is_made(dataset: str) -> bool:
    """Whether the graph's long tail was made by dropping nodes. Such graphs are named so."""
    return short_name(dataset).endswith("_lt")


def read_results(target: Target, planned: Iterable[Planned], read: dict[Path, Run] | None = None) -> Results:
    """``read``: runs that were read before, by their folders. Targets share cells, and each is read once."""
    read = {} if read is None else read
    found: dict[tuple[str, str], list[Planned]] = {}
    for each in planned:
        if each.target == target.name:
            found.setdefault((each.dataset, each.row.key), []).append(each)
    entries = [_entry(cells, read) for cells in found.values()]
    order = list(dict.fromkeys(entry.dataset for entry in entries))
    rows = [row.key for row in target.rows]
    return Results(
        target, sorted(entries, key=lambda entry: (order.index(entry.dataset), rows.index(entry.row.key)))
    )


def _entry(cells: Sequence[Planned], read: dict[Path, Run]) -> Entry:
    by_seed = sorted(cells, key=lambda each: each.seed)
    runs = {}
    for each in by_seed:
        folder = each.job.out
        if folder in read or each.job.is_finished:
            runs[each.seed] = read[folder] = read.get(folder) or read_run(folder)
    failures = {each.seed: each.failure for each in by_seed if each.seed not in runs and each.failure}
    return Entry(cells[0].row, cells[0].dataset, runs, failures)


def with_folders(results: Results) -> Results:
    """The results without runs of which only scores are kept."""
    entries = [
        replace(entry, runs={seed: run for seed, run in entry.runs.items() if not run.kept_in})
        for entry in results.entries
    ]
    return replace(results, entries=entries)


def numbers_csv(results: Results) -> str:
    """Every number of every run, one per line, with how it was measured.

    A cell without a run has a line with the reason.
    """
    lines: list[Sequence[object]] = [COLUMNS]
    for entry in results.entries:
        row, proxy = entry.row, results.is_proxy(entry.dataset)
        head = [
            entry.dataset,
            str(proxy).lower(),
            row.label,
            row.method,
            row.preset,
            json.dumps(dict(row.settings)),
        ]
        for seed, run in entry.runs.items():
            lines += [[*head, seed, run.config["config_hash"], *line, ""] for line in _numbers(run)]
        for seed, why in entry.failures.items():
            lines.append([*head, seed, *[""] * 7, why])
    return csv_text(lines)


def _numbers(run: Run) -> Iterator[list[object]]:
    select, found = run.config["experiment"]["protocol"]["select"], dict(run.summary["metrics"])
    if run.adapted:
        found["preferred"] = {"pooled": found[run.preferred]["pooled"]}
    for model, averages in found.items():
        best = run.summary.get("best_rounds", {}).get(run.kind(model), "")
        for average, scores in averages.items():
            yield from ([model, average, select, best, metric, value] for metric, value in scores.items())
    other = run.summary.get("other_selection", {})
    for model, averages in other.get("metrics", {}).items():
        how = [other["select"], other["best_rounds"].get(model, "")]
        for average, scores in averages.items():
            yield from ([model, average, *how, metric, value] for metric, value in scores.items())
    for cost in ("seconds", "cpu_seconds", "bytes_up", "bytes_down", "peak_rss_mb"):
        yield ["", "", "", "", cost, run.summary.get(cost)]
