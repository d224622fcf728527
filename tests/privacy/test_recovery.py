"""The attack that the preview measures really rebuilds rows, and the safe settings stop it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedepd.deploy.limits import Limits, expected_message
from fedepd.deploy.task import FederationTask
from fedepd.privacy import recovery
from fedepd.privacy.recovery import Recovery, measure
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
