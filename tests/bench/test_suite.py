"""The table of the benchmark, and how it reads growth off it."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from fedepd.bench import suite


def test_exponents_of_a_known_law() -> None:
    """Seconds = 3 edges^1.5 have the exponent 1.5."""
    rows = [{"axis": "edges", "method": "m", "at": at, "round": 3 * at**1.5} for at in (10, 100, 1000)]
    assert suite.exponents(rows)["edges", "m"] == pytest.approx(1.5)


def test_a_failed_measurement_is_a_row_that_says_so() -> None:
    row = suite.in_process_of_its_own(data="no such graph", method="fedavg", rounds=1)
    assert "no such graph" in row["failed"]


def test_a_table_has_a_column_for_what_any_row_says(tmp_path: Path) -> None:
    suite.write_csv(
        [{"method": "a", "round": 1.5}, {"method": "b", "failed": "no memory"}], tmp_path / "t.csv"
    )
    first, second = csv.DictReader((tmp_path / "t.csv").read_text().splitlines())
    assert first == {"method": "a", "round": "1.5", "failed": ""}
    assert second == {"method": "b", "round": "", "failed": "no memory"}


def test_points_change_along_one_axis() -> None:
    assert suite.points("edges", (10, 20), nodes=5) == [{"nodes": 5, "edges": 10}, {"nodes": 5, "edges": 20}]


def test_lines_of_the_table() -> None:
    lines = suite.lines_of(["lws"], ["mlp", "gat"])
    assert [line.label for line in lines] == ["reference", "lws", "fedavg, mlp", "fedavg, gat"]
    assert [line.settings for line in lines[2:]] == [{"backbone": "mlp"}, {"backbone": "gat"}]
