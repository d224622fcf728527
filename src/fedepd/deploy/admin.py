"""The coordinator's actions on a running federation: submit a run, follow it, stop it, fetch its results."""

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

from fedepd.deploy import templates
from fedepd.deploy.contents import JOB, entries
from fedepd.deploy.controller import LAST_WORD, RESULT
from fedepd.deploy.kits import prepare_admin
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import STATUS
from fedepd.errors import BadConfig, BadData, BadMessage, FedEPDError
from fedepd.files import append_line, parse_json, read_bytes, read_json, write_json
from fedepd.runs.folder import FILES, check_new_run, is_finished
from fedepd.shown import listed, sentence, shown

RUNS = "runs.jsonl"
"""A file in the admin kit that lists every job submitted with this kit, and its task."""
LOST_AFTER = 45.0
"""Seconds after which a job that is listed as running but does not answer counts as lost.

A restarted server still lists the jobs that it lost.
"""
GIVE_UP = 5
"""Supervision ends after this many resumed jobs in a row that did not complete another round."""
MAX_RUNS, MAX_STATUS, MAX_RESULT = 256 * 2**20, 2**20, 8 * 2**30
"""Largest size in bytes of the list of runs, of a job's final status and of a fetched run."""
RESULT_FILES = (*FILES, LAST_WORD)
"""The files that the server's ledger writes, and the controller's final status."""
STATUS_TYPES: dict[str, dict[str, tuple[type, ...]]] = {
    "training": {
        "round": (int,), "rounds": (int,), "seconds": (int, float), "loss": (int, float, type(None)),
        "answered": (list,), "missing": (list,), "refused": (list,), "val": (dict, type(None)),
    },
    "done": {"digest": (str,)},
    "failed": {"error": (str,)},
}  # fmt: skip
"""The fields of a server's status report and their types, by the state of the run."""

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Submitted:
    """A run that was handed to the server: NVFlare's name for the job, and its task."""

    id: str
    task: FederationTask


@contextmanager
def session(kit: Path, timeout: float = 15.0) -> Iterator[Any]:
    """Open a session of the coordinator. Any exception of NVFlare inside it becomes one sentence."""
    user = prepare_admin(kit).name
    opened = None
    try:
        with redirect_stdout(io.StringIO()):  # NVFlare announces every connection
            opened = new_secure_session(user, str(kit.resolve()), timeout=timeout)
        yield opened
    except FedEPDError:
        raise
    except Exception as cause:
        what = shown(" ".join(str(cause).split()) or type(cause).__name__, 500)
        raise BadMessage(
            f"the federation's server did not answer or refused the request ({what}); "
            f"start the server, or give the admin kit of this federation"
        ) from cause
    finally:
        if opened is not None:
            opened.close()


def submit(kit: Path, task: FederationTask, resume: bool = False) -> Submitted:
    if not resume and any(line["task"]["run"] == task.run for line in submitted(kit)):
        raise BadConfig(
            f"a run '{task.run}' was submitted before; add --resume to continue it, or give another --run"
        )
    with tempfile.TemporaryDirectory() as folder:
        job_folder = Path(folder) / task.run
        write_job(job_folder, task, resume)
        with session(kit) as open_session:
            job = Submitted(open_session.submit_job(str(job_folder)), task)
    append_line(kit / RUNS, {"job": job.id, "task": json.loads(task.to_json()), "resume": resume})
    return job


def write_job(folder: Path, task: FederationTask, resume: bool) -> None:
    """Write a job folder. A job holds settings only; no code is sent."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    for name, content in templates.job(task.to_json(), resume).items():
        write_json(config / name, content)
    meta = {
        "name": task.run,
        "resource_spec": {},
        "min_clients": task.min_sites,
        "deploy_map": {"app": ["@ALL"]},
    }
    write_json(folder / "meta.json", meta)


def last_job(kit: Path, run: str | None = None) -> Submitted:
    found = [line for line in submitted(kit) if run is None or line["task"]["run"] == run]
    if not found:
        what = "nothing yet" if run is None else f"no run '{shown(run)}'"
        raise BadData(f"'{shown(kit, 300)}' has submitted {what}; start with 'fedepd federation submit'")
    return Submitted(found[-1]["job"], FederationTask.from_json(json.dumps(found[-1]["task"])))


def submitted(kit: Path) -> list[dict[str, Any]]:
    """Every line of the kit's list of jobs. Each is checked, because anyone can edit the file."""
    if not (kit / RUNS).exists():
        return []
    lines = read_bytes(kit / RUNS, MAX_RUNS).splitlines()
    return [
        _submitted_line(line, f"line {number} of '{shown(kit / RUNS, 300)}'")
        for number, line in enumerate(lines, 1)
    ]


def _submitted_line(line: bytes, where: str) -> dict[str, Any]:
    content = parse_json(line, where)
    task = content.get("task") if isinstance(content, dict) else None
    if (
        not isinstance(task, dict)
        or not isinstance(task.get("run"), str)
        or not JOB.fullmatch(str(content.get("job")))
    ):
        raise BadData(f"{where} does not name a job and its task; remove the line or restore the file")
    return dict(content)


def connected(kit: Path) -> list[str]:
    with session(kit) as open_session:
        return sorted(client.name for client in open_session.get_system_info().client_info)


def look(open_session: Any, job: Submitted) -> dict[str, Any]:
    """The job's state according to NVFlare and, while the job runs, the controller's own status."""
    status = str(open_session.get_job_meta(job.id)["status"])
    if status != "RUNNING":
        return {"job": status, "state": "ended" if status.startswith("FINISHED") else "waiting"}
    try:
        return {"job": status, **checked_status(open_session.do_app_command(job.id, STATUS, {}))}
    except (InternalError, JobNotRunning, NoReply, CommandError):  # not yet, or not any more
        return {"job": status, "state": "silent"}


def checked_status(now: Any) -> dict[str, Any]:
    """The server's status of a run, checked to have the fields that ``describe`` reads."""
    if not isinstance(now, dict) or not isinstance(now.get("state"), str):
        raise BadMessage(
            "the server's status of the run cannot be read; install the same fedepd version everywhere"
        )
    for name, types in STATUS_TYPES.get(now["state"], {}).items():
        if not isinstance(now.get(name, ...), types) or isinstance(now[name], bool):
            raise BadMessage(
                f"the server's status of the run has no usable '{name}'; "
                f"install the same fedepd version everywhere"
            )
    return now


def describe(now: dict[str, Any]) -> str:
    """One line about a run.

    Names and reasons come from other machines, so each is cleaned before it is shown.
    """
    if now.get("state") != "training":
        return " ".join(sentence(now[name]) for name in ("state", "job", "error") if name in now)
    parts = [
        f"round {shown(now['round'])}/{shown(now['rounds'])}",
        f"{now['seconds']:.2f} s",
        f"{len(now['answered'])} sites answered",
    ]
    if now["loss"] is not None:
        parts.append(f"loss {now['loss']:.4f}")
    for kind, scores in (now["val"] or {}).items():
        score = scores.get("macro_f1") if isinstance(scores, dict) else None
        number = f"macro-F1 {100 * score:.2f}" if isinstance(score, (int, float)) else "-"
        parts.append(f"{shown(kind)} val {number}")
    if now.get("spent") is not None:
        parts.append(sentence(now["spent"]))
    if now["missing"]:
        parts.append(f"unreachable: {listed(now['missing'], 20)}")
    parts += [f"refused {sentence(each, 300)}" for each in now["refused"]]
    parts += [sentence(each, 300) for each in now.get("defence", [])]
    return ", ".join(parts)


def supervise(
    kit: Path, job: Submitted, tell: Tell, patience: float = 600.0, resume: bool = True
) -> dict[str, Any]:
    """Follow a run to its end. A job that dies is submitted again and continues from its checkpoint."""
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
            raise BadMessage(
                f"the run '{job.task.run}' was resumed {GIVE_UP} times and did not complete another round; "
                f"look at the server's log"
            )
        wait_for_sites(kit, job.task.min_sites, patience)
        job = submit(kit, job.task, resume=True)
        tell({"state": "resumed", "job": job.id, "round": reached})


def follow(kit: Path, job: Submitted, tell: Tell, patience: float) -> tuple[dict[str, Any], int]:
    """Follow a job until it ends or is lost. Returns its outcome and the last round seen."""
    heard = time.monotonic()
    latest = 0
    told: dict[str, Any] = {}
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
                    if now != told:
                        tell(now)
                        told = now
                    time.sleep(0.5)
        except BadMessage as cause:
            if time.monotonic() - heard > patience:
                raise
            tell({"state": "unreachable", "error": str(cause)})
            time.sleep(3)


def outcome(open_session: Any, job: Submitted, ended: dict[str, Any]) -> dict[str, Any]:
    """The controller's final status, read from the job's result."""
    with tempfile.TemporaryDirectory() as folder:
        result = downloaded(open_session, job, Path(folder))
        if result is None or not (result / LAST_WORD).is_file():
            return {**ended, "state": "lost"}
        return {**ended, **checked_status(read_json(result / LAST_WORD, MAX_STATUS)), "job": ended["job"]}


def downloaded(open_session: Any, job: Submitted, folder: Path) -> Path | None:
    """The controller's folder in a job's result.

    A result that is too large or holds a link or pipe is refused.
    """
    place = Path(open_session.download_job_result(job.id, str(folder)))
    found = entries(place)
    if sum((place / path).stat().st_size for path, is_folder in found.items() if not is_folder) > MAX_RESULT:
        raise BadMessage(
            f"the result of run '{job.task.run}' is larger than {MAX_RESULT:,} bytes; "
            f"look at the server's folder"
        )
    inside = sorted(
        path for path, is_folder in found.items() if is_folder and path.rpartition("/")[2] == RESULT
    )
    return place / inside[0] if inside else None


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
            raise BadMessage(
                f"too few sites are connected after {patience:g} s: {len(here)} instead of "
                f"at least {wanted}; start the others"
            )
        time.sleep(1)


def stop(kit: Path, job: Submitted) -> None:
    with session(kit) as open_session:
        open_session.abort_job(job.id)


def fetch(kit: Path, job: Submitted, out: Path) -> None:
    """Fetch the folder of a finished run. It looks as if ``fedepd run --out`` had written it."""
    check_new_run(out)
    with tempfile.TemporaryDirectory() as folder, session(kit) as open_session:
        result = downloaded(open_session, job, Path(folder))
        if result is None or not is_finished(result):
            raise BadData(
                f"the run '{job.task.run}' has no results yet; follow it with 'fedepd federation watch {kit}'"
            )
        copy_run(result, out)


def copy_run(result: Path, out: Path) -> None:
    """Copy the files of a run. If the result holds anything else, it is refused before a file is copied."""
    found = entries(result)
    for path, is_folder in found.items():
        if is_folder or path not in RESULT_FILES:
            raise BadData(
                f"the fetched run holds '{shown(path)}', which does not belong to a run; "
                f"look at the server's folder"
            )
    out.mkdir(parents=True, exist_ok=True)
    for path in found:
        if path != LAST_WORD:
            shutil.copyfile(result / path, out / path, follow_symlinks=False)
