"""Jobs in processes of their own: one that fails, is killed or is interrupted touches no other."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from fedepd.folders import claimed
from fedepd.runs.jobs import Job, outcomes, run_jobs

FORK = multiprocessing.get_context("fork")
QUICK: dict[str, Any] = {"rounds": 3, "hidden": 8, "clients": 3}


def job(out: Path, data: Any = "synthetic", checkpoint_every: Any = 1, **settings: Any) -> Job:
    return Job("fedavg", "default", data, out, None, {**QUICK, **settings}, checkpoint_every)


def weights(of: Job) -> str:
    return str(json.loads((of.out / "summary.json").read_text())["weights_sha256"])


def test_a_failure_does_not_stop_the_others(tmp_path: Path) -> None:
    """The second has a name that does not exist, the third a defect: a word is no number of rounds."""
    jobs = [
        job(tmp_path / "a"),
        job(tmp_path / "b", "sinthetic"),
        job(tmp_path / "c", checkpoint_every="often"),
        job(tmp_path / "d", seed=1),
    ]
    failures = {outcome.job.out.name: outcome.failure for outcome in outcomes(jobs)}
    assert list(failures) == ["a", "b", "c", "d"]
    assert failures["a"] == failures["d"] == ""
    assert failures["b"].startswith("unknown dataset 'sinthetic'; did you mean 'synthetic'?")
    assert ".py, line" in failures["c"]
    assert [each.is_finished for each in jobs] == [True, False, False, True]


def test_a_script_without_a_guard_is_told_what_to_write(tmp_path: Path) -> None:
    """Every process runs the script anew. Python would print a page about its bootstrapping phase."""
    script = tmp_path / "mine.py"
    script.write_text("import fedepd\nfedepd.compare(['fedavg'], seeds=1, rounds=1, clients=2)\n")
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 1
    assert ended.stderr.count("Traceback") == 1
    assert ended.stderr.splitlines()[-1] == (
        "fedepd.errors.FedEPDError: every process runs your program anew; put its calls below "
        "'if __name__ == \"__main__\":'"
    )


def test_a_killed_process_takes_no_other_with_it(tmp_path: Path) -> None:
    jobs, killed = [job(tmp_path / "a", rounds=5000), job(tmp_path / "b", seed=1)], list[int]()

    def watch() -> None:
        if jobs[0].rounds_done > 2 and not killed:
            killed.extend(process.pid or 0 for process in multiprocessing.active_children())
            (only,) = killed
            os.kill(only, signal.SIGKILL)

    ended = list(outcomes(jobs, 1, watch))
    assert (
        ended[0].failure
        == "its process was killed (SIGKILL), as the system does for want of memory; give fewer --workers"
    )
    assert (ended[1].job.out.name, ended[1].failure) == ("b", "")


def hold(path: Path, says: Connection) -> None:
    """Another program, which holds a job's lock until it is told to go on."""
    with claimed(path):
        says.send("held")
        says.recv()


def another(path: Path) -> tuple[BaseProcess, Connection]:
    ours, theirs = FORK.Pipe()
    process = FORK.Process(target=hold, args=(path, theirs))
    process.start()
    assert ours.recv() == "held"
    return process, ours


@pytest.mark.parametrize("end", ["go on", "kill"])
def test_a_job_that_another_program_works_on_is_left_for_later(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other program gives it up, or is killed. Then the job is ours."""
    monkeypatch.setattr("fedepd.runs.jobs.AGAIN_AFTER", 0.05)
    jobs = [job(tmp_path / "a"), job(tmp_path / "b", seed=1)]
    process, pipe = another(jobs[0].lock)

    def watch() -> None:
        if jobs[1].is_finished and process.is_alive():
            pipe.send("go on") if end == "go on" else process.kill()
            process.join()

    ended = [(outcome.job.out.name, outcome.failure) for outcome in outcomes(jobs, 1, watch)]
    assert ended == [("b", ""), ("a", "")]
    assert all(each.is_finished for each in jobs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_what_another_program_has_finished_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedepd.runs.jobs.AGAIN_AFTER", 0.05)
    mine = job(tmp_path / "a")
    run_jobs([mine])
    before = (mine.out / "summary.json").stat().st_mtime_ns
    process, pipe = another(mine.lock)
    looks = []

    def watch() -> None:
        looks.append(1)
        if len(looks) == 3:
            pipe.send("go on")

    assert [outcome.failure for outcome in outcomes([mine], 1, watch)] == [""]
    process.join()
    assert (mine.out / "summary.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_an_interrupted_job_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    rounds = 300  # a fast machine makes 60 of them between two looks
    whole, broken = job(tmp_path / "whole", rounds=rounds), job(tmp_path / "broken", rounds=rounds)
    run_jobs([whole])

    def interrupt() -> None:
        if broken.rounds_done > 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_jobs([broken], 1, interrupt)
    assert not multiprocessing.active_children()
    assert not broken.is_finished
    assert (broken.out / "config.json").is_file()
    run_jobs([broken])
    assert weights(broken) == weights(whole)


@pytest.mark.slow
def test_a_signal_while_a_job_is_being_started_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the start of a process and our knowing of it nothing may get in.

    It would train on unseen and unstopped. The helpers of ``multiprocessing`` are stopped, as in a program
    that has started no process yet: one of them lets signals through again when it is started.
    """
    forkserver._forkserver._stop()  # type: ignore[attr-defined]
    resource_tracker._resource_tracker._stop()  # type: ignore[attr-defined]
    start = ForkServerProcess.start

    def interrupted(process: ForkServerProcess) -> None:
        start(process)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(ForkServerProcess, "start", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_jobs([job(tmp_path / "a", rounds=60)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert not multiprocessing.active_children()
    # The fork server that run_jobs started holds no signal. Else no process that it starts could be stopped.
    pid = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    held = int(status["SigBlk"], 16)
    assert not held & (1 << (signal.SIGINT - 1) | 1 << (signal.SIGTERM - 1))
