"""How columns were scaled by what all clients measured together, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Any

from fedepd.report.runs import Group
from fedepd.report.tables import Cell, Table
from fedepd.shown import shown

_NOTE = (
    "Before the first round, the clients added up rows, values and squares of each scaled column, and the "
    "rows of each category. Only the sums are known. –: fewer than {few} rows, so the number was not told."
)


def measured(groups: Sequence[Group]) -> Table | None:
    """The statistics of the first run that has them. None if no run has them."""
    found = [run.summary["statistics"] for each in groups for run in each.runs if "statistics" in run.summary]
    if not found:
        return None
    rows = [_row(each) for each in (*found[0]["columns"], *found[0]["categories"])]
    headers = ["Column", "Rows", "Mean", "Deviation"]
    return Table("measured", headers, [rows], _NOTE.format(few=found[0]["few"]))


def _row(each: Mapping[str, Any]) -> list[Cell]:
    name, rows = shown(each.get("name", f"column {each['column']}")), each["rows"]
    if rows is None:
        return [Cell(name), *[Cell("–")] * 3]
    scaling = [each.get("mean", nan), each.get("deviation", nan)]  # a category has none
    told = [Cell("" if isnan(value) else f"{value:.6g}", value) for value in scaling]
    return [Cell(name), Cell(f"{rows:,}", rows), *told]
