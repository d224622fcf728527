"""``fedepd bench`` compares with the reference in the same run, and keeps what it measured."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from fedepd.cli import main
from fedepd.network import kernels


def test_a_backbone_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--backbones", "saga"]) == 2
    assert "unknown backbone 'saga'; did you mean 'sage'?" in capsys.readouterr().err


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
