"""Writes the tables of docs/results.md: ``python docs/make_results.py OUT``.

``OUT`` is the --out of `fedepd reproduce equal`.

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
from statistics import fmean
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "results.md"
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
    """What `reproduce equal` has written."""

    scores: Scores
    standings: Mapping[tuple[str, str], Mapping[str, Any]]
    """Scoring and metric -> ranks and tests."""
    graphs: Mapping[str, str]
    """Name -> name with its marks."""

    @classmethod
    def read(cls, out: Path) -> Study:
        folder = out / "equal"
        with (folder / "equal.csv").open(newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
        found = json.loads((folder / "equal-standings.json").read_text(encoding="utf-8"))
        graphs = {line["dataset"]: marked(line["dataset"], line["proxy_features"]) for line in lines}
        return cls(means(lines), {(each["scoring"], each["metric"]): each for each in found}, graphs)

    def mean(self, row: str, scoring: str, metric: str) -> float:
        return fmean(self.scores[row, graph, scoring][metric] for graph in self.graphs)

    def gain(self, graph: str, scoring: str, metric: str) -> float:
        return self.scores[OURS, graph, scoring][metric] - self.scores[BASE, graph, scoring][metric]


def marked(graph: str, proxy: str) -> str:
    return graph + (PROXY if proxy == "true" else "") + (MADE if graph.endswith("_lt") else "")


def means(lines: list[dict[str, str]]) -> Scores:
    """Pooled test scores of rounds that the run's own selection chose, averaged over seeds."""
    values: dict[tuple[str, str, str, str], dict[str, dict[str, float]]] = {}
    for line in lines:
        own = line["select"] == "val_macro_f1" and line["average"] == "pooled" and not named_model(line)
        if own and line["metric"] in METRICS and line["value"]:
            cell = values.setdefault((line["method"], line["settings"], line["dataset"], line["seed"]), {})
            cell.setdefault(line["model"], {})[line["metric"]] = 100 * float(line["value"])
    seeds: dict[tuple[str, str, str], list[dict[str, float]]] = {}
    for (method, settings, graph, _), models in values.items():
        for scoring, wanted in SCORINGS.items():
            model = next((name for name in (*wanted, "global") if name in models), None)
            if model is not None and settings == "{}":
                seeds.setdefault((method, graph, scoring), []).append(models[model])
    return {key: {m: fmean(each[m] for each in cells) for m in METRICS} for key, cells in seeds.items()}


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
            f"{PAGE.name} has no table '{name}' with an end; put the marks {start.strip()} and {end} into it"
        )
    return f"{before}{start}\n{table}\n\n{end}{after}"


TABLES = {"standing": standing, "graphs": rivals, "gains": gains}


def page(text: str, study: Study) -> str:
    """The page with new tables. Those that it has no marks for are not wanted."""
    for name, (scoring, table) in {f"{s} {t}": (s, TABLES[t]) for s in SCORINGS for t in TABLES}.items():
        if f"<!-- {name} -->" in text:
            text = replaced(text, name, "\n".join(table(study, scoring)))
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), Study.read(Path(sys.argv[1]))), encoding="utf-8")
