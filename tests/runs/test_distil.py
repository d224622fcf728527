"""Distillation: who predicts for whom, and that no training label reaches the pupil."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd.datasets.synthetic import synthetic
from fedepd.runs import distil
from fedepd.runs.distil import FOLDS, dealt, distilled, predicted, trained_on, with_labels
from fedepd.runs.experiment import Experiment
from fedepd.runs.run import execute
from fedepd.runs.simulation import Simulation, build
from fedepd.types import ClientData, Tensors


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    graph = synthetic(
        nodes=200, edges=600, classes=4, imbalance=5.0, smallest=None, features=8, communities=6
    )
    return build(Experiment.make("fedavg", rounds=2, hidden=8, clients=3), graph)


@pytest.fixture(scope="module")
def teacher(simulation: Simulation) -> Tensors:
    return execute(simulation.experiment, simulation.graph).tensors


def test_folds_share_each_class_evenly(simulation: Simulation) -> None:
    for client in simulation.clients:
        folds = dealt(client, 0)
        assert torch.equal(folds >= 0, client.train_mask)
        for c in range(4):
            sizes = [int(((folds == number) & (client.graph.y == c)).sum()) for number in range(FOLDS)]
            assert max(sizes) - min(sizes) <= 1
        assert torch.equal(folds, dealt(client, 0))
        assert not torch.equal(folds, dealt(client, 1))


def test_no_model_predicts_for_a_node_that_it_was_trained_on(
    simulation: Simulation, teacher: Tensors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three trainings: without fold 0, without fold 1, and the pupil's, with what these predicted."""
    given: list[list[ClientData]] = []

    def watched(of: Simulation, clients: list[ClientData]) -> Tensors:
        given.append(clients)
        return trained_on(of, clients)

    monkeypatch.setattr(distil, "trained_on", watched)
    distilled(simulation, teacher)
    *halves, pupils = given
    assert len(halves) == FOLDS
    by_teacher = predicted(simulation, teacher)
    by_half = [predicted(simulation, trained_on(simulation, half)) for half in halves]
    for place, client in enumerate(simulation.clients):
        folds = dealt(client, 0)
        for number, half in enumerate(halves):
            assert torch.equal(half[place].train_mask, client.train_mask & (folds != number))
        pupil = pupils[place]
        assert bool(pupil.train_mask.all())
        for number, found in enumerate(by_half):
            assert torch.equal(pupil.graph.y[folds == number], found[place][folds == number])
        assert torch.equal(pupil.graph.y[folds < 0], by_teacher[place][folds < 0])


def test_labels_outside_the_training_change_nothing(simulation: Simulation, teacher: Tensors) -> None:
    others = [
        replace(c, graph=replace(c.graph, y=torch.where(c.train_mask, c.graph.y, 0)))
        for c in simulation.clients
    ]
    ours, theirs = distilled(simulation, teacher), distilled(replace(simulation, clients=others), teacher)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("settings", [{"features": "row_normalised"}, {"guard": True}, {"secure": True}])
def test_it_runs_under_the_runs_settings(simulation: Simulation, settings: dict[str, Any]) -> None:
    experiment = Experiment.make("fedepd", rounds=2, hidden=8, clients=3, **settings)
    again = build(experiment, simulation.graph)
    model = execute(experiment, simulation.graph).tensors
    pupil = distilled(again, model)
    assert pupil.keys() == model.keys()
    assert not torch.equal(pupil["encoder.weight"], model["encoder.weight"])


def test_a_merged_client_is_taught_too(simulation: Simulation) -> None:
    again = build(Experiment.make("centralised", rounds=1, hidden=8), simulation.graph)
    assert "encoder.weight" in distilled(again, trained_on(again, again.clients))


def test_with_labels_holds_nothing_out(simulation: Simulation) -> None:
    client = simulation.clients[0]
    mine = with_labels(client, client.graph.y, client.train_mask)
    assert not bool((mine.val_mask | mine.test_mask).any())
