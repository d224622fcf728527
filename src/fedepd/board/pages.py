"""The board's pages in HTML. Figures come later, by the page's script; so nothing here waits for a plot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import urlencode

from fedepd.board import tables
from fedepd.board.catalogue import Entry
from fedepd.report.tables import METRIC_WORDS, NOTHING, Table, html_table
from fedepd.shown import html_text

STATES = {"finished": "finished", "running": "running", "stopped": "stopped", "refused": "cannot be read"}


def address(path: str, **query: str | Sequence[str]) -> str:
    """A link of the board, fit for an attribute."""
    return html_text(f"{path}?{urlencode(query, doseq=True)}" if query else path)


def document(title: str, content: Iterable[str], crumbs: Sequence[tuple[str, str]] = ()) -> str:
    """A whole page. Its scripts and styles are files of their own, so that no inline script is allowed."""
    links = "".join(f'<a href="{link}">{html_text(text)}</a>' for link, text in crumbs)
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{html_text(title)}</title>
<link rel="stylesheet" href="/page.css"><link rel="stylesheet" href="/board.css">
<script src="/plotly.js" defer></script><script src="/page.js" defer></script>
<script src="/board.js" defer></script>
</head>
<body>
<header><nav class="crumbs"><a href="/">All runs</a><a href="/new">New run</a>{links}</nav>
<h1>{html_text(title)}</h1></header>
<main>
{"".join(content)}
</main>
</body>
</html>
"""


def said(text: str, warned: bool = False) -> str:
    return f'<p class="{"warned" if warned else "note"}">{html_text(text)}</p>'


def with_csv(table: Table, link: str) -> str:
    """A table, and a link to take it away."""
    return f'{html_table(table)}<p class="note"><a href="{link}" download>Table as CSV</a></p>'


# --- the list -----------------------------------------------------------------------------------------------


def list_page(entries: Sequence[Entry], folder: str, failures: Mapping[str, str]) -> str:
    heads = ["", "Run", "Method", "Data", "Seed", "Round", *METRIC_WORDS.values(), "State"]
    head = "".join(f'<th scope="col">{html_text(word[:1].upper() + word[1:])}</th>' for word in heads)
    rows = "".join(map(row_html, entries))
    empty = "" if entries else said("There is no run here yet. 'New run' starts one.")
    studies = studies_of(entries)
    links = "".join(
        f'<li><a href="{address("/study", folder=name)}">{html_text(name or "all of this folder")}</a> '
        f"{done} of {count} finished</li>"
        for name, (done, count) in studies.items()
    )
    counts = ", ".join(
        f"{sum(each.state == state for each in entries)} {word}"
        for state, word in STATES.items()
        if any(each.state == state for each in entries)
    )
    return document(
        f"Runs in {folder}",
        [
            f'<p id="counts">{html_text(counts)}</p>',
            *(said(f"{name}: {why}", warned=True) for name, why in failures.items()),
            empty,
            f'<h3>Studies</h3><ul class="facts">{links}</ul>' if links else "",
            '<form action="/compare" method="get">',
            '<div class="scroll"><table class="sortable runs" data-name="runs" data-events="/events">'
            f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>",
            '<p class="actions"><button type="submit">Compare the runs that are ticked</button> '
            '<a href="/table.csv?table=runs" download>Table as CSV</a></p></form>',
            said(
                "Scores are the headline model's on test nodes, percent, as the run's summary says. "
                "Opening a run checks them against its confusion matrices."
            ),
        ],
    )


def studies_of(entries: Sequence[Entry]) -> dict[str, tuple[int, int]]:
    """Folders with two runs or more: how many are finished, and how many there are."""
    found: dict[str, list[Entry]] = {}
    for each in entries:
        found.setdefault(each.study, []).append(each)
    return {
        name: (sum(each.state == "finished" for each in own), len(own))
        for name, own in found.items()
        if len(own) > 1
    }


def row_html(entry: Entry) -> str:
    """A run in the list. The page's script puts it in the place of the row before."""
    link = address("/run", run=entry.id)
    box = (
        f'<input type="checkbox" name="run" value="{html_text(entry.id)}" '
        f'aria-label="compare {html_text(entry.name)}"{"" if entry.state == "finished" else " disabled"}>'
    )
    scores = "".join(
        f'<td class="number" data-value="{-1 if value is None else value:.6f}">'
        f"{NOTHING if value is None else f'{100 * value:.1f}'}</td>"
        for value in (entry.scores or (None,) * len(METRIC_WORDS))
    )
    method = entry.method if entry.preset in ("", "default") else f"{entry.method}, {entry.preset}"
    state = f'<span class="state {entry.state}">{STATES[entry.state]}</span>'
    return (
        f'<tr data-id="{html_text(entry.id)}"><td>{box}</td>'
        f'<td><a href="{link}">{html_text(entry.name)}</a></td>'
        f"<td>{html_text(method)}</td><td>{html_text(entry.data)}</td>"
        f'<td class="number" data-value="{entry.seed}">{entry.seed}</td>'
        f'<td class="number" data-value="{entry.done}">{entry.done}/{entry.rounds}</td>'
        f"{scores}<td>{state}</td></tr>"
    )


# --- one run, several, a study ------------------------------------------------------------------------------


def run_page(
    entry: Entry,
    found: Sequence[Table],
    facts: Sequence[tuple[str, str]],
    buttons: str,
    warnings: Iterable[str],
) -> str:
    items = "".join(f"<li>{html_text(name)} <b>{html_text(value)}</b></li>" for name, value in facts)
    live = address("/events", run=entry.id)
    return document(
        entry.name,
        [
            f'<ul class="facts"><li><span class="state {entry.state}" id="state">'
            f"{STATES[entry.state]}</span></li>"
            f'<li>round <b id="round">{entry.done}</b> of <b>{entry.rounds}</b></li>{items}</ul>',
            buttons,
            *(said(text, warned=True) for text in warnings),
            f'<section id="live" class="charts" data-events="{live}" data-state="{entry.state}"></section>',
            '<section id="figures" class="charts" '
            f'data-figures="{address("/figures", run=entry.id)}"></section>',
            *(
                f"<h3>{html_text(TITLES.get(table.name, 'Test scores'))}</h3>"
                + with_csv(table, address("/table.csv", run=entry.id, table=table.name))
                for table in found
            ),
        ],
        [(address("/study", folder=entry.study), entry.study or "Grid")],
    )


TITLES = {
    "by-class": "Classes",
    "clients": "Clients",
    "cost": "Cost",
    "sites": "Sites",
    "differences": "Differences",
}


def refused_page(entry: Entry, why: str) -> str:
    return document(entry.name, [said(why, warned=True)])


def compare_page(names: Sequence[str], found: Sequence[Table], answer: Sequence[str]) -> str:
    return document(
        f"{len(names)} runs side by side",
        [
            *(f"<p>{html_text(line)}</p>" for line in answer),
            *(
                f"<h3>{html_text(TITLES.get(table.name, 'Test scores'))}</h3>"
                + with_csv(table, address("/table.csv", compare=names, table=table.name))
                for table in found
            ),
            '<section id="figures" class="charts" '
            f'data-figures="{address("/figures", compare=names)}"></section>',
        ],
    )


def study_page(entries: Sequence[Entry], folder: str) -> str:
    return document(
        f"Study {folder}" if folder else "Grid of this folder",
        [
            f'<div id="grid" data-events="{address("/events", study=folder)}">',
            f"{grid_html(entries, folder)}</div>",
            f'<p class="actions"><a href="{address("/compare", study=folder)}">Compare all finished runs</a> '
            f'<a href="{address("/table.csv", study=folder, table="grid")}" download>Table as CSV</a></p>',
        ],
    )


def grid_html(entries: Sequence[Entry], folder: str) -> str:
    own = [each for each in entries if each.study == folder]
    done = sum(each.state == "finished" for each in own)
    running = sum(each.state == "running" for each in own)
    counted = said(f"{done} of {len(own)} begun runs are finished, {running} are running.")
    return counted + html_table(tables.grid(own))


def mistake_page(text: str) -> str:
    return document("That did not work", [said(text, warned=True)])
