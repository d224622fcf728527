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
from fedepd.model.chances import fitted_chance
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
    assert list(rows[0])[:7] == ["id", "label", "probability", "rank", "alert", "chance", "p(0)"]
    assert {row["alert"] for row in rows} == {"yes", "no"}
    assert all((row["label"] == "4") == (row["alert"] == "yes") for row in rows)
    alerted = [row for row in rows if row["alert"] == "yes"]
    assert sorted(int(row["rank"]) for row in alerted) == list(range(1, len(alerted) + 1))
    assert all(row["probability"] == row[f"p({row['label']})"] for row in rows)
    few = load_model(model).predict(fedepd.load("synthetic")).of(["7", "3"])
    first = int(rows[7]["rank"]) < int(rows[3]["rank"])
    assert few.table()["rank"] == ([1, 2] if first else [2, 1])  # among themselves


def test_alerts_to_two_classes_are_in_the_order_of_their_chances(finished: Path, tmp_path: Path) -> None:
    """The line of each rule is the one that its validation nodes have, and it is kept in the folder."""
    own_run = Path(shutil.copytree(finished, tmp_path / "run"))  # an export writes into the run's folder
    folder = export(own_run, tmp_path / "m", aim=Aim(recall={"4": 0.8, "7": 0.8}))
    exported = load_model(folder)
    assert exported.operating is not None
    said = exported.predict(fedepd.load("synthetic"))
    assert said.alerts is not None
    assert said.chances is not None
    assert said.ranks is not None
    assert {str(label) for label in said.classes[said.alerts]} == {"4", "7"}
    assert (np.diff(said.chances[said.ranks.argsort()][: said.alerts.sum()]) <= 0).all()
    own: dict[int, list[tuple[float, bool]]] = {4: [], 7: []}
    for client in rebuild(finished).clients:
        logits, y = held_out(exported.logits(client.graph), client)["val"]
        p = exported.calibrated(logits.numpy().astype(np.float64))
        for c, pairs in own.items():
            pairs += zip(p[:, c].tolist(), (y.numpy() == c).tolist(), strict=True)
    for rule in exported.operating.rules:
        scores, cases = (np.array(each) for each in zip(*own[rule.classes[0]], strict=True))
        wanted = fitted_chance(scores, cases)
        assert rule.chance.slope == pytest.approx(wanted.slope, rel=1e-3)
        assert rule.chance.intercept == pytest.approx(wanted.intercept, rel=1e-3)
        # A line of the largest likelihood says as many cases as there are, but for Platt's targets.
        n, m = int(cases.sum()), int((~cases).sum())
        wanted_sum = n * (n + 1) / (n + 2) + m / (m + 2)
        assert rule.chance.of(scores).sum() == pytest.approx(wanted_sum, rel=1e-2)


@pytest.mark.hostile
@pytest.mark.parametrize(
    "line", [{"slope": -1, "intercept": 0}, {"slope": 0, "intercept": 0}, {"slope": 1}, {"slope": "1"}, 3]
)
def test_a_line_that_nobody_fitted_is_refused(model: Path, tmp_path: Path, line: Any) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "m"))
    config = json.loads((folder / "config.json").read_text())
    config["operating"]["rules"][0]["chance"] = line
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadData):
        load_model(folder)


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
