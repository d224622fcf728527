"""The files of a target: Markdown, LaTeX, CSV and figures in a folder of its own."""

from __future__ import annotations

from pathlib import Path

from fedepd.record import write_bytes
from fedepd.report.tables import Table, markdown
from fedepd.reproduction.results import METRICS, Results, numbers_csv
from fedepd.reproduction.tables import failure_table, latex, latex_document, metric_table


def tables_of(results: Results) -> list[Table]:
    """What a target shows as tables, the most important first."""
    shown = [metric_table(results, metric) for metric in METRICS] if results.target.kind in ("comparison", "ablation") else []
    if any(entry.failures for entry in results.entries):
        shown.append(failure_table(results))
    return shown


def write_target(results: Results, out: Path) -> Path:
    """Everything but the page; returns the target's folder."""
    name = results.target.name
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    tables = tables_of(results)
    title = f"# {results.target.title}\n\n"
    write_bytes(folder / f"{name}.md", (title + "\n".join(markdown(table) for table in tables)).encode())
    write_bytes(folder / f"{name}.tex", latex_document([latex(table, table.name) for table in tables]).encode())
    write_bytes(folder / f"{name}.csv", numbers_csv(results).encode())
    return folder
