"""The last message of a run, and what clients answer to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedepd.methods import METHODS, Server
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.calibrate import grid_sums, nodes_in, temperatures_from
from fedepd.rounds.final import CLASS_TIERS, SELECTED, Final
from fedepd.rounds.guard import NEVER, OPEN, Privacy
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.participant import Participant
from fedepd.rounds.question import Setting
from fedepd.rounds.questions import FINAL
from fedepd.types import TaskInfo, Tensors
from toy import CLASSES, FEATURES, toy_clients

MODEL, TRAINING = Backbone(hidden=4), Training()
INFO = TaskInfo(FEATURES, CLASSES, 3)
TIERS = torch.arange(CLASSES) % 3


def participants(method: str = "fedavg", **privacy: Any) -> list[Participant]:
    return [
        Participant(METHODS[method](), data, INFO, MODEL, TRAINING, 0, 5, Privacy(**privacy))
        for data in toy_clients()
    ]


def message(**more: torch.Tensor) -> Tensors:
    return {**MODEL.initial(INFO, 0), SELECTED: torch.tensor([3, 0]), CLASS_TIERS: TIERS, **more}


def test_the_sum_of_all_answers_is_that_of_all_validation_nodes_together() -> None:
    everyone = participants()
    total, members = InProcess(everyone).ask(FINAL, dict.fromkeys(range(3), message()))
    assert members == (0, 1, 2)
    found = [p.validation(p.predictions(5, MODEL.initial(INFO, 0))["global"]) for p in everyone]
    logits, y = (torch.cat(each).numpy() for each in zip(*found, strict=True))
    pooled = grid_sums(logits, y, TIERS.numpy())
    # Every client rounds its own sum to 2^-24, so the sums differ by one such step per client at most.
    assert np.abs(total - pooled).max() <= 3
    assert nodes_in(total) == len(y)
    assert temperatures_from(total) == pytest.approx(temperatures_from(pooled), rel=1e-6)


def test_a_closed_class_is_never_predicted_and_its_nodes_are_not_counted() -> None:
    """The exported model has no column of a closed class, so it is calibrated without its nodes."""
    one = participants(guard=True, min_count=1, min_holders=1, secure=True)[0]
    opened = torch.ones(CLASSES)
    opened[0] = 0
    own = {**MODEL.initial(INFO, 0), OPEN: opened}
    logits, known = one.taken_home(own)
    assert bool((logits[:, 0] == NEVER).all())
    assert known.tolist() == [False] + [True] * (CLASSES - 1)
    _, y = one.validation(logits)
    assert nodes_in(Final().answer(one, message(**{OPEN: opened}))) == int((y != 0).sum())


def test_where_answers_are_seen_alone_tiers_of_few_nodes_are_left_out() -> None:
    many = max(len(p.validation(torch.zeros(p.size, CLASSES))[1]) for p in participants())
    seen: dict[str, Any] = {"guard": True, "min_count": many + 1, "min_holders": 1}
    total, _ = InProcess(participants(**seen)).ask(FINAL, dict.fromkeys(range(3), message()))
    assert not total.any()
    total, _ = InProcess(participants(secure=True, **seen)).ask(FINAL, dict.fromkeys(range(3), message()))
    assert nodes_in(total) > 0


def test_under_noise_nothing_is_told_about_held_out_nodes() -> None:
    one = participants(secure=True, dp_epsilon=8.0)[0]
    assert not Final().answer(one, message()).any()


def test_a_method_without_a_model_for_all_answers_with_its_own() -> None:
    one = participants("fedproto")[0]
    assert not one.method.has_global
    server = Server(INFO, MODEL, TRAINING, 0, 0, 5)
    sent = one.method.message(one.method.server_init(server, MODEL.initial(INFO, 0)), 0)
    logits, known = one.taken_home(sent)
    assert bool(known.all())
    assert torch.equal(logits, one.predictions(5, sent)["personal"])


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("entry", "value", "said"),
    [
        (SELECTED, [6, 0], "selects round [6, 0], but the run has 5"),
        (SELECTED, [0, -1], "selects round [0, -1]"),
        (CLASS_TIERS, [3] * CLASSES, "tiers are not 0, 1 or 2"),
        (CLASS_TIERS, [-1] * CLASSES, "tiers are not 0, 1 or 2"),
    ],
)
def test_a_message_that_cannot_be_is_named(entry: str, value: list[int], said: str) -> None:
    setting = Setting(METHODS["fedavg"](), Server(INFO, MODEL, TRAINING, 0, 0, 5), Privacy())
    fault = Final().fault({**message(), entry: torch.tensor(value)}, setting)
    assert fault is not None
    assert said in fault
