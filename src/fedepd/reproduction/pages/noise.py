"""Curves of methods that train on corrupted data: a score over the share that is corrupted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedepd.clients.corruption import NAMES, Corruption
from fedepd.report.drawing import GREY, METHOD_COLOURS, Style
from fedepd.report.numbers import mean_std
from fedepd.report.runs import Group
from fedepd.report.tables import METRIC_WORDS, Cell, Table, marked_label, measured, protocols, ranked
from fedepd.reproduction.pages.drawing import (
    Panels,
    legend_below,
    line_look,
    looks,
    panel_grid,
    protocol_line,
    styled,
)
from fedepd.reproduction.study.results import Entry, Results
from fedepd.reproduction.study.targets import in_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curves = dict[str, dict[str, dict[float, Entry]]]
"""Name of a corruption -> a method's label -> share -> entry. The share 0 is in all of them."""
WHAT = {
    "features": "noise on features (× their size)",
    "features-missing": "share of features missing",
    "edges": "new random edges (× edges)",
    "edges-missing": "share of edges missing",
    "labels": "share of training labels wrong",
    "labels-missing": "share of training labels missing",
}


MOST = 8
"""Most curves of a figure that have a colour and a name."""


def curves(results: Results, dataset: str) -> Curves:
    """The finished rows of a dataset by corruption, method and share."""
    (setting,) = results.target.grid
    found: dict[str, dict[str, dict[float, Entry]]] = {}
    clean: dict[str, Entry] = {}
    for entry in results.finished(dataset):
        text = str(entry.row.settings[setting])
        label = entry.row.label.removesuffix(f", {in_words((setting, text))}")
        shares = {name: share for name, share in Corruption.read(text).shares.items() if share}
        if not shares:
            clean[label] = entry
        for name, share in shares.items():
            found.setdefault(name, {}).setdefault(label, {})[share] = entry
    for of in found.values():
        for label, points in of.items():
            points |= {0.0: clean[label]} if label in clean else {}
    return {
        name: {label: dict(sorted(points.items())) for label, points in found[name].items()}
        for name in NAMES
        if name in found
    }


def overview(results: Results, dataset: str) -> Table:
    """What every method scores clean, and at the largest share of each corruption."""
    found = curves(results, dataset)
    labels = list(dict.fromkeys(label for of in found.values() for label in of))
    rows = []
    for label in labels:
        points = {name: of[label] for name, of in found.items() if label in of}
        clean = next((each[0.0] for each in points.values() if 0.0 in each), None)
        worst = [points[name][max(points[name])] if name in points else None for name in found]
        name = Cell(marked_label(_group(label, next(iter(points.values())))))
        rows.append([name, *(_score(entry, "bacc") for entry in (clean, *worst))])
    largest = [max(max(points) for points in of.values()) for of in found.values()]
    headers = ["Method", "clean", *(f"{n}={s:g}" for n, s in zip(found, largest, strict=True))]
    text = (
        "Balanced accuracy on clean test nodes, higher is better. A column is what the clients trained on: "
        "clean data, or the largest share of each corruption."
    )
    return Table(
        f"{results.target.name}-{dataset}",
        headers,
        [ranked(rows, range(1, len(headers)))],
        _note(results, dataset, text),
    )


def noise_tables(results: Results, dataset: str, metric: str) -> dict[str, Table]:
    """A table per corruption, with a row per method and a column per share."""
    out = {}
    for name, of in curves(results, dataset).items():
        shares = sorted({share for points in of.values() for share in points})
        rows = [
            [Cell(marked_label(_group(label, points))), *_cells(points, shares, metric)]
            for label, points in of.items()
        ]
        text = (
            f"{METRIC_WORDS[metric].capitalize()} on clean test nodes, higher is better. A column is the "
            f"{WHAT[name]}; 0 is the clean run. Lost: points between the clean run and the largest share, "
            "less is better."
        )
        headers = ["Method", *(f"{share:g}" for share in shares), "Lost"]
        key = f"{results.target.name}-{name}-{metric}-{dataset}"
        heading = f"{results.title(dataset)}: {METRIC_WORDS[metric]}, {name}"
        out[heading] = Table(key, headers, [rows], _note(results, dataset, text))
    return out


def _score(entry: Entry | None, metric: str) -> Cell:
    return measured(*mean_std(entry.values(metric).values() if entry else ()))


def _cells(points: Mapping[float, Entry], shares: Sequence[float], metric: str) -> list[Cell]:
    cells = [_score(points.get(share), metric) for share in shares]
    first, last = (points[s].mean(metric) if s in points else float("nan") for s in (shares[0], shares[-1]))
    return [*cells, measured(first - last, float("nan"))]


def _note(results: Results, dataset: str, text: str) -> str:
    """With the protocol of the cleanest run. The others differ in what the table says."""
    entries = results.finished(dataset)
    first = min(entries, key=lambda entry: len(str(entry.row.settings["corrupt"])))
    seeds = "1 seed" if len(first.runs) == 1 else f"{len(first.runs)} seeds"
    return f"{text} Mean ± standard deviation over {seeds}. {protocols([first.group])}"


def _group(label: str, points: Mapping[float, Entry]) -> Group:
    return Group(label, tuple(run for entry in points.values() for run in entry.runs.values()))


def foremost(results: Results) -> set[str]:
    """The labels of the curves that are named: FedEPD's, and the best by balanced accuracy over the page."""
    scores: dict[str, list[float]] = {}
    ours = []
    for dataset in results.datasets:
        for of in curves(results, dataset).values():
            for label, points in of.items():
                found = [entry.mean("bacc") for entry in points.values()]
                scores.setdefault(label, []).extend(score for score in found if not np.isnan(score))
                ours += [label] if next(iter(points.values())).row.method == "fedepd" else []
    best = sorted(scores, key=lambda label: -np.mean(scores[label]) if scores[label] else np.inf)
    return set([*dict.fromkeys([*ours, *best])][:MOST])


def apart(groups: Sequence[Group]) -> dict[str, Style]:
    """Label -> style. A method without a colour of its own has one that no other curve of the page has."""
    methods = dict.fromkeys(group.method for group in groups)
    free = iter([colour for method, colour in METHOD_COLOURS.items() if method not in methods])
    colours = {method: METHOD_COLOURS.get(method) or next(free) for method in methods}
    found = looks({"": groups})
    return {group.label: replace(found[group.label], colour=colours[group.method]) for group in groups}


@styled
def noise_figure(results: Results, datasets: Sequence[str], metric: str) -> Figure:
    """A panel per dataset and corruption, with a curve per method."""
    title = METRIC_WORDS[metric]
    drawn = {(dataset, name): of for dataset in datasets for name, of in curves(results, dataset).items()}
    groups: Panels = {
        f"{dataset} {name}": [_group(label, points) for label, points in of.items()]
        for (dataset, name), of in drawn.items()
    }
    entries = [entry for of in drawn.values() for points in of.values() for entry in points.values()]
    note = (
        "Clients train on corrupted data; features, edges and labels of the scored nodes are clean. Line: "
        f"mean over seeds. Band: ± one standard deviation. {protocol_line(entry.group for entry in entries)}"
    )
    named = foremost(results)
    others = {label for of in drawn.values() for label in of} - named
    if others:
        note = (
            f"In colour: FedEPD and the best on average. In grey: {len(others)} more; see the tables. {note}"
        )
    figure, axes = panel_grid(len(drawn), 3, 1.9, f"Test {title} after training on corrupted data", note)
    look_of = apart([each for of in groups.values() for each in of if each.label in named])
    for ((dataset, name), of), axis in zip(drawn.items(), axes, strict=True):
        for label, points in of.items():
            scores = np.array([mean_std(entry.values(metric).values()) for entry in points.values()])
            mean, std = scores[:, 0], np.nan_to_num(scores[:, 1])
            if label in others:
                axis.plot(list(points), mean, color=GREY, alpha=0.5, linewidth=0.7, zorder=1)
                continue
            look = line_look(look_of[label])
            axis.plot(list(points), mean, label=marked_label(_group(label, points)), **look)
            band = {"color": look["color"], "alpha": 0.12, "linewidth": 0}
            axis.fill_between(list(points), mean - std, mean + std, **band)
        axis.set(xlabel=WHAT[name], ylabel=f"{title} (%)", title=results.title(dataset, words=True))
        axis.grid()
    legend_below(figure, axes)
    return figure
