"""A study whose scores are kept: the file takes in what is finished, and stands for folders that are lost."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedepd.datasets import synthetic, write_npz
from fedepd.errors import BadData
from fedepd.report.runs import Run, read_run
from fedepd.reproduction.study.cells import Planned, plan, run_planned, to_run
from fedepd.reproduction.study.kept import KeptStudy
from fedepd.reproduction.study.results import numbers_csv, read_results, with_folders
from fedepd.reproduction.study.scores_file import add_lines, as_text
from fedepd.reproduction.study.targets import Row, Target

TARGET = Target(
    "mine",
    "Mine",
    "comparison",
    (Row("fedavg", label="FedAvg"), Row("isolated", label="Isolated"), Row("centralised", label="All")),
    ("small",),
    2,
)
QUICK: dict[str, Any] = {"rounds": 2, "hidden": 8, "clients": 3, "adapt": True, "shuffle_nodes": True}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "small.npz"
    graph = synthetic(nodes=300, edges=900, classes=4, imbalance=10, smallest=None, communities=6)
    write_npz(replace(graph, proxy_features=True), path)
    return str(path)


@pytest.fixture(scope="module")
def trained(data: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    assert run_planned(to_run(planned(data, out)), 2, lambda: None, lambda *_: None) == 0
    return out


@pytest.fixture
def out(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "out"))


def planned(data: str, out: Path) -> list[Planned]:
    return plan([TARGET], {"mine": [data]}, out, QUICK)


def numbers(cells: list[Planned], kept: KeptStudy | None) -> str:
    return numbers_csv(read_results(TARGET, cells, None if kept is None else kept.all_runs()))


def test_a_lost_folder_is_stood_for(data: str, out: Path, tmp_path: Path) -> None:
    """All that the plan knows is as in the folder: settings, the data's facts, the protocol in words."""
    kept = KeptStudy(tmp_path / "k", cells := planned(data, out))
    kept.update()
    with_all, before = numbers(cells, kept), {path: read_run(path) for path in kept.runs}
    clients = {path: run.num_clients for path, run in before.items()}
    shutil.rmtree(out)
    again = KeptStudy(tmp_path / "k", cells)
    again.update()
    assert all(map(again.has, cells))
    assert numbers(cells, again) == with_all
    assert len(with_all.splitlines()) > 200
    for path, run in again.all_runs().items():
        assert run.kept_in == "k"
        assert {name: before[path].config[name] for name in run.config} == run.config
        assert run.num_clients == clients[path]
        assert run.summary.keys() <= before[path].summary.keys()
        assert run.summary["protocol"] == before[path].summary["protocol"]
        assert run.summary["proxy_features"]
    assert again.all_runs() == again.all_runs()
    assert read_results(TARGET, cells, again.all_runs()).is_proxy(data)
    assert with_folders(read_results(TARGET, cells, again.all_runs())).runs == []


def test_scores_that_are_tested_are_those_of_the_folders(data: str, out: Path, tmp_path: Path) -> None:
    kept = KeptStudy(tmp_path / "k", cells := planned(data, out))
    kept.update()
    rows = [text.splitlines() for text in (numbers(cells, None), numbers(cells, kept))]
    differing = {mine.split(",")[-3] for mine, theirs in zip(*rows, strict=True) if mine != theirs}
    assert differing <= {"head_acc", "medium_acc", "tail_acc", "seconds", "cpu_seconds", "peak_rss_mb"}


def test_nothing_that_was_not_planned_is_lost(data: str, out: Path, tmp_path: Path) -> None:
    """And half of the folders after the other half make the same file as all at once."""
    whole = KeptStudy(tmp_path / "whole", cells := planned(data, out))
    whole.update()
    for part in (cells[3:], cells[:3]):
        KeptStudy(tmp_path / "parts", part).update()
    assert (tmp_path / "parts").read_bytes() == (tmp_path / "whole").read_bytes()
    assert (tmp_path / "whole").read_text() == as_text(whole.lines)
    assert len(whole.lines) == 6


def test_a_folder_and_a_line_that_disagree(data: str, out: Path, tmp_path: Path) -> None:
    """Costs may differ: the cell was trained on another machine."""
    first = KeptStudy(tmp_path / "k", cells := planned(data, out))
    first.update()
    cell = cells[0].job.out.name
    for name, text in (("seconds", "9.00"), ("personal.right", "1")):
        (tmp_path / "k").unlink()
        add_lines(tmp_path / "k", {cell: {**first.lines[cell], name: text}})
        if name == "seconds":
            KeptStudy(tmp_path / "k", cells).update()
    message = (
        rf"the folder of the cell {cell} has personal\.right = \d+, but '.*k' has 1; remove the folder or"
    )
    with pytest.raises(BadData, match=message):
        KeptStudy(tmp_path / "k", cells).update()


def test_cells_of_another_version_are_not_kept(data: str, out: Path, tmp_path: Path) -> None:
    cells = planned(data, out)
    (cells[0].job.out / "env.json").write_text(json.dumps({"fedepd": "0.0.1"}))
    kept = KeptStudy(tmp_path / "k", cells)
    kept.update()
    assert kept.foreign == {cells[0].job.out.name}
    assert (len(kept.lines), len(kept.all_runs())) == (5, 6)


def test_a_renamed_folder_is_no_cell(data: str, out: Path, tmp_path: Path) -> None:
    cells = planned(data, out)
    shutil.rmtree(cells[0].job.out)
    cells[1].job.out.rename(cells[0].job.out)
    with pytest.raises(BadData, match=f"holds another run .{cells[1].job.out.name}.; remove it"):
        KeptStudy(tmp_path / "k", cells).update()


def test_a_running_study_adds_now_and_then(data: str, out: Path, tmp_path: Path) -> None:
    """A file that is damaged meanwhile stops it at the end alone."""
    kept = KeptStudy(tmp_path / "k", planned(data, out))
    kept.now_and_then()
    assert len(kept.lines) == 6
    (tmp_path / "k").write_text("<<<<<<< HEAD")
    kept.now_and_then()  # too soon
    kept._last -= 3600
    kept.now_and_then()
    with pytest.raises(BadData, match="does not begin as a file of kept scores"):
        kept.update()


def test_a_run_has_a_folder_unless_it_says_where_it_is_kept(trained: Path) -> None:
    run: Run = read_run(next((trained / "cells").iterdir()))
    assert (run.kept_in, run.num_clients) == ("", len(run.clients))
