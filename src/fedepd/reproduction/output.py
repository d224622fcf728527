"""The files of a target: Markdown, LaTeX, CSV and figures in a folder of its own, and what its page shows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedepd.errors import BadConfig
from fedepd.record import write_bytes
from fedepd.report.tables import Table, markdown
from fedepd.reproduction.comparisons import Duel, duel_table, duels
from fedepd.reproduction.drawing import save_figure
from fedepd.reproduction.figure_tables import BY_DATASET, shape_table
from fedepd.reproduction.illustrations import figures_of, points_of
from fedepd.reproduction.results import METRICS, Results, numbers_csv
from fedepd.reproduction.tables import failure_table, latex, latex_document, metric_tables

TESTED = ("comparison", "ablation")
"""Kinds whose rows are tested against each other."""


@dataclass(frozen=True)
class Written:
    """A target as it was written."""

    results: Results
    folder: Path
    tables: dict[str, Table]
    """By heading."""
    figures: list[Path]
    """SVG files."""


def write_target(results: Results, out: Path) -> Written:
    """Everything but the page."""
    name, folder = results.target.name, out / results.target.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise BadConfig(f"cannot write to the output folder '{folder}': {cause.strerror}; give another --out") from cause
    found = duels(results) if results.target.kind in TESTED else []
    tables = tables_of(results, found)
    blocks = [f"## {heading}\n\n{markdown(table)}" for heading, table in tables.items()]
    figures = [save_figure(figure, folder / stem)[-1] for stem, figure in figures_of(results).items()]
    pictures = [f"![{results.target.title}]({figure.with_suffix('.png').name})\n" for figure in figures]
    write_bytes(folder / f"{name}.md", "\n".join([f"# {results.target.title}\n", *pictures, *blocks]).encode())
    write_bytes(folder / f"{name}.tex", latex_document([latex(table) for table in tables.values()]).encode())
    write_bytes(folder / f"{name}.csv", numbers_csv(results).encode())
    for suffix, lines in {"points": points_of(results), "tests": _duel_lines(found)}.items():
        if lines:
            write_bytes(folder / f"{name}-{suffix}.csv", _csv(lines))
    return Written(results, folder, tables, figures)


def tables_of(results: Results, found: Sequence[Duel]) -> dict[str, Table]:
    """What a target shows as tables, by heading, the most important first."""
    kind, shown = results.target.kind, dict[str, Table]()
    metrics = METRICS if kind in TESTED else ("tail_acc", "medium_acc", "head_acc") if kind == "tiers" else ()
    shown |= metric_tables(results, metrics) if metrics else {}
    if found:
        shown["Is the difference real?"] = duel_table(results, found)
    if kind in BY_DATASET:
        shown |= {results.title(d): BY_DATASET[kind](results, d) for d in results.datasets if results.finished(d, references=False)}
    if kind == "distribution" and results.runs:
        shown["Datasets and clients"] = shape_table(results)
    if any(entry.failures for entry in results.entries):
        shown["Cells without a number"] = failure_table(results)
    return shown


def _duel_lines(found: Iterable[Duel]) -> list[list[object]]:
    header: list[object] = ["dataset", "metric", "ours", "against", "seeds", "difference_points"]
    lines = [[*header, "welch_p", "welch_p_holm", "wilcoxon_p", "wilcoxon_p_holm"]]
    for duel in found:
        who = [duel.ours.dataset, duel.metric, duel.ours.row.key, duel.theirs.row.key]
        tests = [duel.outcome.welch_p, duel.welch_p, duel.outcome.wilcoxon_p, duel.wilcoxon_p]
        lines.append([*who, duel.outcome.n, duel.outcome.difference, *tests])
    return lines[1:] and lines


def _csv(lines: Iterable[Sequence[object]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue().encode()
