"""Weights & Biases writes into a folder, and says nothing of the machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from fedepd.trackers.contract import Results
from fedepd.trackers.target import set_where_unset
from fedepd.trackers.wandb import PRIVATE, WeightsAndBiases


def test_it_is_offline_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PRIVATE:
        monkeypatch.delenv(name, raising=False)
    set_where_unset(PRIVATE)
    assert os.environ["WANDB_MODE"] == "offline"
    monkeypatch.setenv("WANDB_MODE", "online")
    set_where_unset(PRIVATE)
    assert os.environ["WANDB_MODE"] == "online"


@pytest.mark.slow
def test_a_run_is_written_offline(tmp_path: Path, results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setattr(socket, "gethostname", lambda: "name-of-the-machine")
    monkeypatch.setenv("USER", "name-of-the-user")
    monkeypatch.setenv("LOGNAME", "name-of-the-user")
    set_where_unset(PRIVATE)
    pytest.importorskip("wandb", reason="needs the extra 'wandb', which is too large for 'dev'")
    tracker = WeightsAndBiases("mine")
    one, two = (tracker.begin(name, {"protocol.rounds": 3}) for name in ("study/one", "study/two"))
    for step in (1, 2):
        one.log({"round/loss": 1 / step}, step)
        two.log({"round/loss": 2 / step}, step)
    one.conclude(results)
    one.close(True)
    two.close(False)
    folders = sorted((tmp_path / "wandb").glob("offline-run-*"))
    assert len(folders) == 2
    files = [path for path in (tmp_path / "wandb").rglob("*") if path.is_file() and not path.is_symlink()]
    names = {path.name for path in files}
    assert not names & {"requirements.txt", "wandb-metadata.json", "output.log", "diff.patch"}
    figures = [path for path in files if path.suffix == ".png"]
    assert len(figures) == len(results.figures)
    held = b"".join(path.read_bytes() for path in files if path.suffix == ".wandb")
    for word in ("study/one", "study/two", "mine", "round/loss", "test/global/pooled/bacc", "summary.json"):
        assert word.encode() in held
    assert b"name-of-the-" not in held
