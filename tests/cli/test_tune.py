"""``fedepd tune``, and its file in ``run``, ``compare`` and ``reproduce``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedepd.cli import main
from fedepd.datasets import synthetic, write_npz
from fedepd.runs.tuned import Entry, as_toml

pytest.importorskip("optuna", reason="needs the extra 'tune'")

QUICK = ["--rounds", "2", "--hidden", "4", "--clients", "2", "--quiet"]
ABOUT = {
    "data": ["small"],
    "trials": 2,
    "extra": 0,
    "rounds": 2,
    "seeds": [100],
    "vault": 0.2,
    "per_graph": False,
    "objective": "validation",
}


@pytest.fixture
def data(tmp_path: Path) -> str:
    graph = synthetic(nodes=120, edges=300, classes=3, imbalance=3, smallest=20, features=8)
    write_npz(graph, tmp_path / "small.npz")
    return str(tmp_path / "small.npz")


@pytest.fixture
def tuned(tmp_path: Path) -> str:
    entry = Entry("fedavg", "default", 0.5, 1, {"lr": 0.03, "dropout": 0.25})
    (tmp_path / "tuned.toml").write_text(as_toml([entry], ABOUT))
    return str(tmp_path / "tuned.toml")


def config(folder: Path) -> dict[str, dict[str, object]]:
    experiment: dict[str, dict[str, object]] = json.loads((folder / "config.json").read_text())["experiment"]
    return experiment


def test_what_tune_finds_can_be_run(tmp_path: Path, data: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tune"
    words = ["tune", "fedavg", "--data", data, "--trials", "2", "--vault", "0.2", *QUICK, "--out", str(out)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert f"tuned settings: {out / 'tuned.toml'}" in said
    final = ["--vault", "0.2", "--score-on", "vault", "--tuned", str(out / "tuned.toml")]
    assert main(["run", "fedavg", "--data", data, *QUICK, *final, "--out", str(tmp_path / "run")]) == 0
    settings = json.loads((out / "trials.json").read_text())["searches"][0]["trials"]
    best = max((t for t in settings if t["state"] == "complete"), key=lambda t: sum(t["scores"]))
    found = config(tmp_path / "run")
    assert found["training"]["lr"] == best["settings"]["lr"]
    assert found["model"]["dropout"] == best["settings"]["dropout"]
    assert found["split"] == {**found["split"], "vault": 0.2, "score_on": "vault"}


@pytest.mark.usefixtures("no_figures")
def test_a_graph_chooses_between_the_default_and_what_was_found_before(
    tmp_path: Path, data: str, tuned: str
) -> None:
    out = tmp_path / "choice"
    words = ["tune", "fedavg", "--data", data, "--per-graph", "--trials", "2", "--earlier", tuned, *QUICK]
    assert main([*words, "--out", str(out)]) == 0
    (search,) = json.loads((out / "trials.json").read_text())["searches"]
    first, second = (trial["settings"] for trial in search["trials"])
    assert second == {**first, "lr": 0.03, "dropout": 0.25}


def test_a_comparison_tunes_the_methods_that_the_file_names(tmp_path: Path, data: str, tuned: str) -> None:
    out = tmp_path / "compare"
    words = ["fedavg", "fedlc", "--data", data, "--seeds", "1", "--tuned", tuned, *QUICK, "--out", str(out)]
    assert main(["compare", *words]) == 0
    assert config(out / "fedavg-seed0")["training"]["lr"] == 0.03
    assert config(out / "fedlc-seed0")["training"]["lr"] == 0.01


def test_a_table_has_the_tuned_settings_but_a_rows_own_win(tmp_path: Path, data: str, tuned: str) -> None:
    target = tmp_path / "mine.toml"
    rows = '[[rows]]\nmethod = "fedavg"\n[[rows]]\nmethod = "fedavg"\nsettings = { lr = 0.5 }\n'
    target.write_text(f'title = "t"\nkind = "comparison"\ndatasets = ["{data}"]\nseeds = 1\n{rows}')
    out = tmp_path / "out"
    words = ["reproduce", str(target), "--data", data, "--tuned", tuned, *QUICK, "--workers", "1"]
    assert main([*words, "--out", str(out)]) == 0
    found = [config(folder) for folder in sorted((out / "cells").iterdir()) if folder.is_dir()]
    assert {(each["training"]["lr"], each["model"]["dropout"]) for each in found} == {
        (0.03, 0.25),
        (0.5, 0.25),
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["fedavgg"], "unknown method 'fedavgg'; did you mean 'fedavg'"),
        (["fedavg", "--trials", "0"], "trials is 0; give at least 1"),
        (["fedavg", "--trials", "some"], "argument --trials"),
        (["fedavg", "--seeds", "0"], "seeds is 0; give at least 1"),
        (["fedavg", "--seed", "5"], "seeds below 100 are for tables"),
        (["fedavg", "--workers", "0"], "workers is 0; give at least 1"),
        (["fedavg", "--rounds", "0"], "rounds is 0; give at least 1"),
        (["fedavg", "--data", "emial"], "emial"),
        (["fedavg", "--score-on", "vault"], "unknown option '--score-on'"),
        (["fedavg", "--val-share", "0.5"], "leave no test or training nodes"),
    ],
)
def test_bad_input_is_one_sentence_and_writes_nothing(
    words: list[str], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *words, "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert len(said.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [["run", "fedavg"], ["compare", "fedavg", "--out", "x"], ["reproduce", "table2", "--data", "synthetic"]],
)
def test_a_setting_that_is_tuned_may_not_be_given(
    words: list[str], tuned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--tuned", tuned, "--lr", "0.1"]) == 2
    assert "lr is given, and" in capsys.readouterr().err


def test_a_method_that_the_file_does_not_have_is_refused(
    tuned: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "fedlc", "--tuned", tuned]) == 2
    assert "has no settings for fedlc here; it has: fedavg" in capsys.readouterr().err
