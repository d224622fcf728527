"""One self-contained page with everything that was reproduced. It makes no network request."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from fedepd.report.document import document, section, write_page
from fedepd.report.footer import footer
from fedepd.report.runs import Group
from fedepd.report.tables import Table, html_table, protocols
from fedepd.reproduction.judging.judgement import glance_table, in_words
from fedepd.reproduction.judging.verdicts import OPEN
from fedepd.reproduction.pages.output import TESTED, Written
from fedepd.reproduction.study.results import HEADLINE, OPENFGL
from fedepd.shown import html_text, slug

PIXELS_PER_POINT = 1.9
"""The size of a figure on the page. A figure of page width fills the page."""


def write_reproduction(written: Sequence[Written], target: Path, command: str) -> Path:
    """Write the page of one target, or of several with links to each."""
    alone = len(written) == 1
    links = {} if alone else {each.results.target.name: each.results.target.title for each in written}
    judged = any(each.results.target.shipped for each in written)
    links |= {"verdicts": "What holds"} if judged else {}
    title = written[0].results.target.title if alone else "FedEPD reproduced: every table and figure"
    groups = _groups(written)
    foot = footer(groups) if groups else '<footer id="protocol"><p>Nothing has been run yet.</p></footer>'
    write_page(
        target,
        document(
            title,
            _scope(written, command),
            links,
            [*(_section(each, alone) for each in written), *([_verdicts(written)] if judged else [])],
            foot,
        ),
    )
    return target


def _scope(written: Sequence[Written], command: str) -> str:
    runs = {run.path for each in written for run in each.results.runs}
    missing = {
        (entry.dataset, entry.row.key, seed)
        for each in written
        for entry in each.results.entries
        for seed in entry.failures
    }
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    gap = f" ({len(missing)} more have no result)" if missing else ""
    kept = {run.path: run.kept_in for each in written for run in each.results.runs if run.kept_in}
    only = (
        f" Of {len(kept)} of them only the scores are kept, in {next(iter(kept.values()))}." if kept else ""
    )
    return f"{count}{gap} on {', '.join(_titles(written, words=True).values())}.{only} Made by: {command}"


def _titles(written: Sequence[Written], words: bool = False) -> dict[str, str]:
    """Dataset -> its longest title.

    A target without a run does not know that a dataset has proxy features.
    """
    found: dict[str, str] = {}
    for results in (each.results for each in written):
        found |= {
            name: max(found.get(name, ""), results.title(name, words), key=len) for name in results.datasets
        }
    return found


def _verdicts(written: Sequence[Written]) -> str:
    """All claims at a glance, for FedEPD as we read it and as printed."""
    found = [verdict for each in written for verdict in each.verdicts]
    counted = (
        "<p>Each of the paper's claims is judged on each dataset and for both readings of FedEPD: "
        f"{html_text(in_words(found))}.{_otherwise(written)}</p>"
    )
    if not found:
        content = "<p>None of the paper's claims can be tested with these rows.</p>"
    else:
        told = {(each.claim.id, each.row) for each in found if each.outcome != OPEN}
        clear = [each for each in found if (each.claim.id, each.row) in told]
        rest = [each for each in found if (each.claim.id, each.row) not in told]
        first, second = (html_table(glance_table(part, _titles(written))) for part in (clear, rest))
        content = counted + (first if clear else "")
        count = _claims(len({(each.claim.id, each.row) for each in rest}))
        title = f"<summary>{count} about which nothing can be told</summary>"
        content += f"<details>{title}{second}</details>" if rest else ""
    return f'<section><h2 id="verdicts">What holds</h2>{content}</section>\n'


def _claims(count: int) -> str:
    return "1 claim" if count == 1 else f"{count} claims"


def _otherwise(written: Sequence[Written]) -> str:
    """The count of verdicts by our scores and by OpenFGL's, for the targets that have both."""
    twice = [each for each in written if each.judged.get(OPENFGL)]
    if not twice:
        return ""
    ours, theirs = (
        [verdict for each in twice for verdict in each.judged[scoring]] for scoring in (HEADLINE, OPENFGL)
    )
    if len(written) == 1:
        words = OPENFGL.words[0].upper() + OPENFGL.words[1:]
        return html_text(f" {words}, {in_words(theirs)}.")
    names = " and ".join(each.results.target.name for each in twice)
    return html_text(
        f" For {names} alone: by our scores {in_words(ours)}; {OPENFGL.words}, {in_words(theirs)}."
    )


def _section(written: Written, alone: bool) -> str:
    """A target. If it is the only one, the page has its title already."""
    target = written.results.target
    groups = [entry.group for entry in written.results.entries if entry.runs]
    said = f" {protocols(groups)}" if groups else ""  # the end of the page says it
    figures = "".join(_figure(path, target.title) for path in written.figures)
    folds = [
        f"<details><summary>{html_text(fold)}</summary>{_tables(tables, said)}</details>"
        for fold, tables in written.more.items()
    ]
    shown = [figures, _tables(written.tables, said)]
    files = ", ".join(sorted(path.name for path in written.folder.iterdir() if path.suffix != ".part"))
    note = f'<p class="note">Files in the folder {html_text(written.folder.name)}: {html_text(files)}.</p>'
    words = "".join(f"<p>{html_text(each)}</p>" for each in written.words)
    content = "".join([words, *(reversed(shown) if target.kind in TESTED else shown), *folds, note])
    head = "" if alone else f'<h2 id="{slug(target.name)}">{html_text(target.title)}</h2>'
    return f"<section>{head}{content}</section>\n"


def _tables(tables: Mapping[str, Table], said: str) -> str:
    """The tables, without what the page says elsewhere."""
    return "".join(
        section(heading, html_table(replace(table, note=table.note.replace(said, ""))))
        for heading, table in tables.items()
    )


def _figure(path: Path, title: str) -> str:
    """The figure as an image, so that ids inside one SVG cannot clash with those of another."""
    content = path.read_bytes()
    found = re.search(rb'width="([\d.]+)pt"', content)
    width = f' width="{float(found[1]) * PIXELS_PER_POINT:.0f}"' if found else ""
    source = f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"
    names = f'alt="{html_text(title)}" data-name="{html_text(path.stem)}"'
    return f'<figure><div><img{width} {names} src="{source}"></div></figure>'


def _groups(written: Sequence[Written]) -> list[Group]:
    """The groups of all targets. Groups with the same runs appear once."""
    groups = [entry.group for each in written for entry in each.results.entries if entry.runs]
    return list({tuple(run.path for run in group.runs): group for group in reversed(groups)}.values())[::-1]
