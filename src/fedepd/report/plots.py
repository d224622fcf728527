"""The figures of a report as SVG text.

The same runs give the same bytes. All groups of a call are on one dataset.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fedepd.longtail import bins, class_order
from fedepd.report import drawing
from fedepd.report.decisions import class_names, client_names, tier_names
from fedepd.report.drawing import (
    DARK,
    FIELD_COLOURS,
    FILLS,
    GREY,
    NAME,
    TICK,
    TIER_COLOURS,
    WIDE,
    Drawing,
    dodge,
    legend,
    styles,
    ticks_of,
    turned,
)
from fedepd.report.numbers import bin_accuracy, bytes_by_field, convergence, mean_std, pruned_share, prunings
from fedepd.report.runs import Group, Run
from fedepd.shown import drawn

BINS = 10
SINGLE = 20
"""Up to so many classes are drawn one by one, if there is room for their ``MARKS``."""
MARKS = 100
RELIABILITY_LOOKS = (
    ("#333333", "o", "-"),
    ("#0072B2", "s", "--"),
    ("#B8A900", "D", "-."),
    ("#D55E00", "^", ":"),
)
"""Colour, marker and line style for all nodes, head, medium and tail."""


def per_class(groups: Sequence[Group]) -> Drawing:
    """Test accuracy of each class, or of ten bins of many, the largest first, over bars of class sizes."""
    sizes = groups[0].first.partition["class_sizes"]  # [C]
    single = len(sizes) <= SINGLE and len(sizes) * len(groups) <= MARKS
    parts, look = bins(sizes, SINGLE if single else BINS), styles(groups)
    # A line between two classes would say that there is something between them.
    alone = all(len(part) == 1 for part in parts)

    def draw(figure: Any) -> None:
        size_axis = figure.subplots()
        axis = size_axis.twinx()
        draw_sizes(size_axis, parts, sizes, groups[0].first.summary["tiers"])
        if alone:
            names = [drawn(name, NAME) for name in class_names(groups[0].first)]
            room = int(80 * figure.get_figwidth() / WIDE)
            size_axis.set_xticks(range(len(parts)), [names[c] for (c,) in parts], **turned(names, room))
            size_axis.set_xlabel("class, largest to smallest")
        for place, group in enumerate(groups):
            mean, low, high = (100 * values for values in bin_accuracy(group, parts))  # [B] each
            x, style = np.arange(len(parts)) + dodge(place, len(groups), 0.5), look[group.label]
            shape = {"color": style.colour, "linestyle": style.line, "marker": style.marker}
            if alone:
                shape |= {"linestyle": "none", "fillstyle": FILLS[style.line]}
            sizes_of = {"markersize": 4.5, "linewidth": 1.6, "elinewidth": 0.8, "capsize": 1.5}
            axis.errorbar(x, mean, yerr=[mean - low, high - mean], label=group.label, **shape, **sizes_of)
        axis.set_ylim(-2, 109)
        axis.set_yticks(range(0, 101, 20))
        axis.yaxis.tick_left()
        axis.yaxis.set_label_position("left")
        axis.set_ylabel("test accuracy (%)")
        legend(figure, axis)

    return _svg("per-class", "Test accuracy by class size", 4.4, draw, groups[0].first)


def draw_sizes(axis: Any, parts: list[list[int]], sizes: Any, tiers: dict[str, list[int]]) -> None:
    left = {c: b - 0.5 + place / len(part) for b, part in enumerate(parts) for place, c in enumerate(part)}
    right = {c: left[c] + 1 / len(part) for part in parts for c in part}
    for tier, classes in tiers.items():
        if classes:
            start, end = min(left[c] for c in classes), max(right[c] for c in classes)
            axis.axvspan(start, end, color=TIER_COLOURS[tier], linewidth=0)
            axis.text(
                (start + end) / 2,
                0.965,
                tier,
                transform=axis.get_xaxis_transform(),
                ha="center",
                va="center",
                color="#444444",
            )
    order = list(left)
    axis.bar(
        [(left[c] + right[c]) / 2 for c in order],
        sizes[order],
        width=[0.92 * (right[c] - left[c]) for c in order],
        color="#C9C9C9",
    )
    axis.set_yscale("log")
    axis.yaxis.set_major_formatter("{x:g}")
    axis.set_ylim(0.8, float(sizes.max()) ** 1.12 * 1.5)
    axis.yaxis.tick_right()
    axis.yaxis.set_label_position("right")
    axis.set_ylabel("nodes of a class (log)", color=GREY)
    axis.set_xlim(-0.5, len(parts) - 0.5)
    ends = np.cumsum([len(part) for part in parts])
    ranks = [
        f"{end - len(part) + 1}–{end}" if len(part) > 1 else str(end)
        for part, end in zip(parts, ends, strict=True)
    ]
    axis.set_xticks(range(len(parts)), ranks)
    axis.set_xlabel("classes, largest (1) to smallest")


def tier_bars(groups: Sequence[Group]) -> Drawing:
    """Head, medium and tail accuracy side by side."""
    look = styles(groups)

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        for place, group in enumerate(groups):
            stats = [mean_std(100 * run.metric(f"{tier}_acc") for run in group.runs) for tier in TIER_COLOURS]
            mean, std = np.array(stats).T  # [3], [3]
            x, style = np.arange(3) + dodge(place, len(groups)), look[group.label]
            axis.bar(
                x,
                mean,
                0.75 / len(groups),
                label=group.label,
                color=style.colour,
                hatch=style.hatch,
                edgecolor="white",
                linewidth=0,
            )
            axis.errorbar(x, mean, std, fmt="none", ecolor=DARK, elinewidth=1, capsize=2)
        names = tier_names(groups[0].first)
        called = [drawn(names.get(tier, tier), TICK) for tier in TIER_COLOURS]
        axis.set_xticks(range(3), called, **turned(called, int(112 * figure.get_figwidth() / WIDE)))
        axis.set_ylim(0, 100)
        axis.grid(axis="y")
        axis.set_ylabel("test accuracy (%)")
        legend(figure, axis)

    return _svg("tiers", "Head, medium and tail accuracy", 3.4, draw, groups[0].first)


def convergence_lines(groups: Sequence[Group]) -> Drawing:
    """Validation macro-F1 against rounds."""
    look = styles(groups)

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        for group in groups:
            rounds, mean, std = convergence(group)
            style = look[group.label]
            marker = style.marker if len(rounds) < 3 else ""
            axis.plot(
                rounds,
                100 * mean,
                label=group.label,
                color=style.colour,
                linestyle=style.line,
                marker=marker,
                linewidth=1.6,
            )
            axis.fill_between(
                rounds, 100 * (mean - std), 100 * (mean + std), color=style.colour, alpha=0.15, linewidth=0
            )
        axis.set_ylim(bottom=0)
        axis.grid(axis="y")
        axis.set_xlabel("round")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.set_ylabel("validation macro-F1 (%)")
        legend(figure, axis)

    return _svg("convergence", "Validation macro-F1 by round", 3.8, draw, groups[0].first)


def partition_heatmap(run: Run) -> Drawing:
    """How many nodes of each class every client holds."""
    order = class_order(run.partition["class_sizes"])
    counts = run.partition["client_class"][:, order]  # [K, C]
    clients = len(counts)

    def draw(figure: Any) -> None:
        from matplotlib.colors import LogNorm

        axis = figure.subplots()
        look = {"edgecolors": "white", "linewidth": 0.5} if counts.size <= 2000 else {"rasterized": True}
        shades = LogNorm(1, max(2, counts.max()))
        mesh = axis.pcolormesh(np.ma.masked_equal(counts, 0), cmap="cividis_r", norm=shades, **look)
        axis.invert_yaxis()
        axis.set_yticks(*ticks_of([drawn(name, NAME) for name in client_names(run, clients)], most=20))
        names = [drawn(name, NAME) for name in class_names(run)]
        axis.set_xticks(*ticks_of([names[c] for c in order], most=24), **turned(names, 60))
        axis.tick_params(length=0, labelsize=8)
        axis.set_xlabel("class, largest to smallest")
        axis.set_ylabel("client")
        figure.colorbar(mesh, ax=axis, label="nodes (log)", pad=0.01, format="{x:g}")

    return _svg("partition", "Nodes by client and class", min(7.0, 1.4 + 0.22 * max(clients, 6)), draw, run)


def purification(groups: Sequence[Group]) -> str:
    """Share of pruned edges, and homophily before and after pruning, per client. Empty if no group prunes."""
    found, look = prunings(groups), styles(groups)
    called = client_names(groups[0].first, len(found[0][1])) if found else []
    names = [drawn(name, NAME) for name in called]

    def draw(figure: Any) -> None:
        share_axis, homophily_axis = figure.subplots(1, 2)
        for place, (pruning, clients) in enumerate(found):
            label, style = ", ".join(group.label for group in pruning), look[pruning[0].label]
            x = np.arange(len(clients)) + dodge(place, len(found))
            share = [100 * pruned_share(client) for client in clients]
            share_axis.bar(
                x,
                share,
                0.75 / len(found),
                color=style.colour,
                hatch=style.hatch,
                edgecolor="white",
                linewidth=0,
                label=label,
            )
            before, after = (
                100 * np.array([c[f"homophily_{when}"] for c in clients], dtype=float)
                for when in ("before", "after")
            )
            homophily_axis.vlines(x, before, after, color=style.colour, linestyle=style.line, linewidth=1.6)
            homophily_axis.plot(x, before, "o", markerfacecolor="white", markeredgecolor=GREY, markersize=5)
            homophily_axis.plot(x, after, "o", color=style.colour, markersize=5)
        homophily_axis.plot([], [], "o", markerfacecolor="white", markeredgecolor=GREY, label="before")
        homophily_axis.plot([], [], "o", color=DARK, label="after")
        homophily_axis.legend(loc="lower right", ncols=2)
        share_axis.set_ylabel("edges pruned (%)")
        homophily_axis.set_ylabel("edges within one class (%)")
        for axis in (share_axis, homophily_axis):
            axis.set_ylim(0, 104)
            axis.grid(axis="y")
            axis.set_xlabel("client")
            axis.set_xticks(*ticks_of(names, most=20, offset=0.0), **turned(names, 35))
        legend(figure, share_axis)

    return (
        _svg("purification", "Edges pruned and homophily by client", 3.6, draw, groups[0].first)
        if found
        else ""
    )


def communication(groups: Sequence[Group]) -> Drawing:
    """Mebibytes of a whole run by message field, up and down."""
    volumes = {way: [bytes_by_field(group, way) for group in groups] for way in ("up", "down")}
    everything = [volume for both in volumes.values() for volume in both]
    fields = sorted(
        {name for volume in everything for name in volume},
        key=lambda name: (-sum(v.get(name, 0) for v in everything), name),
    )
    most = len(FIELD_COLOURS)
    pieces = {drawn(name): [name] for name in (fields if len(fields) <= most else fields[: most - 1])}
    if len(fields) > most:
        pieces[f"{len(fields) - most + 1} others"] = fields[most - 1 :]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        for axis, (way, title) in zip(
            axes, {"up": "clients to server", "down": "server to clients"}.items(), strict=True
        ):
            start = np.zeros(len(groups))
            for (label, names), colour in zip(pieces.items(), FIELD_COLOURS, strict=False):
                size = (
                    np.array([sum(volume.get(name, 0) for name in names) for volume in volumes[way]]) / 2**20
                )
                axis.barh(range(len(groups)), size, 0.7, left=start, color=colour, label=label)
                start += size
            axis.set_yticks(range(len(groups)), [drawn(group.label, TICK) for group in groups])
            axis.set_xlabel(f"MiB, {title}")
            axis.grid(axis="x")
        axes[0].invert_yaxis()
        legend(figure, axes[0])

    return _svg("communication", "Bytes by message field", 1.5 + 0.3 * len(groups), draw, groups[0].first)


def reliability(group: Group) -> str:
    """Accuracy against confidence in bins with equally many nodes, before and after calibration, per tier.

    Empty if it was not measured.
    """
    run = next((run for run in group.runs if run.calibration), None)
    if run is None:
        return ""
    measured = run.calibration or {}

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 2, sharex=True, sharey=True)
        for axis, when in zip(axes, ("before", "after"), strict=True):
            axis.plot([0, 100], [0, 100], color=GREY, linewidth=0.8, linestyle=":")
            for (tier, scores), (colour, marker, line) in zip(
                measured[when].items(), RELIABILITY_LOOKS, strict=True
            ):
                points = [(100 * b["confidence"], 100 * b["accuracy"]) for b in scores["reliability"]]
                x, y = zip(*points, strict=True) if points else ((), ())
                label = drawn(f"{tier} ({scores['nodes']} nodes)")
                axis.plot(
                    x,
                    y,
                    label=label,
                    color=colour,
                    marker=marker,
                    linestyle=line,
                    markersize=3.5,
                    linewidth=1.3,
                )
            axis.set_title(f"{when} temperatures")
            axis.set_xlabel("mean confidence of a bin (%)")
            axis.grid()
        axes[0].set_ylabel("accuracy of a bin (%)")
        legend(figure, axes[0])

    return _svg(
        f"reliability-{zlib.crc32(group.label.encode()):08x}", f"Reliability of {group.label}", 3.8, draw, run
    )


def _svg(name: str, title: str, height: float, draw: Callable[[Any], None], run: Run) -> Drawing:
    return drawing.svg_of(name, title, height, draw, run.path.name)
