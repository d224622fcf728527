"""``fedepd audit`` from the command line: files, table, JSON, gate, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd import run
from fedepd.cli.dispatch import main
from fedepd.datasets import load
from hostile import ANY_FILE, ANY_JSON, refusal

FAST = ["--skip", "membership,links,recovery", "--rounds", "2", "--quiet"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "run"
    run("synthetic", "fedepd", rounds=2, clients=4, hidden=8, out=folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy, because audits write into it and tests spoil it."""
    return Path(shutil.copytree(made, tmp_path / "run"))


def test_a_run_is_audited(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(folder), *FAST]) == 0
    said = capsys.readouterr().out
    assert "Rows of one node" in said
    assert "With guard and secure sums on:" in said
    content = json.loads((folder / "audit.json").read_text())
    assert content["rounds"] == 2
    assert (folder / "audit.html").read_text().startswith("<!doctype html>")


@pytest.mark.heavy
def test_json_is_one_object_and_files_go_elsewhere(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["audit", str(folder), *FAST, "--json", "--out", str(tmp_path / "new" / "place")]) == 0
    said: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert said == json.loads((tmp_path / "new" / "place" / "audit.json").read_text())
    assert not (folder / "audit.json").exists()


@pytest.mark.heavy
def test_a_gate_stops_a_pipeline(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The run has no protection, so its own setting is off, where every class of a client is sent."""
    assert main(["audit", str(folder), *FAST, "--fail-above", "classes.shown=0.5"]) == 1
    complaint = capsys.readouterr().err
    assert complaint == "fedepd: with the run's own setting 'off', classes.shown is 1, above 0.5\n"
    assert (folder / "audit.json").exists()
    assert main(["audit", str(folder), *FAST, "--fail-above", "classes.shown=1"]) == 0


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--fail-above", "rows.fwe=0"], "did you mean 'rows.few'"),
        (["--fail-above", "links.auc=0.5"], "its attack is skipped"),
        (["--skip", "rowz"], "did you mean 'rows'"),
        (["--rounds", "0"], "rounds is 0"),
        (["--shadow", "3"], "did you mean '--shadows'"),
    ],
)
def test_mistakes_are_found_before_anything_is_written(
    folder: Path, more: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in refusal(capsys, folder, "audit", str(folder), *FAST, *more)
    assert not (folder / "audit.json").exists()


@pytest.mark.heavy
def test_a_graph_from_memory_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = load("synthetic")
    run(graph, "fedavg", rounds=1, clients=4, hidden=8, out=tmp_path / "run")
    said = refusal(capsys, tmp_path, "audit", str(tmp_path / "run"), *FAST)
    assert "graph from memory" in said
    assert "--data" in said
    np.savez(
        tmp_path / "graph.npz",
        x=graph.x.numpy(),
        edge_index=graph.edge_index.numpy(),
        y=graph.y.numpy(),
    )
    assert main(["audit", str(tmp_path / "run"), *FAST, "--data", str(tmp_path / "graph.npz")]) == 0


@pytest.mark.hostile
@pytest.mark.parametrize("case", [*ANY_FILE, *ANY_JSON])
def test_a_config_that_is_none_is_refused(
    folder: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    {**ANY_FILE, **ANY_JSON}[case](folder / "config.json")
    assert "config.json" in refusal(capsys, folder.parent, "audit", str(folder), *FAST)


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"config_hash": "0" * 12}, "was changed"),
        ({"rounds": -1}, "'rounds' is -1"),
        ({"source": {"data": 3}}, "'source.data' is 3"),
        ({"source": {"data": "/no/such/file.npz", "data_dir": None}}, "file.npz"),
    ],
)
def test_a_config_that_lies_is_refused(
    folder: Path, change: dict[str, Any], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    assert says in refusal(capsys, folder.parent, "audit", str(folder), *FAST)
    assert not (folder / "audit.json").exists()
