"""Run folders come in; tables, figures and one self-contained page come out. Imports no training code."""

from __future__ import annotations

from fedepd.report.page import build_report
from fedepd.report.runs import Group, Run, group, read_run, read_runs, unfinished
from fedepd.report.tables import markdown_table, rich_table

__all__ = [
    "Group",
    "Run",
    "build_report",
    "group",
    "markdown_table",
    "read_run",
    "read_runs",
    "rich_table",
    "unfinished",
]
