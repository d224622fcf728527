"""The score tables of a target as ``report.tables.Table``, and any such table in LaTeX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fedepd.report.numbers import mean_std
from fedepd.report.runs import Group
from fedepd.report.tables import (
    METRIC_TITLES,
    NOTHING,
    Cell,
    Table,
    marked_label,
    measured,
    protocol_note,
    protocols,
    ranked,
)
from fedepd.reproduction.judging.paper import Printed, paper_table2, paper_table3
from fedepd.reproduction.study.results import HEADLINE, MADE, PROXY, Entry, Results, Scoring, is_made
from fedepd.shown import latex_label, latex_text, sentence, shown

HEADINGS = {"bacc": "Balanced accuracy", "macro_f1": "Macro-F1", "acc": "Accuracy"}
HEADINGS |= {"head_acc": "Head accuracy", "medium_acc": "Medium accuracy", "tail_acc": "Tail accuracy"}
PRINTED_ROWS = {"fedepd:printed": "fedepd"}
PRINTED_ROWS |= {
    "fedepd:printed:consensus=False": "fedepd:without_consensus",
    "fedepd:printed:purify=False": "fedepd:without_purification",
}
PRINTED_ROWS |= {"fedepd:printed:recalibrate=False": "fedepd:without_recalibration"}
"""Rows that follow the paper's text -> the rows of the paper's tables they are compared with."""
WHY = 400
"""Most characters of a reason in a table."""
WORDY = 45
"""A LaTeX column wraps if one of its cells has more characters than this."""
ROWS, WRAPPED_ROWS = 36, 15
"""How many rows a landscape page holds, and how many if they wrap."""
_WRAPPED = r">{\raggedright\arraybackslash}X"


def metric_tables(results: Results, metrics: Sequence[str], scoring: Scoring = HEADLINE) -> dict[str, Table]:
    """Heading -> table: one table per metric with a column per dataset, or one table of all metrics for
    one dataset."""
    how = f", {scoring.words}" if scoring.words else ""
    if len(results.datasets) == 1:
        columns = {METRIC_TITLES[metric]: (results.datasets[0], metric) for metric in metrics}
        return {
            results.title(results.datasets[0], words=True) + how: _score_table(
                results, columns, scoring, "all", "Higher is better. bAcc is the balanced accuracy."
            )
        }
    tables = {}
    for metric in metrics:
        columns = {results.title(dataset): (dataset, metric) for dataset in results.datasets}
        tables[HEADINGS[metric] + how] = _score_table(
            results, columns, scoring, metric, f"{METRIC_TITLES[metric]}, higher is better."
        )
    return tables


def _score_table(
    results: Results, columns: Mapping[str, tuple[str, str]], scoring: Scoring, name: str, start: str
) -> Table:
    """A line per row of the target, with references in a block of their own.

    The paper's value is in brackets where it can be compared.
    """
    paper = paper_table3() if results.target.kind == "ablation" else paper_table2()
    found = {(entry.dataset, entry.row.key): entry for entry in results.entries}
    contest, references = list[list[Cell]](), list[list[Cell]]()
    for row in results.target.rows:
        entries = [(found[dataset, row.key], metric) for dataset, metric in columns.values()]
        runs = tuple(run for entry, _ in entries for run in entry.runs.values())
        called = shown(row.label) + (" (reference)" if row.reference else "")
        label = Cell(marked_label(Group(called, runs), scoring.model))
        cells = [
            _score(entry, entry.values(metric, scoring), _printed(results, entry, metric, paper))
            for entry, metric in entries
        ]
        (references if row.reference else contest).append([label, *cells])
    sections = [section for section in (ranked(contest, range(1, len(columns) + 1)), references) if section]
    return Table(
        f"{results.target.name}-{scoring.name}-{name}",
        ["Method", *columns],
        sections,
        note(results, start, scoring),
    )


def note(results: Results, start: str, scoring: Scoring | None = HEADLINE, marked: bool = True) -> str:
    """The note under a table: how its numbers were measured.

    ``scoring`` is None if they are not test scores.
    """
    groups = [entry.group for entry in results.entries if entry.runs]
    if not groups:
        return f"{start} Nothing has been run yet."
    parts = [
        start,
        protocol_note(groups, scoring.model, scoring.average, marked) if scoring else protocols(groups),
    ]
    if all(run.config["experiment"]["partition"].get("shuffle_nodes") for run in results.runs):
        parts.append("The seed changes ties in the partition, the split, the initial weights and dropout.")
    if marked and any(entry.row.reference for entry in results.entries):
        parts.append("References are not ranked.")
    if marked and scoring and any(results.is_official(dataset) for dataset in results.datasets):
        parts.append("In brackets: the paper's value.")
    if scoring and scoring.select:
        parts.append(f"Here {scoring.words}, whatever the protocol says.")
    if any(results.is_proxy(dataset) for dataset in results.datasets):
        parts.append(f"{PROXY.strip()} Proxy features.")
    if any(map(is_made, results.datasets)):
        parts.append(f"{MADE.strip()} Down-sampled: the long tail was made by dropping nodes.")
    return " ".join(parts)


def failure_table(results: Results) -> Table:
    """Every cell without a run, and the reason."""
    rows = [
        [
            Cell(results.title(entry.dataset)),
            Cell(shown(entry.row.label)),
            Cell(str(seed), float(seed)),
            Cell(sentence(why, WHY)),
        ]
        for entry in results.entries
        for seed, why in entry.failures.items()
    ]
    return Table(
        f"{results.target.name}-failures", ["Dataset", "Method", "Seed", "Why there is no result"], [rows]
    )


def latex(table: Table) -> str:
    """The table in LaTeX, for booktabs. Columns of sentences wrap (tabularx), and the note is the caption.

    A table that is too long for a page continues in a second float.
    """
    columns = list(zip(*[row for section in table.sections for row in section], strict=True)) or [()] * len(
        table.headers
    )
    kinds = [_column_type(column) for column in columns]
    wraps = _WRAPPED in kinds
    opening = (
        rf"\begin{{tabularx}}{{\linewidth}}{{{''.join(kinds)}}}"
        if wraps
        else rf"\begin{{tabular}}{{{''.join(kinds)}}}"
    )
    closing = r"\end{tabularx}" if wraps else r"\end{tabular}"
    header = _first(" & ".join(latex_text(header) for header in table.headers)) + r" \\"
    floats = []
    for number, sections in enumerate(_pages(table.sections, WRAPPED_ROWS if wraps else ROWS)):
        body = [line for section in sections for line in (r"\midrule", *map(_tex_row, section))]
        caption = [rf"\caption{{{latex_text(table.note)}}}", rf"\label{{tab:{latex_label(table.name)}}}"]
        caption = [r"\caption*{(continued)}"] if number else caption
        frame = [
            r"\begin{table*}[p]" if number else r"\begin{table*}[t]",
            r"\centering\footnotesize\setlength{\tabcolsep}{3pt}",
            *caption,
        ]
        floats += [*frame, opening, r"\toprule", header, *body, r"\bottomrule", closing, r"\end{table*}", ""]
    return "\n".join(floats)


def _column_type(column: Sequence[Cell]) -> str:
    if any(len(cell.text) > WORDY for cell in column):
        return _WRAPPED
    return "r" if any(cell.value is not None for cell in column) else "l"


def _pages(sections: Sequence[list[list[Cell]]], rows: int) -> list[list[list[list[Cell]]]]:
    """The sections in pages of at most ``rows`` rows each.

    A longer section is cut. There is at least one page.
    """
    pages: list[list[list[list[Cell]]]] = [[]]
    for section in sections:
        for start in range(0, len(section), rows):
            piece = section[start : start + rows]
            if pages[-1] and sum(map(len, pages[-1])) + len(piece) > rows:
                pages.append([])
            pages[-1].append(piece)
    return pages


def _tex_row(row: Sequence[Cell]) -> str:
    styles = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")
    spreads = [rf"{{\scriptsize {latex_text(cell.spread)}}}" if cell.spread else "" for cell in row]
    cells = " & ".join(
        styles[cell.rank].format(latex_text(cell.text)) + spread
        for cell, spread in zip(row, spreads, strict=True)
    )
    return f"{_first(cells)} \\\\"


def _first(line: str) -> str:
    """Protect a line that starts with a bracket or a star: LaTeX would take it as an option of the line
    before."""
    return f"{{}}{line}" if line.lstrip().startswith(("[", "*")) else line


def latex_document(tables: Sequence[str]) -> str:
    """The tables in a document that compiles as it stands."""
    opening = [r"\documentclass{article}", r"\usepackage[T1]{fontenc}", r"\usepackage[utf8]{inputenc}"]
    opening += [
        r"\usepackage[a4paper,landscape,margin=1.5cm]{geometry}",
        r"\usepackage{booktabs,caption,tabularx}",
    ]
    # LaTeX holds only 52 tables without text between them.
    opening += [r"\extrafloats{500}", r"\begin{document}"]
    return "\n".join([*opening, *tables, r"\end{document}", ""])


def _printed(results: Results, entry: Entry, metric: str, paper: Printed) -> float | None:
    """The paper's number for this cell, NaN where it prints OOM.

    None where there is nothing to compare with.
    """
    if not results.is_official(entry.dataset):
        return None
    found = paper.get((entry.dataset, PRINTED_ROWS.get(entry.row.key, entry.row.key), metric))
    return None if found is None else found[0]


def _state(entry: Entry) -> str:
    """Why a row has no run: "not run", "OOM" or "failed"."""
    reasons = [why for why in entry.failures.values() if why != "not run yet"]
    return (
        "not run" if not reasons else "OOM" if all("memory" in why.lower() for why in reasons) else "failed"
    )


def _score(entry: Entry, values: Mapping[int, float], printed: float | None) -> Cell:
    beside = "" if printed is None else " [OOM]" if math.isnan(printed) else f" [{printed:.2f}]"
    if not entry.runs:
        state = _state(entry)
        return Cell(NOTHING, -math.inf, f" {state}{beside}")
    cell = measured(*mean_std(values.values()))
    count = f" ({len(entry.runs)} of {len(entry.runs) + len(entry.failures)} seeds)" if entry.failures else ""
    return Cell(cell.text, cell.value, f"{cell.spread}{count}{beside}")
