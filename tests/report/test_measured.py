"""The table of what clients measured together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedepd
from fedepd.datasets.synthetic import synthetic
from fedepd.report.measured import measured
from fedepd.report.page import build_report
from fedepd.report.runs import group, read_runs

COLUMN = {"total": "0x1", "squares": "0x1"}
STATISTICS = {
    "clients": [0, 1],
    "few": 5,
    "columns": [
        {"column": 0, "name": "age", "rows": 1600, "mean": 46.626875, "deviation": 14.1141, **COLUMN},
        {"column": 1, "rows": None, "mean": 0.0, "deviation": 1.0, **COLUMN},
    ],
    "categories": [{"column": 2, "name": "segment = <private>", "rows": 12}],
}


@pytest.mark.usefixtures("no_figures")
def test_columns_by_name_and_what_was_not_told(tmp_path: Path) -> None:
    graph = synthetic(nodes=80, edges=200, classes=3, imbalance=4.0, smallest=None, features=6, communities=4)
    fedepd.run(graph, "fedavg", out=tmp_path / "a", rounds=1, clients=2, hidden=4)
    assert measured(group(read_runs(tmp_path))) is None
    path = tmp_path / "a" / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "statistics": STATISTICS}))
    table = measured(group(read_runs(tmp_path)))
    assert table is not None
    assert [[cell.text for cell in row] for row in table.sections[0]] == [
        ["age", "1,600", "46.6269", "14.1141"],
        ["column 1", "–", "–", "–"],
        ["segment = <private>", "12", "", ""],
    ]
    page = build_report(tmp_path).read_text()
    assert "What the clients measured together" in page
    assert "segment = &lt;private&gt;" in page
