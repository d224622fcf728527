"""The coordinator's hand on a running federation: submit, look, supervise, stop, fetch."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nvflare.fuel.flare_api.api_spec import CommandError, InternalError, JobNotRunning, NoReply
from nvflare.fuel.flare_api.flare_api import new_secure_session

from fedepd.deploy.kits import kit_name
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import DECLARE, EVALUATE, STATUS, STEP
from fedepd.errors import BadConfig, BadData, BadMessage, FedEPDError
from fedepd.record import append_line, check_new_folder, write_json
from fedepd.shown import listed, sentence, shown

RUNS = "runs.jsonl"
"""In the admin kit: every job ever submitted with it, and for which task."""
POLL = 0.05
"""Seconds between a site's questions for work; NVFlare's default of 2 s would be most of a round."""
LOST_AFTER = 45.0
"""Seconds in which a job may be listed as running without answering: a restarted server lists jobs it has lost."""
GIVE_UP = 5
"""So many resumed jobs in a row without one more round end the supervision."""

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Job:
    id: str
    task: FederationTask


@contextmanager
def session(kit: Path, timeout: float = 15.0) -> Iterator[Any]:
    """A session of the coordinator; whatever NVFlare raises inside becomes one sentence."""
    user = kit_name(kit, "admin")
    opened = None
    try:
        with redirect_stdout(io.StringIO()):  # NVFlare announces every connection
            opened = new_secure_session(user, str(kit.resolve()), timeout=timeout)
        yield opened
    except FedEPDError:
        raise
    except Exception as cause:
        what = " ".join(str(cause).split()) or type(cause).__name__
        raise BadMessage(f"the federation's server refused or did not answer ({what}); start it, or give its admin kit") from cause
    finally:
        if opened is not None:
            opened.close()


def submit(kit: Path, task: FederationTask, resume: bool = False) -> Job:
    if not resume and any(line["task"]["run"] == task.run for line in submitted(kit)):
        raise BadConfig(f"a run '{task.run}' was submitted before; add --resume to go on with it or give another --run")
    with tempfile.TemporaryDirectory() as folder:
        job_folder = Path(folder) / task.run
        write_job(job_folder, task, resume)
        with session(kit) as open_session:
            job = Job(open_session.submit_job(str(job_folder)), task)
    append_line(kit / RUNS, {"job": job.id, "task": json.loads(task.to_json()), "resume": resume})
    return job


def write_job(folder: Path, task: FederationTask, resume: bool) -> None:
    """A job is settings alone: no code travels."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    text = task.to_json()  # as text: NVFlare would take a nested table for a component
    controller = {"id": "controller", "path": "fedepd.deploy.controller.FederationController", "args": {"task": text, "resume": resume}}
    executor = {"path": "fedepd.deploy.executor.SiteExecutor", "args": {"task": text}}
    nothing: dict[str, Any] = {"format_version": 2, "components": [], "task_data_filters": [], "task_result_filters": []}
    write_json(config / "config_fed_server.json", {**nothing, "server": {"task_request_interval": POLL}, "workflows": [controller]})
    write_json(config / "config_fed_client.json", {**nothing, "executors": [{"tasks": [DECLARE, STEP, EVALUATE], "executor": executor}]})
    meta = {"name": task.run, "resource_spec": {}, "min_clients": task.min_sites, "deploy_map": {"app": ["@ALL"]}}
    write_json(folder / "meta.json", meta)


def last_job(kit: Path, run: str | None = None) -> Job:
    found = [line for line in submitted(kit) if run is None or line["task"]["run"] == run]
    if not found:
        raise BadData(f"'{kit}' has submitted {'nothing yet' if run is None else f'no run {run!r}'}; start with 'fedepd federation submit'")
    return Job(found[-1]["job"], FederationTask.from_json(json.dumps(found[-1]["task"])))


def submitted(kit: Path) -> list[dict[str, Any]]:
    if not (kit / RUNS).exists():
        return []
    return [json.loads(line) for line in (kit / RUNS).read_text(encoding="utf-8").splitlines()]


def connected(kit: Path) -> list[str]:
    with session(kit) as open_session:
        return sorted(client.name for client in open_session.get_system_info().client_info)


def look(open_session: Any, job: Job) -> dict[str, Any]:
    """NVFlare's word on the job, and the controller's own while it runs."""
    status = str(open_session.get_job_meta(job.id)["status"])
    if status != "RUNNING":
        return {"job": status, "state": "ended" if status.startswith("FINISHED") else "waiting"}
    try:
        return {"job": status, **open_session.do_app_command(job.id, STATUS, {})}
    except (InternalError, JobNotRunning, NoReply, CommandError):  # not yet, or not any more
        return {"job": status, "state": "silent"}


def describe(now: dict[str, Any]) -> str:
    """One line about a run; every name and reason in it was written elsewhere."""
    if now.get("state") != "training":
        return " ".join(sentence(now[name]) for name in ("state", "job", "error") if name in now)
    parts = [f"round {shown(now['round'])}/{shown(now['rounds'])}", f"{now['seconds']:.2f} s", f"{len(now['answered'])} sites answered"]
    if now["loss"] is not None:
        parts.append(f"loss {now['loss']:.4f}")
    for kind, scores in (now["val"] or {}).items():
        score = scores["macro_f1"]
        parts.append(f"{shown(kind)} val -" if score is None else f"{shown(kind)} val macro-F1 {100 * score:.2f}")
    if now["missing"]:
        parts.append(f"unreachable: {listed(now['missing'], 20)}")
    parts += [f"refused {sentence(each, 300)}" for each in now["refused"]]
    return ", ".join(parts)


def supervise(kit: Path, job: Job, tell: Tell, patience: float = 600.0, resume: bool = True) -> dict[str, Any]:
    """Follow a run to its end; a job that dies is submitted again and goes on from its checkpoint."""
    reached, fruitless = 0, 0
    while True:
        outcome, latest = follow(kit, job, tell, patience)
        if outcome["state"] in ("done", "failed"):
            return outcome
        if "error" in outcome:
            tell(outcome)
        if not resume or outcome.get("job") == "FINISHED:ABORTED":
            return {**outcome, "state": "stopped"}
        fruitless = 0 if latest > reached else fruitless + 1
        reached = max(reached, latest)
        if fruitless == GIVE_UP:
            raise BadMessage(f"the run '{job.task.run}' was resumed {GIVE_UP} times without one more round; look at the server's log")
        wait_for_sites(kit, job.task.min_sites, patience)
        job = submit(kit, job.task, resume=True)
        tell({"state": "resumed", "job": job.id, "round": reached})


def follow(kit: Path, job: Job, tell: Tell, patience: float) -> tuple[dict[str, Any], int]:
    """Until the job ends or is lost: how, and the last round seen."""
    heard = time.monotonic()
    latest = 0
    shown: dict[str, Any] = {}
    server_start = None
    while True:
        try:
            with session(kit) as open_session:
                before, server_start = server_start, open_session.get_system_info().server_info.start_time
                restarted = before is not None and before != server_start
                while True:
                    now = look(open_session, job)
                    if now["state"] == "ended":
                        return outcome(open_session, job, now), latest
                    if now["state"] != "silent":
                        heard = time.monotonic()
                    elif restarted or time.monotonic() - heard > LOST_AFTER:
                        return {"state": "lost"}, latest
                    latest = max(latest, int(now.get("round", 0)))
                    if now != shown:
                        tell(now)
                        shown = now
                    time.sleep(0.5)
        except BadMessage as cause:
            if time.monotonic() - heard > patience:
                raise
            tell({"state": "unreachable", "error": str(cause)})
            time.sleep(3)


def outcome(open_session: Any, job: Job, ended: dict[str, Any]) -> dict[str, Any]:
    """The controller's last word, from the job's result."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(open_session.download_job_result(job.id, folder))
        found = sorted(place.rglob("fedepd/status.json"))
        return {**ended, **(json.loads(found[0].read_bytes()) if found else {"state": "lost"}), "job": ended["job"]}


def wait_for_sites(kit: Path, wanted: int, patience: float) -> list[str]:
    end = time.monotonic() + patience
    while True:
        try:
            here = connected(kit)
        except BadMessage:
            here = []
        if len(here) >= wanted:
            return here
        if time.monotonic() > end:
            raise BadMessage(f"{len(here)} of at least {wanted} sites are connected after {patience:g} s; start the others")
        time.sleep(1)


def stop(kit: Path, job: Job) -> None:
    with session(kit) as open_session:
        open_session.abort_job(job.id)


def fetch(kit: Path, job: Job, out: Path) -> None:
    """The run folder of a finished run, as ``fedepd run --out`` would have written it."""
    check_new_folder(out)
    with tempfile.TemporaryDirectory() as folder, session(kit) as open_session:
        place = Path(open_session.download_job_result(job.id, folder))
        found = sorted(place.rglob("fedepd/summary.json"))
        if not found:
            raise BadData(f"the run '{job.task.run}' has no results yet; follow it with 'fedepd federation watch {kit}'")
        shutil.copytree(found[0].parent, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("status.json"))
