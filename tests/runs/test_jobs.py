"""Cells in processes of their own: one that fails, is killed or is interrupted touches no other."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest

from fedepd.runs.jobs import Cell, outcomes, run_cells

QUICK: dict[str, Any] = {"rounds": 3, "hidden": 8, "clients": 3}


def cell(out: Path, data: Any = "synthetic", **settings: Any) -> Cell:
    return Cell("fedavg", "default", data, out, None, {**QUICK, **settings})


def weights(of: Cell) -> str:
    return str(json.loads((of.out / "summary.json").read_text())["weights_sha256"])


def test_a_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    """The second has a name that does not exist, the third a defect: an integer is no graph."""
    cells = [
        cell(tmp_path / "a"),
        cell(tmp_path / "b", "sinthetic"),
        cell(tmp_path / "c", 3),
        cell(tmp_path / "d", seed=1),
    ]
    failures = {outcome.cell.out.name: outcome.failure for outcome in outcomes(cells)}
    assert list(failures) == ["a", "b", "c", "d"]
    assert failures["a"] == failures["d"] == ""
    assert failures["b"].startswith("unknown dataset 'sinthetic'; did you mean 'synthetic'?")
    assert ".py, line" in failures["c"]
    assert [each.is_finished for each in cells] == [True, False, False, True]


def test_a_killed_process_takes_no_other_with_it(tmp_path: Path) -> None:
    cells, killed = [cell(tmp_path / "a", rounds=5000), cell(tmp_path / "b", seed=1)], list[int]()

    def watch() -> None:
        if cells[0].rounds_done > 2 and not killed:
            killed.extend(process.pid or 0 for process in multiprocessing.active_children())
            (only,) = killed
            os.kill(only, signal.SIGKILL)

    ended = list(outcomes(cells, 1, watch))
    assert (
        ended[0].failure
        == "its process was killed (SIGKILL), as the system does for want of memory; give fewer --workers"
    )
    assert (ended[1].cell.out.name, ended[1].failure) == ("b", "")


@pytest.mark.slow
def test_an_interrupted_cell_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole, broken = cell(tmp_path / "whole", rounds=60), cell(tmp_path / "broken", rounds=60)
    run_cells([whole])

    def interrupt() -> None:
        if broken.rounds_done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_cells([broken], 1, interrupt)
    assert not multiprocessing.active_children()
    assert not broken.is_finished
    assert (broken.out / "config.json").is_file()
    run_cells([broken])
    assert weights(broken) == weights(whole)


@pytest.mark.slow
def test_a_signal_while_a_cell_is_being_started_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the start of a process and our knowing of it nothing may get in: it would train on unseen and unstopped."""
    start = ForkServerProcess.start

    def interrupted(process: ForkServerProcess) -> None:
        start(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ForkServerProcess, "start", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_cells([cell(tmp_path / "a", rounds=60)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children()
