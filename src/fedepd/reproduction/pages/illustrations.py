"""The figures of a target, and the plotted points that ``results.numbers_csv`` does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from fedepd.longtail import bins, class_order
from fedepd.report.numbers import bin_accuracy
from fedepd.report.runs import Group
from fedepd.report.tables import marked_label
from fedepd.reproduction.judging.comparisons import ranks
from fedepd.reproduction.pages import figures
from fedepd.reproduction.pages.drawing import protocol_line
from fedepd.reproduction.pages.noise import curves, noise_figure
from fedepd.reproduction.study.measures import trajectory
from fedepd.reproduction.study.results import METRICS, Results
from fedepd.reproduction.study.targets import Kind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Panels = dict[str, list[Group]]
Line = list[object]

AT_MOST = 4
"""Most datasets in one figure. More datasets make a second figure."""


def figures_of(results: Results) -> dict[str, Figure]:
    """The stem of a figure's files -> the figure."""
    made = _FIGURES[results.target.kind](results) if results.runs else {}
    return {"-".join(filter(None, (results.target.name, stem))): figure for stem, figure in made.items()}


def panels(results: Results) -> Panels:
    """A dataset's title -> its finished rows, without references."""
    found = {
        dataset: [entry.group for entry in results.finished(dataset, references=False)]
        for dataset in results.datasets
    }
    return {results.title(dataset, words=True): groups for dataset, groups in found.items() if groups}


def _in_parts(results: Results, draw: Callable[[Panels], Figure], stem: str = "") -> dict[str, Figure]:
    shown = list(panels(results).items())
    parts = [dict(shown[start : start + AT_MOST]) for start in range(0, len(shown), AT_MOST)]
    numbers = [""] if len(parts) == 1 else [str(number) for number in range(1, len(parts) + 1)]
    return {
        "-".join(filter(None, (stem, number))): draw(part)
        for number, part in zip(numbers, parts, strict=True)
    }


def _rank_diagrams(results: Results) -> dict[str, Figure]:
    finished = [
        entry for dataset in results.datasets for entry in results.finished(dataset, references=False)
    ]
    labels, protocol = (
        {entry.row.key: marked_label(entry.group) for entry in finished},
        protocol_line(entry.group for entry in finished),
    )
    found = {metric: ranks(results, metric) for metric in METRICS}
    return {
        f"ranks-{m}": figures.critical_difference_diagram(cd, m, labels, protocol)
        for m, cd in found.items()
        if cd is not None
    }


def _sensitivity(results: Results) -> dict[str, Figure]:
    """Choice: macro-F1 because the paper's heat maps show it."""

    def draw(part: Panels) -> Figure:
        grids = {
            results.title(dataset, words=True): {
                tuple(entry.row.settings[name] for name in results.target.grid): list(
                    entry.values("macro_f1").values()
                )
                for entry in results.finished(dataset)
            }
            for dataset in results.datasets
        }
        note = protocol_line([group for groups in part.values() for group in groups])
        names = tuple(results.target.grid)
        draw_grid = figures.sensitivity_lines if len(names) == 1 else figures.sensitivity
        return draw_grid({title: grids[title] for title in part}, "macro_f1", note, names)

    return _in_parts(results, draw)


_FIGURES: dict[Kind, Callable[[Results], dict[str, Figure]]] = {
    "comparison": _rank_diagrams,
    "ablation": lambda results: {},
    "robustness": lambda results: {},
    "noise": lambda results: _noise(results),
    "distribution": lambda results: _in_parts(results, _distribution),
    "per_class": lambda results: _in_parts(results, figures.per_class),
    "tiers": lambda results: _in_parts(results, figures.tiers),
    "sensitivity": _sensitivity,
    "convergence": lambda results: (
        _in_parts(results, figures.convergence) | _in_parts(results, _f1_convergence, "macro_f1")
    ),
    "efficiency": lambda results: (
        _in_parts(results, figures.efficiency) | _in_parts(results, _f1_efficiency, "macro_f1")
    ),
}


def _noise(results: Results) -> dict[str, Figure]:
    """One figure per metric and dataset."""
    shown = [dataset for dataset in results.datasets if curves(results, dataset)]
    numbers = [""] if len(shown) == 1 else [str(number) for number in range(1, len(shown) + 1)]
    return {
        "-".join(filter(None, (stem, number))): noise_figure(results, [dataset], metric)
        for stem, metric in (("", "bacc"), ("macro_f1", "macro_f1"))
        for number, dataset in zip(numbers, shown, strict=True)
    }


def _distribution(part: Panels) -> Figure:
    return figures.distribution({title: groups[0].first for title, groups in part.items()})


def _f1_convergence(part: Panels) -> Figure:
    return figures.convergence(part, "macro_f1")


def _f1_efficiency(part: Panels) -> Figure:
    return figures.efficiency(part, "macro_f1")


def points_of(results: Results) -> list[Line]:
    """Every plotted point of figures that show more than final scores, with a header first. Else empty."""
    lines = list(_POINTS[results.target.kind](results)) if results.target.kind in _POINTS else []
    return [HEADERS[results.target.kind], *lines] if lines else []


HEADERS: dict[Kind, Line] = {
    "distribution": ["dataset", "class", "rank", "nodes", "client", "nodes_at_client"],
    "per_class": ["dataset", "row", "bin", "classes", "accuracy_percent", "low_percent", "high_percent"],
    "convergence": [
        "dataset",
        "row",
        "seed",
        "round",
        "cpu_seconds",
        "megabytes",
        "metric",
        "validation_percent",
    ],
}


def _distribution_points(results: Results) -> Iterator[Line]:
    for dataset in results.datasets:
        for entry in results.finished(dataset):
            arrays = entry.group.first.partition
            for rank, c in enumerate(class_order(arrays["class_sizes"]), start=1):
                for client, held in enumerate(arrays["client_class"][:, c]):
                    yield [dataset, c, rank, int(arrays["class_sizes"][c]), client, int(held)]


def _per_class_points(results: Results) -> Iterator[Line]:
    for dataset in results.datasets:
        for entry in results.finished(dataset, references=False):
            parts = bins(entry.group.first.partition["class_sizes"], 10)
            for number, (part, *values) in enumerate(
                zip(parts, *bin_accuracy(entry.group, parts), strict=True), start=1
            ):
                yield [
                    dataset,
                    entry.row.label,
                    number,
                    " ".join(map(str, part)),
                    *(round(100 * float(value), 4) for value in values),
                ]


def _convergence_points(results: Results) -> Iterator[Line]:
    for entry in results.entries:
        for seed, run in entry.runs.items():
            for metric in ("acc", "macro_f1"):
                for round, seconds, sent, score in trajectory(run, metric).tolist():
                    yield [
                        entry.dataset,
                        entry.row.label,
                        seed,
                        int(round),
                        seconds,
                        sent,
                        metric,
                        100 * score,
                    ]


_POINTS: dict[Kind, Callable[[Results], Iterator[Line]]] = {
    "distribution": _distribution_points,
    "per_class": _per_class_points,
    "convergence": _convergence_points,
}
