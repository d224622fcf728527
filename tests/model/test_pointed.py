"""From a run to predictions with ranks and alerts."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedepd
from fedepd.cli import main
from fedepd.datasets.npz import write_npz
from fedepd.errors import BadConfig, BadData
from fedepd.model.aim import Aim
from fedepd.model.export import export
from fedepd.model.model import load_model
from fedepd.model.pointed import point_in_words
from fedepd.rounds.evaluate import held_out
from fedepd.runs.resume import rebuild
from fedepd.runs.run import run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run("synthetic", "fedepd", out=folder, rounds=6, hidden=8, clients=3, evaluate_every=3)
    return folder


@pytest.fixture(scope="module")
def model(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(finished, tmp_path_factory.mktemp("m") / "model", aim=Aim(recall={"4": 0.8}))


def test_validation_nodes_alone_choose_the_threshold(model: Path, finished: Path) -> None:
    """It is the probability of the node that completes 80 % of the validation nodes of class 4."""
    exported = load_model(model)
    assert exported.operating is not None
    own = []
    for client in rebuild(finished).clients:
        logits, y = held_out(exported.logits(client.graph), client)["val"]
        own += exported.calibrated(logits.numpy().astype(np.float64))[y.numpy() == 4, 4].tolist()
    wanted = sorted(own, reverse=True)[int(np.ceil(0.8 * len(own))) - 1]
    assert exported.operating.rules[0].threshold == pytest.approx(wanted, rel=1e-12)
    (line,) = point_in_words(model)
    assert line.startswith("alerts to 4: ")


def test_predict_gives_label_rank_and_alert(model: Path, tmp_path: Path) -> None:
    write_npz(fedepd.load("synthetic"), tmp_path / "g.npz")
    assert (
        main(["predict", str(model), "--data", str(tmp_path / "g.npz"), "-o", str(tmp_path / "p.csv")]) == 0
    )
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text().splitlines()))
    assert list(rows[0])[:6] == ["id", "label", "probability", "rank", "alert", "p(0)"]
    assert {row["alert"] for row in rows} == {"yes", "no"}
    assert all((row["label"] == "4") == (row["alert"] == "yes") for row in rows)
    alerted = [row for row in rows if row["alert"] == "yes"]
    assert sorted(int(row["rank"]) for row in alerted) == list(range(1, len(alerted) + 1))
    assert all(row["probability"] == row[f"p({row['label']})"] for row in rows)
    few = load_model(model).predict(fedepd.load("synthetic")).of(["7", "3"])
    first = int(rows[7]["rank"]) < int(rows[3]["rank"])
    assert few.table()["rank"] == ([1, 2] if first else [2, 1])  # among themselves


def test_the_folder_the_card_and_the_run_tell_of_the_point(model: Path, finished: Path) -> None:
    assert {"operating.json", "operating.svg"} <= {path.name for path in model.iterdir()}
    config = json.loads((model / "config.json").read_text())
    assert config["format"] == 2
    card = (model / "README.md").read_text()
    assert "## Operating point" in card
    assert "The model shall find 80 % of 4." in card
    assert "](operating.svg)" in card
    assert (finished / "operating.json").read_bytes() == (model / "operating.json").read_bytes()
    assert "chosen point" in fedepd.build_report(finished, finished.parent / "r.html").read_text()


@pytest.mark.hostile
@pytest.mark.parametrize(
    "change",
    [
        {"rules": []},
        {"rules": [{"classes": [11], "threshold": 0.5}]},
        {"rules": [{"classes": [1], "threshold": float("nan")}]},
        {"usual": -1},
        {"costs": [[0.0, 1.0], [1.0]], "shifts": [0.0, 0.0]},
        {"costs": [[0.0, 1.0], [1.0, 0.0]], "shifts": [0.0, 0.0]},
        {"shifts": [0.0] * 10},
    ],
)
def test_a_damaged_point_is_refused(change: dict[str, Any], model: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(model, copy)
    config = json.loads((copy / "config.json").read_text())
    config["operating"] |= change
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadData):
        load_model(copy)


def test_a_client_has_a_point_of_its_own_and_alerts_work_from_the_command_line(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "all"
    assert main(["export", str(finished), "-o", str(out), "--alerts", "60", "--per", "1500"]) == 0
    assert "alerts to all but 0: " in capsys.readouterr().out
    assert "60 alerts in 1,500 nodes" in (out / "README.md").read_text()
    assert main(["export", str(finished), "-o", str(tmp_path / "x"), "--recall", "nobody=0.5"]) != 0
    assert "nobody" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_federation_has_no_point(finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "federation"
    shutil.copytree(finished, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, "sites": ["a", "b", "c"]}))
    with pytest.raises(BadConfig, match="the run of a federation, and an operating point needs"):
        export(copy, tmp_path / "m", aim=Aim(alerts=50))
