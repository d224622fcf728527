"""A run that begins with a trained model's weights: which ones, for which classes and columns."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd.datasets import write_npz
from fedepd.datasets.tables import FeatureRule, FeatureSchema
from fedepd.errors import BadConfig, BadData
from fedepd.files import read_tensors
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import START, weights_sha256
from fedepd.runs.record import write_tensors
from fedepd.runs.start import SEEN_BEFORE, fitted, read_beginning, with_start
from fedepd.types import Graph

QUICK: dict[str, Any] = {"backbone": "sage", "hidden": 8, "clients": 2, "evaluate_every": 1}
RULES = (FeatureRule("age", 40.0, 10.0), FeatureRule("kind", categories=("a", "b")))


def graph_of(names: tuple[str, ...], rules: tuple[FeatureRule, ...] = RULES, seed: int = 0) -> Graph:
    """120 nodes whose features tell the class, on a ring."""
    draws, n, schema = np.random.default_rng(seed), 120, FeatureSchema(rules)
    y = torch.arange(n) % len(names)
    x = torch.tensor(draws.normal(0, 1, (n, len(schema.feature_names))), dtype=torch.float32)
    x[:, 0] += 4 * y
    ring = torch.stack([torch.arange(n), (torch.arange(n) + len(names)) % n])
    return Graph.make(x, ring, y, len(names), label_names=names, schema=schema.to_json())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("start")
    graph = graph_of(("clean", "mule"))
    write_npz(graph, place / "g.npz")
    fedepd.run(
        place / "g.npz", "fedavg", rounds=20, lr=0.05, partition="balanced", out=place / "run", **QUICK
    )
    fedepd.export(place / "run", place / "model")
    return place


def experiment(folder: Path, method: str = "fedavg", **more: Any) -> Experiment:
    return Experiment.make(method, start=str(folder / "model"), **{**QUICK, **more})


def test_the_same_data_begin_with_the_models_very_weights(folder: Path) -> None:
    made, params, notes = with_start(experiment(folder), graph_of(("clean", "mule")))
    model = read_tensors(folder / "model" / "model.safetensors")
    assert params.keys() == model.keys()
    assert all(torch.equal(params[name], model[name]) for name in params)
    assert notes == [SEEN_BEFORE]
    assert made.protocol.start == weights_sha256(model)


def test_a_run_goes_on_where_the_model_was_and_can_be_resumed(folder: Path) -> None:
    """One round from the model scores as the model did, and more than one round from random weights."""

    def interrupt(finished: Any) -> None:
        if finished.number == 1:
            raise KeyboardInterrupt

    settings = {**QUICK, "partition": "balanced", "rounds": 2, "lr": 1e-4}
    start = str(folder / "model")
    warm = fedepd.run(folder / "g.npz", "fedavg", **settings, start=start, out=folder / "warm")
    cold = fedepd.run(folder / "g.npz", "fedavg", **settings)
    assert warm.metrics["global"]["pooled"]["bacc"] > cold.metrics["global"]["pooled"]["bacc"] + 0.1
    assert warm.summary["config_hash"] != cold.summary["config_hash"]
    began = weights_sha256(read_tensors(folder / "warm" / START))
    assert f"initial weights of a trained model ({began[:12]})" in warm.summary["protocol"]
    assert "initial weights" not in cold.summary["protocol"]
    with pytest.raises(KeyboardInterrupt):
        fedepd.run(
            folder / "g.npz", "fedavg", **settings, start=start, out=folder / "cut", on_round=interrupt
        )  # fmt: skip
    again = fedepd.resume(folder / "cut")
    assert again.summary["weights_sha256"] == warm.summary["weights_sha256"]
    fedepd.export(folder / "warm", folder / "warm-model")


def test_a_changed_beginning_is_not_resumed(folder: Path) -> None:
    def interrupt(finished: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedepd.run(
            folder / "g.npz", "fedavg", rounds=2, partition="balanced", start=str(folder / "model"),
            out=folder / "bad", on_round=interrupt, **QUICK,
        )  # fmt: skip
    other = {name: value + 1 for name, value in read_tensors(folder / "bad" / START).items()}
    write_tensors(folder / "bad" / START, other)
    with pytest.raises(BadData, match="is not what the run began with"):
        fedepd.resume(folder / "bad")


def test_classes_and_columns_are_matched_by_name(folder: Path) -> None:
    """A new class in front and a new column: what is known keeps its weights, the new column has zeros."""
    rules = (FeatureRule("income"), *RULES)
    graph = graph_of(("bot", "clean", "mule"), rules)
    begun = read_beginning(folder / "model")
    params, notes = fitted(begun, experiment(folder), graph)
    old = begun.tensors
    assert torch.equal(params["classifier.weight"][:, 1:], old["classifier.weight"])
    assert torch.equal(params["classifier.bias"][1:], old["classifier.bias"])
    neighbours, own = params["encoder.weight"].chunk(2)  # sage: 4 features each
    for new, before in zip((neighbours, own), old["encoder.weight"].chunk(2), strict=True):
        assert torch.equal(new[1:], before)
        assert not bool(new[0].any())
    assert any("bot" in note and "fresh weights" in note for note in notes)
    assert any("income" in note and "weights of zero" in note for note in notes)
    fewer, notes = fitted(begun, experiment(folder), graph_of(("mule", "other"), RULES[:1]))
    assert torch.equal(fewer["classifier.weight"][:, 0], old["classifier.weight"][:, 1])
    assert any("clean" in note and "left out" in note for note in notes)
    scaled = graph_of(("clean", "mule"), (FeatureRule("age", 41.0, 10.0), RULES[1]))
    assert "scaled otherwise" in fitted(begun, experiment(folder), scaled)[1][0]


def test_what_cannot_begin_so_is_refused_with_what_to_do(folder: Path, tmp_path: Path) -> None:
    graph = graph_of(("clean", "mule"))
    narrow = graph_of(("clean", "mule"), RULES[:1])
    cases: list[tuple[Experiment, Graph, str]] = [
        (experiment(folder, hidden=16), graph, "give --hidden 8"),
        (experiment(folder, backbone="gcn"), graph, "give --backbone sage"),
        (experiment(folder, "isolated"), graph, "no model that all clients begin with"),
        (experiment(folder), graph_of(("x", "y")), "knows none of them"),
        (experiment(folder), graph_of(("clean", "mule"), (FeatureRule("z"),)), "no column that the model"),
        (experiment(folder), replace(narrow, schema=""), "nobody knows which"),
        (experiment(folder, dp_epsilon=5.0, secure=True), graph, "budget does not cover"),
        (Experiment.make("fedavg", start=str(tmp_path)), graph, "is no model folder"),
    ]
    for made, data, words in cases:
        with pytest.raises((BadConfig, BadData), match=words):
            with_start(made, data)


def test_auto_takes_the_models_backbone(folder: Path) -> None:
    made, _, _ = with_start(experiment(folder, backbone="auto"), graph_of(("clean", "mule")))
    assert made.model.backbone == "sage"


def test_damaged_weights_are_refused(folder: Path, tmp_path: Path) -> None:
    for file in (folder / "model").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"weights_sha256": "0" * 64}))
    with pytest.raises(BadData, match="sha256 differs"):
        read_beginning(tmp_path)
