"""``fedepd data import`` on tables as they are: what it refuses, what it suggests, what it remembers."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from datasets.test_suggest import tables
from fedepd.cli import main
from fedepd.clients.clients_dir import read_clients
from fedepd.clients.split import SplitConfig, split
from fedepd.datasets import read_npz
from fedepd.datasets.schema import FeatureSchema
from fedepd.model.model import load_model
from fedepd.rng import seeded_numpy

QUICK = ["--rounds", "1", "--hidden", "4", "--partition", "dirichlet", "--clients", "2", "--quiet"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    tables(tmp_path)
    return tmp_path


def suggestion(err: str) -> list[str]:
    line = next(line for line in err.splitlines() if "this may work: " in line)
    return shlex.split(line.partition("this may work: ")[2])[1:]


def test_one_failed_try_leads_to_the_command_that_works(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["data", "import", "--nodes", "n.csv", "--edges", "e.csv", "-o", "g.npz"]) == 2
    err = capsys.readouterr().err
    assert "no column 'id'" in err
    assert not (here / "g.npz").exists()
    assert main(suggestion(err)) == 0
    err = capsys.readouterr().err
    assert "n.csv line 9: 'n/a' in column 'logins' counts as missing" in err
    assert "1 edges have an end that is not in the table of nodes" in err
    graph = read_npz(here / "g.npz")
    assert "opened age" in FeatureSchema.from_json(graph.schema).feature_names


def test_options_of_tables_are_refused_elsewhere(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "import", "g.graphml", "--impute", "mean", "-o", "g.npz"]) == 2
    assert "--impute needs --nodes and --edges" in capsys.readouterr().err


def imported(here: Path, *more: str) -> None:
    words = "data import --nodes n.csv --edges e.csv --id account --label fraud --one-hot --dates"
    words += " --impute median --scale --leave-out note --edge-features -o g.npz"
    assert main([*words.split(), "--missing", "5 EUR", *more]) == 0


@pytest.mark.parametrize("ends", ["drop", "external"])
def test_a_model_treats_new_tables_as_import_did(
    ends: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the file and from its tables come the same predictions, and none for external nodes."""
    imported(here, "--unknown-ends", ends)
    assert main(["run", "fedavg", "--data", "g.npz", *QUICK, "--out", "run"]) == 0
    assert main(["export", "run", "-o", "model"]) == 0
    schema = load_model("model").schema
    assert schema is not None
    assert all(not rule.is_open for rule in schema.rules)
    assert main(["predict", "model", "--data", "g.npz", "-o", "file.csv"]) == 0
    words = [
        "predict",
        "model",
        "--nodes",
        "n.csv",
        "--edges",
        "e.csv",
        "--id",
        "account",
        "-o",
        "tables.csv",
    ]
    assert main(words) == 0, capsys.readouterr().err
    assert Path("file.csv").read_text() == Path("tables.csv").read_text()
    assert len(Path("file.csv").read_text().splitlines()) == 41


def test_a_split_fills_gaps_as_a_run_does(here: Path) -> None:
    imported(here, "--unknown-ends", "drop")
    words = "data split g.npz --partition dirichlet --clients 2 -o clients"
    assert main(words.split()) == 0
    assert main(["run", "fedavg", "--data", "g.npz", *QUICK, "--out", "run"]) == 0
    first = read_clients("clients")[0].graph
    assert main(["export", "run", "-o", "model"]) == 0
    assert FeatureSchema.from_json(first.schema) == load_model("model").schema


def test_the_oldest_nodes_train(here: Path) -> None:
    """Days are 1 to 28 of a month. In each class, no training node is younger than a test node."""
    imported(here, "--unknown-ends", "external", "--split-by", "opened")
    graph = read_npz(here / "g.npz")
    assert graph.time is not None
    assert graph.time_name == "opened"
    assert bool(torch.isnan(graph.time[-1]))  # the external node
    train, val, test = split(graph, SplitConfig(), seeded_numpy(0, "split", 0))
    for k in (0, 1):
        mine = graph.y == k
        days = [graph.time[mine & mask] for mask in (train, val, test)]
        assert all(part.numel() for part in days)
        assert days[0].max() <= days[1].min() <= days[1].max() <= days[2].min()


def test_the_notes_are_in_the_file(here: Path) -> None:
    imported(here, "--unknown-ends", "drop")
    notes = np.load("g.npz")["notes"].tolist()
    assert any("were dropped" in note for note in notes)


def test_amounts_become_weights_in_one_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "w.csv").write_text("account,fraud,age\na,x,1\nb,y,2\nc,x,3\n")
    (here / "t.csv").write_text("source,target,amount\na,b,3\nb,a,4\nb,c,1\n")
    words = "data import --nodes w.csv --edges t.csv --id account --label fraud --edge-weight amount -o w.npz"
    assert main([*words.split(), "--edge-weight-as", "none"]) == 0
    out, err = capsys.readouterr()
    assert "note: an edge counts by amount, summed over its rows; --edge-weight-as log1p takes its" in err
    assert "from 1 to 7, median 1" in out
    weight = read_npz(here / "w.npz").edge_weight
    assert weight is not None
    assert weight.tolist() == [7, 1]
    assert main(["data", "check", "w.npz"]) in (0, 1)
    assert "from 1 to 7, median 1" in capsys.readouterr().out


def test_a_bad_weight_leaves_no_file(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "w.csv").write_text("account,fraud,age\na,x,1\nb,y,2\n")
    (here / "t.csv").write_text("source,target,amount\na,b,3\na,b,-4\n")
    words = "data import --nodes w.csv --edges t.csv --id account --label fraud --edge-weight amount -o w.npz"
    assert main(words.split()) == 2
    assert "t.csv line 3: column 'amount' is -4, but the weight of an edge is" in capsys.readouterr().err
    assert not (here / "w.npz").exists()
    assert main(["data", "import", "g.graphml", "--edge-weight", "w", "-o", "g.npz"]) == 2
    assert "--edge-weight needs --nodes and --edges" in capsys.readouterr().err
