"""A client's own model predicts as was measured at this client, or is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedepd
from fedepd.cli import main
from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig, BadData, UnknownName
from fedepd.methods import METHODS
from fedepd.methods.isolated import Isolated
from fedepd.methods.steps import class_counts
from fedepd.model.explain import explain
from fedepd.model.export import export
from fedepd.model.model import load_model
from fedepd.model.of_client import client_number
from fedepd.report.runs import read_run
from fedepd.rounds.evaluate import confusions
from fedepd.runs.resume import rebuild
from fedepd.runs.run import run
from fedepd.types import Graph

QUICK: dict[str, Any] = {"rounds": 4, "hidden": 8, "clients": 3, "evaluate_every": 2}
OWN = ("fedproto", "fedgta", "fedspray", "graphfedmig")
"""The methods without a model for all."""


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic(
        nodes=300, edges=1200, classes=4, imbalance=6.0, smallest=None, features=12, communities=6
    )


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def check_measured(folder: Path, model: Path, graph: Graph, number: int) -> None:
    """What the folder's model says of the client's graph has the run's confusion matrix."""
    loaded, found = load_model(model), read_run(folder)
    client = rebuild(folder, graph).clients[number]
    ours = confusions(loaded.logits(client.graph), client)["test"].numpy()
    assert ours.sum() > 0
    assert np.array_equal(ours, found.confusions["personal_test"][number])
    assert np.array_equal(loaded.predict(client.graph).classes, loaded.logits(client.graph).argmax(1))


@pytest.mark.parametrize("method", OWN)
def test_methods_without_a_common_model_can_be_used_at_last(
    method: str, graph: Graph, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    run(graph, method, out=folder, **QUICK)
    before = sorted(path.name for path in folder.iterdir())
    for number in (0, 2):
        model = export(folder, tmp_path / f"model{number}", graph, client=number)
        check_measured(folder, model, graph, number)
        assert load_model(model).client == f"client {number}"
        assert load_model(model).kind == "personal"
    assert sorted(path.name for path in folder.iterdir()) == before  # no round was run again


@pytest.mark.parametrize(("method", "by"), [("fedproto", "logits"), ("fedtgp", "prototypes")])
@pytest.mark.parametrize("guard", [False, True])
def test_a_model_of_its_own_width_is_exported_and_knows_its_settings(
    method: str, by: str, guard: bool, graph: Graph, tmp_path: Path
) -> None:
    """Clients 0 and 2 have 4 hidden units of their own, client 1 has 12. Prototypes have 8. A folder whose
    settings have no such width is refused; so is an explanation."""
    folder = tmp_path / "run"
    more: dict[str, Any] = {"guard": True, "min_count": 15, "min_holders": 2} if guard else {}
    run(graph, method, out=folder, widths="4-12", predict_by=by, **QUICK, **more)
    for number, width in ((1, 12), (2, 4)):
        model = export(folder, tmp_path / f"model{number}", graph, client=number)
        check_measured(folder, model, graph, number)
        assert load_model(model).tensors["encoder.weight"].shape == (12, width)
    with pytest.raises(BadConfig, match="predicts by a network of its own, which cannot be looked into"):
        explain(load_model(model), graph, ["1"])
    config = read(model / "config.json")
    for widths, refusal in (("12", "does not fit widths = 12"), ("equal", "another shape")):
        config["experiment"]["method"]["widths"] = widths
        (model / "config.json").write_text(json.dumps(config))
        with pytest.raises((BadConfig, BadData), match=refusal):
            load_model(model)


@pytest.mark.heavy
@pytest.mark.parametrize("guard", [False, True])
@pytest.mark.parametrize("method", sorted(set(METHODS) - {"centralised"}))
def test_every_method_exports_a_clients_own_model(
    method: str, guard: bool, graph: Graph, tmp_path: Path
) -> None:
    more: dict[str, Any] = {"guard": True, "min_count": 15, "min_holders": 2} if guard else {}
    run(graph, method, out=tmp_path / "run", **QUICK, **more)
    model = export(tmp_path / "run", tmp_path / "model", graph, client=1)
    check_measured(tmp_path / "run", model, graph, 1)


def test_of_a_method_with_a_common_model_rounds_are_run_again_once(graph: Graph, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(graph, "fedavg", out=folder, **QUICK)
    first = export(folder, tmp_path / "first", graph, client=1)
    check_measured(folder, first, graph, 1)
    kept = (folder / "personal.safetensors").read_bytes()
    second = export(folder, tmp_path / "second", graph, client="2")
    check_measured(folder, second, graph, 2)
    assert (folder / "personal.safetensors").read_bytes() == kept
    # The report's reliability diagram is that of the run's own model, not of a client's.
    assert not (folder / "calibration.json").exists()
    # A damaged file of clients' models is noticed: they do not predict what was measured.
    shutil.copyfile(folder / "model.safetensors", folder / "personal.safetensors")
    with pytest.raises(BadData, match="lacks the weights"):
        export(folder, tmp_path / "third", graph, client=1)
    assert not (tmp_path / "third").exists()


def test_the_card_says_whose_model_it_is_and_where_it_was_measured(graph: Graph, tmp_path: Path) -> None:
    """The scores are the client's own test nodes', of this model and of the global one."""
    folder = tmp_path / "run"
    run(graph, "fedavg", out=folder, **QUICK)
    model = export(folder, tmp_path / "model", graph, client=1)
    card, found, known = (model / "README.md").read_text(), read_run(folder), read(folder / "clients.json")[1]
    assert "for client 1, trained with FedAvg together with 2 other clients (client 0, client 2)" in card
    assert f"{known['val']} for validation and {known['test']} for the test" in card
    assert f"{known['train']} of the nodes were for training" in card
    own, common = (found.confusions[f"{kind}_test"][1] for kind in ("personal", "global"))
    assert f"| this model | {100 * np.trace(own) / own.sum():.2f} |" in card
    assert f"| global model, same nodes | {100 * np.trace(common) / common.sum():.2f} |" in card
    assert "keep the folder where the nodes are" in card
    assert read(model / "config.json")["client"] == "client 1"
    calibration = read(model / "calibration.json")
    assert calibration["before"]["all"]["nodes"] == known["test"]
    assert calibration["validation_nodes"] == known["val"] == 17
    # 17 validation nodes are fewer than 20.
    assert set(calibration["temperatures"].values()) == {1.0}


def test_closed_classes_come_home_with_the_clients_own_columns(graph: Graph, tmp_path: Path) -> None:
    """The clients train on [38, 11, 7, 6], [22, 18, 2, 6] and [39, 9, 13, 4] nodes of the four classes. Of
    at least 9 nodes at three clients each there are only classes 0 and 1. Under secure sums, where only the
    sum [99, 38, 22, 16] is known, these are the classes with at least 30."""
    for secure, few in ((False, 9), (True, 30)):
        folder = tmp_path / f"run{secure}"
        run(graph, "fedavg", out=folder, guard=True, min_count=few, secure=secure, **QUICK)
        assert read(folder / "summary.json")["open_classes"] == [0, 1]
        closed = {2, 3}
        model = export(folder, tmp_path / f"model{secure}", graph, client=0)
        client = rebuild(folder, graph).clients[0]
        held = set(client.graph.y[client.train_mask].tolist())
        names = ", ".join(map(str, sorted(closed & held)))
        assert f"has this client's own columns of them: {names}." in (model / "README.md").read_text()
        assert all(heat < 20 for heat in read(model / "config.json")["temperatures"].values())


def test_nearest_prototypes_come_along(graph: Graph, tmp_path: Path) -> None:
    """A client's FedProto chooses among the prototypes of its own training classes. The model folder says
    which these are, so that no label is needed to choose."""
    folder = tmp_path / "run"
    run(graph, "fedproto", out=folder, predict_by="prototypes", partition="dirichlet", **QUICK)
    clients = rebuild(folder, graph).clients
    lacking = [len(set(c.graph.y[c.train_mask].tolist())) < 4 for c in clients]
    assert any(lacking)
    number = lacking.index(True)
    model = export(folder, tmp_path / "model", graph, client=number)
    check_measured(folder, model, graph, number)
    counts = load_model(model).tensors["own.classes"]
    held = set(clients[number].graph.y[clients[number].train_mask].tolist())
    assert set(counts.nonzero().reshape(-1).tolist()) == held
    predicted = load_model(model).predict(graph)
    assert set(predicted.classes.tolist()) <= held
    assert np.isfinite(predicted.probabilities).all()


def test_a_model_that_needs_local_labels_is_refused(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's own class counts move its predictions; a new graph has no such counts."""
    plain = Isolated.predict
    monkeypatch.setattr(Isolated, "predict", lambda *a: plain(*a) - class_counts(a[1].data))
    run(graph, "isolated", out=tmp_path / "run", **QUICK)
    with pytest.raises(BadConfig, match="without its training labels a client gets other predictions"):
        export(tmp_path / "run", tmp_path / "model", graph, client=0)
    assert not (tmp_path / "model").exists()


def test_who_a_client_is() -> None:
    """An owner's name goes before a number, because it is what people type."""
    assert client_number("1", ["a", "b"]) == 1
    assert client_number(0, ["a", "b"]) == 0
    assert client_number("b", ["a", "b"]) == 1
    assert client_number("0", ["7", "0"]) == 1
    for wrong in ("2", "-1", "c", "", "٣", "1" * 5000):
        with pytest.raises(UnknownName, match="unknown client"):
            client_number(wrong, ["a", "b"])
    with pytest.raises(BadConfig, match="several clients are called 'a'"):
        client_number("a", ["a", "a"])


def test_owners_are_named(tmp_path: Path, graph: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    """The banks of an owner column are clients in the order of their names."""
    from dataclasses import replace

    import torch

    banks = replace(graph, owner=torch.arange(300) % 3, owner_names=("ada", "bob", "cyd"))
    fedepd.run(banks, "isolated", out=tmp_path / "run", rounds=2, hidden=8, evaluate_every=2)
    model = export(tmp_path / "run", tmp_path / "model", banks, client="bob")
    assert load_model(model).client == "bob"
    assert "# Isolated on synthetic, model of bob" in (model / "README.md").read_text()
    assert "(ada, cyd)" in (model / "README.md").read_text()
    with pytest.raises(UnknownName, match="did you mean 'bob'"):
        export(tmp_path / "run", tmp_path / "other", banks, client="bo")


def test_what_has_no_client_model_is_refused(
    graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(graph, "centralised", out=tmp_path / "ceiling", **QUICK)
    with pytest.raises(BadConfig, match="Centralised has one model for all; export it without --client"):
        export(tmp_path / "ceiling", tmp_path / "model", graph, client=0)
    run("synthetic", "fedavg", out=tmp_path / "run", **QUICK)
    words = ["export", str(tmp_path / "run"), "-o", str(tmp_path / "model"), "--client"]
    assert main([*words, "0", "--distil"]) == 2
    assert "give either --distil or --client" in capsys.readouterr().err
    assert main([*words, "9"]) == 2
    assert "unknown client '9'" in capsys.readouterr().err
    assert not (tmp_path / "model").exists()
    assert main([*words, "0"]) == 0
    assert main(["predict", str(tmp_path / "model"), "--data", "no.npz"]) == 2


def test_a_noisy_run_cannot_be_run_again(graph: Graph, tmp_path: Path) -> None:
    run(graph, "fedavg", out=tmp_path / "run", secure=True, dp_epsilon=8.0, select="last", **QUICK)
    with pytest.raises(BadConfig, match="noise"):
        export(tmp_path / "run", tmp_path / "model", graph, client=0)
    assert not (tmp_path / "model").exists()


POOR: dict[str, Any] = {"rounds": 2, "epochs": 1, "clients": 3, "hidden": 8, "adapt": True}
POOR |= {"train_share": 0.4, "val_share": 0.4}
"""So little training that adaptation is sure to help."""


@pytest.mark.parametrize("more", [{}, {"guard": True, "min_count": 4}, {"secure": True}], ids=str)
def test_the_adapted_model_is_that_of_the_run(graph: Graph, tmp_path: Path, more: dict[str, Any]) -> None:
    """The confusion matrices of all clients' exported models add up to what the run has measured."""
    folder = tmp_path / "run"
    run(graph, "fedavg", out=folder, **POOR, **more)
    total = np.zeros((4, 4), dtype=np.int64)
    for number, client in enumerate(rebuild(folder, graph).clients):
        model = load_model(export(folder, tmp_path / f"m{number}", graph, client=number, adapted=True))
        total += confusions(model.logits(client.graph), client)["test"].numpy()
        assert (model.client, model.kind) == (f"client {number}", "adapted")
    assert np.array_equal(total, read_run(folder).confusions["adapted_test"][0])
    card = (tmp_path / "m1" / "README.md").read_text()
    assert "It is the model of all clients, trained further on this client's training nodes." in card
    assert "keep the folder where the nodes are" in card


def test_no_adapted_model(graph: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(graph, "fedavg", out=tmp_path / "plain", **{**POOR, "adapt": False})
    with pytest.raises(BadConfig, match="'plain' was run without adapt; run again with --adapt"):
        export(tmp_path / "plain", tmp_path / "model", graph, client=0, adapted=True)
    with pytest.raises(BadConfig, match="say whose with --client"):
        export(tmp_path / "plain", tmp_path / "model", graph, adapted=True)
    run(graph, "fedavg", out=tmp_path / "run", **POOR)
    whole = (tmp_path / "run" / "adapted.safetensors").read_bytes()
    summary = read(tmp_path / "run" / "summary.json")
    assert summary["adapted"]["used"]
    shutil.copyfile(tmp_path / "run" / "model.safetensors", tmp_path / "run" / "adapted.safetensors")
    with pytest.raises(BadData, match="lacks the model of client 0"):
        export(tmp_path / "run", tmp_path / "model", graph, client=0, adapted=True)
    (tmp_path / "run" / "adapted.safetensors").write_bytes(whole)
    summary["adapted"]["used"] = False
    (tmp_path / "run" / "summary.json").write_text(json.dumps(summary))
    with pytest.raises(BadConfig, match="export the global model, without --client and --adapted"):
        export(tmp_path / "run", tmp_path / "model", graph, client=0, adapted=True)
    assert not (tmp_path / "model").exists()
