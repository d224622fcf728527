"""Jobs on a cluster of processes on this machine: every cell once, with the bits of one process."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedepd.cluster.certificates import make_certificates
from fedepd.cluster.pool import ClusterPool
from fedepd.errors import BadConfig
from fedepd.runs.jobs import Job, outcomes, run_jobs

pytest.importorskip("distributed", reason="needs the extra 'cluster'")
psutil = pytest.importorskip("psutil")
Start = Callable[..., "subprocess.Popen[bytes]"]


@pytest.mark.parametrize(
    "address",
    [
        "tcp://127.0.0.1:8786",
        "127.0.0.1:8786",
        "tls://host",
        "tls://host:0",
        "tls://host:70000",
        "tls://a b:1",
    ],
)
def test_an_address_that_is_none_or_in_clear_is_refused(address: str) -> None:
    with pytest.raises(BadConfig, match="such as tls://"):
        ClusterPool(address, Path("c"))


def test_where_nobody_answers_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedepd.cluster.pool.ANSWER", 0.5)
    make_certificates(tmp_path / "c", days=1)
    with pytest.raises(BadConfig, match="no scheduler answers at 'tls://127"):
        run_jobs([job(tmp_path / "a")], ClusterPool("tls://127.0.0.1:1", tmp_path / "c"))


def job(out: Path, **settings: Any) -> Job:
    quick = {"rounds": 120, "hidden": 8, "clients": 3}
    return Job("fedavg", "default", "synthetic", out, None, {**quick, **settings})


def weights(of: Job) -> str:
    return str(json.loads((of.out / "summary.json").read_text())["weights_sha256"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts ``fedepd cluster start``. What is left at the end is ended."""
    make_certificates(tmp_path / "c", days=1)
    started: list[subprocess.Popen[bytes]] = []

    def run(*options: str, limit: int = 0) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "fedepd", "cluster", "start", "--certificates", str(tmp_path / "c")]
        most = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None
        process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, preexec_fn=most)
        started.append(process)
        assert process.stderr is not None
        line = process.stderr.readline().decode()
        assert line.startswith("cluster: "), line
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def free_port() -> int:
    import socket

    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.mark.heavy
def test_a_killed_worker_and_a_late_one(start: Start, tmp_path: Path) -> None:
    """All jobs are done with the weights of a run here. Nothing listens elsewhere, no process is left."""
    port = str(free_port())
    address = f"tls://127.0.0.1:{port}"
    scheduler = start("--port", port, "--workers", "0")
    first = start("--join", address, "--workers", "1")
    jobs = [job(tmp_path / "o" / str(seed), seed=seed) for seed in range(4)]
    late: list[subprocess.Popen[bytes]] = []
    child: list[Any] = []

    def watch() -> None:
        if not late and (found := psutil.Process(first.pid).children()):
            child.extend(found)
            first.send_signal(signal.SIGKILL)  # with a cell half done
            late.append(start("--join", address, "--workers", "1"))

    pool = ClusterPool(address, tmp_path / "c")
    assert {outcome.failure for outcome in outcomes(jobs, pool, watch)} == {""}
    deadline = time.monotonic() + 10
    while child[0].is_running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not child[0].is_running()  # it ended with its worker
    where = {c.laddr.ip for p in (scheduler, late[0]) for c in psutil.Process(p.pid).net_connections("inet")}
    assert where == {"127.0.0.1"}
    listening = [c for p in (scheduler, late[0]) for c in psutil.Process(p.pid).net_connections("inet")
                 if c.status == "LISTEN"]  # fmt: skip
    assert len(listening) == 2
    here = [job(tmp_path / "here" / str(seed), seed=seed) for seed in range(4)]
    run_jobs(here, 2)
    assert list(map(weights, jobs)) == list(map(weights, here))
    for process in (late[0], scheduler):
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


@pytest.mark.heavy
def test_a_scheduler_that_dies_is_one_sentence_and_what_is_done_stays(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fedepd.cluster.pool.PATIENCE", 2.0)
    port = str(free_port())
    scheduler = start("--port", port, "--workers", "1")
    jobs = [job(tmp_path / "o" / str(seed), seed=seed) for seed in range(3)]
    ended = []
    pool = ClusterPool(f"tls://127.0.0.1:{port}", tmp_path / "c")

    def work() -> None:
        for outcome in outcomes(jobs, pool):
            ended.append(outcome)
            os.kill(scheduler.pid, signal.SIGKILL)

    with pytest.raises(BadConfig, match="start it, and then the same command again"):
        work()
    assert [outcome.failure for outcome in ended] == [""]
    assert ended[0].job.is_finished


@pytest.mark.heavy
def test_a_worker_without_room_fails_its_jobs_and_the_study_goes_on(start: Start, tmp_path: Path) -> None:
    """No file of the worker may have more than 2,000 bytes."""
    port = str(free_port())
    start("--port", port, "--workers", "1", limit=2000)
    pool = ClusterPool(f"tls://127.0.0.1:{port}", tmp_path / "c")
    failed = [
        outcome.failure for outcome in outcomes([job(tmp_path / "a"), job(tmp_path / "b", seed=1)], pool)
    ]
    assert len(failed) == 2
    assert all(failed)
    assert not (tmp_path / "a").exists()
