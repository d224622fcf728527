"""What is run again is what was run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadData
from fedepd.rounds.guard import HOME
from fedepd.runs.replay import kept_models, own_models, replayed
from fedepd.runs.resume import rebuild
from fedepd.runs.run import run
from fedepd.types import Graph

QUICK: dict[str, Any] = {"rounds": 6, "hidden": 8, "clients": 3, "evaluate_every": 2}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic(nodes=200, edges=800, classes=3, imbalance=4.0, smallest=None, features=8, communities=6)


def test_states_are_the_runs_own_bits(graph: Graph, tmp_path: Path) -> None:
    """FedGTA's run folder has the clients' states, and every client has all parameters in its state."""
    found = run(graph, "fedgta", out=tmp_path / "run", **QUICK)
    simulation = rebuild(tmp_path / "run", graph)
    kept = kept_models(tmp_path / "run", simulation)
    again = replayed(simulation, found.summary["best_rounds"]["personal"])
    assert sorted(kept) == sorted(again) == [0, 1, 2]
    for client, model in kept.items():
        assert model.keys() == again[client].keys()
        assert all(torch.equal(value, again[client][name]) for name, value in model.items())


@pytest.mark.parametrize("participation", [1.0, 0.4])
def test_a_round_in_the_middle(graph: Graph, tmp_path: Path, participation: float) -> None:
    """Of a round before the last, with the matrices of that round, also where some clients never trained."""
    seen: dict[int, Any] = {}
    run(
        graph,
        "fedavg",
        out=tmp_path / "run",
        participation=participation,
        on_round=lambda each: seen.update({each.number: each.confusions}),
        **QUICK,
    )
    simulation = rebuild(tmp_path / "run", graph)
    models = replayed(simulation, 4)
    for number, model in models.items():
        assert not any(".moments." in name or name.startswith(HOME) for name in model)
        client = simulation.exchange.participants[number]
        client.state = {}
        again = client.evaluate(4, model)["personal_test"]
        assert torch.equal(again, seen[4][number]["personal_test"])


def test_it_is_done_once(graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(graph, "fedavg", out=tmp_path / "run", **QUICK)
    first = own_models(tmp_path / "run", rebuild(tmp_path / "run", graph), 4)
    monkeypatch.setattr("fedepd.runs.replay.replayed", lambda *_: pytest.fail("ran again"))
    second = own_models(tmp_path / "run", rebuild(tmp_path / "run", graph), 4)
    for client, model in first.items():
        assert all(torch.equal(value, second[client][name]) for name, value in model.items())


def test_a_round_that_never_was(graph: Graph, tmp_path: Path) -> None:
    run(graph, "fedavg", out=tmp_path / "run", **QUICK)
    with pytest.raises(BadData, match="never reached round 7"):
        replayed(rebuild(tmp_path / "run", graph), 7)
