"""A folder of runs as frames."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedepd
from fedepd.datasets import load
from fedepd.errors import BadData
from fedepd.runs.run import run

pytest.importorskip("pandas", reason="needs the extra 'data'")


def test_a_folder_has_the_frames_of_its_runs(tmp_path: Path) -> None:
    made = {
        method: run(load("synthetic"), method, rounds=2, hidden=8, clients=3, out=tmp_path / method)
        for method in ("fedavg", "fedproto")
    }
    read = fedepd.read_runs(tmp_path)
    for name in ("scores", "rounds", "classes", "clients", "confusions"):
        frame = getattr(read, name)
        assert frame.run.unique().tolist() == ["fedavg", "fedproto"]
        for method, result in made.items():
            own = frame[frame.run == method].dropna(axis=1, how="all").reset_index(drop=True)
            in_memory = getattr(result.to_pandas(), name).dropna(axis=1, how="all")
            shared = [column for column in in_memory if column in own]
            assert own[shared].equals(in_memory[shared])


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="holds no run"):
        fedepd.read_runs(tmp_path)
