"""``fedepd data check`` says what a graph was made from, and explains its words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.test_suggest import tables
from fedepd.cli import main
from fedepd.cli.data_check import check_graph, import_notes
from fedepd.datasets import write_npz
from fedepd.types import Graph


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    tables(tmp_path)
    words = "data import --nodes n.csv --edges e.csv --id account --label fraud --one-hot --dates"
    words += " --impute median --leave-out note,fee --unknown-ends drop --edge-features -o g.npz"
    assert main(words.split()) == 0
    capsys.readouterr()
    return "g.npz"


def test_columns_gaps_dates_and_drops_are_on_one_screen(
    graph: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_graph(graph, None, as_json=False)
    out = capsys.readouterr().out
    for said in (
        "share of edges that join nodes of one class",
        "1: median of training rows",
        "days before 2024-01-28",
        "sum, mean, max over the edges that go out",
        "1 edges have an end that is not in the table of nodes",
        "To do:",
    ):
        assert said in out
    assert len(out.splitlines()) <= 60


def test_json_has_it_too(graph: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = check_graph(graph, None, as_json=True)
    said = json.loads(capsys.readouterr().out)
    assert (said["verdict"], code) in (("fine", 0), ("usable, with warnings", 1))
    assert {"balance", "opened age"} <= {each["column"] for each in said["columns"]}
    assert any("were dropped" in note for note in said["notes"])


def test_notes_that_are_none(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", notes=np.ones(3))
    assert import_notes(str(tmp_path / "a.npz")) == []
    assert import_notes("synthetic") == []


def test_what_a_vault_would_set_aside_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of 10 and 4 nodes, a fifth is 2 and 0."""
    y = torch.tensor([0] * 10 + [1] * 4)
    ring = torch.stack([torch.arange(14), (torch.arange(14) + 1) % 14])
    write_npz(Graph.make(torch.eye(14), ring, y), tmp_path / "g.npz")
    file = str(tmp_path / "g.npz")
    said = "2 nodes are in the vault (vault = 0.2); 1 of 2 classes are too small to have one there"
    main(["data", "check", file, "--vault", "0.2"])
    assert said in " ".join(capsys.readouterr().out.split())
    main(["data", "check", file, "--vault", "0.2", "--json"])
    assert json.loads(capsys.readouterr().out)["vault"] == said
    main(["data", "check", file])
    assert "in the vault" not in capsys.readouterr().out
    assert main(["data", "check", file, "--vault", "1.5"]) == 2
    assert "vault is 1.5; give a share" in capsys.readouterr().err
