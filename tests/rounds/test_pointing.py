"""What clients answer about a common operating point, and which messages they refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedepd.methods import METHODS, Server
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.final import CLASS_TIERS, SELECTED, THRESHOLDS, USUAL, Final
from fedepd.rounds.guard import OPEN, Privacy
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.participant import Participant
from fedepd.rounds.point import BINS, NEVER
from fedepd.rounds.pointing import Pointing
from fedepd.rounds.question import Setting
from fedepd.rounds.questions import FINAL, POINT, asked_of
from fedepd.types import TaskInfo, Tensors
from toy import CLASSES, FEATURES, toy_clients

MODEL, TRAINING = Backbone(hidden=4), Training()
INFO = TaskInfo(FEATURES, CLASSES, 3)
AIM = "recall 1=0.8"


def setting(aim: str = AIM) -> Setting:
    return Setting(METHODS["fedavg"](), Server(INFO, MODEL, TRAINING, 0, 0, 5), Privacy(), aim=aim)


def participants(**privacy: Any) -> list[Participant]:
    private = Privacy(**privacy)
    return [
        Participant(METHODS["fedavg"](), data, INFO, MODEL, TRAINING, 0, 5, private, aim=AIM)
        for data in toy_clients()
    ]


def message(**more: torch.Tensor) -> Tensors:
    own = {SELECTED: torch.tensor([3, 0]), CLASS_TIERS: torch.arange(CLASSES) % 3, USUAL: torch.tensor([0])}
    return {**MODEL.initial(INFO, 0), **own, **more}


def test_it_is_asked_where_the_run_has_an_aim() -> None:
    assert asked_of(setting()) == [FINAL, POINT]
    assert asked_of(setting("")) == [FINAL]
    assert THRESHOLDS not in Final().entries(setting(""))
    assert Final().entries(setting())[THRESHOLDS].shape == (1,)


def test_all_validation_nodes_are_counted_once() -> None:
    everyone = participants(secure=True)
    total, members = InProcess(everyone).ask(POINT, dict.fromkeys(range(3), message()))
    assert members == (0, 1, 2)
    y = torch.cat([p.validation(torch.zeros(p.size, CLASSES))[1] for p in everyone])
    of, others = total.reshape(2, BINS).sum(1)
    assert (of, others) == (int((y == 1).sum()), int((y != 1).sum()))
    sizes = sum(size for _, (size,) in Pointing().layout(setting()))
    assert len(total) == sizes


def test_scores_of_few_nodes_do_not_leave_alone_also_without_the_guard() -> None:
    for privacy in ({"min_count": 5}, {"guard": True, "min_count": 5, "min_holders": 1}):
        for one in participants(**privacy):
            opened = {OPEN: torch.ones(CLASSES)} if "guard" in privacy else {}
            counts = Pointing().answer(one, message(**opened))
            assert not ((counts > 0) & (counts < 5)).any()


def test_nodes_of_closed_classes_are_not_counted() -> None:
    one = participants(guard=True, secure=True, min_count=1, min_holders=1)[0]
    opened = torch.ones(CLASSES)
    opened[1] = 0
    of, others = Pointing().answer(one, message(**{OPEN: opened})).reshape(2, BINS).sum(1)
    _, y = one.validation(torch.zeros(one.size, CLASSES))
    assert (of, others) == (0, int((y != 1).sum()))


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("question", "changes", "said"),
    [
        (Pointing(), {USUAL: torch.tensor([CLASSES])}, f"largest class is {CLASSES}, but there are"),
        (Pointing(), {USUAL: torch.tensor([-1])}, "largest class is -1"),
        (Pointing(), {SELECTED: torch.tensor([6, 0])}, "selects round [6, 0]"),
        (Final(), {THRESHOLDS: torch.tensor([-0.1])}, "which are no probabilities"),
        (Final(), {THRESHOLDS: torch.tensor([1.5])}, "which are no probabilities"),
        (Final(), {THRESHOLDS: torch.tensor([float("nan")])}, "which are no probabilities"),
        (Final(), {THRESHOLDS: torch.tensor([float("inf")])}, "which are no probabilities"),
        (Final(), {USUAL: torch.tensor([99]), THRESHOLDS: torch.tensor([0.5])}, "largest class is 99"),
    ],
)
def test_a_message_that_cannot_be_is_named(question: Any, changes: Tensors, said: str) -> None:
    fault = question.fault(message(**changes), setting())
    assert fault is not None
    assert said in fault


def test_a_point_that_was_not_found_is_no_fault() -> None:
    never = torch.tensor([NEVER], dtype=torch.float64)
    assert Final().fault(message(**{THRESHOLDS: never}), setting()) is None
    assert np.float64(NEVER) > 1
