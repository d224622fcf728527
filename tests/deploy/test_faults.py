"""What breaks while a real federation trains.

A frozen site, one that never answers, a killed worker, a killed server.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.running import MARKS, make_task
from fedepd.deploy import admin
from fedepd.deploy.loopback import Loopback
from fedepd.deploy.rehearse import rehearse
from fedepd.report.runs import read_run

pytestmark = [*MARKS, pytest.mark.heavy]


def test_a_frozen_site_is_noticed_and_the_round_closes_without_it(
    federation: Loopback, tmp_path: Path
) -> None:
    """The whole site, its worker included, is stopped while it trains.

    A ping says so within 10 s, and the others end the run.
    """
    frozen: list[int] = []

    def freeze_once(now: dict[str, Any]) -> None:
        if now["state"] == "training" and not frozen:
            frozen.extend(federation.members("bank-b"))
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)

    job = admin.submit(federation.admin, make_task("run-frozen", "fedepd", rounds=30, min_sites=1))
    try:
        end = admin.supervise(federation.admin, job, freeze_once, patience=60)
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert len(frozen) >= 2
    assert end["state"] == "done"
    admin.fetch(federation.admin, admin.last_job(federation.admin), tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert run.rounds[0]["clients"] == [0, 1]
    assert run.rounds[-1]["clients"] == [0]
    noticed = next(line for line in run.rounds if line["clients"] == [0])
    assert [(refusal["client"], refusal["reason"]) for refusal in noticed["refused"]] == [
        (1, "is missing: the site became unreachable")
    ]
    assert noticed["seconds"] < 10 + 1


def test_a_site_that_cannot_read_its_state_costs_the_quorum_and_is_named(federation: Loopback) -> None:
    """A pipe lies where bank-b's state should be.

    Nobody waits for it: the site takes no part. Since both sites are needed, the job ends with a sentence
    that says whose answer failed.
    """
    task = make_task("run-silent", "fedavg", deadline=60.0)
    hanging = federation.kits["bank-b"] / "state" / task.run / "checkpoint-000000"
    hanging.parent.mkdir(parents=True)
    os.mkfifo(hanging)
    said: list[str] = []
    job = admin.submit(federation.admin, task)
    end = admin.supervise(
        federation.admin, job, lambda now: said.append(admin.describe(now)), patience=60, resume=False
    )
    assert end["state"] == "stopped"
    assert "too few sites answered fedepd_step in round 1: 1 instead of at least 2" in end["error"]
    assert "bank-b: reply failed at the site" in end["error"]
    assert end["error"] in said[-1]


@pytest.mark.parametrize("who", ["worker", "server"])
def test_a_killed_process_costs_time_but_not_a_bit(federation: Loopback, who: str) -> None:
    """NVFlare ends the whole job with a worker and loses it with the server.

    The supervisor submits it again, and it goes on from the last round.
    """
    task = make_task(
        f"run-killed-{who}", "fedepd", rounds=20
    )  # they last for several looks of the supervisor
    said: list[str] = []

    def kill_once(now: dict[str, Any]) -> None:
        said.append(now["state"])
        if now["state"] != "training" or "killed" in said:
            return
        said.append("killed")
        if who == "worker":
            os.kill(federation.members("bank-b")[-1], signal.SIGKILL)
        else:
            federation.kill("server")
            federation.start_server()

    end = admin.supervise(federation.admin, admin.submit(federation.admin, task), kill_once, patience=90)
    assert "killed" in said
    assert "resumed" in said
    assert end["digest"] == rehearse(task, list(federation.files.values())).digest()
