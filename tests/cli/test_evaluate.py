"""fedepd evaluate: a table, JSON, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import fedepd
from fedepd.cli import main


def test_a_table_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fedepd.run("synthetic", "fedavg", rounds=1, clients=3, hidden=8, out=tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"] == "global"
    assert found["scores"].keys() == {"own", "whole"}
    assert 0 < found["edges_between_clients"] < found["edges"] == 6000
    assert main(["evaluate", str(tmp_path / "run")]) == 0
    said = capsys.readouterr().out
    assert "the whole graph" in said
    assert f"{found['edges_between_clients']:,} of 6,000 edges" in said


def test_a_mistake_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tmp_path / "none")]) == 2
    error = capsys.readouterr().err
    assert "is not a run folder" in error
    assert error.count("\n") == 1
