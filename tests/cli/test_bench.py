"""The benchmark runs, compares with the reference in the same run, and keeps what it measured."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from fedepd.bench import suite
from fedepd.bench.measure import blocks, measure, median
from fedepd.cli import main
from fedepd.network import kernels


def test_blocks_give_every_client_its_own_part() -> None:
    graph = blocks(clients=4, nodes=400, edges=1600, classes=5, features=8)
    assert graph.owner is not None
    src, dst = graph.edge_index
    assert graph.num_nodes == 400
    assert graph.num_edges == 1600
    assert bool((graph.owner[src] == graph.owner[dst]).all())


def test_the_first_round_is_left_out() -> None:
    assert median([9.0, 1.0, 3.0, 2.0]) == 2.0
    assert median([9.0]) == 9.0


def test_a_measurement_adds_up() -> None:
    row = measure(
        {"clients": 2, "nodes": 200, "edges": 600, "classes": 3, "features": 8},
        "fedepd",
        3,
        settings={"partition": "owner"},
    )
    assert row["round"] > 0
    assert row["round"] <= 3 * (row["train"] + row["aggregate"] + row["evaluate"])
    assert row["rss_mb"] > 50


def test_exponents_of_a_known_law() -> None:
    """Seconds = 3 edges^1.5 have the exponent 1.5."""
    rows = [{"axis": "edges", "method": "m", "at": at, "round": 3 * at**1.5} for at in (10, 100, 1000)]
    assert suite.exponents(rows)["edges", "m"] == pytest.approx(1.5)


def test_lines_of_the_table() -> None:
    lines = suite.lines_of(["lws"], ["mlp", "gat"])
    assert [line.label for line in lines] == ["reference", "lws", "fedavg, mlp", "fedavg, gat"]
    assert [line.settings for line in lines[2:]] == [{"backbone": "mlp"}, {"backbone": "gat"}]


def test_a_backbone_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--backbones", "saga"]) == 2
    assert "unknown backbone 'saga'; did you mean 'sage'?" in capsys.readouterr().err


def test_a_failed_measurement_is_a_row_that_says_so() -> None:
    row = suite.in_process_of_its_own(data="no such graph", method="fedavg", rounds=1)
    assert "no such graph" in row["failed"]


@pytest.mark.slow
def test_bench_quick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch_geometric", reason="the reference needs torch_geometric")
    assert main(["bench", "--quick", "--methods", "fedavg", "--rounds", "2", "--out", str(tmp_path)]) == 0
    rows = list(csv.DictReader((tmp_path / "methods.csv").read_text().splitlines()))
    assert [r["method"] for r in rows] == [
        "reference",
        "fedavg",
        *(["fedavg, torch alone"] if kernels.name() == "compiled" else []),
    ]
    assert math.isclose(float(rows[1]["ratio"]), float(rows[0]["round"]) / float(rows[1]["round"]))
    assert "ratio" in capsys.readouterr().out
