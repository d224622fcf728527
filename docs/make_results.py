"""Writes the tables of docs/results.md or docs/related.md: ``python docs/make_results.py TARGET OUT``.

``TARGET`` is ``equal`` or ``related``, and ``OUT`` the --out of `fedepd reproduce TARGET`.

A table stands between two marks, ``<!-- SCORING TABLE -->`` and ``<!-- end of SCORING TABLE -->``: see
``SCORINGS`` and ``TABLES``. The text around them is written by hand.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"equal": ROOT / "docs" / "results.md", "related": ROOT / "docs" / "related.md"}
OURS, BASE = "fedepd", "fedavg"
METRICS = {"bacc": "bAcc", "macro_f1": "Macro-F1", "acc": "Acc", "tail_acc": "Tail"}
RANKED = ("bacc", "macro_f1", "acc")
SCORINGS = {
    "headline": ("global", "personal"),
    "adapted": ("adapted", "personal"),
    "preferred": ("preferred", "personal"),
}
"""The models that a scoring takes, the first that a run has."""
MADE, PROXY = " §", " ‡"
Scores = dict[tuple[str, str, str], dict[str, float]]
"""Row, graph and scoring -> metric -> mean over seeds, in percent."""


@dataclass(frozen=True)
class Study:
    """What `reproduce` has written."""

    scores: Scores
    costs: Mapping[tuple[str, str], dict[str, float]]
    """Row and graph -> CPU seconds and bytes of a run, mean over seeds."""
    standings: Mapping[tuple[str, str], Mapping[str, Any]]
    """Scoring and metric -> ranks and tests."""
    graphs: Mapping[str, str]
    """Name -> name with its marks."""

    @classmethod
    def read(cls, out: Path, target: str = "equal") -> Study:
        with (out / target / f"{target}.csv").open(newline="", encoding="utf-8") as file:
            lines = [line for line in csv.DictReader(file) if line["settings"] == "{}"]
        found = json.loads((out / target / f"{target}-standings.json").read_text(encoding="utf-8"))
        standings = {(each["scoring"], each["metric"]): each for each in found}
        graphs = {line["dataset"]: marked(line["dataset"], line["proxy_features"]) for line in lines}
        return cls(means(lines), costs_of(lines), standings, graphs)

    def mean(self, row: str, scoring: str, metric: str) -> float:
        return fmean(self.scores[row, graph, scoring][metric] for graph in self.graphs)

    def gain(self, graph: str, scoring: str, metric: str) -> float:
        return self.scores[OURS, graph, scoring][metric] - self.scores[BASE, graph, scoring][metric]


def marked(graph: str, proxy: str) -> str:
    return graph + (PROXY if proxy == "true" else "") + (MADE if graph.endswith("_lt") else "")


def means(lines: list[dict[str, str]]) -> Scores:
    """Pooled test scores of rounds that the run's own selection chose, averaged over seeds."""
    values: dict[tuple[str, str, str], dict[str, dict[str, float]]] = {}
    for line in lines:
        own = line["select"] == "val_macro_f1" and line["average"] == "pooled" and not named_model(line)
        if own and line["metric"] in METRICS and line["value"]:
            cell = values.setdefault((row_of(line), line["dataset"], line["seed"]), {})
            cell.setdefault(line["model"], {})[line["metric"]] = 100 * float(line["value"])
    seeds: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for (row, graph, _), models in values.items():
        for scoring, wanted in SCORINGS.items():
            model = next((name for name in (*wanted, "global") if name in models), None)
            if model is not None:
                seeds.setdefault((row, graph, scoring), []).append(models[model])
    return {key: {m: fmean(each[m] for each in cells) for m in METRICS} for key, cells in seeds.items()}


def costs_of(lines: list[dict[str, str]]) -> dict[tuple[str, str], dict[str, float]]:
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for line in lines:
        if line["metric"] in ("cpu_seconds", "bytes_up") and not named_model(line):
            of_row = found.setdefault((row_of(line), line["dataset"]), {})
            of_row.setdefault(line["metric"], []).append(float(line["value"]))
    return {key: {name: fmean(values) for name, values in each.items()} for key, each in found.items()}


def row_of(line: Mapping[str, str]) -> str:
    """The row's key in the standings."""
    return line["method"] if line["preset"] == "default" else f"{line['method']}:{line['preset']}"


def named_model(line: Mapping[str, str]) -> bool:
    """Whether a row is about one model of another row's runs."""
    return "personal models" in line["row"]


def standing(study: Study, scoring: str) -> Iterator[str]:
    """Scores and ranks of all methods, and how likely FedEPD is ahead of each."""
    heads = ["method", *METRICS.values(), "rank: bAcc", "Macro-F1", "Acc"]
    yield f"| {' | '.join([*heads, 'FedEPD is ahead: bAcc', 'Macro-F1', 'Acc'])} |"
    yield "|:---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    places = {m: {row["row"]: row for row in study.standings[scoring, m]["rows"]} for m in RANKED}
    for name in sorted(places["bacc"], key=lambda row: places["bacc"][row]["mean_rank"]):
        cells = [places["bacc"][name]["label"]]
        cells += [f"{study.mean(name, scoring, metric):.1f}" for metric in METRICS]
        cells += [f"{places[metric][name]['mean_rank']:.1f}" for metric in RANKED]
        cells += [ahead(places[metric][name]["posterior"]) for metric in RANKED]
        yield f"| {' | '.join(cells)} |"
    for name in sorted({row for row, *_ in study.scores} - places["bacc"].keys()):
        cells = [f"{name} (reference)", *(f"{study.mean(name, scoring, metric):.1f}" for metric in METRICS)]
        yield f"| {' | '.join(cells + ['–'] * 6)} |"


def ahead(posterior: Mapping[str, float | None]) -> str:
    better, worse = posterior["better"], posterior["worse"]
    return "–" if better is None or worse is None else f"{better:.2f} ({worse:.2f})"


def gains(study: Study, scoring: str) -> Iterator[str]:
    """FedEPD minus FedAvg, graph by graph."""
    yield "| graph | bAcc | Macro-F1 | Acc | Tail |"
    yield "|:---|---:|---:|---:|---:|"
    for graph, title in study.graphs.items():
        yield f"| {title} | {' | '.join(f'{study.gain(graph, scoring, m):+.1f}' for m in METRICS)} |"
    over_all = [fmean(study.gain(graph, scoring, m) for graph in study.graphs) for m in METRICS]
    yield f"| **mean** | {' | '.join(f'{gain:+.1f}' for gain in over_all)} |"


def rivals(study: Study, scoring: str) -> Iterator[str]:
    """FedEPD, FedAvg and the best other method, graph by graph."""
    labels = {row["row"]: row["label"] for row in study.standings[scoring, "bacc"]["rows"]}
    yield "| graph | bAcc: FedAvg | FedEPD | best other | Macro-F1: FedAvg | FedEPD | best other |"
    yield "|:---|---:|---:|:---|---:|---:|:---|"
    for graph, title in study.graphs.items():
        cells = [title]
        for metric in RANKED[:2]:
            found = {row: study.scores[row, graph, scoring][metric] for row in labels}
            other = max((row for row in found if row not in (OURS, BASE)), key=found.__getitem__)
            best = f"{found[other]:.1f} ({labels[other]})"
            ours = f"{found[OURS]:.1f}"
            wins = found[OURS] > max(found[BASE], found[other])
            cells += [f"{found[BASE]:.1f}", f"**{ours}**" if wins else ours, best]
        yield f"| {' | '.join(cells)} |"


def replaced(text: str, name: str, table: str) -> str:
    """The page with another table between the marks of ``name``."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, _, rest = text.partition(start)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(
            f"the page has no table '{name}' with an end; put the marks {start.strip()} and {end} into it"
        )
    return f"{before}{start}\n{table}\n\n{end}{after}"


def costs(study: Study, scoring: str) -> Iterator[str]:
    """CPU seconds and sent bytes against FedAvg: the geometric mean over the graphs, and the largest."""
    yield "| method | CPU seconds | at most | bytes up |"
    yield "|:---|---:|---:|---:|"
    for row in study.standings[scoring, "bacc"]["rows"]:
        pairs = [(study.costs[row["row"], graph], study.costs[BASE, graph]) for graph in study.graphs]
        cpu, sent = ([a[name] / b[name] for a, b in pairs] for name in ("cpu_seconds", "bytes_up"))
        yield f"| {row['label']} | {geometric_mean(cpu):.1f} | {max(cpu):.1f} | {geometric_mean(sent):.2f} |"


TABLES = {"standing": standing, "graphs": rivals, "gains": gains, "costs": costs}


def page(text: str, study: Study) -> str:
    """The page with new tables. Those that it has no marks for are not wanted."""
    for name, (scoring, table) in {f"{s} {t}": (s, TABLES[t]) for s in SCORINGS for t in TABLES}.items():
        if f"<!-- {name} -->" in text:
            text = replaced(text, name, "\n".join(table(study, scoring)))
    return text


if __name__ == "__main__":
    name, out = sys.argv[1:]
    old = PAGES[name].read_text(encoding="utf-8")
    PAGES[name].write_text(page(old, Study.read(Path(out), name)), encoding="utf-8")
