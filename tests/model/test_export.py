"""From a run to a model folder that says what it is, holds no more than it needs, and predicts as was
measured."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import fedepd
from fedepd.cli import main
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig, BadData
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import class_counts
from fedepd.model.export import export
from fedepd.network.gat import GAT
from fedepd.network.mlp import MLP
from fedepd.report.page import build_report
from fedepd.runs.resume import rebuild
from fedepd.runs.run import run
from fedepd.shapes import TIERS
from fedepd.types import Graph

QUICK: dict[str, Any] = {"rounds": 6, "hidden": 8, "clients": 3, "evaluate_every": 3}
FILES = {
    "model.safetensors",
    "config.json",
    "labels.json",
    "schema.json",
    "metrics.json",
    "calibration.json",
    "reference.json",
    "README.md",
}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return fedepd.load("synthetic")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run("synthetic", "fedepd", out=folder, **QUICK)
    return folder


@pytest.fixture(scope="module")
def model(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(finished, tmp_path_factory.mktemp("models") / "model")


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_the_folder_is_complete(model: Path, finished: Path) -> None:
    assert {path.name for path in model.iterdir()} == FILES
    summary = read(finished / "summary.json")
    metrics = read(model / "metrics.json")
    assert metrics["test"] == summary["metrics"]["global"]
    assert metrics["protocol"] == summary["protocol"]
    assert read(model / "labels.json") == {"labels": [str(c) for c in range(10)]}
    assert read(model / "schema.json") == {"features": 64, "columns": None}
    assert read(model / "config.json")["temperatures"].keys() == set(TIERS)


def test_only_what_predictions_need_leaves_the_run(model: Path, finished: Path) -> None:
    """The run's best tensors hold class prototypes and counts; the model does not."""
    kept, everything = load_file(model / "model.safetensors"), load_file(finished / "model.safetensors")
    assert "prototype.count" in everything
    assert kept.keys() == {
        "encoder.weight",
        "encoder.bias",
        "classifier.weight",
        "classifier.bias",
        "pruning.votes",
    }


def test_the_card_says_what_a_reviewer_asks(model: Path, finished: Path) -> None:
    card = (model / "README.md").read_text()
    summary = read(finished / "summary.json")
    for title in (
        "Intended use",
        "Data",
        "Protocol",
        "Test metrics",
        "Calibration",
        "Limits",
        "Privacy",
        "How to use",
        "Identity",
    ):
        assert f"## {title}\n" in card
    assert summary["protocol"] in card
    assert f"| pooled | {100 * summary['metrics']['global']['pooled']['acc']:.2f} |" in card
    calibration = read(model / "calibration.json")
    for tier in TIERS:
        before, after = (calibration[when][tier]["ece"] for when in ("before", "after"))
        shown = [
            f"{value:.3f} ({low:.3f} to {high:.3f})" for value, low, high in filter(None, (before, after))
        ]
        assert (
            f"| {tier} | {calibration['after'][tier]['nodes']} | {calibration['temperatures'][tier]:.3f} | "
            f"{' | '.join(shown)}" in card
        )
    assert "1,500 nodes, 6,000 edges, 64 features, 10 classes" in card


def test_calibration_is_measured_on_the_runs_own_test_nodes(model: Path, finished: Path) -> None:
    summary, calibration = read(finished / "summary.json"), read(model / "calibration.json")
    accuracy = summary["metrics"]["global"]["pooled"]["acc"]
    assert calibration["before"]["all"]["accuracy"] == pytest.approx(accuracy)
    assert calibration["after"]["all"]["accuracy"] == pytest.approx(accuracy)


def test_the_report_draws_reliability_once_it_is_measured(
    model: Path, finished: Path, tmp_path: Path
) -> None:
    page = build_report(finished, tmp_path / "with.html").read_text()
    assert "Reliability of FedEPD" in page
    run("synthetic", "fedavg", out=tmp_path / "other", **QUICK)
    assert "Reliability of" not in build_report(tmp_path / "other", tmp_path / "without.html").read_text()


def test_the_ceiling_has_one_model(graph: Graph, tmp_path: Path) -> None:
    run(graph, "centralised", out=tmp_path / "run", **QUICK)
    export(tmp_path / "run", tmp_path / "model", graph)
    assert fedepd.load_model(tmp_path / "model").predict(graph).probabilities.shape == (1500, 10)


@pytest.mark.parametrize(
    ("backbone", "layers"), [("gat", 2), ("h2gcn", 1), ("gcn", 3), (GAT(attentions=2), 1)], ids=str
)
def test_every_backbone_predicts_after_export(backbone: Any, layers: int, tmp_path: Path) -> None:
    """The export itself holds the run's confusion matrices against what the model in the folder says."""
    graph = synthetic(
        nodes=150, edges=500, classes=3, imbalance=4.0, smallest=None, features=8, communities=4
    )
    small = {"rounds": 2, "hidden": 8, "clients": 2, "backbone": backbone, "layers": layers}
    run(graph, "fedavg", out=tmp_path / "run", **small)
    export(tmp_path / "run", tmp_path / "model", graph)
    model = fedepd.load_model(tmp_path / "model")
    assert model.experiment.model.layers == layers
    assert model.predict(graph).probabilities.shape == (150, 3)


def test_a_backbone_without_a_name_is_refused_at_once(tmp_path: Path) -> None:
    """The run says so, and an export before it does anything."""
    graph = synthetic(
        nodes=150, edges=500, classes=3, imbalance=4.0, smallest=None, features=8, communities=4
    )
    out = tmp_path / "run"
    result = run(graph, "fedavg", out=out, rounds=1, hidden=8, clients=2, backbone=Nameless())
    assert "the backbone Nameless is an object of a Python program" in result.summary["warnings"][-1]
    with pytest.raises(BadConfig, match="Nameless is an object of a Python program and has no name"):
        export(out, tmp_path / "model", graph)
    (out / "summary.json").unlink()
    with pytest.raises(BadConfig, match="cannot be resumed or exported; give its class a name"):
        fedepd.resume(out, graph)


@dataclass(frozen=True)
class Nameless(MLP):  # type: ignore[misc]
    """Somebody's own."""


def test_no_model_for_all_is_refused(tmp_path: Path) -> None:
    run("synthetic", "isolated", out=tmp_path / "run", **QUICK)
    with pytest.raises(BadConfig, match="Isolated keeps one model per client and no common one"):
        export(tmp_path / "run", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_method_that_needs_local_labels_to_predict_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each client's own class counts move its predictions; a new graph has no such counts."""
    plain = FedAvg.predict
    monkeypatch.setattr(FedAvg, "predict", lambda *a: plain(*a) + class_counts(a[1].data))
    run("synthetic", "fedavg", out=tmp_path / "run", **QUICK)
    with pytest.raises(BadConfig, match="gets other predictions than in the run"):
        export(tmp_path / "run", tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_other_data_and_used_folders_are_refused(
    graph: Graph, finished: Path, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(BadConfig, match="already holds another run"):
        export(finished, model)
    with pytest.raises(BadData, match="have changed"):
        export(finished, tmp_path / "model", fedepd.load("twin:email"))
    with pytest.raises(BadData, match="not a run folder"):
        export(tmp_path, tmp_path / "model")


def test_the_pages_commands_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """docs/model-card.md, from top to bottom, on a small CSV made here."""
    page = (Path(__file__).parents[2] / "docs" / "model-card.md").read_text()
    commands = [line.removeprefix("$ fedepd ") for line in page.splitlines() if line.startswith("$ fedepd ")]
    assert len(commands) >= 6
    monkeypatch.chdir(tmp_path)
    lines = [f"n{i},{i % 3},{i % 3 + 0.01 * i},{'abc'[i % 3]}" for i in range(90)]
    Path("nodes.csv").write_text("\n".join(["id,label,amount,country", *lines]))
    Path("edges.csv").write_text(
        "\n".join(["source,target", *(f"n{i},n{(7 * i + 3) % 90}" for i in range(90))])
    )
    for command in commands:
        assert main(shlex.split(command)) == 0, capsys.readouterr().err
    assert len(Path("predictions.csv").read_text().splitlines()) == 91


def test_the_commands(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(finished), "-o", str(tmp_path / "model")]) == 0
    assert "README.md" in capsys.readouterr().out
    assert main(["export", str(finished)]) == 2
    assert "-o/--out" in capsys.readouterr().err


def test_a_distilled_model_says_so_and_shows_its_price(finished: Path, graph: Graph, tmp_path: Path) -> None:
    """Its scores are its own, measured here once more, and beside them stand those of the run."""
    assert main(["export", str(finished), "-o", str(tmp_path / "pupil"), "--distil"]) == 0
    pupil = fedepd.load_model(tmp_path / "pupil")
    assert pupil.distilled
    own, of_run = (
        read(tmp_path / "pupil" / "metrics.json")["test"],
        read(finished / "summary.json")["metrics"],
    )
    clients = rebuild(finished).clients
    right = [int((pupil.logits(c.graph).argmax(1) == c.graph.y)[c.test_mask].sum()) for c in clients]
    assert own["pooled"]["acc"] == pytest.approx(sum(right) / sum(int(c.test_mask.sum()) for c in clients))
    assert own != of_run["global"]
    card = (tmp_path / "pupil" / "README.md").read_text()
    assert "Its weights are distilled from those of round" in card
    assert f"| pooled, not distilled | {100 * of_run['global']['pooled']['acc']:.2f} |" in card
    assert f"| pooled | {100 * own['pooled']['acc']:.2f} |" in card
    assert "The weights were distilled" in card
    assert len(pupil.predict(graph).labels) == graph.num_nodes


def test_only_a_distilled_model_has_the_field(model: Path) -> None:
    """Folders from before it are read as they are."""
    assert "distilled" not in read(model / "config.json")
    assert not fedepd.load_model(model).distilled
    assert "distilled" not in (model / "README.md").read_text()


def test_the_reliability_diagram_stays_that_of_the_run(tmp_path: Path) -> None:
    run("synthetic", "fedavg", out=tmp_path / "run", **{**QUICK, "rounds": 1})
    export(tmp_path / "run", tmp_path / "pupil", distil=True)
    assert not (tmp_path / "run" / "calibration.json").exists()
    export(tmp_path / "run", tmp_path / "plain")
    assert (tmp_path / "run" / "calibration.json").exists()


@pytest.mark.parametrize("given", [{"distil": True}, {"data": "other.npz"}])
def test_what_needs_the_graphs_is_refused_for_a_federation(
    finished: Path, tmp_path: Path, given: dict[str, Any]
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(finished, folder)
    config = read(folder / "config.json")
    (folder / "config.json").write_text(json.dumps({**config, "sites": ["a", "b", "c"]}))
    with pytest.raises(BadConfig, match=f"stay at its sites; export it without --{next(iter(given))}"):
        export(folder, tmp_path / "model", **given)
    assert not (tmp_path / "model").exists()


def test_classes_that_stay_at_the_clients_do_not_spoil_the_temperatures(tmp_path: Path) -> None:
    """A guarded model never predicts a closed class, so its nodes have no likelihood at any temperature. They
    drew all temperatures to the hottest, 20, before they were left out."""
    run("synthetic", "fedavg", out=tmp_path / "run", guard=True, min_count=20, **QUICK)
    assert len(read(tmp_path / "run" / "summary.json")["open_classes"]) == 3
    model = export(tmp_path / "run", tmp_path / "model")
    assert all(0.1 < heat < 5 for heat in read(model / "config.json")["temperatures"].values())
