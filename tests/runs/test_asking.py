"""Whom a run asks, and what."""

from __future__ import annotations

import pytest

import fedepd
from fedepd.datasets.synthetic import synthetic
from fedepd.rounds.question import Setting
from fedepd.rounds.questions import ADAPTATION, ADAPTED, FINAL, asked_of
from fedepd.runs.asking import adapts, ask
from fedepd.runs.drive import drive
from fedepd.runs.experiment import Experiment
from fedepd.runs.simulation import build

GRAPH = synthetic(nodes=120, edges=400, classes=3, imbalance=2.0, smallest=None, features=6)


@pytest.mark.parametrize(
    ("method", "adapt", "asked"),
    [("fedavg", True, True), ("fedavg", False, False), ("fedproto", True, False), ("isolated", True, False)],
)
def test_only_a_run_that_adapts_asks_about_adaptation(method: str, adapt: bool, asked: bool) -> None:
    simulation = build(Experiment.make(method, adapt=adapt, clients=3), GRAPH)
    experiment = simulation.experiment
    setting = Setting(experiment.method, simulation.server, experiment.privacy, adapts=adapts(experiment))
    found = asked_of(setting)
    assert (ADAPTATION in found, ADAPTED in found, FINAL in found) == (asked, asked, True)


def test_an_excluded_client_is_not_asked() -> None:
    """A client whose answers were refused in three rounds is out."""
    simulation = build(Experiment.make("fedavg", rounds=3, clients=4, hidden=4), GRAPH)
    progress = simulation.start()
    drive(simulation.course(), progress, lambda each: progress.add(each, dict))
    refusal = {"client": 2, "field": "round", "reason": "is wrong"}
    for line in progress.lines:
        line["refused"] = [refusal]
    (_, answered), about = ask(simulation.course(), progress, ADAPTATION, {})
    assert answered == (0, 1, 3)
    assert about["clients"] == [0, 1, 3]
    assert about["bytes_up"] == 3 * 8 * 31 * 3**2  # three clients, 31 matrices of three classes
    assert fedepd.METHODS["fedavg"].has_global
