"""A site leaves: only its own processes get a signal, and the run goes on without it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.running import make_task
from deploy.test_sums import kits
from fedepd.cli import main
from fedepd.deploy import admin
from fedepd.deploy.leave import end_site, remove_state, site_processes
from fedepd.deploy.loopback import Loopback
from fedepd.errors import BadConfig
from fedepd.report.runs import read_run

__all__ = ["kits"]
SLEEP = "import time; print(1, flush=True); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP
ROLE = ["-m", "fedepd.deploy.launch"]
pytestmark = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at /proc")


@pytest.fixture
def started() -> Iterator[Any]:
    """Starts a process that does nothing but wait, with further words in its command line."""
    running: list[subprocess.Popen[bytes]] = []

    def start(*words: object, code: str = SLEEP) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, *map(str, words)]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        assert running[-1].stdout is not None
        running[-1].stdout.read(1)  # it has begun
        return running[-1]

    yield start
    for each in running:
        each.kill()
        each.communicate()


def test_only_the_sites_own_processes_end(tmp_path: Path, started: Any) -> None:
    kit, other = tmp_path / "kit", tmp_path / "kit2"
    kit.mkdir()
    ours = [started(*ROLE, role, "-m", kit) for role in ("client-job", "client")]
    others = [
        started(kit / "local" / "limits.toml"),  # the owner's editor
        started(*ROLE, "client", "-m", other),
        started(*ROLE, "server", "-m", kit),
        started("-m", "fedepd.deploy.launcher", "client", "-m", kit),
        started("fedepd.deploy.launch", "client", "-m", kit),
        started("-m", kit, *ROLE),
    ]
    assert site_processes(kit) == [ours[1].pid, ours[0].pid]  # the site itself first
    assert end_site(kit) == 2
    assert all(each.wait() == -15 for each in ours)
    assert all(each.poll() is None for each in others)
    assert end_site(kit) == 0


def test_a_process_that_does_not_end(tmp_path: Path, started: Any) -> None:
    stubborn = started(*ROLE, "client", "-m", tmp_path, code=STUBBORN)
    with pytest.raises(BadConfig, match=f"process {stubborn.pid} does not end; stop it with 'kill -9"):
        end_site(tmp_path, patience=0.3)
    assert stubborn.poll() is None


def test_the_state_goes_only_on_request(kits: Path, started: Any, capsys: pytest.CaptureFixture[str]) -> None:
    kit = kits / "a"
    for name in ("r", "s", "answers"):
        (kit / "state" / name).mkdir(parents=True)
        (kit / "state" / name / "file").touch()
    site = started(*ROLE, "client", "-m", kit.resolve())
    assert main(["federation", "leave", str(kit)]) == 0
    said = capsys.readouterr().out
    assert site.wait() == -15
    assert "site a has stopped" in said
    assert "state of runs: r, s, in" in said
    assert (kit / "state" / "r" / "file").exists()
    assert main(["federation", "leave", str(kit), "--remove-state"]) == 0
    said = capsys.readouterr().out
    assert "site a was not running" in said
    assert "removed the state of: r, s" in said
    assert "kept:" in said
    assert [path.name for path in (kit / "state").iterdir()] == ["answers"]
    assert main(["federation", "leave", str(kit), "--remove-state"]) == 0
    assert "no state to remove" in capsys.readouterr().out
    # The kit is still a kit: its owner can join again.
    data = str(kits / "a.npz")
    assert main(["federation", "join", str(kit), "--data", data, "--check"]) == 0


def test_a_folder_that_is_no_kit_is_left_alone(tmp_path: Path, started: Any) -> None:
    (tmp_path / "state" / "r").mkdir(parents=True)
    process = started(*ROLE, "client", "-m", tmp_path)
    assert main(["federation", "leave", str(tmp_path), "--remove-state"]) == 2
    assert process.poll() is None
    assert (tmp_path / "state" / "r").is_dir()


def test_state_that_cannot_be_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state" / "r").mkdir(parents=True)

    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shutil, "rmtree", denied)
    with pytest.raises(BadConfig, match=r"cannot remove '.*/r' \(Permission denied\)"):
        remove_state(tmp_path)


@pytest.mark.heavy
@pytest.mark.slow
@pytest.mark.xdist_group("federation")
def test_the_run_goes_on_and_the_site_can_come_back(federation: Loopback, tmp_path: Path) -> None:
    """It leaves during the run, which one site is enough for. Then it joins again, and is in the next."""
    left: list[int] = []

    def leave_once(now: dict[str, Any]) -> None:
        if now["state"] == "training" and now.get("round", 0) >= 2 and not left:
            left.append(end_site(federation.kits["bank-b"]))

    task = make_task("run-left", "fedavg", rounds=60, min_sites=1)
    job = admin.submit(federation.admin, task)
    end = admin.supervise(federation.admin, job, leave_once, patience=60)
    assert left
    assert left[0] >= 2  # the site and its worker
    assert end["state"] == "done"
    admin.fetch(federation.admin, admin.last_job(federation.admin), tmp_path / "run")
    rounds = read_run(tmp_path / "run").rounds
    assert rounds[0]["clients"] == [0, 1]
    assert rounds[-1]["clients"] == [0]
    assert remove_state(federation.kits["bank-b"])
    assert federation.members("bank-b") == []
    federation.kill("bank-b")  # nothing is left to kill: it takes notice of the end
    federation.start_site("bank-b")
    federation.wait()
    job = admin.submit(federation.admin, make_task("run-back", "fedavg"))
    assert admin.supervise(federation.admin, job, lambda now: None, patience=60)["state"] == "done"
    admin.fetch(federation.admin, admin.last_job(federation.admin), tmp_path / "again")
    assert all(line["clients"] == [0, 1] for line in read_run(tmp_path / "again").rounds)
