"""The coordinator's own files and what a server sends home."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.running import make_task
from fedepd.deploy import admin
from fedepd.errors import FedEPDError

JOB = "0f8fad5b-d9cb-469f-a165-70867728950e"
TASK = json.loads(make_task("r", "fedavg").to_json())


def test_the_last_job(tmp_path: Path) -> None:
    (tmp_path / "runs.jsonl").write_text(json.dumps({"job": JOB, "task": TASK, "resume": False}) + "\n")
    assert admin.last_job(tmp_path).task == make_task("r", "fedavg")
    assert admin.last_job(tmp_path, "r").id == JOB


LINES: dict[str, str] = {
    "no JSON": "x",
    "a list": "[]",
    "a number": "3",
    "deep": "[" * 10**5,
    "no task": json.dumps({"job": JOB}),
    "a task that is text": json.dumps({"job": JOB, "task": "r"}),
    "a task without a run": json.dumps({"job": JOB, "task": {}}),
    "a run that is a list": json.dumps({"job": JOB, "task": {**TASK, "run": ["r"]}}),
    "a job that is a path": json.dumps({"job": "../../x", "task": TASK}),
    "a job that is a number": json.dumps({"job": 3, "task": TASK}),
    "no job": json.dumps({"task": TASK}),
    "a field of the wrong kind": json.dumps({"job": JOB, "task": {**TASK, "num_classes": "3"}}),
    "not UTF-8": "\xff",
    "half a line": json.dumps({"job": JOB, "task": TASK})[:-9],
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", LINES)
def test_a_list_of_runs_that_somebody_wrote_into(tmp_path: Path, case: str) -> None:
    (tmp_path / "runs.jsonl").write_bytes(LINES[case].encode("latin-1"))
    with pytest.raises(FedEPDError):
        admin.last_job(tmp_path)


@pytest.mark.hostile
def test_a_list_of_runs_that_is_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs.jsonl")
    with pytest.raises(FedEPDError, match="regular file"):
        admin.last_job(tmp_path)


def result(folder: Path) -> Path:
    folder.mkdir()
    for name in admin.RESULT_FILES:
        (folder / name).write_text("{}")
    return folder


def test_a_run_is_copied_without_the_last_word(tmp_path: Path) -> None:
    admin.copy_run(result(tmp_path / "fedepd"), tmp_path / "out")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == sorted(
        set(admin.RESULT_FILES) - {"status.json"}
    )


def link(folder: Path) -> None:
    (folder / "summary.json").unlink()
    (folder / "summary.json").symlink_to("/etc/passwd")


def linked_folder(folder: Path) -> None:
    (folder / "more").symlink_to("/")


def pipe(folder: Path) -> None:
    os.mkfifo(folder / "x.json")


def brought(name: str) -> Callable[[Path], None]:
    def bring(folder: Path) -> None:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("x")

    return bring


BROUGHT = [
    "report.html",
    ".bashrc",
    "x.py",
    "sub/summary.json",
    "\x1b[2J.json",
    "summary.json.exe",
    "SUMMARY.JSON",
    "checkpoint-000001",
]


@pytest.mark.hostile
@pytest.mark.parametrize(
    "change", [link, linked_folder, pipe, *map(brought, BROUGHT)], ids=range(3 + len(BROUGHT))
)
def test_a_fetched_run_with_something_else_in_it(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = result(tmp_path / "fedepd")
    change(folder)
    with pytest.raises(FedEPDError) as caught:
        admin.copy_run(folder, tmp_path / "out")
    assert str(caught.value).isprintable()
    assert not (tmp_path / "out").exists()


class Session:
    """A server that gives this folder for a job's result."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def download_job_result(self, job: str, folder: str) -> str:
        return str(self.place)


@pytest.mark.hostile
def test_a_result_that_is_too_large(tmp_path: Path) -> None:
    with (result(tmp_path / "fedepd") / "final.safetensors").open("wb") as file:
        file.truncate(admin.MAX_RESULT + 1)
    with pytest.raises(FedEPDError, match="larger than"):
        admin.downloaded(Session(tmp_path), admin.Submitted(JOB, make_task("r", "fedavg")), tmp_path)


TRAINING: dict[str, Any] = {
    "state": "training", "round": 1, "rounds": 2, "seconds": 1.0, "loss": None, "answered": [], "missing": [],
    "refused": [], "val": None,
}  # fmt: skip
STATUS: dict[str, Any] = {
    "a list": [],
    "nothing": None,
    "no state": {},
    "a state that is a number": {"state": 3},
    "a round that is text": {**TRAINING, "round": "1"},
    "a round that is true": {**TRAINING, "round": True},
    "no loss": {k: v for k, v in TRAINING.items() if k != "loss"},
    "a loss that is text": {**TRAINING, "loss": "x"},
    "sites that are text": {**TRAINING, "answered": "abc"},
    "validation that is a list": {**TRAINING, "val": []},
    "refusals that are text": {**TRAINING, "refused": "x"},
    "done without a digest": {"state": "done"},
    "done with a number": {"state": "done", "digest": 3},
    "failed without a reason": {"state": "failed"},
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", STATUS)
def test_a_servers_word_that_cannot_be_read(tmp_path: Path, case: str) -> None:
    with pytest.raises(FedEPDError, match="status of the run"):
        admin.checked_status(STATUS[case])
    (result(tmp_path / "fedepd") / "status.json").write_text(json.dumps(STATUS[case]))
    with pytest.raises(FedEPDError, match="status of the run"):
        admin.outcome(
            Session(tmp_path),
            admin.Submitted(JOB, make_task("r", "fedavg")),
            {"job": "FINISHED:COMPLETED", "state": "ended"},
        )


@pytest.mark.hostile
@pytest.mark.parametrize(
    "now",
    [
        {"state": "\x1b[2J", "error": "\x07"},
        {**TRAINING, "missing": ["\x1b[2J"], "refused": ["a\nb"], "val": {"\x1b[2J": {"macro_f1": 0.5}}},
        {**TRAINING, "val": {"global": 3}},
        {**TRAINING, "val": {"global": {}}},
    ],
    ids=range(4),
)
def test_a_servers_word_is_shown_without_control_characters(now: dict[str, Any]) -> None:
    assert admin.describe(admin.checked_status(now)).isprintable()
