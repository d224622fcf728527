"""The months of a monitored model -> one self-contained page in the report's style, with trends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedepd.model.drift import Figure, Limits, Watched
from fedepd.report.document import document, paragraphs
from fedepd.report.drawing import DARK, GREY, svg_of
from fedepd.report.tables import Cell, Table, html_table
from fedepd.shown import drawn, html_text, listed, shown

BEYOND, WITHIN = "#D55E00", "#0072B2"
MOST = 24
"""Columns of a figure, and months of a trend."""
OTHERS = ("alert rate", "edges predicted alike", "calibration error")
"""The figures that are no stability indices."""
AN_ALERT = "An alert is a node that is predicted to be of another class than the most frequent one."
HOW = (
    "The population stability index compares shares: the sum of (now - before) ln(now / before) over bins. "
    "Below 0.1 is usually called stable, above 0.25 a shift. A limit counts only where the index is also "
    "above what chance gives with so few rows (99 %).",
    "Columns are compared with the training rows. Degrees are those of the training nodes in their whole "
    "graph, and predicted classes are those of its other nodes.",
    AN_ALERT,
    "A shift does not say that the model is wrong. It says that the data are no longer those it was "
    "measured on.",
)


def verdict(watched: Watched, when: str) -> str:
    """The answer in one sentence."""
    if not watched.passed:
        return f"{shown(when)}: {watched.nodes:,} new nodes, and no limit is passed."
    names = listed([each.name for each in watched.passed], 6)
    return f"{shown(when)}: {watched.nodes:,} new nodes; beyond its limit: {names}."


def render(watched: Watched, lines: Sequence[dict[str, Any]], limits: Limits) -> str:
    """The page of the last month, with the months before it."""
    line = lines[-1]
    links = {"now": "This time", "trends": "Trends", "shares": "Shares"}
    parts = [_now(watched), _trends(lines, limits), _shares(watched)]
    how = [watched.alert if watched.alert and each == AN_ALERT else each for each in HOW]
    said = [*how, *watched.notes, f"Model {shown(line['model'])}, data {shown(line['data'])}."]
    foot = f'<footer id="protocol"><h2>How to read this</h2>{paragraphs(said)}</footer>'
    title = f"Monitor: {shown(line['data'])}"
    return document(title, verdict(watched, line["when"]), links, parts, foot, "How to read this")


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _now(watched: Watched) -> str:
    rows = [
        [
            Cell(shown(each.name)),
            Cell(each.kind),
            Cell(number(each.value), each.value if each.value is not None else -1.0),
            Cell(number(each.before) if each.before is not None else ""),
            Cell(number(each.limit), each.limit),
            Cell("beyond" if each.passed else "within"),
        ]
        for each in sorted(watched.figures, key=lambda each: not each.passed)
    ]
    note = (
        "Columns, degrees and classes: population stability index. Before: in the training data. The limit "
        "of edges is that of their change."
    )
    table = Table("figures", ["What", "Kind", "Now", "Before", "Limit", "Verdict"], [rows], note)
    figure = f"<figure><div>{_bars(watched)}</div><figcaption>{html_text(_BARS)}</figcaption></figure>"
    return f'<section><h2 id="now">This time</h2>{figure}{html_table(table)}{_labelled(watched)}</section>\n'


_BARS = "Population stability index of columns, degrees and predicted classes. Grey mark: the limit of each."


def _labelled(watched: Watched) -> str:
    known = watched.labelled
    if known is None:
        return "<p>No labels were given, so calibration and scores are not known.</p>"
    said = (
        f"On {known['nodes']:,} nodes whose label is known: accuracy {known['accuracy']:.3f} at a mean "
        f"confidence of {known['confidence']:.3f}, balanced accuracy {known['bacc']:.3f}, macro-F1 "
        f"{known['macro_f1']:.3f}, calibration error {known['ece'][0]:.3f} ({known['ece'][1]:.3f} to "
        f"{known['ece'][2]:.3f}), Brier score {known['brier'][0]:.3f}."
    )
    if "alerts" in known:
        said += (
            f" Of {known['alerts']:,} alerts among them {known['right']:,} were right, of {known['cases']:,} "
            "cases."
        )
    return paragraphs([said])


def _bars(watched: Watched) -> str:
    indices = [each for each in watched.figures if each.kind in ("column", "degree", "classes")]
    chosen = sorted(indices, key=lambda each: -(each.value or 0))[:MOST]

    def draw(figure: Any) -> None:
        axis, ticks = figure.subplots(), range(len(chosen))
        colours = [BEYOND if each.passed else WITHIN for each in chosen]
        axis.barh(ticks, [each.value or 0 for each in chosen], color=colours, height=0.65)
        for place, each in enumerate(chosen):
            axis.plot([each.limit] * 2, [place - 0.4, place + 0.4], color=GREY, linewidth=1.6)
        axis.set_yticks(ticks, [drawn(each.name, 40) for each in chosen], fontsize=8)
        axis.set_ylim(len(chosen) - 0.4, -0.6)
        axis.set_xlabel("population stability index")
        axis.grid(axis="x", color="#E5E5E5", linewidth=0.6)
        axis.set_axisbelow(True)

    return svg_of("psi", "Population stability index by column", 0.9 + 0.24 * len(chosen), draw, "monitor")


def _trends(lines: Sequence[dict[str, Any]], limits: Limits) -> str:
    head = '<h2 id="trends">Trends</h2>'
    if len(lines) < 2:
        return f"<section>{head}<p>This is the first time, so there is no trend yet.</p></section>\n"
    shown_lines = lines[-MOST:]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, 3)
        x = range(len(shown_lines))
        for axis, (title, drawn_lines, limit) in zip(axes, trends(shown_lines, limits), strict=True):
            for name, values in drawn_lines.items():
                axis.plot(x, values, marker="o", markersize=3.5, linewidth=1.4, label=drawn(name, 24))
            if limit is not None:
                axis.axhline(limit, color=GREY, linestyle=":", linewidth=1)
            axis.set_title(title, fontsize=9)
            axis.set_xticks(x, [drawn(each["when"], 12) for each in shown_lines], rotation=60, fontsize=7)
            axis.set_ylim(bottom=0)
            axis.grid(axis="y", color="#E5E5E5", linewidth=0.6)
            axis.legend(fontsize=6.5, frameon=False)
            axis.tick_params(axis="y", labelsize=7, colors=DARK)

    svg = svg_of("trends", "Trends over all months", 3.2, draw, "monitor")
    caption = (
        "Left: the indices that are largest over all months; dotted: the limit. Middle: shares. Right: where "
        "labels are known. A gap means that the number is not known."
    )
    changed = sorted({line["model"] for line in lines})
    note = f"<p>The model was exchanged: {html_text(', '.join(changed))}.</p>" if len(changed) > 1 else ""
    return (
        f"<section>{head}<figure><div>{svg}</div><figcaption>{html_text(caption)}</figcaption></figure>{note}"
        f"{html_table(_months(lines))}</section>\n"
    )


def trends(
    lines: Sequence[dict[str, Any]], limits: Limits
) -> list[tuple[str, dict[str, list[float]], float | None]]:
    """Three small figures: their titles, lines and limits. A number that is not known is NaN."""
    shares = OTHERS[:2]
    largest = sorted(indices(lines), key=lambda name: (-max(_series(lines, name, 0.0)), name))[:5]
    known = [line["labelled"] or {} for line in lines]
    nan = float("nan")
    scores = {
        "balanced accuracy": [_float(each.get("bacc"), nan) for each in known],
        "calibration error": [_float((each.get("ece") or [None])[0], nan) for each in known],
    }
    return [
        ("stability index", {name: _series(lines, name, nan) for name in largest}, limits.psi),
        ("shares", {name: _series(lines, name, nan) for name in shares}, None),
        ("scores", scores, limits.ece),
    ]


def indices(lines: Sequence[dict[str, Any]]) -> set[str]:
    """The figures that are stability indices."""
    return {name for line in lines for name in line["figures"] if name not in OTHERS}


def _series(lines: Sequence[dict[str, Any]], name: str, missing: float) -> list[float]:
    return [_float(line["figures"].get(name), missing) for line in lines]


def _float(value: Any, missing: float) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else missing


def _months(lines: Sequence[dict[str, Any]]) -> Table:
    rows = [
        [
            Cell(shown(line["when"])),
            Cell(f"{line['nodes']:,}", line["nodes"]),
            Cell(number(line["figures"].get("alert rate"))),
            Cell(number(max((_series([line], name, 0.0)[0] for name in indices([line])), default=0.0))),
            Cell(listed(line["passed"], 4) or "nothing"),
        ]
        for line in reversed(lines)
    ]
    return Table("months", ["When", "Nodes", "Alert rate", "Largest index", "Beyond its limit"], [rows])


def _shares(watched: Watched) -> str:
    """Every bin before and now; open where a limit is passed."""
    blocks = []
    for each in sorted(watched.figures, key=lambda each: (not each.passed, -(each.value or 0))):
        if each.shares:
            opened = " open" if each.passed else ""
            title = f"{shown(each.name)}: {number(each.value)}"
            blocks.append(
                f"<details{opened}><summary>{html_text(title)}</summary>{html_table(_bins(each))}</details>"
            )
    return f'<section><h2 id="shares">Shares</h2>{"".join(blocks)}</section>\n'


def _share(share: float | None) -> Cell:
    return Cell("few", 0.0) if share is None else Cell(f"{100 * share:.1f}", share)


def _bins(figure: Figure) -> Table:
    rows = [[Cell(shown(name)), _share(a), _share(b)] for name, a, b in figure.shares]
    return Table("bins", ["Values", "Before (%)", "Now (%)"], [rows])
