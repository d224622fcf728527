"""The attack that the preview measures really rebuilds rows, and the safe settings stop it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fedepd.deploy.limits import Limits, expected_message
from fedepd.deploy.task import FederationTask
from fedepd.privacy import recovery
from fedepd.privacy.figures import Figure
from fedepd.privacy.recovery import Recovery, measure, recovery_figures
from fedepd.privacy.view import watch
from fedepd.rounds.guard import Privacy
from fedepd.runs.simulation import Simulation
from toy import CLASSES, FEATURES, toy_client

TRAP: dict[str, Any] = {
    "backbone": "sage",
    "hidden": 512,
    "dropout": 0,
    "optimizer": "sgd",
    "lr": 1e6,
    "epochs": 1,
}
"""A site with 40 nodes gives its rows away under these settings."""


def attack(method: str = "fedavg", sparse: bool = False, **settings: Any) -> Recovery:
    task = FederationTask("r", method, "default", settings, FEATURES, CLASSES, ("a",))
    data = toy_client(0, nodes=40, sparse=sparse)
    return measure(task.participant(data), data, expected_message(task, 0))


@pytest.mark.hostile
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"lr": 0.01},
        {"lr": 0.01, "epochs": 3},
        {"lr": 0.01, "epochs": 3, "dropout": 0.5},
        {"optimizer": "adam", "lr": 0.01},
        {"optimizer": "adam", "lr": 0.01, "epochs": 3, "weight_decay": 0},
        {"sparse": True},
        {"head": "linear"},
        {"layers": 3},
        {"backbone": "gcn", "layers": 1},
        {"backbone": "mlp"},
        {"backbone": "h2gcn"},
        {"method": "fedepd"},
        {"method": "creff", "optimizer": "adam", "lr": 0.01, "epochs": 3, "optimizer_own": True},
    ],
)
def test_crafted_weights_rebuild_nodes(change: dict[str, Any]) -> None:
    """Each of these settings is outside the safe limits."""
    found = attack(**{**TRAP, **change})
    assert found.of == 40
    assert found.nodes >= 10, found


def test_a_wider_layer_rebuilds_more() -> None:
    assert (
        attack(**{**TRAP, "hidden": 8}).nodes < attack(**{**TRAP, "hidden": 64}).nodes < attack(**TRAP).nodes
    )


@pytest.mark.parametrize("method", ["fedavg", "fedepd", "fedgta"])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("backbone", ["sage", "mlp", "h2gcn", "gat"])
def test_the_safe_limits_stop_the_attack(method: str, dropout: float, backbone: str) -> None:
    settings: dict[str, Any] = {"backbone": backbone, "hidden": 256, "dropout": dropout}
    assert (
        Limits().refusal(FederationTask("r", method, "default", settings, FEATURES, CLASSES, ("a",))) is None
    )
    assert attack(method, **settings).nodes <= 2


def test_a_convolution_gives_away_means_of_neighbourhoods() -> None:
    for backbone, sparse in (("gcn", False), ("gat", False), ("gat", True)):
        found = attack(sparse=sparse, **{**TRAP, "backbone": backbone})
        assert found.rows >= 10 > found.nodes
    assert "neighbourhood means" in found.sentence()


@pytest.mark.parametrize("method", ["fedproto", "isolated", "fedspray"])
def test_methods_that_send_no_encoder_give_no_row_away(method: str) -> None:
    assert attack(method, **TRAP) == Recovery(0, 0, 40)


def test_the_participant_is_left_as_it_was() -> None:
    task = FederationTask("r", "fedavg", "default", {"hidden": 8}, FEATURES, CLASSES, ("a",))
    data = toy_client(0)
    participant = task.participant(data)
    participant.state = {"kept": torch.ones(1)}
    measure(participant, data, expected_message(task, 0))
    assert participant.state.keys() == {"kept"}


def test_a_large_graph_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "MOST_NODES", 10)
    assert attack(**TRAP).of == 10


def test_the_sentence_says_how_many() -> None:
    assert "the features of 20 of 98 nodes (20 %); every round" in Recovery(20, 20, 98).sentence()


def share_rebuilt(four: Callable[..., Simulation], privacy: Privacy, **settings: Any) -> Figure:
    view = watch(four("fedavg", **{**TRAP, **settings}), privacy, 1)
    return next(f for f in recovery_figures(view) if f.tier == "all")


def test_all_clients_are_attacked_and_a_sum_is_read_in_the_same_way(
    four: Callable[..., Simulation],
) -> None:
    """The four clients have 100 nodes. Sums alone do not stop a crafted model: they hold the same units."""
    off = share_rebuilt(four, Privacy())
    assert off.cases == 100
    assert off.value > 0.5
    summed = share_rebuilt(four, Privacy(guard=True, secure=True))
    assert summed.cases == 100
    assert 0.1 < summed.value < off.value


def test_usual_settings_give_nothing_away(four: Callable[..., Simulation]) -> None:
    usual = {"backbone": "gcn", "hidden": 8, "dropout": 0.5, "optimizer": "adam", "lr": 0.01, "epochs": 3}
    assert share_rebuilt(four, Privacy(), **usual).value <= 0.02
    assert share_rebuilt(four, Privacy(guard=True, secure=True), **usual).value <= 0.02


def test_tiers_are_those_of_the_nodes(four: Callable[..., Simulation]) -> None:
    found = {f.tier: f.cases for f in recovery_figures(watch(four("fedavg"), Privacy(), 1))}
    assert found == {"all": 100, "head": 85, "medium": 0, "tail": 15}
