"""Secure sums between real processes: a server and four sites, mutual TLS.

One site is killed after its masked vector was sent and before it opens shares. In another federation the
server's operator has changed its code so that it lies.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

import fedepd
from deploy.office import raw_columns
from deploy.running import MARKS
from fedepd.cli import main
from fedepd.clients.client_file import write_client_file
from fedepd.deploy import admin
from fedepd.deploy.loopback import Loopback
from fedepd.deploy.measured import read_measured
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.task import FederationTask, site_data
from fedepd.deploy.wire import MASKED, OPENED, SHARES
from fedepd.model.model import load_model
from fedepd.report.runs import read_run
from fedepd.rounds.budget import epsilon_spent, noise_multiplier
from toy import CLASSES, FEATURES, toy_clients

pytestmark = [*MARKS, pytest.mark.heavy]

SITES = ("bank-a", "bank-b", "bank-c", "bank-d")
ROUNDS = 40


def make_task(run: str, rounds: int = ROUNDS, **more: Any) -> FederationTask:
    settings = {"rounds": rounds, "evaluate_every": rounds, "hidden": 4}
    return FederationTask(
        run, "fedepd", "default", settings, FEATURES, CLASSES, SITES, **{"min_sites": 3, **more}
    )


def files_in(folder: Path) -> dict[str, Path]:
    files = {site: folder / f"{site}.npz" for site in SITES}
    for client, file in zip(toy_clients(4), files.values(), strict=True):
        write_client_file(client, file)
    return files


def asked(federation: Loopback, site: str, trip: str) -> list[str]:
    """The steps that a site was asked for, in order, from its log."""
    lines = (federation.kits[site] / "console.log").read_text().splitlines()
    found = [line for line in lines if "secure sum, step of round" in line and line.endswith(trip)]
    return [line.split("secure sum, ")[1].split(":")[0] for line in found]


def wait_for(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.005)
    pytest.fail("it did not happen in time")


@pytest.fixture
def four(tmp_path: Path, quick_login: None) -> Iterator[Loopback]:
    with Loopback(tmp_path / "fed", files_in(tmp_path)) as made:
        made.wait()
        yield made
    assert all(made.members(name) == [] for name in made.kits)


def test_a_site_killed_between_masking_and_opening(four: Loopback, tmp_path: Path) -> None:
    """bank-a is stopped while a sum is under way, so that the server waits for its masked vector.

    Meanwhile bank-d has sent its own, and is killed. Then bank-a goes on. All four vectors are there, and
    the other three open bank-d's: its numbers are in that sum, and in no later one.
    """
    task = make_task("run-killed")
    job = admin.submit(four.admin, task)
    wait_for(lambda: len(asked(four, "bank-a", SHARES)) >= 2, 120)
    between: list[str] = []
    while not between:
        stopped = four.members("bank-a")
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(1.0)  # the others go on until they wait for bank-a
        mine, theirs = asked(four, "bank-a", MASKED), asked(four, "bank-d", MASKED)
        waiting = len(theirs) == len(mine) + 1 and len(asked(four, "bank-d", OPENED)) == len(mine)
        if waiting:
            between.append(theirs[-1])
            four.kill("bank-d")
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
        assert len(theirs) < ROUNDS, "the run ended before the moment was found"
    end = admin.supervise(four.admin, job, lambda now: None, patience=60)
    assert end["state"] == "done"
    admin.fetch(four.admin, admin.last_job(four.admin), tmp_path / "run")
    run = read_run(tmp_path / "run")
    number = int(between[0].removeprefix("step of round "))
    there = [line["clients"] for line in run.rounds]
    assert there[number - 1] == [0, 1, 2, 3]  # it died, and its numbers were used
    assert there[number:] == [[0, 1, 2]] * (ROUNDS - number)
    assert end["digest"] == rehearse(task, list(four.files.values()), run.rounds).digest()


def test_an_operating_point_is_the_rehearsals(four: Loopback, tmp_path: Path) -> None:
    """By masked counts. The coordinator and every site have the thresholds, and predict applies them."""
    settings = {"rounds": 3, "evaluate_every": 3, "hidden": 4, "aim": "recall 0=0.8"}
    task = FederationTask("run-point", "fedepd", "default", settings, FEATURES, CLASSES, SITES, min_sites=4)
    end = admin.supervise(four.admin, admin.submit(four.admin, task), lambda now: None, patience=60)
    assert end["state"] == "done", end
    admin.fetch(four.admin, admin.last_job(four.admin), tmp_path / "run")
    told = read_run(tmp_path / "run").summary["point"]
    again = rehearse(task, list(four.files.values())).progress.answers["point"]
    assert told == json.loads(json.dumps(again))
    assert told["reasons"] == []
    assert main(["federation", "model", str(four.kits["bank-c"]), "-o", str(tmp_path / "model")]) == 0
    model, data = load_model(tmp_path / "model"), site_data(task, "bank-c", four.files["bank-c"])
    assert model.operating is not None
    assert [rule.threshold for rule in model.operating.rules] == told["thresholds"]
    said = model.predict(data.graph)
    assert said.alerts is not None
    assert said.alerts.tolist() == (said.probabilities[:, 0] >= told["thresholds"][0]).tolist()


def test_a_noisy_federation(four: Loopback, tmp_path: Path) -> None:
    """Three rounds spend the budget of three sums. Twice the same task ends with two models.

    No site sends scores. Every site counts its own answers, and everybody says what was spent.
    """
    settings = {"rounds": 3, "hidden": 4, "select": "last", "dp_epsilon": 8.0}
    weights: list[torch.Tensor] = []
    told: list[dict[str, Any]] = []
    for run in ("run-noisy", "run-again"):
        task = FederationTask(run, "fedavg", "default", settings, FEATURES, CLASSES, SITES, min_sites=3)
        end = admin.supervise(four.admin, admin.submit(four.admin, task), told.append, patience=60)
        assert end["state"] == "done", end
        admin.fetch(four.admin, admin.last_job(four.admin), tmp_path / run)
        found = read_run(tmp_path / run)
        assert not found.scored
        assert [line["clients"] for line in found.rounds] == [[0, 1, 2, 3]] * 3
        assert [line["privacy"]["releases"] for line in found.rounds] == [1, 2, 3]
        assert found.summary["privacy"]["epsilon_spent"] == pytest.approx(8.0)
        for site in SITES:
            counted = four.kits[site] / "state" / "answers" / f"{run}.json"
            assert json.loads(counted.read_text())["rounds"] == 3
            assert "evaluate of round" not in (four.kits[site] / "console.log").read_text()
        model = load_model(fedepd.export(tmp_path / run, tmp_path / f"{run}-model"))
        weights.append(model.tensors["encoder.weight"])
        assert bool(weights[-1].isfinite().all())
    assert not torch.equal(*weights)
    multiplier = noise_multiplier(8.0, 1e-5, 3)
    words = [f"epsilon {epsilon_spent(multiplier, 1e-5, k):.2f} of 8 spent in {k} sums" for k in (1, 2, 3)]
    spent = {now["spent"] for now in told if now.get("spent")}
    assert spent
    assert spent <= set(words)


def test_sites_scale_their_columns_together(tmp_path: Path, quick_login: None) -> None:
    """Four processes with raw numbers agree on the scaling, and reach the rehearsal's digest."""
    files = files_in(tmp_path)
    for client, file in zip(toy_clients(4), files.values(), strict=True):
        write_client_file(client, file, raw_columns(client, (1, 3)))
    task = replace(make_task("run-scaled", rounds=3), scaled=(1, 3))
    with Loopback(tmp_path / "fed", files) as four:
        four.wait()
        job = admin.submit(four.admin, task)
        end = admin.supervise(four.admin, job, lambda now: None, patience=60)
        assert end["state"] == "done"
        admin.fetch(four.admin, admin.last_job(four.admin), tmp_path / "run")
        kept = [read_measured(four.kits[site] / "state" / task.run) for site in SITES]
        logs = [(four.kits[site] / "console.log").read_text() for site in SITES]
    ledger = rehearse(task, list(files.values()))
    assert end["digest"] == ledger.digest()
    found = read_run(tmp_path / "run").summary["statistics"]
    assert found == ledger.progress.answers["statistics"]
    assert kept == [kept[0]] * 4
    assert kept[0] is not None
    assert [each["mean"] for each in kept[0]["columns"]] == [each["mean"] for each in found["columns"]]
    assert all("column 1: scaled by mean " in log for log in logs)


LIES = {
    "two-models": """
from fedepd.deploy import sums
honest = sums.sum_record
def lying(which, parts, message=None):
    global turn
    record = honest(which, parts, message)
    if which.purpose == "step" and record.get("tensors"):
        turn += 1
        if turn == 1:
            tensors = record["tensors"]
            record["tensors"] = dict(tensors, **{"encoder.bias": tensors["encoder.bias"] + 1})
    return record
turn = 0
sums.sum_record = lying
""",
    "asks-twice": """
from fedepd.deploy import sums
honest = sums.SumsOverNVFlare._opened
def lying(self, which, masked, sealed, signatures):
    answer = honest(self, which, masked, sealed, signatures)
    if which.purpose == "step":
        fewer = dict(list(masked.items())[:-1])
        signed = self._signed(which, fewer, bytes(32))
        again = honest(self, which, fewer, sealed, dict.fromkeys(fewer, bytes(512)))
        open({trace!r}, "a").write(f"{len(signed)} sites signed, {len(again)} opened a second set\\n")
    return answer
sums.SumsOverNVFlare._opened = lying
""",
}
"""What the server's operator adds to its own installation: a file that Python runs at its start."""


class Lying(Loopback):
    def __init__(self, folder: Path, files: dict[str, Path], code: Path) -> None:
        self.code = code
        super().__init__(folder, files)

    def environment(self, name: str) -> dict[str, str]:
        made = super().environment(name)
        path = os.pathsep.join([str(self.code), made.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return {**made, "PYTHONPATH": path} if name == "server" else made


@pytest.mark.hostile
@pytest.mark.parametrize("lie", LIES)
def test_a_server_that_lies_gets_nothing(lie: str, tmp_path: Path, quick_login: None) -> None:
    """Two models: no site masks its vector, because the others' shares do not open. Asking twice: the second
    set of survivors gets no answer, and the run ends with the digest of an honest one.
    """
    trace, code = tmp_path / "trace.txt", tmp_path / "code"
    code.mkdir()
    hook = "import sys\nif 'server-job' in ' '.join(sys.orig_argv):\n"
    body = LIES[lie].replace("{trace!r}", repr(str(trace)))
    (code / "sitecustomize.py").write_text(hook + "".join(f"    {line}\n" for line in body.splitlines()))
    task = make_task("run-lied-to", rounds=2)
    with Lying(tmp_path / "fed", files_in(tmp_path), code) as made:
        made.wait()
        job = admin.submit(made.admin, task)
        end = admin.supervise(made.admin, job, lambda now: None, patience=60, resume=False)
        logs = [(made.kits[site] / "console.log").read_text() for site in SITES]
        if lie == "two-models":
            assert end["state"] == "stopped"
            assert "fedepd_sum_masked in round 1: 0 instead of at least 3" in end["error"]
            assert all("the server showed that site another model" in log for log in logs)
        else:
            assert trace.read_text() == "0 sites signed, 0 opened a second set\n" * 2
            assert all("out of order" in log for log in logs[:-1])
            assert end["digest"] == rehearse(task, list(made.files.values())).digest()
