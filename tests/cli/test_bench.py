"""``fedepd bench`` compares with the reference in the same run, and keeps what it measured."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from fedepd.bench.history import read_history
from fedepd.cli import main
from fedepd.network import kernels


def test_a_backbone_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--backbones", "saga"]) == 2
    assert "unknown backbone 'saga'; did you mean 'sage'?" in capsys.readouterr().err


@pytest.mark.heavy
def test_bench_quick(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch_geometric", reason="the reference needs torch_geometric")
    assert (
        main(
            ["bench", "--quick", "--methods", "fedavg", "--rounds", "2", "--history", "--out", str(tmp_path)]
        )
        == 0
    )
    rows = list(csv.DictReader((tmp_path / "methods.csv").read_text().splitlines()))
    assert [r["method"] for r in rows] == [
        "reference",
        "fedavg",
        *(["fedavg, torch alone"] if kernels.name() == "compiled" else []),
    ]
    assert math.isclose(float(rows[1]["ratio"]), float(rows[0]["round"]) / float(rows[1]["round"]))
    said = capsys.readouterr().out
    assert "ratio" in said
    assert "the history has no earlier run on this machine" in said
    assert [row["method"] for row in read_history(tmp_path)[0]["rows"]] == [r["method"] for r in rows]


def test_a_damaged_history_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "history.jsonl").write_text('{"commit": 3}\n')
    assert main(["bench", "--history", "--data", "synthetic", "--out", str(tmp_path)]) == 2
    assert "'history.jsonl': '0.commit' is 3, not a text" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["history.jsonl"]
