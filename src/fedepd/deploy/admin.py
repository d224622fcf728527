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
"""In the admin kit: every job ever submitted with it, and for which task."""
LOST_AFTER = 45.0
"""Seconds in which a job may be listed as running without answering: a restarted server lists jobs it has lost."""
GIVE_UP = 5
"""So many resumed jobs in a row without one more round end the supervision."""
MAX_RUNS, MAX_STATUS, MAX_RESULT = 256 * 2**20, 2**20, 8 * 2**30
"""Bytes of the list of runs, of a job's last word and of a fetched run."""
RESULT_FILES = (*FILES, LAST_WORD)
"""What the server's ledger writes, and the controller's last word."""
STATUS_TYPES: dict[str, dict[str, tuple[type, ...]]] = {
    "training": {
        "round": (int,), "rounds": (int,), "seconds": (int, float), "loss": (int, float, type(None)), "answered": (list,),
        "missing": (list,), "refused": (list,), "val": (dict, type(None)),
    },
    "done": {"digest": (str,)},
    "failed": {"error": (str,)},
}  # fmt: skip
"""What a server says of a run, by the run's state."""

Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Submitted:
    """A run that was handed to the server: NVFlare's name for the job, and its task."""

    id: str
    task: FederationTask


@contextmanager
def session(kit: Path, timeout: float = 15.0) -> Iterator[Any]:
    """A session of the coordinator; whatever NVFlare raises inside becomes one sentence."""
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
            f"the federation's server refused or did not answer ({what}); start it, or give its admin kit"
        ) from cause
    finally:
        if opened is not None:
            opened.close()


def submit(kit: Path, task: FederationTask, resume: bool = False) -> Submitted:
    if not resume and any(line["task"]["run"] == task.run for line in submitted(kit)):
        raise BadConfig(
            f"a run '{task.run}' was submitted before; add --resume to go on with it or give another --run"
        )
    with tempfile.TemporaryDirectory() as folder:
        job_folder = Path(folder) / task.run
        write_job(job_folder, task, resume)
        with session(kit) as open_session:
            job = Submitted(open_session.submit_job(str(job_folder)), task)
    append_line(kit / RUNS, {"job": job.id, "task": json.loads(task.to_json()), "resume": resume})
    return job


def write_job(folder: Path, task: FederationTask, resume: bool) -> None:
    """A job is settings alone: no code travels."""
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
    """Every line of the kit's own list of jobs, checked: the file lies open in a folder."""
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
    """NVFlare's word on the job, and the controller's own while it runs."""
    status = str(open_session.get_job_meta(job.id)["status"])
    if status != "RUNNING":
        return {"job": status, "state": "ended" if status.startswith("FINISHED") else "waiting"}
    try:
        return {"job": status, **checked_status(open_session.do_app_command(job.id, STATUS, {}))}
    except (InternalError, JobNotRunning, NoReply, CommandError):  # not yet, or not any more
        return {"job": status, "state": "silent"}


def checked_status(now: Any) -> dict[str, Any]:
    """The server's word on a run, if it has the form that ``describe`` reads."""
    if not isinstance(now, dict) or not isinstance(now.get("state"), str):
        raise BadMessage(
            "the server's word on the run cannot be read; install the same fedepd version everywhere"
        )
    for state, needed in STATUS_TYPES.items():
        for name, types in needed.items() if state == now["state"] else ():
            if not isinstance(now.get(name, ...), types) or isinstance(now[name], bool):
                raise BadMessage(
                    f"the server's word on the run has no usable '{name}'; install the same fedepd version everywhere"
                )
    return now


def describe(now: dict[str, Any]) -> str:
    """One line about a run; every name and reason in it was written elsewhere."""
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
    if now["missing"]:
        parts.append(f"unreachable: {listed(now['missing'], 20)}")
    parts += [f"refused {sentence(each, 300)}" for each in now["refused"]]
    parts += [sentence(each, 300) for each in now.get("defence", [])]
    return ", ".join(parts)


def supervise(
    kit: Path, job: Submitted, tell: Tell, patience: float = 600.0, resume: bool = True
) -> dict[str, Any]:
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
            raise BadMessage(
                f"the run '{job.task.run}' was resumed {GIVE_UP} times without one more round; look at the server's log"
            )
        wait_for_sites(kit, job.task.min_sites, patience)
        job = submit(kit, job.task, resume=True)
        tell({"state": "resumed", "job": job.id, "round": reached})


def follow(kit: Path, job: Submitted, tell: Tell, patience: float) -> tuple[dict[str, Any], int]:
    """Until the job ends or is lost: how, and the last round seen."""
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
    """The controller's last word, from the job's result."""
    with tempfile.TemporaryDirectory() as folder:
        result = downloaded(open_session, job, Path(folder))
        if result is None or not (result / LAST_WORD).is_file():
            return {**ended, "state": "lost"}
        return {**ended, **checked_status(read_json(result / LAST_WORD, MAX_STATUS)), "job": ended["job"]}


def downloaded(open_session: Any, job: Submitted, folder: Path) -> Path | None:
    """The controller's folder in a job's result; a result with a link, a pipe or too much in it is refused."""
    place = Path(open_session.download_job_result(job.id, str(folder)))
    found = entries(place)
    if sum((place / path).stat().st_size for path, is_folder in found.items() if not is_folder) > MAX_RESULT:
        raise BadMessage(
            f"the result of run '{job.task.run}' is larger than {MAX_RESULT:,} bytes; look at the server's folder"
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
                f"{len(here)} of at least {wanted} sites are connected after {patience:g} s; start the others"
            )
        time.sleep(1)


def stop(kit: Path, job: Submitted) -> None:
    with session(kit) as open_session:
        open_session.abort_job(job.id)


def fetch(kit: Path, job: Submitted, out: Path) -> None:
    """The run folder of a finished run, as ``fedepd run --out`` would have written it."""
    check_new_run(out)
    with tempfile.TemporaryDirectory() as folder, session(kit) as open_session:
        result = downloaded(open_session, job, Path(folder))
        if result is None or not is_finished(result):
            raise BadData(
                f"the run '{job.task.run}' has no results yet; follow it with 'fedepd federation watch {kit}'"
            )
        copy_run(result, out)


def copy_run(result: Path, out: Path) -> None:
    """The files of a run folder, each looked at first; what a run folder does not have is refused, and nothing is copied."""
    found = entries(result)
    for path, is_folder in found.items():
        if is_folder or path not in RESULT_FILES:
            raise BadData(
                f"the fetched run holds '{shown(path)}', which is no file of a run; look at the server's folder"
            )
    out.mkdir(parents=True, exist_ok=True)
    for path in found:
        if path != LAST_WORD:
            shutil.copyfile(result / path, out / path, follow_symlinks=False)
