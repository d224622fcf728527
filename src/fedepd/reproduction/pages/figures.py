"""The paper's figures, drawn for the width of a column (3.4 inches) or of a page (7 inches).

``panels`` maps a dataset's title to its groups of runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fedepd.longtail import bins, class_order, imbalance_ratio
from fedepd.report.drawing import DARK, GREY, METHOD_COLOURS, TIER_COLOURS, dodge, ticks_of
from fedepd.report.matrices import value_map
from fedepd.report.numbers import bin_accuracy, mean_std
from fedepd.report.plots import draw_sizes
from fedepd.report.runs import Group, Run
from fedepd.report.tables import METRIC_WORDS, marked_label
from fedepd.reproduction.judging.statistics import CriticalDifference, smallest_wilcoxon_p
from fedepd.reproduction.pages.drawing import (
    COLUMN,
    PAGE,
    Panels,
    finished,
    legend_below,
    line_look,
    looks,
    new_figure,
    panel_grid,
    protocol_line,
    styled,
)
from fedepd.reproduction.study.measures import trajectory
from fedepd.reproduction.study.targets import spelled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "convergence",
    "critical_difference_diagram",
    "distribution",
    "efficiency",
    "per_class",
    "sensitivity",
    "tiers",
]

TIER_BARS = {"head": "#4C86B8", "medium": "#B8A900", "tail": "#D55E00"}
Grid = Mapping[tuple[Any, ...], Sequence[float]]
"""The values of two settings -> one score per seed, in percent."""
SYMBOLS = {"mu": "μ", "gamma": "γ"}
AXES = {"mu": "μ, intensity of the logit adjustment", "gamma": "γ, intensity of the injection"}


@styled
def critical_difference_diagram(
    found: CriticalDifference, metric: str, labels: Mapping[str, str] | None = None, protocol: str = ""
) -> Figure:
    """Mean ranks on a line, the best on the left. Bars join rows that cannot be told apart.

    ``labels`` maps a row to the name that is shown.
    """
    names = {row: (labels or {}).get(row, row) for row in (*found.mean_ranks, *found.left_out)}
    datasets, tests = len(found.datasets), len(found.pairwise)
    smallest = _p(min(1.0, tests * smallest_wilcoxon_p(datasets)))
    note = (
        f"Friedman's test: {_p(found.friedman_p)}. Bars join methods that Wilcoxon's test with Holm's "
        f"correction cannot tell apart (p ≥ 0.05). With {datasets} datasets and {tests} pairs the smallest "
        f"possible result is {smallest}."
    )
    if found.left_out:
        note += f" Left out because a dataset is missing: {', '.join(names[row] for row in found.left_out)}."
    note += f" {protocol}"
    rows, worst = list(found.mean_ranks), max(2, len(found.mean_ranks))
    half, top = -(-len(rows) // 2), 0.4 + 0.3 * len(found.groups)
    depth = top + 0.45 * half
    title = f"Mean rank by {METRIC_WORDS.get(metric, metric)} over {datasets} datasets, 1 is best"
    figure = new_figure(PAGE, 0.35 * (depth + 0.7), title, note)
    axis, unit = figure.subplots(), (worst - 1) / 100
    axis.set(xlim=(1 - 40 * unit, worst + 40 * unit), ylim=(depth, -0.7))
    axis.axis("off")
    axis.hlines(0, 1, worst, color=DARK, linewidth=0.9)
    for rank in range(1, worst + 1):
        axis.vlines(rank, -0.15, 0, color=DARK, linewidth=0.9)
        axis.text(rank, -0.2, str(rank), ha="center", va="bottom")
    for place, row in enumerate(rows):
        side, mean = -1 if place < half else 1, found.mean_ranks[row]
        colour = METHOD_COLOURS.get(row.partition(":")[0], GREY)
        y = top + 0.45 * (place if side < 0 else len(rows) - 1 - place)
        edge = (1 if side < 0 else worst) + 4 * side * unit
        axis.plot([mean, mean, edge], [0, y, y], color=colour, linewidth=0.9)
        text = f"{names[row]}  {mean:.2f}" if side < 0 else f"{mean:.2f}  {names[row]}"
        axis.text(edge + side * unit, y, text, ha="right" if side < 0 else "left", va="center")
    for level, group in enumerate(found.groups):
        ends = [found.mean_ranks[group[0]] - unit, found.mean_ranks[group[-1]] + unit]
        axis.plot(ends, [0.3 + 0.3 * level] * 2, color=DARK, linewidth=2.5, solid_capstyle="round")
    return figure


@styled
def distribution(runs: Mapping[str, Run]) -> Figure:
    """Class sizes with the imbalance ratio, and how many nodes of each class every client holds."""
    from matplotlib.patches import Patch

    seeds = " or ".join(str(seed) for seed in sorted({run.seed for run in runs.values()}))
    note = (
        "IR: imbalance ratio, the largest class over the smallest. A client's IR counts only the classes it "
        f"holds. White: the client has no node of the class. The clients are those of seed {seeds}."
    )
    figure = new_figure(PAGE, 0.3 + 1.8 * len(runs), "Class sizes, and how clients hold them", note)
    axes = figure.subplots(len(runs), 2, squeeze=False)
    for (title, run), (size_axis, client_axis) in zip(runs.items(), axes, strict=True):
        _draw_class_sizes(size_axis, title, run)
        mesh = _draw_clients(client_axis, title, run)
        figure.colorbar(mesh, ax=client_axis, pad=0.01, format="{x:g}").set_label("nodes (log)")
    handles = [Patch(color=colour, label=tier) for tier, colour in TIER_BARS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3)
    return figure


def _draw_class_sizes(axis: Any, title: str, run: Run) -> None:
    sizes = run.partition["class_sizes"]  # [C]
    order, tier_of = (
        class_order(sizes),
        {c: tier for tier, members in run.summary["tiers"].items() for c in members},
    )
    axis.bar(
        range(1, len(order) + 1),
        sizes[order],
        0.85,
        color=[TIER_BARS.get(tier_of.get(c, ""), GREY) for c in order],
    )
    axis.set(
        yscale="log", xlabel="class, largest to smallest", ylabel="nodes (log)", xlim=(0.3, len(order) + 0.7)
    )
    axis.set_title(f"{title}: {len(order)} classes, IR {imbalance_ratio(sizes):.1f}")
    axis.xaxis.get_major_locator().set_params(integer=True)
    _log_ticks(axis.yaxis)
    axis.grid(axis="y")


def _draw_clients(axis: Any, title: str, run: Run) -> Any:
    from matplotlib.colors import LogNorm

    held = run.partition["client_class"][:, class_order(run.partition["class_sizes"])]  # [K, C]
    look = {"edgecolors": "white", "linewidth": 0.3} if held.shape[1] <= 45 else {}
    edges = np.arange(held.shape[1] + 1) + 0.5
    shades = LogNorm(1, max(2, held.max()))
    mesh = axis.pcolormesh(
        edges,
        range(len(held) + 1),
        np.ma.masked_equal(held, 0),
        cmap="cividis_r",
        norm=shades,
        rasterized=True,
        **look,
    )
    axis.invert_yaxis()
    axis.set_yticks(
        *ticks_of(
            [f"{k}: {imbalance_ratio(own):.0f}" if own.any() else str(k) for k, own in enumerate(held)],
            most=10,
        )
    )
    axis.set(
        xlabel="class, largest to smallest", ylabel="client: its IR", title=f"{title}: {len(held)} clients"
    )
    axis.xaxis.get_major_locator().set_params(integer=True)
    return mesh


@styled
def per_class(panels: Panels) -> Figure:
    """Test accuracy in ten bins of classes, over grey bars of class sizes and the spans of head, medium
    and tail."""
    panels = finished(panels)
    most = max(len(groups) for groups in panels.values())
    note = "Lines: mean test accuracy of a bin's classes, higher is better. Grey bars: nodes of each class. "
    if most <= 6:
        note += "Whiskers: 95 % interval, from the test nodes of an average seed. "
    figure, axes = panel_grid(
        len(panels), 2, 2.3, "Test accuracy by class size", note + protocol_line(_all(panels))
    )
    look_of, drawn = looks(panels), []
    for (title, groups), size_axis in zip(panels.items(), axes, strict=True):
        sizes = groups[0].first.partition["class_sizes"]  # [C]
        parts = bins(sizes, 10)
        axis = size_axis.twinx()
        drawn.append(axis)
        draw_sizes(size_axis, parts, sizes, groups[0].first.summary["tiers"])
        size_axis.tick_params(
            axis="x",
            labelsize=5 if len(panels) > 1 else 7,
            rotation=30 if len(panels) > 1 and len(sizes) > 99 else 0,
        )
        for place, group in enumerate(groups):
            mean, low, high = (100 * values for values in bin_accuracy(group, parts))  # [B] each
            x, bars = (
                np.arange(len(parts)) + dodge(place, len(groups), 0.5),
                None if most > 6 else [mean - low, high - mean],
            )
            axis.errorbar(
                x,
                mean,
                yerr=bars,
                label=marked_label(group),
                elinewidth=0.5,
                **line_look(look_of[group.label]),
            )
        axis.set(ylim=(-2, 112), yticks=range(0, 101, 20), ylabel="test accuracy (%)")
        axis.yaxis.tick_left()
        axis.yaxis.set_label_position("left")
        size_axis.set_title(title)
    legend_below(figure, drawn)
    return figure


@styled
def tiers(panels: Panels) -> Figure:
    """Head, medium and tail accuracy, mean and standard deviation over seeds."""
    panels = finished(panels)
    note = (
        "Mean test accuracy of a tier's classes, higher is better. Whiskers: standard deviation over seeds. "
    )
    columns = 1 if max(len(groups) for groups in panels.values()) > 6 else 2
    figure, axes = panel_grid(
        len(panels), columns, 1.6, "Head, medium and tail accuracy", note + protocol_line(_all(panels))
    )
    look_of = looks(panels)
    for (title, groups), axis in zip(panels.items(), axes, strict=True):
        for place, group in enumerate(groups):
            mean, std = np.array(
                [mean_std(100 * run.metric(f"{tier}_acc") for run in group.runs) for tier in TIER_COLOURS]
            ).T
            x, style = np.arange(3) + dodge(place, len(groups), 0.86), look_of[group.label]
            fill = {"color": style.colour, "hatch": 2 * style.hatch, "edgecolor": "white", "linewidth": 0}
            axis.bar(x, mean, 0.8 / len(groups), label=marked_label(group), **fill)
            axis.errorbar(
                x,
                mean,
                np.nan_to_num(std),
                fmt="none",
                ecolor=DARK,
                elinewidth=0.7,
                capsize=1.2,
                capthick=0.7,
            )
        axis.set_xticks(range(3), list(TIER_COLOURS))
        axis.set(
            xlim=(-0.5, 2.5), ylim=(0, 105), yticks=range(0, 101, 20), ylabel="test accuracy (%)", title=title
        )
        axis.grid(axis="y")
    legend_below(figure, axes)
    return figure


@styled
def sensitivity(
    grids: Mapping[str, Grid],
    metric: str = "macro_f1",
    note: str = "",
    settings: tuple[str, ...] = ("mu", "gamma"),
) -> Figure:
    """A heat map per dataset. Its title compares the range with the noise over seeds.

    ``note`` is the protocol. ``settings`` are the two settings that the grid varies.
    """
    title = METRIC_WORDS.get(metric, metric)
    text = (
        "Mean over seeds in percent, higher is better. The best cell is framed. Noise: the standard "
        "deviation over seeds, pooled over cells, and the standard error of a cell's mean. A range of a few "
        f"standard errors can be chance. {note}"
    )
    width = COLUMN if len(grids) == 1 else PAGE
    over = " and ".join(SYMBOLS.get(setting, setting) for setting in settings)
    figure, axes = panel_grid(len(grids), 2, 2.5, f"Test {title} over {over}", text, width)
    for (name, grid), axis in zip(grids.items(), axes, strict=True):
        across, up = sorted({first for first, _ in grid}), sorted({second for _, second in grid})
        means = np.array(
            [[mean_std(grid.get((first, second), ()))[0] for first in across] for second in up]
        )  # [up, across]
        low, high = (float(end) for end in (np.nanmin(means), np.nanmax(means)))
        best = divmod(int(np.nanargmax(means)), len(across))
        ticks = [*map(spelled, across)], [*map(spelled, up)]
        mesh = value_map(axis, means, best, ticks, 6.5)
        axis.set(
            **{
                f"{side}label": AXES.get(setting, setting)
                for side, setting in zip("xy", settings, strict=True)
            }
        )
        axis.set_title(f"{name}: range {high - low:.2f} points\n{_noise_floor(grid)}")
        figure.colorbar(mesh, ax=axis, pad=0.02).set_label(f"{title} (%)")
    return figure


@styled
def sensitivity_lines(grids: Mapping[str, Grid], metric: str, note: str, settings: tuple[str, ...]) -> Figure:
    """A curve per dataset over the values of one setting. Between names there is no line."""
    title = METRIC_WORDS.get(metric, metric)
    text = f"In percent, higher is better. Grey: seeds. Blue: their mean ± one standard deviation. {note}"
    width, name = COLUMN if len(grids) == 1 else PAGE, settings[0]
    figure, axes = panel_grid(len(grids), 2, 2.2, f"Test {title} over {SYMBOLS.get(name, name)}", text, width)
    for (dataset, grid), axis in zip(grids.items(), axes, strict=True):
        values = [value for (value,) in grid]
        numbers = all(isinstance(value, int | float) for value in values)
        values, line = (sorted(values), "-o") if numbers else (values, "o")
        found = np.array([mean_std(grid[value,]) for value in values])  # [values, 2]
        for place, value in enumerate(values):
            axis.plot([place] * len(grid[value,]), grid[value,], "o", color=GREY, markersize=2.5)
        spread, places = np.nan_to_num(found[:, 1]), np.arange(len(values))
        axis.errorbar(places, found[:, 0], spread, fmt=line, color="#0072B2", markersize=4)
        axis.set_xticks(places, [*map(spelled, values)])
        axis.set(xlabel=AXES.get(name, name), ylabel=f"{title} (%)")
        axis.set_title(f"{dataset}\n{_noise_floor(grid)}")
    return figure


def _noise_floor(grid: Grid) -> str:
    """The spread of seeds around their cell's mean, pooled over cells."""
    counts = [len(values) for values in grid.values() if len(values) > 1]
    if not counts:
        return "noise unknown: one seed"
    squares = sum(
        float(np.var(values, ddof=1)) * (len(values) - 1) for values in grid.values() if len(values) > 1
    )
    std = (squares / (sum(counts) - len(counts))) ** 0.5
    return f"noise {std:.2f} per seed, {std / min(counts) ** 0.5:.2f} for a mean of {min(counts)} seeds"


@styled
def convergence(panels: Panels, metric: str = "acc") -> Figure:
    """Validation score against rounds, CPU seconds and megabytes, with a row of panels per dataset."""
    panels, title = finished(panels), METRIC_WORDS.get(metric, metric)
    note = (
        "Scores on validation nodes, higher is better. Line: mean over seeds. Band: ± one standard "
        f"deviation. {protocol_line(_all(panels), all_rounds=True)}"
    )
    figure = new_figure(
        PAGE,
        0.4 + 1.75 * len(panels),
        f"Validation {title} against rounds, CPU seconds and megabytes",
        note,
    )
    axes, look_of = figure.subplots(len(panels), 3, squeeze=False, sharey="row"), looks(panels)
    for (name, groups), row in zip(panels.items(), axes, strict=True):
        for group in groups:
            curves = [trajectory(run, metric) for run in group.runs]  # each [T, 4]
            shared = sorted(set.intersection(*(set(curve[:, 0]) for curve in curves)))
            cut = np.array([curve[np.isin(curve[:, 0], shared)] for curve in curves])  # [S, T, 4]
            mean, scores = cut.mean(axis=0), 100 * cut[:, :, 3]
            low, high = scores.mean(axis=0) + np.outer(
                [-1, 1], scores.std(axis=0, ddof=1) if len(scores) > 1 else 0 * scores[0]
            )
            look = line_look(look_of[group.label]) | ({"marker": ""} if len(shared) > 2 else {})
            for x, axis in zip(mean.T, row, strict=False):
                if not x.all():  # nothing was sent, and a logarithmic axis has no 0
                    continue
                axis.plot(x, scores.mean(axis=0), label=marked_label(group), **look)
                axis.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
        for axis, unit in zip(
            row, ("round", "CPU seconds (log)", "MB sent in both directions (log)"), strict=True
        ):
            axis.set_xlabel(unit)
            axis.grid()
            if unit != "round":
                axis.set_xscale("log")
                _log_ticks(axis.xaxis)
        row[0].set(ylabel=f"validation {title} (%)", title=name)
    legend_below(figure, axes[:, 0])
    return figure


@styled
def efficiency(panels: Panels, metric: str = "acc") -> Figure:
    """Running time and test score: bars on two axes as in the paper, and a scatter plot with the Pareto
    front."""
    panels, title = finished(panels), METRIC_WORDS.get(metric, metric)
    note = (
        "CPU seconds of a whole run on one thread. Whiskers: standard deviation over seeds. Dashed: the "
        f"Pareto front, the methods that no other beats in both time and score. {protocol_line(_all(panels))}"
    )
    figure = new_figure(
        PAGE,
        0.7 + 2.3 * len(panels),
        f"Running time (lower is better) and test {title} (higher is better)",
        note,
    )
    axes, look_of = figure.subplots(len(panels), 2, squeeze=False, width_ratios=(1.4, 1)), looks(panels)
    for (name, groups), (bar_axis, scatter_axis) in zip(panels.items(), axes, strict=True):
        time = np.array(
            [mean_std(float(run.summary["cpu_seconds"]) for run in group.runs) for group in groups]
        )  # [R, 2]
        score = np.array(
            [mean_std(100 * run.metric(metric) for run in group.runs) for group in groups]
        )  # [R, 2]
        _dual_bars(bar_axis, [marked_label(group) for group in groups], time, score, title)
        bar_axis.set_title(name)
        for group, (x, dx), (y, dy) in zip(groups, np.nan_to_num(time), np.nan_to_num(score), strict=True):
            look = line_look(look_of[group.label]) | {"linestyle": "none", "markersize": 4.5}
            scatter_axis.errorbar(x, y, yerr=dy, xerr=dx, label=marked_label(group), elinewidth=0.6, **look)
        front = _front(time[:, 0], score[:, 0])
        scatter_axis.plot(
            time[front, 0], score[front, 0], "--", color=GREY, linewidth=0.8, zorder=0, drawstyle="steps-post"
        )
        scatter_axis.set(
            xscale="log",
            xlabel="CPU seconds (log)",
            ylabel=f"test {title} (%)",
            title=f"{name}: best is top left",
        )
        _log_ticks(scatter_axis.xaxis)
        scatter_axis.grid()
    legend_below(figure, axes[:, 1])
    return figure


def _dual_bars(
    axis: Any, labels: list[str], time: npt.NDArray[np.float64], score: npt.NDArray[np.float64], title: str
) -> None:
    x, error = np.arange(len(labels)), {"elinewidth": 0.6, "capsize": 1.2, "ecolor": DARK}
    axis.bar(x - 0.2, time[:, 0], 0.38, yerr=np.nan_to_num(time[:, 1]), color="#9BB7CF", error_kw=error)
    axis.set_ylabel("CPU seconds (blue)")
    axis.set_xticks(x, labels, rotation=40, ha="right", rotation_mode="anchor", fontsize=6)
    other = axis.twinx()
    other.bar(x + 0.2, score[:, 0], 0.38, yerr=np.nan_to_num(score[:, 1]), color="#C65102", error_kw=error)
    other.set(ylim=(0, 105), yticks=range(0, 101, 20), ylabel=f"test {title} (%, orange)")


def _front(time: npt.NDArray[np.float64], score: npt.NDArray[np.float64]) -> list[int]:
    """The places of the Pareto front (no other is both faster and better), the fastest first."""
    best, front = -np.inf, []
    for place in np.lexsort((-score, time)):
        if score[place] > best:
            best = score[place]
            front.append(int(place))
    return front


def _log_ticks(axis: Any) -> None:
    """Label a logarithmic axis with plain numbers instead of powers of ten."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0,) if high > 200 * low else (1.0, 2.0, 5.0)))
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def _all(panels: Panels) -> list[Group]:
    return [group for groups in panels.values() for group in groups]


def _p(value: float) -> str:
    return "p unknown" if value != value else f"p = {value:.3f}" if value >= 0.001 else "p < 0.001"
