"""Explained cases -> one self-contained page in the report's style, with a picture of every neighbourhood."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fedepd.model.explain import TOLERANCE
from fedepd.model.model import Model
from fedepd.model.pointed import rules_in_words
from fedepd.model.reasons import IMPORTANCES, Case, Reason, plain_value
from fedepd.report.document import document, paragraphs
from fedepd.report.drawing import DARK, GREY, svg_of
from fedepd.report.tables import Cell, Table, html_table
from fedepd.shown import drawn, html_text, shown

FOR, AGAINST = "#D55E00", "#0072B2"
"""The colours of reasons that speak for the class and against it, as Okabe and Ito have them."""
BARS, DOTS = 10, 24
"""Reasons of a figure's left half; neighbours of its right half."""
HOW = (
    "Each contribution is in log-odds of the calibrated probability. Contributions are integrated gradients "
    "along a path. It begins at a node with the graph's mean features whose edges carry nothing, and ends at "
    "the node as it is. They add up to the difference of the log-odds at both ends, within "
    f"{TOLERANCE:.0%} of it; the remainder is given for each case.",
    "A neighbour's contribution is that of its features and of the edges that lead from it towards the node. "
    "Edges that the model prunes carry nothing and are not shown.",
    "A contribution says what moved the model. It does not say what caused the label.",
)

HOW_IMPORTANT = (
    f"These are {IMPORTANCES}. GNNExplainer searches small masks of features and edges with which the model "
    "still says the class. A masked feature has the graph's mean, and a masked edge carries less.",
    "A neighbour's importance is the largest of the edges that lead from it towards the node. A column's is "
    "the largest of its features. Edges that the model prunes carry nothing and are not shown.",
    "An importance says what the model looks at. It does not say what caused the label.",
)


def render(cases: Sequence[Case], model: Model, name: str) -> str:
    """The page's HTML. ``name`` is what the graph is called."""
    title = f"Why: {len(cases)} {'node' if len(cases) == 1 else 'nodes'} of {shown(name)}"
    scope = f"What moved a model of {model.experiment.method.label} to what it says, case by case."
    if model.operating is not None:
        scope += f" {rules_in_words(model.operating, model.label_names)}"
    links = {f"case-{i}": shown(case.node, 20) for i, case in enumerate(cases[:30])}
    sections = [_overview(cases), *(_case(case, f"case-{i}") for i, case in enumerate(cases))]
    how = HOW if all(case.adds_up for case in cases) else HOW_IMPORTANT
    foot = f'<footer id="protocol"><h2>How to read this</h2>{paragraphs(how)}</footer>'
    return document(title, scope, links, sections, foot, last="How to read this")


def _overview(cases: Sequence[Case]) -> str:
    rows = []
    chances = any(case.chance is not None for case in cases)
    for case in cases:
        first = "; ".join(each.words() for each in case.reasons[:2])
        rows.append(
            [
                Cell(shown(case.node)),
                Cell(shown(case.label)),
                Cell(f"{case.probability:.3f}", case.probability),
                *([] if case.alert is None else [Cell("yes" if case.alert else "no")]),
                *([_chance(case)] if chances else []),
                Cell(first),
                Cell(f"{case.without[1]:.3f}", case.without[1]),
            ]
        )
    most = "that speak most for the class" if all(case.adds_up for case in cases) else "of most importance"
    note = f"Without: the probability if the three reasons {most} were usual or absent."
    alert = ["Alert"] if any(case.alert is not None for case in cases) else []
    if chances:
        note = f"Chance: how likely the alert is right, by validation nodes. {note}"
        alert.append("Chance")
    header = ["Node", "Class", "Probability", *alert, "First reasons", "Without"]
    table = Table("cases", header, [rows], note)
    return f"<section><h2>All cases</h2>{html_table(table)}</section>\n"


def _chance(case: Case) -> Cell:
    return Cell("–") if case.chance is None else Cell(f"{case.chance:.2f}", case.chance)


def _case(case: Case, place: str) -> str:
    head = f"{shown(case.node)}: {shown(case.label)}, probability {case.probability:.3f}{case.alert_words()}"
    below = (
        f"The contributions below add up to {case.log_odds - case.base_log_odds:+.2f} in log-odds (remainder "
        f"{case.remainder:+.4f})."
        if case.adds_up
        else f"Below are {IMPORTANCES}."
    )
    said = [f"An average node without neighbours has {case.base_probability:.3f}. {below}"]
    if case.without[0]:
        named = ", ".join(shown(each) for each in case.without[0])
        said.append(f"Without {named} it would be {case.without[1]:.3f}.")
    caption = (CAPTION if case.adds_up else CAPTION_IMPORTANT) if _near(case) else _lonely(case)
    figure = (
        f"<figure><div>{_figure(case, place)}</div><figcaption>{html_text(caption)}</figcaption></figure>"
    )
    folded = f"<details><summary>Reasons as a table</summary>{html_table(_table(case))}</details>"
    return f'<section><h2 id="{place}">{html_text(head)}</h2>{paragraphs(said)}{figure}{folded}</section>\n'


CAPTION = (
    "Orange speaks for the class, blue against it. Left: the largest contributions. Right: the node in the "
    "middle, its neighbours around it and theirs further out; a dot's area is the size of its contribution."
)
CAPTION_IMPORTANT = (
    "Left: the largest importances. Right: the node in the middle, its neighbours around it and theirs "
    "further out; a dot's area is the size of its importance."
)


def _near(case: Case) -> list[Reason]:
    """The reasons that are neighbours."""
    return [each for each in case.reasons if each.kind == "neighbour"]


def _lonely(case: Case) -> str:
    """The caption of a figure that has no neighbourhood."""
    what = "Orange speaks for the class, blue against it. " if case.adds_up else ""
    return f"{what}No neighbour is a reason: the node has none that count, or the network reads no edges."


def _table(case: Case, most: int = 40) -> Table:
    rows = [
        [
            Cell(each.words()),
            Cell(case.number(each.contribution, 3), each.contribution),
            Cell("; ".join(f"{shown(n)} = {plain_value(v)} ({case.number(c)})" for n, v, c in each.features)),
        ]
        for each in case.reasons[:most]
    ]
    rest = case.reasons[most:]
    added = f" add {sum(r.contribution for r in rest):+.3f}" if case.adds_up else " matter less"
    note = f"{len(rest)} more reasons{added}." if rest else ""
    what = ["Contribution", "Of which"] if case.adds_up else ["Importance", "Its own columns"]
    return Table("reasons", ["Reason", *what], [rows], note)


def _figure(case: Case, place: str) -> str:
    shown_bars = case.reasons[:BARS]

    def draw(figure: Any) -> None:
        left = figure.add_subplot(1, 1, 1) if not _near(case) else None
        if left is None:
            left, right = figure.subplots(1, 2, gridspec_kw={"width_ratios": [1.25, 1]})
            _draw_neighbourhood(right, case)
        values = [each.contribution for each in shown_bars]
        left.barh(range(len(values)), values, color=[FOR if v > 0 else AGAINST for v in values], height=0.7)
        left.set_yticks(range(len(values)), [drawn(_short(each), 60) for each in shown_bars], fontsize=7.5)
        left.set_ylim(max(len(values), 1) - 0.4, -0.6)
        left.axvline(0, color=DARK, linewidth=0.8)
        left.set_xlabel("contribution to the log-odds" if case.adds_up else "importance")
        left.grid(axis="x", color="#E5E5E5", linewidth=0.6)
        left.set_axisbelow(True)
        for side in ("top", "right"):
            left.spines[side].set_visible(False)

    return svg_of("why", f"Reasons for {shown(case.node)}", 1.1 + 0.22 * max(len(shown_bars), 7), draw, place)


def _short(reason: Reason) -> str:
    if reason.kind == "feature":
        return f"{shown(reason.name, 24)} = {plain_value(reason.value)}"
    steps = "1 step" if reason.hops == 1 else f"{reason.hops} steps"
    return f"{shown(reason.name, 24)} ({shown(reason.label, 16)}, {steps})"


def _draw_neighbourhood(axis: Any, case: Case) -> None:
    """The node in the middle and the neighbours that contribute most on rings around it."""
    near = _near(case)
    chosen = near[:DOTS]
    spots, own = places(case, chosen), {each.name: each for each in chosen}
    for a, b in case.edges:
        if a in spots and b in spots:
            axis.plot(*zip(spots[a], spots[b], strict=True), color="#BBBBBB", linewidth=0.8, zorder=1)
    largest = max((abs(each.contribution) for each in chosen), default=1.0) or 1.0
    for name, (x, y) in spots.items():
        each = own.get(name)
        colour = DARK if each is None else FOR if each.contribution > 0 else AGAINST
        size = 120 if each is None else 12 + 140 * abs(each.contribution) / largest
        axis.scatter([x], [y], s=size, color=colour, zorder=2, edgecolors="white", linewidths=0.6)
    for each in chosen[:6]:
        x, y = spots[each.name]
        axis.text(x, y - 0.16, drawn(each.name, 14), fontsize=6, ha="center", va="top", color=DARK)
    axis.text(0, -0.2, drawn(case.node, 16), fontsize=7, ha="center", va="top", color=DARK, weight="bold")
    axis.set_xlim(-2.45, 2.45)
    axis.set_ylim(-2.45, 2.45)
    axis.set_aspect("equal")
    axis.axis("off")
    if len(near) > len(chosen):
        more = (
            f"{len(near) - len(chosen):,} more neighbours {'contribute' if case.adds_up else 'matter'} less"
        )
        axis.text(0, -2.4, more, fontsize=6.5, ha="center", color=GREY)


def places(case: Case, chosen: Sequence[Reason]) -> dict[str, tuple[float, float]]:
    """Where each node of the picture is: by its steps on a ring, beside a neighbour that it hangs on."""
    spots = {case.node: (0.0, 0.0)}
    angles: dict[str, float] = {}
    joined: dict[str, list[str]] = {}
    for a, b in case.edges:
        joined.setdefault(a, []).append(b)
        joined.setdefault(b, []).append(a)
    for hop in sorted({each.hops for each in chosen}):
        ring = [each.name for each in chosen if each.hops == hop]
        anchor = {name: next((angles[o] for o in joined.get(name, []) if o in angles), None) for name in ring}
        ring.sort(key=lambda name: (anchor[name] is None, anchor[name] or 0.0))
        radius = 2.1 * min(hop / max(2, max(each.hops for each in chosen)), 1.0)
        for number, name in enumerate(ring):
            angles[name] = 2 * math.pi * number / len(ring) + 0.4 * hop
            spots[name] = (radius * math.cos(angles[name]), radius * math.sin(angles[name]))
    return spots
