"""The files of a target: Markdown, LaTeX, CSV and figures in a folder of its own, and what its page shows."""

from __future__ import annotations

import csv
import io
import itertools
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
from fedepd.reproduction.judgement import verdict_lines, verdict_table, verdicts_of
from fedepd.reproduction.results import HEADLINE, METRICS, OPENFGL, Results, Scoring, numbers_csv
from fedepd.reproduction.tables import failure_table, latex, latex_document, metric_tables
from fedepd.reproduction.verdicts import Verdict

TESTED = ("comparison", "ablation")
"""Kinds whose rows are tested against each other."""


@dataclass(frozen=True)
class Written:
    """A target as it was written."""

    results: Results
    folder: Path
    tables: dict[str, Table]
    """By heading, the most important first."""
    more: dict[str, Table]
    """Folded away on the page."""
    verdicts: list[Verdict]
    figures: list[Path]
    """SVG files."""


def write_target(results: Results, out: Path) -> Written:
    """Everything but the page."""
    name, folder = results.target.name, out / results.target.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise BadConfig(f"cannot write to the output folder '{folder}': {cause.strerror}; give another --out") from cause
    tested = {scoring: duels(results, scoring) for scoring in (HEADLINE, OPENFGL)} if results.target.kind in TESTED else {}
    tables, more = tables_of(results, tested.get(HEADLINE, [])), _score_tables(results, OPENFGL, tested[OPENFGL]) if tested else {}
    verdicts = verdicts_of(results)
    if verdicts:
        tables |= {"Why each claim holds or not": verdict_table(verdicts, {d: results.title(d) for d in results.datasets}, name)}
    figures = [save_figure(figure, folder / stem)[-1] for stem, figure in figures_of(results).items()]
    write_bytes(folder / f"{name}.md", _markdown(results, tables | more, figures).encode())
    write_bytes(folder / f"{name}.tex", latex_document([latex(table) for table in (tables | more).values()]).encode())
    write_bytes(folder / f"{name}.csv", numbers_csv(results).encode())
    behind = {"points": points_of(results), "tests": _duel_lines(itertools.chain(*tested.values())), "verdicts": verdict_lines(verdicts)}
    for suffix, lines in behind.items():
        if lines:
            write_bytes(folder / f"{name}-{suffix}.csv", _csv(lines))
    return Written(results, folder, tables, more, verdicts, figures)


def tables_of(results: Results, found: Sequence[Duel]) -> dict[str, Table]:
    """What a target shows as tables, by heading, the most important first."""
    kind, shown = results.target.kind, dict[str, Table]()
    if kind in TESTED:
        shown |= _score_tables(results, HEADLINE, found)
    if kind == "tiers":
        shown |= metric_tables(results, ("tail_acc", "medium_acc", "head_acc"))
    if kind in BY_DATASET:
        shown |= {results.title(d): BY_DATASET[kind](results, d) for d in results.datasets if results.finished(d, references=False)}
    if kind == "distribution" and results.runs:
        shown["Datasets and clients"] = shape_table(results)
    if any(entry.failures for entry in results.entries):
        shown["Cells without a number"] = failure_table(results)
    return shown


def _score_tables(results: Results, scoring: Scoring, found: Sequence[Duel]) -> dict[str, Table]:
    shown = metric_tables(results, METRICS, scoring)
    heading = "Is the difference real?" + (f" ({scoring.words})" if scoring.words else "")
    return shown | ({heading: duel_table(results, found)} if found else {})


def _markdown(results: Results, tables: dict[str, Table], figures: Iterable[Path]) -> str:
    blocks = [f"## {heading}\n\n{markdown(table)}" for heading, table in tables.items()]
    pictures = [f"![{results.target.title}]({figure.with_suffix('.png').name})\n" for figure in figures]
    return "\n".join([f"# {results.target.title}\n", *(pictures + blocks if results.target.kind not in TESTED else blocks + pictures)])


def _duel_lines(found: Iterable[Duel]) -> list[list[object]]:
    header: list[object] = ["scoring", "dataset", "metric", "ours", "against", "seeds", "difference_points"]
    lines = [[*header, "welch_p", "welch_p_holm", "wilcoxon_p", "wilcoxon_p_holm"]]
    for duel in found:
        who = [duel.scoring.name, duel.ours.dataset, duel.metric, duel.ours.row.key, duel.theirs.row.key]
        tests = [duel.outcome.welch_p, duel.welch_p, duel.outcome.wilcoxon_p, duel.wilcoxon_p]
        lines.append([*who, duel.outcome.n, duel.outcome.difference, *tests])
    return lines[1:] and lines


def _csv(lines: Iterable[Sequence[object]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue().encode()
