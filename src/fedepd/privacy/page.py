"""An audit -> sentences, a table, and one self-contained audit.html in the report's style."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedepd.privacy.attacks import ATTACKS, titles
from fedepd.privacy.audit import Audit
from fedepd.privacy.figures import TIERS, Figure
from fedepd.report.document import document, paragraphs
from fedepd.report.drawing import GREY, svg_of
from fedepd.report.tables import Cell, Table, html_table
from fedepd.shown import html_text, shown

LOOKS = {
    "off": ("#D55E00", "o"),
    "secure": ("#CC79A7", "D"),
    "on": ("#0072B2", "s"),
    "distilled": ("#009E73", "^"),
}
"""By setting, its colour and the shape of its dots."""
NONE = "nothing sent"
"""What a cell says where the server saw nothing of the kind."""
DRAWN = ("all", "tail")
"""The tiers of the figure."""


def is_area(name: str) -> bool:
    """Whether a figure is an area under a curve, and not a share."""
    return ".auc" in name


def hits(figure: Figure) -> int:
    """How many of a share's cases were hits."""
    return round(figure.value * figure.cases) if figure.cases else 0


def sentences(figures: Sequence[Figure], min_count: int) -> list[str]:
    """The main figures of one setting in words."""
    found = {figure.name: figure for figure in figures if figure.tier == TIERS[0]}
    out = []
    if rows := found.get("rows.few"):
        sent = f"{hits(rows)} of {rows.cases} class rows are of fewer than {min_count} nodes"
        out.append(sent if rows.cases else "no class rows are sent")
    if named := found.get("reidentified.rank1"):
        said = f"{hits(named)} of {named.cases} rows of one node name their node"
        out.append(said if named.cases else "no row is of one node")
    if classes := found.get("classes.auc"):
        told = f"a client's classes are inferred from its update with AUC {classes.value:.2f}"
        out.append("no update tells a client's classes" if math.isnan(classes.value) else told)
    return out


def lead(found: Audit) -> list[str]:
    """What the server could learn, off and on, and what the model itself still tells: a sentence each."""
    out = []
    for setting in found.settings:
        privacy = found.privacy[setting]
        what = "guard and secure sums" if privacy.secure or setting == "off" else "guard"
        told = "secure sums alone" if setting == "secure" else f"{what} {setting}"
        said = sentences(found.figures[setting], privacy.min_count)
        if said:
            out.append(f"With {told}: {'; '.join(said)}.")
    left, tail = found.of("on", "model.rank1"), found.of("on", "membership.auc", "tail")
    rest = []
    if left is not None and left.cases:
        one = "the only training node that a client has of a class"
        rest.append(f"ranks {one} first in {hits(left)} of {left.cases} cases")
    if tail is not None and not math.isnan(tail.value):
        rest.append(f"tells training nodes of the tail from others with AUC {tail.value:.2f}")
    if rest:
        out.append(f"What is left with them on: the model itself {', and '.join(rest)}.")
    distilled = found.of("distilled", "membership.auc", "tail")
    if distilled is not None and not math.isnan(distilled.value):
        what = "tells training nodes of the tail from others with AUC"
        out.append(f"The model of this run, if it is distilled, {what} {distilled.value:.2f}.")
    return out


def percent(share: float) -> str:
    """One digit after the point, or more where there would be none."""
    return f"{100 * share:.1f}" if share >= 0.001 else f"{100 * share:.1g}"


def number(figure: Figure | None, area: bool, short: bool = False) -> Cell:
    """A figure in a table: percent, or an area from 0 to 1, with its interval and, if long, its cases."""
    if figure is None or math.isnan(figure.value):
        return Cell("–" if figure is None or figure.cases else NONE, -1.0)  # sorted below every number
    value, low, high = (x if area else 100 * x for x in (figure.value, figure.low, figure.high))
    digits = 2 if area else 1
    rounded = digits if area or not short else 0
    spread = f"[{low:.{rounded}f}, {high:.{rounded}f}]" + ("" if short else f" of {figure.cases:,}")
    return Cell(f"{value:.{digits}f}", value, spread)


def chance_of(figures: Sequence[Figure | None], area: bool) -> Cell:
    """What guessing reaches; both values where they differ between the settings."""
    known = [f.chance for f in figures if f is not None and f.chance is not None and not math.isnan(f.value)]
    texts = list(dict.fromkeys(f"{chance:.2f}" if area else percent(chance) for chance in known))
    return Cell(" / ".join(texts), known[0] * (1 if area else 100)) if known else Cell("")


def table(found: Audit, tiers: Sequence[str] = TIERS, short: bool = False) -> Table:
    """Every figure with all settings side by side. What nobody could measure is left out.

    A short one fits a terminal of 80 columns.
    """
    sections = []
    for attack in ATTACKS.values():
        rows = []
        for name, title in attack.titles.items():
            for tier in tiers:
                each = [found.of(setting, name, tier) for setting in found.settings]
                if any(f is not None and not math.isnan(f.value) for f in each):
                    area = is_area(name)
                    cells = [number(f, area, short) for f in each]
                    which = [Cell(tier)] if len(tiers) > 1 else []
                    rows.append([Cell(title), *which, *cells, chance_of(each, area)])
        if rows:
            sections.append(rows)
    of = "" if short else "Of: the rows, nodes or pairs that were attacked. "
    note = (
        f"In percent, but areas under the ROC curve (AUC) from 0 to 1. Brackets: 95 % interval. {of}"
        f"Chance: what guessing reaches; two numbers where it differs between settings. "
        f"'{NONE}': the server saw nothing of that kind."
    )
    name, more = ("audit-tiers", ["Tier"]) if len(tiers) > 1 else ("audit", [])
    return Table(name, ["Attack", *more, *(s.capitalize() for s in found.settings), "Chance"], sections, note)


def render(found: Audit) -> str:
    """The page's HTML."""
    title = f"Privacy audit: {found.method} on {shown(found.dataset)}"
    scope = (
        f"What a server learns about single clients and nodes in {found.rounds} rounds of seed {found.seed}, "
        "without and with the guard and secure sums. Measured by running the attacks."
    )
    places = {
        "learned": "What the server could learn",
        "attacks": "Attacks",
        "knows": "What each attacker has",
    }
    knows = "".join(
        f"<dt>{html_text(attack.label)}</dt><dd>{html_text(attack.knows)}</dd>"
        for attack in ATTACKS.values()
        if any(found.of(setting, name) for setting in found.settings for name in attack.titles)
    )
    figure = f"<figure><div>{chart(found)}</div><figcaption>{html_text(CAPTION)}</figcaption></figure>"
    tiers = html_table(replace(table(found), note=""))
    by_tier = f"<details><summary>Head, medium and tail classes</summary>{tiers}</details>"
    parts = [
        _part("learned", places["learned"], paragraphs([*lead(found), *found.notes]) + figure),
        _part("attacks", places["attacks"], html_table(table(found, TIERS[:1])) + by_tier),
        _part("knows", places["knows"], f"<dl>{knows}</dl>{paragraphs(LIMITS)}"),
    ]
    return document(title, scope, places, parts, _footer(found))


CAPTION = (
    "Orange: guard and secure sums off. Blue: on. Purple: secure sums alone. Green: the run's model, "
    "distilled. Whiskers: 95 % interval. Grey bar: what guessing reaches. "
    "Where there is no dot, the server saw nothing to attack. Left: all classes. Right: the rarest."
)
LIMITS = (
    "An attack that fails proves little: a better one may be found. An attack that succeeds proves much.",
    "The run has one seed and one split. The intervals are over its rows, nodes and pairs, not over runs.",
)


def _part(place: str, title: str, content: str) -> str:
    return f'<section><h2 id="{place}">{html_text(title)}</h2>{content}</section>\n'


def _footer(found: Audit) -> str:
    settings = json.dumps(found.as_json()["privacy"], indent=2)
    own = f"The run itself has the setting '{found.own}'."
    time = f"The audit took {found.seconds:.0f} seconds."
    return f"""<footer id="protocol">
<h2>Protocol</h2>{paragraphs([found.protocol, own, time])}
<h2>Settings</h2><pre>{html_text(settings, newlines=True)}</pre>
</footer>"""


def chart(found: Audit) -> str:
    """All settings of every attack as dots with whiskers, for all classes and for the tail."""
    words = titles()
    names = [
        name
        for name in words
        if any(f is not None and not math.isnan(f.value) for s in found.settings for f in [found.of(s, name)])
    ]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(DRAWN), sharey=True, sharex=True)
        for axis, tier in zip(axes, DRAWN, strict=True):
            for place, name in enumerate(names):
                _draw_row(axis, found, name, tier, place)
            axis.set_title("all classes" if tier == "all" else f"{tier} classes", fontsize=9)
            axis.set_xlim(-3, 103)
            axis.set_xlabel("percent, or AUC x 100")
            axis.grid(axis="x", color="#E5E5E5", linewidth=0.6)
            axis.set_axisbelow(True)
        axes[0].set_yticks(range(len(names)), [words[name] for name in names], fontsize=7.5)
        axes[0].set_ylim(len(names) - 0.5, -0.5)
        looks = [axes[0].errorbar([], [], xerr=[[], []], label=s, **look(s)) for s in found.settings]
        looks += axes[0].plot([], [], "|", color=GREY, markeredgewidth=1.6, label="chance")
        figure.legend(handles=looks, loc="outside upper right", ncols=len(looks), frameon=False)

    height = 1.2 + (0.19 + 0.04 * len(found.settings)) * len(names)
    return svg_of("audit", "Attacks by setting", height, draw, found.dataset)


def _draw_row(axis: Any, found: Audit, name: str, tier: str, place: int) -> None:
    apart = 0.64 / len(found.settings)
    for rank, setting in enumerate(found.settings):
        figure = found.of(setting, name, tier)
        if figure is None or math.isnan(figure.value):
            continue
        value, y = 100 * figure.value, place + apart * (rank - (len(found.settings) - 1) / 2)
        if figure.chance is not None:
            half = 0.44 * apart
            axis.plot([100 * figure.chance] * 2, [y - half, y + half], color=GREY, linewidth=1.6)
        # An interval may miss its value by a rounding error, or by the luck of resamples.
        spread = [[max(0.0, value - 100 * figure.low)], [max(0.0, 100 * figure.high - value)]]
        axis.errorbar(value, y, xerr=spread, **look(setting))


def look(setting: str) -> dict[str, Any]:
    """How a setting is drawn, in colour and in shape."""
    colour, shape = LOOKS[setting]
    return {
        "color": colour,
        "marker": shape,
        "markersize": 4,
        "linestyle": "",
        "elinewidth": 0.9,
        "capsize": 1.5,
    }
