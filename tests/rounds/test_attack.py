"""Every attack by hand, who is drawn, and that attackers are not scored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd.datasets import load
from fedepd.errors import BadConfig
from fedepd.rounds.attack import ACTS, CLAIMED, NAMES, Attack, poisoned
from fedepd.runs.experiment import Experiment
from fedepd.runs.run import run
from fedepd.runs.simulation import build
from fedepd.types import Field, Reply
from toy import toy_clients

FIELDS = {
    "w": Field((2,)),
    "prototype.sum": Field((2, 2), "sum", of="prototype.count"),
    "prototype.count": Field((2,), "count"),
    "votes": Field((2,), "votes"),
}
MESSAGE = {"w": torch.tensor([1.0, 1.0])}


def reply(w: list[float]) -> Reply:
    tensors = {
        "w": torch.tensor(w),
        "prototype.sum": torch.tensor([[6.0, 0.0], [0.0, 2.0]]),
        "prototype.count": torch.tensor([3.0, 1.0]),
        "votes": torch.tensor([3.0, 4.0]),
    }
    return Reply(tensors, 9, 4)


HONEST = {0: reply([1.0, 3.0]), 1: reply([3.0, 3.0])}


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("sign-flip", "w", [1 - 3 * 1.0, 1 - 3 * 2.0]),  # the update was (1, 2)
        ("scale", "w", [1 + 30 * 1.0, 1 + 30 * 2.0]),
        ("alie", "w", [2.0 - 1.0, 3.0 - 0.0]),  # means 2 and 3, standard deviations 1 and 0
        ("prototype-far", "prototype.sum", [[-180.0, 0.0], [0.0, -60.0]]),
        ("prototype-swap", "prototype.sum", [[0.0, 6.0], [2.0, 0.0]]),  # each row as long as before
        ("size", "w", [0.0, 0.0]),
        ("votes", "votes", [4.0, 0.0]),  # all four training nodes for what it found worse
    ],
)
def test_what_an_attacker_sends(name: str, field: str, value: list[Any]) -> None:
    sent = ACTS[name](reply([2.0, 3.0]), MESSAGE, HONEST, FIELDS)
    assert torch.allclose(sent.tensors[field], torch.tensor(value))
    others = [other for other in FIELDS if other != field]
    assert all(torch.equal(sent.tensors[other], HONEST[0].tensors[other]) for other in others if other != "w")
    assert (sent.num_nodes, sent.num_train) == ((CLAIMED, CLAIMED) if name == "size" else (9, 4))


def test_label_flip_turns_the_training_labels_of_attackers_alone() -> None:
    before = toy_clients()
    after = poisoned(before, [1], Attack("label-flip"))
    for was, now in zip(before, after, strict=True):
        train = was.train_mask
        assert torch.equal(now.graph.y[~train], was.graph.y[~train])
        assert torch.equal(
            now.graph.y[train], 2 - was.graph.y[train] if was.client_id == 1 else was.graph.y[train]
        )


def test_attackers_are_drawn_by_the_seed() -> None:
    drawn = [Attack("scale", 3).drawn(range(10), seed) for seed in range(5)]
    assert drawn == [Attack("scale", 3).drawn(range(9, -1, -1), seed) for seed in range(5)]
    assert all(len(set(each)) == 3 for each in drawn)
    assert len({tuple(each) for each in drawn}) > 1
    assert Attack().drawn(range(10), 0) == []


@pytest.mark.parametrize("name", NAMES)
def test_attackers_are_not_scored_and_the_honest_ones_are(name: str) -> None:
    result = run(
        "synthetic", "fedepd", rounds=2, clients=5, hidden=8, attack=name, attackers=2, evaluate_every=2
    )
    simulation = build(Experiment.make("fedepd", rounds=2, clients=5, hidden=8), load("synthetic"))
    honest = [c for c in simulation.clients if c.client_id not in result.summary["attackers"]]
    assert len(result.summary["attackers"]) == 2
    assert result.confusions["global_test"].shape[0] == 5
    assert not result.confusions["global_test"][result.summary["attackers"]].any()
    assert result.confusions["global_test"].sum() == sum(int(c.test_mask.sum()) for c in honest)
    assert f"attack {name} by 2 clients" in result.summary["protocol"]


def test_an_attack_hurts_and_a_defence_helps() -> None:
    """On the built-in graph, seed 0: two clients of ten that flip their updates cost more than half, and
    clipping gives it back."""
    settings: dict[str, Any] = {"rounds": 20, "evaluate_every": 10}
    honest, flipped = (
        run("synthetic", "fedepd", attack=name, **settings).metrics["global"]["pooled"]
        for name in ("honest", "sign-flip")
    )
    clipped = run("synthetic", "fedepd", attack="sign-flip", robust="clip", **settings).metrics["global"][
        "pooled"
    ]
    assert flipped["bacc"] < 0.5 * honest["bacc"]
    assert clipped["bacc"] > 0.85 * honest["bacc"]


@pytest.mark.hostile
def test_a_billion_claimed_nodes_count_for_half_at_most() -> None:
    settings: dict[str, Any] = {"rounds": 10, "evaluate_every": 10, "attack": "size", "attackers": 1}
    believed = run("synthetic", "fedavg", **settings).metrics["global"]["pooled"]["acc"]
    capped = run("synthetic", "fedavg", cap_weights=True, robust="median", **settings).metrics["global"][
        "pooled"
    ]["acc"]
    assert capped > believed + 0.2


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"attack": "scale", "attackers": 0}, "attackers is 0"),
        ({"attack": "scale", "attackers": 10}, "leave at least one honest"),
        ({"attack": "votes"}, "FedAvg sends no votes"),
        ({"attack": "prototype-far"}, "FedAvg sends no prototypes"),
        ({"attack": "bribe"}, "unknown value of attack 'bribe'"),
    ],
)
def test_attacks_that_cannot_be(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadConfig, match=says):
        run("synthetic", "fedavg", rounds=1, **settings)


def test_a_swap_needs_two_classes() -> None:
    alone = reply([2.0, 3.0])
    alone = replace(alone, tensors={**alone.tensors, "prototype.count": torch.tensor([3.0, 0.0])})
    assert torch.equal(
        ACTS["prototype-swap"](alone, MESSAGE, HONEST, FIELDS).tensors["prototype.sum"],
        alone.tensors["prototype.sum"],
    )


@pytest.mark.parametrize("name", ["sign-flip", "scale", "alie", "size"])
def test_a_method_of_two_stages_can_be_attacked_in_both(name: str) -> None:
    """LWS sends its model first and then one scale per class."""
    result = run(
        "synthetic", "lws", rounds=4, clients=4, attack=name, attackers=1, hidden=4, evaluate_every=4
    )
    assert [line["clients"] for line in result.rounds] == [(0, 1, 2, 3)] * 4
