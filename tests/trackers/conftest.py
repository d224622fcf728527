"""One finished run for all tests of trackers, and a tracker that remembers what it was told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fedepd.datasets import load
from fedepd.report.runs import read_run
from fedepd.runs.run import run
from fedepd.trackers import content, target
from fedepd.trackers.contract import Results, Settings


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of three rounds, of which the last is evaluated."""
    folder = tmp_path_factory.mktemp("tracked") / "first"
    run(load("synthetic"), "fedavg", rounds=3, hidden=8, clients=3, backbone="gcn", out=folder)
    return folder


@pytest.fixture(scope="session")
def results(finished: Path) -> Results:
    """With all figures. They take seconds, so they are drawn once."""
    return content.results(read_run(finished))


@dataclass
class Remembered:
    name: str
    settings: Settings
    rounds: dict[int, Mapping[str, float]] = field(default_factory=dict)
    results: Results | None = None
    closed: bool | None = None
    fails: str = ""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        if self.fails == "log":
            raise ConnectionError("no answer from postgresql://me:secret@host/db")
        assert step not in self.rounds
        self.rounds[step] = numbers

    def conclude(self, results: Results) -> None:
        if self.fails == "conclude":
            raise RuntimeError("full")
        self.results = results

    def close(self, finished: bool) -> None:
        self.closed = finished


@dataclass
class Memory:
    """A tracker that remembers, or fails where it is told to."""

    runs: list[Remembered] = field(default_factory=list)
    fails: str = ""

    def begin(self, name: str, settings: Settings) -> Remembered:
        if self.fails == "begin":
            raise OSError("no such place")
        self.runs.append(Remembered(name, settings, fails=self.fails))
        return self.runs[-1]


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    """The tracker that the target "memory:x" names. It gets no figures, because drawing takes seconds."""
    made = Memory()
    monkeypatch.setitem(target.KINDS, "memory", lambda place: made)
    monkeypatch.setattr(content, "_drawings", lambda run: ())
    return made
