"""``fedepd point`` from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedepd
from fedepd.cli import main
from fedepd.datasets.npz import write_npz
from fedepd.model.model import load_model
from fedepd.runs.run import run


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    run("synthetic", "fedavg", out=place / "run", rounds=3, hidden=8, clients=2, evaluate_every=3)
    write_npz(fedepd.load("synthetic"), place / "g.npz")
    return fedepd.export(place / "run", place / "model")


def test_a_point_is_set_shown_and_taken_away(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = ["--data", str(model.parent / "g.npz")]
    assert main(["point", str(model)]) == 0
    assert "no operating point" in capsys.readouterr().out
    assert main(["point", str(model), *data, "--recall", "4=0.8"]) == 0
    set_now = capsys.readouterr().out
    assert set_now.startswith("alerts to 4: ")
    assert main(["point", str(model)]) == 0
    assert capsys.readouterr().out == set_now
    assert main(["point", str(model), *data, "--alerts", "60", "--per", "1500"]) == 0
    assert "alerts to all but 0: " in capsys.readouterr().out
    assert main(["point", str(model), "--likeliest"]) == 0
    assert load_model(model).operating is None


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--recall", "4=0.8"], "labelled nodes choose the point"),
        (["--data", "g.npz"], "but no aim"),
        (["--likeliest", "--recall", "4=0.8"], "takes the point away"),
        (["--recall", "nobody=0.8", "--data", "g.npz"], "nobody"),
        (["--recall", "4=0.8", "--data", "g.npz", "--labels", "none.csv"], "none.csv"),
        (["--recall", "4=0.8", "--alerts", "5", "--data", "g.npz"], "give one"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    words: list[str], sentence: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    words = [str(model.parent / word) if word == "g.npz" else word for word in words]
    assert main(["point", str(model), *words]) == 2
    assert sentence in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before
