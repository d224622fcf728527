"""The board's own tables, in the form that a report's have: on a page as HTML, to take away as CSV."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fedepd.board.catalogue import Entry
from fedepd.board.charts import client_labels
from fedepd.report import decisions, tables
from fedepd.report.against import Pair, told_cells
from fedepd.report.paired import FEWEST_PAIRS
from fedepd.report.runs import Group, Run, by_dataset
from fedepd.report.tables import METRIC_WORDS, NOTHING, Cell, Table
from fedepd.runs.folder import CLIENTS, ROUNDS, read_rounds
from fedepd.shown import csv_text, listed, plain, shown

MOST_DIFFERING = 4
"""Most settings that a row of a grid is called by."""
HELD = ("nodes", "edges", "train", "val", "test", "classes")


def of_run(group: Group) -> list[Table]:
    """The tables of a finished run."""
    found = [
        tables.summary([group]),
        decisions.by_class(group),
        tables.clients([group]),
        tables.cost([group]),
    ]
    return [*found, *([sites(group.first)] if group.first.deployed else [])]


def before_the_end(run: Run) -> list[Table]:
    """The tables of a run that is not finished."""
    if not (run.path / CLIENTS).is_file():
        return []
    clients = run.clients
    names = client_labels(run, len(clients))
    rows = [
        [Cell(name), *(Cell(f"{client[key]:,}", client[key]) for key in HELD)]
        for name, client in zip(names, clients, strict=True)
    ]
    held = Table("clients", ["Client", *(word.capitalize() for word in HELD)], [rows])
    return [held, *([sites(run)] if run.deployed else [])]


def sites(run: Run) -> Table:
    """How each site of a federation takes part, as far as the coordinator's folder says."""
    lines = read_rounds(run.path) if (run.path / ROUNDS).is_file() else []
    clients = run.clients
    trained = sum(client["train"] for client in clients)
    rows = []
    for k, name in enumerate(run.config["sites"]):
        state, why = site_state(k, lines)
        answered = sum(k in line.get("clients", ()) for line in lines)
        refused = sum(_is_refused(k, line, absent=False) for line in lines)
        late = sum(_is_refused(k, line, absent=True) for line in lines)
        weight = clients[k]["train"] / trained if trained and k < len(clients) else None
        rows.append(
            [
                Cell(shown(name)),
                Cell(state),
                Cell(f"{answered:,} of {len(lines):,}", answered),
                Cell(f"{late:,}", late),
                Cell(f"{refused:,}", refused),
                Cell(NOTHING, -1.0) if weight is None else Cell(f"{100 * weight:.1f}", weight),
                Cell(shown(why, 200) or NOTHING),
            ]
        )
    headers = [
        "Site",
        "Last round",
        "Rounds answered",
        "Late",
        "Refused",
        "Share of training nodes, %",
        "Why",
    ]
    note = (
        "From the rounds that the coordinator has written. Late: asked, and no answer in time. "
        "A site that went away since the last round is not known here; 'fedepd federation status' asks it."
    )
    if not trained:
        note += " The server does not know the share of a site here: it saw sums over all sites only."
    return Table("sites", headers, [rows], note)


def site_state(k: int, lines: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """What a site did in the last round, and the reason given."""
    if not lines:
        return "no round yet", ""
    last = lines[-1]
    excluded = any(k in line.get("excluded", ()) for line in lines)
    own = [each for each in last.get("refused", ()) if each["client"] == k]
    why = f"{own[0]['field']} {own[0]['reason']}" if own else ""
    if excluded:
        return "left out of the run", why
    if k in last.get("clients", ()):
        return "answered", ""
    if own:
        return ("late" if own[0].get("absent") else "refused"), why
    return "not asked", ""


def _is_refused(k: int, line: dict[str, Any], absent: bool) -> bool:
    return any(
        each["client"] == k and bool(each.get("absent", False)) == absent for each in line.get("refused", ())
    )


def differences(groups: Sequence[Group]) -> Table | None:
    """Every row against the first of its dataset; None where no dataset has two."""
    sections = []
    for block in by_dataset(groups):
        pairs = [Pair(other, block[0], "", "") for other in block[1:]]
        sections.append(
            [[Cell(pair.ours.label), Cell(pair.theirs.label), *told_cells(pair)] for pair in pairs]
        )
    sections = [section for section in sections if section]
    if not sections:
        return None
    words = [text for word in METRIC_WORDS.values() for text in (word[0].upper() + word[1:], "Told")]
    note = (
        "Points of the test score, row minus what it is held against, over the seeds that both have. "
        f"±: 95 % t interval, paired by seed. {NOTHING}: it cannot be told, because the interval has both "
        f"signs or there are fewer than {FEWEST_PAIRS} seeds."
    )
    return Table("differences", ["Row", "Held against", *words], sections, note)


Place = tuple[str, int]
"""A dataset and a seed."""
Settings = dict[str, Any]


def grid(entries: Sequence[Entry]) -> Table:
    """A study: one column per dataset and seed. Empty: not begun.

    A method and preset has one row, or one for each of the settings that its runs differ in at a place.
    """
    begun = [each for each in entries if each.state != "refused"]
    columns = sorted({(each.data, each.seed) for each in begun})
    several = len({data for data, _ in columns}) > 1
    methods: dict[tuple[str, str], list[Entry]] = {}
    for each in begun:
        methods.setdefault((each.method, each.preset), []).append(each)
    body = []
    for (method, preset), runs in sorted(methods.items()):
        name = method if preset in ("", "default") else f"{method}, {preset}"
        for words, own in _rows(runs):
            places = _by_place(own)
            body.append(
                [
                    Cell(f"{name}, {words}" if words else name),
                    *(_grid_cell(places.get(c, [])) for c in columns),
                ]
            )
    heads = [f"{data}, seed {seed}" if several else f"seed {seed}" for data, seed in columns]
    note = (
        "Test macro-F1 in percent of finished runs, rounds done of the others. Rows of one method are called "
        "by the settings that differ. Runs that share a place all the same are counted and not averaged. "
        "Empty places have not begun: a folder does not say which runs are still planned."
    )
    return Table("grid", ["Method", *heads], [body], note)


def _by_place(runs: Sequence[Entry]) -> dict[Place, list[Entry]]:
    found: dict[Place, list[Entry]] = {}
    for each in runs:
        found.setdefault((each.data, each.seed), []).append(each)
    return found


def _rows(runs: Sequence[Entry]) -> list[tuple[str, list[Entry]]]:
    """The runs of one method and preset by row, with the words that tell a row from the others.

    Only settings that differ at one place make rows: other datasets often have other ones.
    """
    shared = [own for own in _by_place(runs).values() if len(own) > 1]
    if not shared:
        return [("", list(runs))]
    known = {each.settings: dict(json.loads(each.settings or "[]")) for each in runs}
    found = [_differing([known[each.settings] for each in own]) for own in shared]
    names = list(dict.fromkeys(name for own in found for name in own))
    rows: dict[str, list[Entry]] = {}
    for each in runs:
        rows.setdefault(json.dumps([known[each.settings].get(name) for name in names]), []).append(each)
    ordered = sorted(rows.items(), key=lambda item: [_order(value) for value in json.loads(item[0])])
    return [(_in_words(names, json.loads(values)), own) for values, own in ordered]


def _differing(found: Sequence[Settings]) -> list[str]:
    """The names of the settings that are not the same in all."""
    names = dict.fromkeys(name for each in found for name in each)
    return [name for name in names if any(each.get(name) != found[0].get(name) for each in found)]


def _order(value: Any) -> tuple[int, float, str]:
    """Numbers as numbers."""
    return (0, float(value), "") if isinstance(value, int | float) else (1, 0.0, json.dumps(value))


def _in_words(names: Sequence[str], values: Sequence[Any]) -> str:
    pairs = [
        f"{shown(name.rpartition('.')[2])} = {shown(value, 40)}"
        for name, value in zip(names, values, strict=True)
    ]
    return listed(pairs, MOST_DIFFERING)


def _grid_cell(runs: Sequence[Entry]) -> Cell:
    if not runs:
        return Cell("")
    scores = [each.scores[2] for each in runs if each.scores and each.scores[2] is not None]
    if len(runs) > 1:  # of other settings: a mean of them would be nobody's score
        done = sum(each.state == "finished" for each in runs)
        return Cell(f"{done} of {len(runs)} done")
    only = runs[0]
    if only.state == "finished":
        return Cell(f"{100 * scores[0]:.1f}" if scores else "done")
    return Cell(f"{only.done}/{only.rounds}" + ("" if only.state == "running" else " stopped"))


def listing(entries: Sequence[Entry]) -> Table:
    """The list of runs."""
    rows = []
    for each in entries:
        words = [each.name, each.method, each.preset, each.data]
        scores = each.scores or (None,) * len(METRIC_WORDS)
        rows.append(
            [
                *map(Cell, words),
                *(Cell(str(number), number) for number in (each.seed, each.done, each.rounds)),
                *(Cell(NOTHING) if v is None else Cell(f"{100 * v:.2f}", v) for v in scores),
                Cell(each.state),
            ]
        )
    heads = ["Run", "Method", "Preset", "Data", "Seed", "Rounds done", "Rounds"]
    return Table("runs", [*heads, *(word.capitalize() for word in METRIC_WORDS.values()), "State"], [rows])


def as_csv(table: Table) -> str:
    """The table's cells; a spread stands behind its value in the same cell."""
    rows = [[f"{cell.text} {cell.spread}".strip() for cell in row] for part in table.sections for row in part]
    return csv_text([table.headers, *rows], plain)
