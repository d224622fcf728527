"""The parts of a model card that a decision needs: numbers by class, and the operating point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fedepd.metrics import OF_A_CLASS
from fedepd.model.model import OPERATING_CURVE, Model
from fedepd.report.curves import rule_name
from fedepd.report.decisions import client_names
from fedepd.report.runs import Run
from fedepd.shown import markdown_text, shown

MOST = 40
"""Most classes of the table. Of more, the largest and the smallest are shown."""
MOST_WIDE, MOST_MISTAKES = 10, 10
"""Most classes of a confusion matrix in Markdown. Of more classes, so many mistakes are listed."""
TITLES = {"precision": "precision", "recall": "recall", "f1": "F1", "average_precision": "average precision"}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown, its first column to the left."""
    return "\n".join(
        f"| {' | '.join(cells)} |" for cells in (header, [":---", *["---:"] * (len(header) - 1)], *rows)
    )


def by_class(run: Run, model: Model) -> list[str]:
    """Precision, recall, F1 and average precision of every class of the run's headline model."""
    classes = run.summary.get("by_class")
    if not classes:
        return []
    known = [name for name in TITLES if name in OF_A_CLASS or name in classes[0]]
    order = [c for tier in ("head", "medium", "tail") for c in getattr(model.tiers, tier)]
    kept = order if len(order) <= MOST else [*order[: MOST // 2], *order[-MOST // 2 :]]
    rows = [
        [
            _name(model.label_names[c]),
            f"{classes[c]['nodes']:,}",
            f"{classes[c]['predicted']:,}",
            *(_interval(classes[c][name]) for name in known),
        ]
        for c in kept
    ]
    header = ["class, in percent", "test nodes", "called so", *(TITLES[name] for name in known)]
    left = f" {len(order) - len(kept)} classes between them are left out." if len(kept) < len(order) else ""
    how = (
        "Each class is called where it is the likeliest. Brackets hold Wilson's 95 % intervals; that of F1 "
        "is the one of TP / (TP + FP + FN), and that of average precision has the class's test nodes as "
        "trials."
    )
    return [table(header, rows), how + left]


def by_group(run: Run, model: Model) -> list[str]:
    """The same for each tier and each client, and which classes are taken for which.

    Choice: the card of a federation names no site's own numbers, because the folder is handed to all of them.
    """
    if not run.summary.get("by_class"):
        return []
    out = [*_at_alerts(run, model), *_by_tier(run), *([] if run.deployed else _by_client(run))]
    return [*out, *_mistaken(run, model)]


def _at_alerts(run: Run, model: Model) -> list[str]:
    """How many of a class are found if so many nodes are looked at, but for the largest class."""
    order = [c for tier in ("head", "medium", "tail") for c in getattr(model.tiers, tier)][1:]
    classes = {c: dict(run.summary["by_class"][c].get("at_alerts", ())) for c in order[-MOST:]}
    counts = sorted({int(k) for found in classes.values() for k in found})
    if not counts:
        return []
    rows = []
    for c, found in classes.items():
        nodes = run.summary["by_class"][c]["nodes"]
        cells = [f"{found[k]:g} of {nodes:,}" if k in found else "–" for k in counts]
        rows.append([_name(model.label_names[c]), *cells])
    said = "Found if somebody looks at the nodes with the highest scores of a class:"
    return [said, table(["class", *(f"{k:,} nodes" for k in counts)], rows)]


def _by_tier(run: Run) -> list[str]:
    tiers = {tier: own for tier, own in run.summary.get("by_tier", {}).items() if own["recall"] is not None}
    if not tiers:
        return []
    known = [name for name in TITLES if all(name in own for own in tiers.values())]
    rows = [[tier, *(_interval(own[name]) for name in known)] for tier, own in tiers.items()]
    how = "Plain means over the classes of a tier. Brackets hold 95 % intervals (MOVER)."
    return [table(["tier, in percent", *(TITLES[name] for name in known)], rows), how]


def _by_client(run: Run) -> list[str]:
    clients = run.summary.get("by_client", [])
    if len(clients) < 2:
        return []
    known = [name for name in TITLES if all(name in own for own in clients)]
    names = [markdown_text(name) for name in client_names(run)]
    rows = [
        [names[own["client"]], f"{own['nodes']:,}", *(_share(own[name]) for name in known)]
        for own in clients[:MOST]
    ]
    left = f" {len(clients) - MOST:,} more clients are left out." if len(clients) > MOST else ""
    how = "Plain means over the classes that occur at a client. The report has every class at every client."
    return [table(["client, in percent", "test nodes", *(TITLES[name] for name in known)], rows), how + left]


def _mistaken(run: Run, model: Model) -> list[str]:
    """The confusion matrix; where it would be too wide, its largest mistakes."""
    counts = run.confusions[f"{run.headline}_test"].sum(0)
    names = [_name(name) for name in model.label_names]
    order = [c for tier in ("head", "medium", "tail") for c in getattr(model.tiers, tier)]
    if len(order) <= MOST_WIDE:
        rows = [[names[c], *(f"{int(counts[c, called]):,}" for called in order)] for c in order]
        return [
            "Rows: what a test node is. Columns: what it is called.",
            table(["is", *(names[c] for c in order)], rows),
        ]
    pairs = sorted((-int(counts[a, b]), a, b) for a in order for b in order if a != b and counts[a, b])
    rows = [
        [names[a], names[b], f"{-count:,} of {int(counts[a].sum()):,}"]
        for count, a, b in pairs[:MOST_MISTAKES]
    ]
    said = f"The {len(rows)} most frequent mistakes. The report has the whole confusion matrix."
    return [said, table(["is", "is called", "test nodes"], rows)] if rows else []


def operating_point(point: dict[str, Any] | None, model: Model) -> list[str]:
    """What was aimed at, what it comes to on test nodes, and the picture."""
    if point is None:
        return []
    names, rows = model.label_names, []
    for rule in point["measured"]:
        what = markdown_text(rule_name(rule["classes"], point["usual"], names))
        limit = "saves more than 0" if "costs" in point else f"{rule['threshold']:.4g}"
        found = f"{_count(rule['found'])} of {rule['nodes']:,}"
        shares = [_interval(rule[name]) for name in ("recall", "precision")]
        rows.append([what, limit, found, _count(rule["false_alarms"]), *shares])
    header = ["alerts to", "threshold", "found", "false alarms", "recall in %", "precision in %"]
    later = f" It was chosen after the export, by nodes of {_name(point['data'])}." if "data" in point else ""
    by = f"The point was chosen on {point['validation_nodes']:,} validation nodes."
    if "federation" in point["aim"]:
        by = "All sites chose the point together, by counts of their validation nodes."
    return [
        f"{_aimed(point)}{later} {by} On {point['test_nodes']:,} test nodes it comes to:",
        table(header, rows),
        f"Brackets hold 95 % intervals from {point['resamples']:,} bootstrap resamples of "
        f"{_resampled(point)} Without the point, a node is called its likeliest class: "
        f"{_in_total(point['likeliest'])}; with it, {_in_total(point['decided'])}.",
        *_costs(point, model),
        f"![Found cases against false alarms]({OPERATING_CURVE})",
    ]


def _aimed(point: dict[str, Any]) -> str:
    aim = point["aim"]
    if "federation" in aim:
        return f"The plan of the federation says: {_name(aim['federation'])}."
    if "cost" in aim:
        return f"Nodes are called what costs least, by the costs in {_name(aim['cost'])}."
    if "recall" in aim:
        shares = [f"{100 * share:g} % of {_name(name)}" for name, share in aim["recall"].items()]
        return f"The model shall find {' and '.join(shares)}."
    alerts = aim["alerts"] if isinstance(aim["alerts"], dict) else {"": aim["alerts"]}
    counts = [f"{count:,} alerts{f' to {_name(name)}' if name else ''}" for name, count in alerts.items()]
    return f"The model shall raise {' and '.join(counts)} in {aim['per']:,} nodes."


def _in_total(scores: dict[str, Any]) -> str:
    return f"balanced accuracy {_percent(scores['bacc'])}, macro-F1 {_percent(scores['macro_f1'])}"


def _resampled(point: dict[str, Any]) -> str:
    if "costs" in point or "federation" in point["aim"]:
        return "the test nodes."
    return "validation and test nodes; the threshold is chosen anew in each of them."


def _costs(point: dict[str, Any], model: Model) -> list[str]:
    if "costs_per_node" not in point:
        return []
    calls = {"decided": "by this point", "likeliest": "by the likeliest class"}
    calls["usual"] = f"if every node is called {_name(model.label_names[point['usual']])}"
    told = [
        f"{low_high[0]:.4g} ({low_high[1]:.4g} to {low_high[2]:.4g}) {calls[name]}"
        for name, low_high in sorted(
            point["costs_per_node"].items(), key=lambda each: list(calls).index(each[0])
        )
    ]
    return [f"Mean cost of a test node: {', '.join(told)}."]


def _name(text: object) -> str:
    return markdown_text(shown(text))


def _percent(value: float | None) -> str:
    return "–" if value is None or value != value else f"{100 * value:.1f} %"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def _interval(triple: Sequence[float | None] | None) -> str:
    if triple is None or triple[0] is None:
        return "–"
    ends = ["–" if end is None else f"{100 * end:.0f}" for end in triple[1:]]
    return f"{100 * triple[0]:.1f} ({ends[0]} to {ends[1]})"


def _count(triple: Sequence[float | None]) -> str:
    return f"{triple[0]:,.0f} ({triple[1] or 0:,.0f} to {triple[2] or 0:,.0f})"
