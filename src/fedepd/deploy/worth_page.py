"""The page of a site: what ``worth`` found, as one self-contained HTML file in the report's style."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedepd.deploy.difference import Measured
from fedepd.deploy.inferred import MEMBERSHIP
from fedepd.deploy.left import WHENS, Left, gathered
from fedepd.deploy.preview import ALONE
from fedepd.deploy.worth import NOT_WORTH, WORTH, Worth
from fedepd.privacy.figures import TIERS as ALL_TIERS
from fedepd.privacy.page import hits, table
from fedepd.report.document import document, paragraphs
from fedepd.report.drawing import DARK, FIELD_COLOURS, dodge, svg_of
from fedepd.report.tables import NOTHING, Cell, Table, html_table
from fedepd.shapes import TIERS
from fedepd.shown import drawn, html_text, shown

TITLES = {WORTH: "Joining was worth it", NOT_WORTH: "Joining was not worth it"}
SCORES = {
    "bacc": "Balanced accuracy",
    "macro_f1": "Macro-F1",
    "head_acc": "Head",
    "medium_acc": "Medium",
    "tail_acc": "Tail",
}
COLOURS = ("#777777", "#0072B2", "#D55E00")
MARKERS = "osD"
PLACES = {
    "models": "On your test nodes",
    "classes": "Your classes",
    "left": "What left your site",
    "inferred": "What others could infer",
}
LAST = "Who took part"
SMALL = 0.005
"""Fields with a smaller share of all bytes are folded away."""
MEANT = (
    "Balanced accuracy: the share of a class's test nodes that a model finds, in the mean over your classes. "
    "So a rare class counts as much as a large one. Head, medium and tail: the same over the federation's "
    "largest, middle and rarest classes. Macro-F1: the mean over your classes of F1, which also counts nodes "
    "that were wrongly taken for a class. Brackets: 95 % interval."
)
COMPARED = (
    "The model trained here alone and the federation's were made by the same method with the same number of "
    "rounds and epochs. They differ in the federation alone. The interval of the difference is McNemar's: "
    "only test nodes about which one model is right and the other is wrong speak for either."
)
FIGURE = "Dots: scores on your test nodes. Whiskers: 95 % interval of each model. Right: how many test nodes."
BYTES = "Bytes that left in each round, by field. Round 0 is before the first one."


def render(found: Worth) -> str:
    """The page's HTML."""
    title = (
        f"{TITLES.get(found.verdict.answer, 'It cannot be told whether joining was worth it')}: {found.site}"
    )
    parts = [
        _part("models", _models(found)),
        _part("classes", html_table(classes_table(found))),
        _part("left", _left(found)),
        _part("inferred", _inferred(found)),
    ]
    return document(title, found.verdict.sentence, PLACES, parts, _footer(found), LAST)


def _part(place: str, content: str) -> str:
    return f'<section><h2 id="{place}">{html_text(PLACES[place])}</h2>{content}</section>\n'


def _figure(svg: str, caption: str) -> str:
    return f"<figure><div>{svg}</div><figcaption>{html_text(caption)}</figcaption></figure>"


def _models(found: Worth) -> str:
    if not found.models:
        return paragraphs(["There is no test node whose class is known, so there are no scores."])
    said = paragraphs([text for text in (found.rare, COMPARED) if text])
    made = "".join(
        f"<dt>{html_text(each.label.capitalize())}</dt><dd>{html_text(each.about)}</dd>"
        for each in found.models
    )
    return f"{said}{_figure(scores_chart(found), FIGURE)}{html_table(models_table(found))}<dl>{made}</dl>"


def models_table(found: Worth) -> Table:
    """The scores of all models."""
    rows = [[Cell(each.label), *(number(each.scores[name]) for name in SCORES)] for each in found.models]
    return Table("worth-models", ["Model", *SCORES.values()], [rows], "In percent. " + MEANT)


def short_table(found: Worth) -> Table:
    """The same with a row for each score, which fits a terminal of 80 columns."""
    rows = [
        [Cell(title), *(number(each.scores[name], 0) for each in found.models)]
        for name, title in SCORES.items()
    ]
    return Table("worth-short", ["In percent", *(each.label for each in found.models)], [rows])


def number(score: Measured, digits: int = 1) -> Cell:
    """A share in percent with its interval, which has so many digits after the point."""
    if math.isnan(score.value):
        return Cell(NOTHING, -1.0)
    spread = f"[{100 * score.low:.{digits}f}, {100 * score.high:.{digits}f}]"
    return Cell(f"{100 * score.value:.1f}", 100 * score.value, spread)


def classes_table(found: Worth) -> Table:
    """Every class of the federation that the site has, from its largest to its smallest."""
    sizes, rows = found.sizes, []
    counts = {name: getattr(sizes, name).tolist() for name in ("train", "val", "test")}
    closed = {each.label: each.why for each in found.withheld}
    order = sorted(range(len(counts["train"])), key=lambda k: -sum(part[k] for part in counts.values()))
    for label in order:
        own = [part[label] for part in counts.values()]
        if not any(own):
            continue
        shares = [each.found[label] for each in found.models]
        rows.append(
            [
                Cell(class_name(found, label)),
                Cell(next((tier for tier in TIERS if label in getattr(found.tiers, tier)), "")),
                *(Cell(f"{n:,}", n) for n in own),
                *(Cell(NOTHING, -1.0) if math.isnan(s) else Cell(f"{100 * s:.0f}", 100 * s) for s in shares),
                Cell(guarded(found, label, label in closed)),
            ]
        )
    missing = len(order) - len(rows)
    note = f"You have no labelled node of the other {missing} classes of the federation. " if missing else ""
    note += "In percent: the share of the class's test nodes that each model finds."
    labels = [f"{each.label.capitalize()}, %" for each in found.models]
    headers = ["Class", "Tier", "Training", "Validation", "Test", *labels, "Guard"]
    return Table("worth-classes", headers, [rows], note)


def guarded(found: Worth, label: int, withheld: bool) -> str:
    """Whether a class is shared."""
    if found.opened is None:
        return "off"
    if label not in found.opened:
        return "closed, yours kept at home" if withheld else "closed"
    return "open, yours withheld" if withheld else "open"


def class_name(found: Worth, label: int) -> str:
    return shown(found.label_names[label]) if found.label_names else f"class {label}"


def _left(found: Worth) -> str:
    total = sum(each.bytes for each in found.left)
    clear = sum(each.bytes for each in found.left if each.seen == ALONE)
    said = [
        f"{total:,} bytes left your site in this run. The coordinator alone can read {clear:,} of them.",
        "Features, edges and the labels of single nodes did not leave.",
    ]
    if found.opened is None:
        said.append("The guard was off, so nothing was withheld.")
    elif not found.withheld:
        said.append("The guard was on. All your classes are shared by enough sites, so nothing was withheld.")
    kept = html_table(withheld_table(found)) if found.withheld else ""
    every, most = gathered(found.left), SMALL * total
    main = [(each, names) for each, names in every if each.bytes >= most or each.seen == ALONE]
    rest = [pair for pair in every if pair not in main]
    folded = (
        f"<details><summary>{len(rest)} smaller parts</summary>{_listed(rest, 'worth-left-rest')}</details>"
    )
    chart = _figure(bytes_chart(found), BYTES) if found.rounds else ""
    return f"{paragraphs(said)}{chart}{_listed(main, 'worth-left')}{folded if rest else ''}{kept}"


def _listed(pairs: Sequence[tuple[Left, list[str]]], name: str) -> str:
    rows = [
        [
            Cell(each.words or ", ".join(map(shown, names))),
            Cell(WHENS.get(each.what, shown(each.what))),
            Cell(f"{each.times:,}", each.times),
            Cell(f"{each.bytes:,}", each.bytes),
            Cell(each.seen),
            Cell(", ".join(shown(field, 40) for field in names)),
        ]
        for each, names in pairs
    ]
    return html_table(
        Table(name, ["What", "When", "Times", "Bytes", "Who sees your numbers", "Fields"], [rows])
    )


def withheld_table(found: Worth) -> Table:
    rows = [
        [Cell(class_name(found, each.label)), Cell(f"{each.train:,}", each.train), Cell(each.why)]
        for each in found.withheld
    ]
    note = "Of these classes no row, no count and no column of the classifier left your site."
    return Table("worth-withheld", ["Withheld class", "Your training nodes", "Why"], [rows], note)


def _inferred(found: Worth) -> str:
    return paragraphs(attack_sentences(found)) + html_table(attacks_table(found)) + paragraphs([MEMBERSHIP])


def attacks_table(found: Worth) -> Table:
    """The attacks of the audit, without protection and in this run."""
    plain = table(found.audit, ALL_TIERS[:1])
    note = f"{plain.note} '{NOTHING}': one site cannot measure it, because it needs the answers of all sites."
    headers = ["Attack", "Without protection", "In this run", "Chance"]
    return replace(plain, name="audit-worth", headers=headers, note=note)


def attack_sentences(found: Worth) -> list[str]:
    """What the coordinator of this run could do with this site's answers, in words."""
    audit, privacy = found.audit, found.audit.privacy["on"]
    off, out = audit.of("off", "rows.single"), []
    named = audit.of("off", "reidentified.rank1")
    if privacy.secure:
        out.append(
            f"The coordinator saw sums over {len(found.sites)} sites. It saw no row, no update and no class "
            "of yours alone."
        )
    elif privacy.guard:
        out.append("The coordinator saw your answers alone, without the classes that the guard withheld.")
    else:
        out.append("The coordinator saw your answers alone, and nothing was withheld.")
    if off is not None and off.cases:
        said = f"Without protection, {hits(off)} of your {off.cases} class rows would be rows of one node"
        if named is not None and named.cases:
            said += f", and {hits(named)} of these would name their node among all your nodes"
        out.append(f"{said}.")
    left = audit.of("on", "model.rank1")
    if left is not None and left.cases:
        out.append(
            f"The model itself, which all sites have, ranks the only training node that you have of a class "
            f"first in {hits(left)} of {left.cases} cases."
        )
    return out


def _footer(found: Worth) -> str:
    rows = "".join(
        f"<dt>{html_text(name)}</dt><dd>{html_text(text)}</dd>" for name, text in found.facts.items()
    )
    stays = "This page was made at the site and holds what the site keeps to itself. Nobody else has it."
    return f"""<footer id="protocol">
<h2>{LAST}</h2>{paragraphs([stays, f"{found.protocol}."])}<dl>{rows}</dl>
</footer>"""


def scores_chart(found: Worth) -> str:
    """The models' scores side by side."""
    names = [name for name in SCORES if any(not math.isnan(m.scores[name].value) for m in found.models)]

    def draw(figure: Any) -> None:
        axis = figure.subplots()
        for place, model in enumerate(found.models):
            for row, name in enumerate(names):
                score = model.scores[name]
                if math.isnan(score.value):
                    continue
                value = 100 * score.value
                spread = [[max(0.0, value - 100 * score.low)], [max(0.0, 100 * score.high - value)]]
                axis.errorbar(
                    value, row + dodge(place, len(found.models), 0.6), xerr=spread, elinewidth=1.1, capsize=2,
                    color=COLOURS[place], marker=MARKERS[place], markersize=5, linestyle="",
                    label=model.label if row == 0 else None,
                )  # fmt: skip
        for row, name in enumerate(names):
            nodes = found.models[0].scores[name].nodes
            axis.text(101.5, row, f"{nodes:,} nodes", va="center", fontsize=8, color=DARK)
        axis.set_yticks(range(len(names)), [SCORES[name] for name in names])
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.set_xlim(-2, 113)
        axis.set_xticks(range(0, 101, 20))
        axis.set_xlabel("percent")
        axis.grid(axis="x")
        figure.legend(loc="outside upper center", ncols=len(found.models))

    return svg_of("worth-scores", "Scores of the models", 1.2 + 0.42 * len(names), draw, found.run)


def bytes_chart(found: Worth) -> str:
    """Bytes by round, the largest fields in colours."""
    totals: dict[str, int] = {}
    for each in found.left:
        totals[each.field] = totals.get(each.field, 0) + each.bytes
    order = sorted(totals, key=lambda name: (-totals[name], name))
    most = len(FIELD_COLOURS)
    pieces: list[tuple[str, Sequence[str]]] = [(drawn(name), [name]) for name in order[: most - 1]]
    if len(order) >= most:
        pieces.append((f"{len(order) - most + 1} others", order[most - 1 :]))
    rounds = list(found.rounds)

    def draw(figure: Any) -> None:
        axis, base = figure.subplots(), [0.0] * len(rounds)
        for (label, names), colour in zip(pieces, FIELD_COLOURS, strict=False):
            sizes = [sum(found.rounds[r].get(n, 0) for n in names) / 1024 for r in rounds]
            axis.bar(rounds, sizes, 0.85, bottom=base, color=colour, label=label)
            base = [a + b for a, b in zip(base, sizes, strict=True)]
        axis.set_xlabel("round")
        axis.set_ylabel("KiB")
        axis.grid(axis="y")
        axis.xaxis.get_major_locator().set_params(integer=True)
        figure.legend(loc="outside lower center", ncols=4)

    return svg_of("worth-bytes", "Bytes that left, by round", 3.0, draw, found.run)
