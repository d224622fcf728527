"""Curves: precision against recall, and found cases against false alarms."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedepd.longtail import class_order
from fedepd.report import drawing
from fedepd.report.decisions import class_names
from fedepd.report.drawing import FIELD_COLOURS, GREY, LINES, legend
from fedepd.report.runs import Group
from fedepd.shown import drawn, shown

MOST = 7
"""Most classes in one picture."""


def precision_recall(group: Group) -> str:
    """Precision against recall of up to ``MOST`` classes, in the first run with a ranking, or nothing."""
    run = next((run for run in group.runs if run.ranking is not None), None)
    if run is None:
        return ""
    classes, names = (run.ranking or {})["classes"], class_names(run)
    tested = [c for c in class_order(run.partition["class_sizes"]) if classes[c]["nodes"]]
    places = np.unique(np.linspace(0, len(tested) - 1, min(MOST, len(tested))).round().astype(int))
    if not len(tested):
        return ""

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        for place, at in enumerate(places):
            c = tested[at]
            alerts, found = np.array(classes[c]["curve"]).T
            recall, precision = 100 * found / classes[c]["nodes"], 100 * found / alerts
            axis.plot(
                np.append(0, recall),
                np.append(precision[0], precision),
                color=FIELD_COLOURS[place % len(FIELD_COLOURS)],
                linestyle=LINES[place % len(LINES)],
                linewidth=1.6,
                label=drawn(f"{names[c]} ({classes[c]['nodes']} nodes)", 40),
            )
        axis.set_xlim(-1, 101)
        axis.set_ylim(-2, 104)
        axis.grid()
        axis.set_xlabel("recall: found of the class (%)")
        axis.set_ylabel("precision: right of the alerts (%)")
        legend(figure, axis)

    name = f"precision-recall-{zlib.crc32(group.label.encode()):08x}"
    return drawing.svg_of(name, f"Precision against recall, {group.label}", 3.9, draw, run.path.name)


PANELS = 3
"""Most rules of an operating point that are drawn."""


def operating_curve(group: Group) -> str:
    """The page's picture of an operating point, of the first run that has one. Empty if none has."""
    run = next((run for run in group.runs if run.operating is not None), None)
    if run is None:
        return ""
    name = f"operating-{zlib.crc32(group.label.encode()):08x}"
    return operating_picture(run.operating or {}, class_names(run), name, run.path.name)


def operating_picture(
    point: Mapping[str, Any], names: Sequence[str], name: str = "operating", where: str = ""
) -> str:
    """Found cases against false alarms, with the chosen point, from what ``OPERATING`` holds."""
    rules = point["measured"][:PANELS]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(rules), squeeze=False)[0]
        for axis, rule in zip(axes, rules, strict=True):
            _draw_rule(axis, rule)
            axis.set_title(drawn(rule_name(rule["classes"], point["usual"], names), 60))
        axes[0].set_ylabel("found cases (test nodes)")
        legend(figure, axes[0])

    return drawing.svg_of(name, "Found cases against false alarms", 3.9, draw, where)


def rule_name(classes: Sequence[int], usual: int, names: Sequence[str]) -> str:
    """What a rule alerts to, fit to be shown."""
    if len(classes) == 1:
        return shown(names[classes[0]])
    return f"all but {shown(names[usual])}" if usual not in classes else "several classes"


def _draw_rule(axis: Any, rule: Mapping[str, Any]) -> None:
    (found, *of_found), (false, *of_false) = rule["found"], rule["false_alarms"]
    if rule["curve"]:
        x, y, low, high = np.array(rule["curve"]).T
        axis.fill_between(
            x, low, high, color="#0072B2", alpha=0.15, linewidth=0, step="post", label="95 % band"
        )
        axis.plot(x, y, color="#0072B2", linewidth=1.6, drawstyle="steps-post", label="other thresholds")
    axis.axhline(rule["nodes"], color=GREY, linewidth=0.8, linestyle=":", label="all cases")
    ends = [
        [
            [max(0.0, value - (value if low is None else low))],
            [max(0.0, (value if high is None else high) - value)],
        ]
        for value, (low, high) in ((false, of_false), (found, of_found))
    ]
    style = {"fmt": "D", "color": "#D55E00", "markersize": 6, "elinewidth": 1, "capsize": 2.5}
    axis.errorbar([false], [found], xerr=ends[0], yerr=ends[1], label="chosen point", **style)
    widest = max(false, of_false[1] or 0)
    axis.set_xlim(-0.02 * (2.5 * widest + 20), 2.5 * widest + 20)
    axis.set_ylim(0, 1.08 * max(rule["nodes"], 1))
    axis.grid()
    axis.set_xlabel("false alarms (test nodes)")
