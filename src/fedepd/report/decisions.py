"""Tables for decisions: what is found and what is a false alarm, by class, tier and client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import fedepd.runs.frames as frames
from fedepd.longtail import class_order
from fedepd.metrics import OF_A_CLASS, Interval, class_scores, mean_with_interval, one_class_notice, wilson
from fedepd.report.numbers import mean_std
from fedepd.report.runs import Group, Run
from fedepd.report.tables import NOTHING, Cell, Table, measured
from fedepd.shapes import TIERS
from fedepd.shown import listed, shown

TITLES = {"precision": "Precision", "recall": "Recall", "f1": "F1", "average_precision": "AP"}
FEW = 2
"""Most classes of a tier that is named after them."""
MOST_ROWS = 400
"""Most rows of the table of classes at clients."""
MOST_ALERTED = 20
"""Most classes of the table of alerts."""
_INTERVALS = (
    "In percent, with 95 % intervals (Wilson's; of F1, those of TP / (TP + FP + FN); of AP, with the class's "
    "test nodes as trials). Precision: of the nodes that are called so, how many are. Recall: of the nodes "
    "that are so, how many are called so. AP (average precision): the mean precision over all numbers of "
    "alerts, from the order of the scores alone."
)
_NO_RANKING = "AP is not there for runs that kept no scores of single nodes."


def class_names(run: Run) -> list[str]:
    """What the classes are called, fit to be shown."""
    return [shown(name) for name in frames.class_names(run, len(run.partition["class_sizes"]))]


def tier_names(run: Run) -> dict[str, str]:
    """What the tiers are called, fit to be shown: with the names of their classes where these are few."""
    names, named = class_names(run), bool(run.dataset.get("label_names"))
    return {
        tier: f"{tier}: {listed([names[c] for c in classes])}" if named and 0 < len(classes) <= FEW else tier
        for tier, classes in run.summary["tiers"].items()
    }


def client_names(run: Run, count: int | None = None) -> list[str]:
    """What the clients are called, fit to be shown: by their owners, or by their numbers.

    ``count``: how many there are. None: as many as were tested.
    """
    count = len(run.confusions[f"{run.headline}_test"]) if count is None else count
    return [shown(name) for name in frames.client_names(run, count)]


def total(group: Group) -> npt.NDArray[np.int64]:
    """The headline model's test confusion matrix over clients and seeds, [C, C]."""
    counts: npt.NDArray[np.int64] = np.sum(
        [run.confusions[f"{run.headline}_test"].sum(0) for run in group.runs], axis=0
    )
    return counts


def notices(group: Group) -> list[str]:
    """Sentences about runs whose model says one class for everything."""
    out: dict[str, list[int]] = {}
    for run in group.runs:
        counts = run.confusions[f"{run.headline}_test"].sum(0)
        for line in one_class_notice(counts, run.dataset.get("label_names") or ()):
            out.setdefault(line, []).append(run.seed)
    lines = []
    for line, seeds in out.items():
        which = f" (seed {', '.join(map(str, seeds))})" if len(group.runs) > 1 else ""
        lines.append(f"{group.label}{which}: {line}")
    return lines


def numbers(group: Group) -> dict[str, Interval]:
    """Precision, recall, F1 and, where it was measured, average precision: three arrays [C] each."""
    counts, seeds = total(group), len(group.runs)
    found = class_scores(counts, seeds)
    rankings = [run.ranking for run in group.runs if run.ranking is not None]
    if rankings:
        each = [[(c["average_precision"] or [np.nan])[0] for c in one["classes"]] for one in rankings]
        value = np.array([mean_std(column)[0] for column in zip(*each, strict=True)])  # [C]
        nodes = counts.sum(1) / seeds
        found["average_precision"] = (value, *wilson(value * nodes, nodes))
    return found


def by_class(group: Group) -> Table:
    """Every class, the largest first, with test nodes, calls, precision, recall, F1 and AP."""
    run, counts, found = group.first, total(group), numbers(group)
    names, seeds = class_names(run), len(group.runs)
    tier_of = {c: tier for tier, members in run.summary["tiers"].items() for c in members}
    rows = []
    for c in class_order(run.partition["class_sizes"]):
        sizes = [float(counts[c].sum()) / seeds, float(counts[:, c].sum()) / seeds]
        rows.append(
            [
                Cell(names[c]),
                Cell(tier_of.get(c, NOTHING)),
                *(Cell(f"{size:.0f}" if size == int(size) else f"{size:.1f}", size) for size in sizes),
                *(_share(part[c] for part in found[name]) for name in TITLES if name in found),
            ]
        )
    headers = ["Class", "Tier", "Test nodes", "Called so", *(TITLES[name] for name in found)]
    over = f" Mean over {seeds} seeds, intervals of an average one." if seeds > 1 else ""
    note = _INTERVALS + over + ("" if "average_precision" in found else f" {_NO_RANKING}")
    return Table("by-class", headers, [rows], note)


def by_tier(groups: Sequence[Group]) -> Table:
    """Precision, recall, F1 and AP of each tier, one block per group."""
    sections, known = [], list(OF_A_CLASS)
    for group in groups:
        found = numbers(group)
        known = list(TITLES) if "average_precision" in found else known
        rows, called = [], tier_names(group.first)
        for tier, members in group.first.summary["tiers"].items():
            if members:
                means = [
                    _share(mean_with_interval(found[name], members)) if name in found else Cell(NOTHING)
                    for name in TITLES
                ]
                first = Cell(group.label), Cell(called[tier]), Cell(str(len(members)), len(members))
                rows.append([*first, *means])
        sections.append(rows)
    width = 3 + len(known)
    sections = [[row[:width] for row in rows] for rows in sections]
    headers = ["Method", "Tier", "Classes", *(TITLES[name] for name in known)]
    return Table(
        "by-tier", headers, sections, "Plain means over the classes of a tier, with 95 % intervals (MOVER)."
    )


def by_client(group: Group) -> Table | None:
    """Every class at every client, in the first run. None if no client's own numbers are known.

    Beyond ``MOST_ROWS`` the table has one row for each client, with means over its classes.
    """
    run = group.first
    if run.sums_only:
        return None
    matrices, names, owners = run.confusions[f"{run.headline}_test"], class_names(run), client_names(run)
    order = class_order(run.partition["class_sizes"])
    whole = len(matrices) * len(order) > MOST_ROWS
    sections = []
    for owner, counts in zip(owners, matrices, strict=True):
        found, rows = class_scores(counts), []
        if whole:
            occurring = np.flatnonzero(counts.sum(1)).tolist()
            means = [_share(mean_with_interval(found[name], occurring)) for name in OF_A_CLASS]
            nodes = int(counts.sum())
            rows = [[Cell(owner), Cell(str(len(occurring)), len(occurring)), Cell(str(nodes), nodes), *means]]
        else:
            for c in order:
                nodes, said = int(counts[c].sum()), int(counts[:, c].sum())
                if nodes or said:
                    shares = (_share(part[c] for part in found[name]) for name in OF_A_CLASS)
                    sizes = (Cell(str(nodes), nodes), Cell(str(said), said))
                    rows.append([Cell(owner), Cell(names[c]), *sizes, *shares])
        sections.append(rows)
    first = ["Client", "Classes", "Test nodes"] if whole else ["Client", "Class", "Test nodes", "Called so"]
    headers = [*first, *(TITLES[name] for name in OF_A_CLASS)]
    what = "Plain means over the classes that occur at a client" if whole else "Every class at every client"
    note = f"{what}, seed {run.seed}, in percent with 95 % intervals. A dash: there is no node to measure on."
    return Table("by-client", headers, [rows for rows in sections if rows], note)


def at_alerts(group: Group) -> Table | None:
    """Precision and recall if so many nodes of a class are looked at. None if it was not measured."""
    rankings = [run.ranking for run in group.runs if run.ranking is not None]
    if not rankings:
        return None
    order = class_order(group.first.partition["class_sizes"])[1:]  # nobody is alerted to the usual class
    chosen, names = order[-MOST_ALERTED:], class_names(group.first)
    steps = _steps([c for one in rankings for c in one["classes"]])
    rows = [_alert_row(names[c], [one["classes"][c] for one in rankings], steps) for c in chosen]
    known = [one["tiers"] for one in rankings if "tiers" in one]
    tiers = [_alert_row(f"{tier} classes", [one[tier] for one in known], steps) for tier in TIERS if known]
    sections = [[row for row in part if row] for part in (rows, tiers)]
    if not sections[0] or not steps:
        return None
    left = len(order) - len(chosen)
    note = (
        "Precision / recall in percent if the nodes with the highest scores of a class are looked at: of so "
        "many alerts, how many are right, and how many of the class they find. The largest class is left out"
        f"{f', and the {left} next ones' if left else ''}."
    )
    if sections[1]:
        note += " Last rows: the classes of a tier together, by the probability of being in any of them."
    headers = ["Class", "Test nodes", *(f"{k:,} alerts" for k in steps)]
    return Table("at-alerts", headers, [part for part in sections if part], note)


def alerts_at_clients(group: Group) -> Table | None:
    """The same at every client, of all classes but the largest together, in the first run. None without."""
    run = group.first
    found = (run.ranking or {}).get("client_alerts")
    if not found:
        return None
    steps = _steps(found)
    rows = [_alert_row(name, [own], steps) for name, own in zip(client_names(run), found, strict=True)]
    note = (
        "Precision / recall in percent if a client looks at so many of its own test nodes: those with the "
        "highest probability of another class than the largest. Cases: test nodes of all other classes."
    )
    kept = [row for row in rows if row]
    headers = ["Client", "Cases", *(f"{k:,} alerts" for k in steps)]
    return Table("alerts-at-clients", headers, [kept], note) if kept and steps else None


def _steps(found: Iterable[Mapping[str, Any]]) -> list[int]:
    """The first numbers of alerts."""
    return sorted({int(k) for one in found for k, _ in one["at_alerts"]})[:8]


def _alert_row(name: str, found: Sequence[Mapping[str, Any]], steps: Sequence[int]) -> list[Cell]:
    """A name, the number of nodes, and precision and recall at each step: means over runs. Empty without."""
    nodes = [one["nodes"] for one in found]
    if not any(nodes):
        return []
    at = [{int(k): f for k, f in one["at_alerts"]} for one in found]
    shares = [[(f[k] / k, f[k] / n) for f, n in zip(at, nodes, strict=True) if n and k in f] for k in steps]
    return [Cell(name), Cell(f"{np.mean(nodes):g}", float(np.mean(nodes))), *map(_pair, shares)]


def _pair(pairs: Sequence[tuple[float, float]]) -> Cell:
    if not pairs:
        return Cell(NOTHING, float("-inf"))
    precision, recall = np.mean(pairs, axis=0)
    return Cell(f"{100 * precision:.0f} / {100 * recall:.0f}", float(recall))


def _share(values: Iterable[float]) -> Cell:
    """A share and both ends of its interval, in percent."""
    value, low, high = (100 * float(each) for each in values)
    cell = measured(value, float("nan"), digits=1)
    return cell if np.isnan(value) else Cell(cell.text, cell.value, f"{low:.0f}-{high:.0f}")
