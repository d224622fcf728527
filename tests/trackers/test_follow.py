"""Folders are followed while they grow, and no failure of a tracker ends a run."""

from __future__ import annotations

import json
import logging
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import fedepd
from fedepd.datasets import load
from fedepd.errors import BadConfig, FedEPDError
from fedepd.report.runs import read_runs
from fedepd.trackers import follow
from fedepd.trackers.follow import following, send

if TYPE_CHECKING:
    from trackers.conftest import Memory

SMALL: dict[str, Any] = {"rounds": 3, "hidden": 8, "clients": 3, "backbone": "gcn"}


def test_a_run_is_tracked_from_python(tmp_path: Path, memory: Memory, finished: Path) -> None:
    """Every round arrives once and in order, and the weights are those of a run without a tracker."""
    out = tmp_path / "live"
    result = fedepd.run(load("synthetic"), "fedavg", out=out, track="memory:x", **SMALL)
    (seen,) = memory.runs
    assert (seen.name, seen.closed) == ("live", True)
    assert list(seen.rounds) == [1, 2, 3]
    assert [seen.rounds[n]["round/loss"] for n in (1, 2, 3)] == [line["loss"] for line in result.rounds]
    assert seen.results is not None
    assert seen.results.numbers["test/global/pooled/acc"] == result.metrics["global"]["pooled"]["acc"]
    untracked = json.loads((finished / "summary.json").read_text())
    assert result.summary["weights_sha256"] == untracked["weights_sha256"]


def wait_until(true: object) -> None:
    assert callable(true)
    until = time.monotonic() + 30
    while not true():
        assert time.monotonic() < until
        time.sleep(0.01)


def place(file: Path, folder: Path) -> None:
    """A copy that is there whole or not at all, as a run writes its files."""
    Path(shutil.copy(file, folder / "part")).rename(folder / file.name)


def test_rounds_arrive_while_the_run_goes_on(
    tmp_path: Path, memory: Memory, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As jobs of other processes write them: two folders grow, one of them with half a line at first."""
    monkeypatch.setattr(follow, "EVERY", 0.01)
    lines = (finished / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    one, two = (tmp_path / "study" / name for name in ("one", "two"))
    with following("memory:x", tmp_path / "study", [one, two]):
        for folder in (one, two):
            folder.mkdir(parents=True)
            (folder / "rounds.jsonl").write_bytes(lines[0] + lines[1][:20])
            place(finished / "config.json", folder)
        wait_until(lambda: len(memory.runs) == 2 and all(run.rounds for run in memory.runs))
        assert all(list(run.rounds) == [1] for run in memory.runs)
        (one / "rounds.jsonl").write_bytes(b"".join(lines))
        for name in ("clients.json", "partition.npz", "confusion.npz", "summary.json"):
            place(finished / name, one)
        wait_until(lambda: memory.runs[0].closed)
    assert {run.name: (list(run.rounds), run.closed) for run in memory.runs} == {
        "study/one": ([1, 2, 3], True),
        "study/two": ([1], False),
    }


@pytest.mark.parametrize("fails", ["begin", "log", "conclude"])
def test_a_tracker_that_fails_gives_one_warning(
    fails: str, tmp_path: Path, memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    memory.fails = fails
    with caplog.at_level(logging.WARNING, "fedepd.trackers"):
        result = fedepd.run(load("synthetic"), "fedavg", out=tmp_path / "live", track="memory:x", **SMALL)
    assert len(result.rounds) == 3
    assert (tmp_path / "live" / "summary.json").is_file()
    (said,) = [each.getMessage() for each in caplog.records]
    assert "'memory:x' failed and gets nothing more" in said
    assert "'fedepd track' can send the run later" in said
    assert "secret" not in said


def test_a_tracker_that_does_not_answer_is_left_alone(
    tmp_path: Path, memory: Memory, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "PATIENCE", 0.1)
    monkeypatch.setattr(follow, "EVERY", 0.01)
    monkeypatch.setattr(memory, "begin", lambda name, settings: time.sleep(3), raising=False)
    said: list[str] = []
    before = time.monotonic()
    with following("memory:x", tmp_path / "new", warn=said.append):
        Path(shutil.copytree(finished, tmp_path / "part")).rename(tmp_path / "new")
    assert time.monotonic() - before < 2.5
    assert len(said) == 1
    assert "has not answered" in said[0]


def test_an_interrupted_run_is_not_called_finished(tmp_path: Path, memory: Memory) -> None:
    def interrupt(each: object) -> None:
        if getattr(each, "number", 0) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedepd.run(
            load("synthetic"), "fedavg", out=tmp_path / "cut", track="memory:x", on_round=interrupt, **SMALL
        )
    (seen,) = memory.runs
    assert (list(seen.rounds), seen.results, seen.closed) == ([1, 2], None, False)


def test_a_tracker_needs_a_new_folder(memory: Memory, finished: Path) -> None:
    with pytest.raises(BadConfig, match="give an output folder"):
        fedepd.run(load("synthetic"), "fedavg", track="memory:x", **SMALL)
    with pytest.raises(BadConfig, match="already holds"):
        fedepd.run(load("synthetic"), "fedavg", out=finished, track="memory:x", **SMALL)
    assert memory.runs == []


def test_finished_runs_are_sent(memory: Memory, finished: Path) -> None:
    assert send("memory:x", finished.parent, read_runs(finished.parent)) == 1
    (seen,) = memory.runs
    assert seen.name == f"{finished.parent.name}/first"
    assert list(seen.rounds) == [1, 2, 3]
    assert seen.closed is True
    memory.fails = "log"
    with pytest.raises(FedEPDError, match="failed after 0 of 1 runs: ConnectionError") as caught:
        send("memory:x", finished, read_runs(finished))
    assert "secret" not in str(caught.value)
