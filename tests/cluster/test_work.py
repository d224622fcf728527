"""A job as text and its result as bytes: only what is known is done, and only plain names are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedepd.cluster import work
from fedepd.cluster.work import as_message, do, packed, unpack, work_there
from fedepd.datasets import graph_sha256, load
from fedepd.errors import BadConfig
from fedepd.runs.jobs import Job, run_jobs
from fedepd.tune.cells import Cell

QUICK: dict[str, Any] = {"rounds": 2, "hidden": 8, "clients": 3}
hostile = pytest.mark.hostile


def job(out: Path, **settings: Any) -> Job:
    return Job("fedavg", "default", "synthetic", out, None, {**QUICK, **settings}, notes=("a note",))


@pytest.fixture(scope="module")
def sha256() -> str:
    return graph_sha256(load("synthetic"))


def test_a_job_has_the_same_files_as_here(sha256: str, tmp_path: Path) -> None:
    here = job(tmp_path / "here")
    run_jobs([here])
    do(as_message(job(tmp_path / "there"), sha256, False), tmp_path / "work")
    unpack(packed(tmp_path / "work"), tmp_path / "there")
    assert not (tmp_path / "work.lock").exists()
    assert {path.name for path in here.out.iterdir()} == {
        path.name for path in (tmp_path / "there").iterdir()
    }
    weights = [json.loads((tmp_path / name / "summary.json").read_text())["weights_sha256"] for name in
               ("here", "there")]  # fmt: skip
    assert weights[0] == weights[1]


def test_a_cell_of_a_search_travels_too(sha256: str, tmp_path: Path) -> None:
    cell = Cell("fedavg", "default", "synthetic", tmp_path / "a.json", None, {**QUICK, "seed": 100})
    do(as_message(cell, sha256, False), tmp_path / "work")
    unpack(packed(tmp_path / "work"), cell.out)
    assert 0 <= cell.score <= 1


def test_another_graph_or_version_is_refused(sha256: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="another graph on this worker"):
        do(as_message(job(tmp_path / "a"), "0" * 64, False), tmp_path / "work")
    message = json.loads(as_message(job(tmp_path / "a"), sha256, False))
    message["version"]["torch"] = "1.0"
    with pytest.raises(BadConfig, match="install the same versions"):
        do(json.dumps(message), tmp_path / "work")
    assert list(tmp_path.iterdir()) == []


@hostile
def test_no_other_class_is_made(sha256: str, tmp_path: Path) -> None:
    message = json.loads(as_message(job(tmp_path / "a"), sha256, False))
    message["kind"] = "subprocess:Popen"
    with pytest.raises(KeyError):
        do(json.dumps(message), tmp_path / "work")


@hostile
@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", ".hidden", "a//b", "a\x1b", "a/", "ä", "C:x"]
)
def test_a_name_that_leaves_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="look at that machine"):
        unpack({"summary.json": b"{}", name: b"x"}, tmp_path / "o" / "run")
    assert not (tmp_path / "o").exists()


@hostile
def test_too_much_and_nothing_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConfig, match="no whole result"):
        unpack({}, tmp_path / "run")
    monkeypatch.setattr(work, "MOST_BYTES", 10)
    with pytest.raises(BadConfig, match="more files or bytes"):
        unpack({"a": b"x" * 11}, tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_what_was_begun_here_is_replaced_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "checkpoint-1").write_text("old")
    unpack({"summary.json": b"{}", "more/x.npz": b"1"}, tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").rglob("*")) == ["more", "summary.json", "x.npz"]
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.slow
def test_a_failure_in_the_process_of_its_own_is_one_sentence(sha256: str, tmp_path: Path) -> None:
    broken = Job("fedavg", "default", "synthetic", tmp_path / "a", None, {"rounds": -1})
    failure, files = work_there(as_message(broken, sha256, False))
    assert failure.startswith("rounds is -1")
    assert files == {}
