"""The figures of a report as SVG text.

The same runs give the same bytes. All groups of a call are on one dataset.
"""

from __future__ import annotations

import io
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedepd.longtail import bins, class_order
from fedepd.report.decisions import class_names, client_names, tier_names
from fedepd.report.numbers import bin_accuracy, bytes_by_field, convergence, mean_std, pruned_share, prunings
from fedepd.report.runs import Group, Run
from fedepd.shown import drawn, html_text

# The first eight are Okabe and Ito's, with a darker yellow that is visible on white. The others follow Paul
# Tol's muted set.
METHOD_COLOURS = {
    "fedepd": "#D55E00",
    "fedavg": "#0072B2",
    "fedproto": "#009E73",
    "fedgta": "#CC79A7",
    "graphsmote": "#E69F00",
    "hiertail": "#56B4E9",
    "centralised": "#000000",
    "fedlc": "#B8A900",
    "lws": "#332288",
    "fedgac": "#882255",
    "creff": "#117733",
    "fedspray": "#44AA99",
    "graphfedmig": "#AA4499",
    "isolated": "#777777",
}
OTHER_COLOURS = ("#661100", "#6699CC")
TIER_COLOURS = {"head": "#DCEAF7", "medium": "#F3F1E2", "tail": "#FBE4D8"}
FIELD_COLOURS = ("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE", "#AA3377", "#BBBBBB")
MARKERS = "osD^vP*X"
LINES = ("-", "--", ":", "-.")
FILLS = dict(zip(LINES, ("full", "none", "left", "bottom"), strict=True))
"""How markers without a line are filled, in place of the line's style."""
HATCHES = ("", "////", "....", "xxxx")
RELIABILITY_LOOKS = (
    ("#333333", "o", "-"),
    ("#0072B2", "s", "--"),
    ("#B8A900", "D", "-."),
    ("#D55E00", "^", ":"),
)
"""Colour, marker and line style for all nodes, head, medium and tail."""
GREY, DARK = "#777777", "#333333"
TICK = 60
"""Most characters of a label beside an axis."""
NAME = 18
"""Most characters of the name of a class or a client."""


@dataclass(frozen=True)
class Style:
    """How a group looks in every figure.

    A method has a colour and a marker; its variants differ in line and hatch.
    """

    colour: str
    marker: str
    line: str
    hatch: str


def styles(groups: Sequence[Group]) -> dict[str, Style]:
    """Label -> style."""
    known, seen, result = list(METHOD_COLOURS), dict[str, int](), dict[str, Style]()
    for group in groups:
        variant = seen[group.method] = seen.get(group.method, -1) + 1
        place = known.index(group.method) if group.method in known else zlib.crc32(group.method.encode())
        colour = METHOD_COLOURS.get(group.method, OTHER_COLOURS[place % len(OTHER_COLOURS)])
        result[group.label] = Style(
            colour,
            MARKERS[place % len(MARKERS)],
            LINES[variant % len(LINES)],
            HATCHES[variant % len(HATCHES)],
        )
    return result


def per_class(groups: Sequence[Group]) -> Drawing:
    """Test accuracy in ten bins of classes, from the largest to the smallest, over bars of class sizes."""
    sizes = groups[0].first.partition["class_sizes"]  # [C]
    parts, look = bins(sizes, 10), styles(groups)
    # A line between two classes would say that there is something between them.
    alone = all(len(part) == 1 for part in parts)

    def draw(figure: Any) -> None:
        size_axis = figure.subplots()
        axis = size_axis.twinx()
        draw_sizes(size_axis, parts, sizes, groups[0].first.summary["tiers"])
        if alone:
            names = [drawn(name, NAME) for name in class_names(groups[0].first)]
            size_axis.set_xticks(range(len(parts)), [names[c] for (c,) in parts], **turned(names, 80))
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
        [left[c] for c in order],
        sizes[order],
        width=[0.92 * (right[c] - left[c]) for c in order],
        align="edge",
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
        axis.set_xticks(range(3), [drawn(names.get(tier, tier), TICK) for tier in TIER_COLOURS])
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


def dodge(place: int, count: int, width: float = 0.8) -> float:
    """The offset of item ``place`` of ``count`` items that are drawn side by side at the same x."""
    return width * ((place + 0.5) / count - 0.5)


def ticks_of(labels: list[str], most: int, offset: float = 0.5) -> tuple[list[float], list[str]]:
    places = range(0, len(labels), -(-len(labels) // most))
    return [place + offset for place in places], [labels[place] for place in places]


def turned(labels: Sequence[str], most: int) -> dict[str, Any]:
    """How labels are written below an axis: turned, if together they have more than ``most`` characters."""
    if sum(len(label) + 2 for label in labels) <= most:
        return {}
    return (
        {"rotation": 90} if len(labels) > 12 else {"rotation": 30, "ha": "right", "rotation_mode": "anchor"}
    )


def legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    longest = max((len(label) for label in labels), default=1)
    columns = max(1, min(len(labels), 110 // (longest + 7)))
    rows = -(-len(labels) // columns)
    # A long legend makes the figure taller, so that the axes keep their height.
    figure.set_figheight(figure.get_figheight() + 0.18 * max(0, rows - 4))
    figure.legend(handles, labels, loc="outside lower center", ncols=columns)


RC = {
    "svg.fonttype": "none",
    "figure.facecolor": "none",
    "figure.edgecolor": "none",
    "axes.facecolor": "none",
    "text.parse_math": False,
    "font.size": 9,
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#888888",
    "axes.labelcolor": DARK,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
}

SVG_STYLE = '<style type="text/css">*{stroke-linejoin: round; stroke-linecap: butt}</style>'
"""The style element that matplotlib writes into every figure."""


def _svg(name: str, title: str, height: float, draw: Callable[[Any], None], run: Run) -> Drawing:
    return svg_of(name, title, height, draw, run.path.name)


class Drawing(str):
    """A figure as one SVG element. It can be drawn again as a PNG, for programs that show no SVG."""

    name: str
    """What the figure is called. Figures of one page have different names."""
    draw: Callable[[Any], None]
    height: float

    def png(self) -> bytes:
        """The same figure in dots, on white."""
        file = io.BytesIO()
        with _drawn(self.name, self.height, self.draw, {"savefig.facecolor": "white"}) as figure:
            figure.savefig(file, format="png", dpi=110, metadata={"Software": None})
        return file.getvalue()


def svg_of(name: str, title: str, height: float, draw: Callable[[Any], None], where: str) -> Drawing:
    """The figure as one SVG element, with a title for screen readers and ids that are unique on the page.

    ``where`` tells figures of one name apart.
    """
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    file = io.StringIO()
    with _drawn(name, height, draw, {}) as figure:
        # Figure.savefig would draw everything twice, the first time for the layout alone.
        FigureCanvasSVG(figure).print_svg(file, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    own = rf"\1{name}-{zlib.crc32(where.encode()):08x}-"
    svg = re.sub(r"<[^>]+>", lambda tag: re.sub(r'(\bid="|url\(#|href="#)', own, tag[0]), file.getvalue())
    svg = svg.replace(SVG_STYLE, "", 1)  # it is in page.css; the page's policy allows no other style
    drawing = Drawing(
        svg[svg.index("<svg") :].replace(
            "<svg ", f'<svg role="img" aria-label="{html_text(title)}" data-name="{name}" ', 1
        )
    )
    drawing.name, drawing.draw, drawing.height = name, draw, height
    return drawing


@contextmanager
def _drawn(name: str, height: float, draw: Callable[[Any], None], look: Mapping[str, Any]) -> Iterator[Any]:
    """The figure, to be saved inside the context."""
    from matplotlib import style
    from matplotlib.figure import Figure

    with style.context(["default", {**RC, **look, "svg.hashsalt": name}]), warnings.catch_warnings():
        # Text stays text in the SVG, and the browser has the font. In a PNG such a letter is a box.
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        # Names can be too long for the layout. The figure is still readable.
        warnings.filterwarnings("ignore", "constrained_layout not applied", UserWarning)
        figure = Figure(figsize=(8.6, height), layout="constrained")
        draw(figure)
        yield figure
