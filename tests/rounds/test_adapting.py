"""What is asked about adaptation, and that the answers tell no more than they may."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedepd.errors import BadMessage
from fedepd.methods.base import Server
from fedepd.methods.fedavg import FedAvg
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.adapt import CANDIDATES
from fedepd.rounds.adapting import (
    CHOICE,
    METRICS,
    Adaptation,
    Adapted,
    adaptation_counts,
    adapted_counts,
    choice_entry,
)
from fedepd.rounds.evaluate import changes
from fedepd.rounds.guard import OPEN, Privacy
from fedepd.rounds.participant import Participant
from fedepd.rounds.question import Setting
from fedepd.types import TaskInfo
from toy import CLASSES, FEATURES, toy_clients

MODEL, INFO = Backbone(hidden=4), TaskInfo(FEATURES, CLASSES, 3)
SETTING = Setting(FedAvg(), Server(INFO, MODEL, Training(), 0, 0, 3), Privacy())
MESSAGE = MODEL.initial(INFO, 0)


def participants(privacy: Privacy | None = None, **more: Any) -> list[Participant]:
    privacy = privacy or Privacy()
    return [
        Participant(FedAvg(), data, INFO, MODEL, Training(), 0, 3, privacy, **more) for data in toy_clients()
    ]


def test_the_sum_of_answers_counts_every_validation_node_once() -> None:
    everyone = participants()
    total = np.sum([Adaptation().answer(p, MESSAGE) for p in everyone], axis=0)
    first, others = adaptation_counts(total, CLASSES)
    layout = Adaptation().layout(SETTING)
    assert len(total) == sum(int(np.prod(shape)) for _, shape in layout) == CLASSES**2 * (1 + 10 * 3)
    assert len(others) == len(CANDIDATES) - 1
    # The same from all nodes of all clients at once.
    y, predicted = [], [[] for _ in CANDIDATES]  # type: ignore[var-annotated]
    for p in everyone:
        mask = p._true.val_mask
        y.append(p._true.graph.y[mask])
        for number, classes in enumerate(p.adapter(MESSAGE).predicted):
            predicted[number].append(classes[mask])
    true, (selected, *more) = torch.cat(y), [torch.cat(each) for each in predicted]
    assert first.sum() == len(true)
    assert first.trace() == int((selected == true).sum())
    for counts, classes in zip(others, more, strict=True):
        assert np.array_equal(counts, changes(selected, classes, true, CLASSES).numpy())


@pytest.mark.parametrize("choice", [0, 3, 10])
def test_the_common_choice_is_kept_and_scored(choice: int) -> None:
    client = participants()[1]
    answer = Adapted().answer(client, {**MESSAGE, **choice_entry(choice, "acc")})
    matrices, used = adapted_counts(answer, CLASSES)
    again = participants()[1]
    expected = again.counted("adapted", again.adapter(MESSAGE).predicted[choice])
    assert all(np.array_equal(matrices[name][0], matrix.numpy()) for name, matrix in expected.items())
    assert used.tolist() == [int(number == choice) for number in range(len(CANDIDATES))]
    assert float(client.adapted["adapt.weight"]) == CANDIDATES[choice].weight


def test_the_model_is_trained_once_for_both_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    from fedepd.rounds import adapt

    client, calls, real = participants()[0], [], adapt.trained_on

    def noted(*given: Any) -> Any:
        calls.append(1)
        return real(*given)

    monkeypatch.setattr(adapt, "trained_on", noted)
    Adaptation().answer(client, MESSAGE)
    Adapted().answer(client, {**MESSAGE, **choice_entry(1, "acc")})
    assert len(calls) == 1
    Adaptation().answer(client, {name: value + 1 for name, value in MESSAGE.items()})  # another model
    assert len(calls) == 2


def test_a_client_that_was_restarted_between_the_questions_has_the_same_bits() -> None:
    first, second = participants()[2], participants()[2]
    Adaptation().answer(first, MESSAGE)
    message = {**MESSAGE, **choice_entry(7, "macro_f1")}
    one, other = (Adapted().answer(client, message) for client in (first, second))
    assert np.array_equal(one, other)
    assert first.adapted.keys() == second.adapted.keys()
    assert all(torch.equal(value, second.adapted[name]) for name, value in first.adapted.items())


@pytest.mark.parametrize("shows_test", [True, False])
def test_the_guard_hides_closed_classes_and_small_numbers(shows_test: bool) -> None:
    """Class 2 is closed. Nothing tells of its nodes, nor that a node was taken for it."""
    guarded = Privacy(guard=True, min_count=1, min_holders=1)
    message = {**MESSAGE, OPEN: torch.tensor([1.0, 1.0, 0.0])}
    for client in participants(guarded, shows_test=shows_test):
        first, others = adaptation_counts(Adaptation().answer(client, message), CLASSES)
        assert first.sum() == int(client.own_sizes.val[:2].sum())
        assert not first[2].any()
        assert not first[:, 2].any()
        assert not any(each[:, 2].any() or each[:, :, 2].any() for each in others)
        answer = Adapted().answer(client, {**message, **choice_entry(4, "acc")})
        matrices, _ = adapted_counts(answer, CLASSES)
        assert not matrices["adapted_val"][0, 2].any()
        assert bool(matrices["adapted_test"][0, 2].any()) == (shows_test and bool(client.own_sizes.test[2]))


def test_the_guard_counts_no_class_with_few_validation_nodes() -> None:
    client = participants(Privacy(guard=True, min_count=1000, min_holders=1))[0]
    assert not Adaptation().answer(client, {**MESSAGE, OPEN: torch.ones(CLASSES)}).any()


def test_under_secure_sums_small_numbers_count() -> None:
    client = participants(Privacy(guard=True, min_count=1000, min_holders=1, secure=True))[0]
    first, _ = adaptation_counts(Adaptation().answer(client, {**MESSAGE, OPEN: torch.ones(CLASSES)}), CLASSES)
    assert first.sum() == int(client.own_sizes.val.sum())


@pytest.mark.hostile
@pytest.mark.parametrize("entry", [[11, 0], [-1, 0], [0, 2], [0, -1]])
def test_a_choice_that_cannot_be_is_refused(entry: list[int]) -> None:
    fault = Adapted().fault({CHOICE: torch.tensor(entry)}, SETTING)
    assert fault == f"the server chooses {entry}, which is no candidate of the adaptation"


def test_every_choice_that_can_be_is_taken() -> None:
    for number in range(len(CANDIDATES)):
        for metric in METRICS:
            assert Adapted().fault(choice_entry(number, metric), SETTING) is None
    shapes: dict[str, Tensor] = Adapted().entries(SETTING)
    assert shapes[CHOICE].shape == (2,)


@pytest.mark.hostile
@pytest.mark.parametrize("place", [0, CLASSES**2, CLASSES**2 + 1])
def test_counts_that_contradict_each_other_are_refused(place: int) -> None:
    total = np.zeros(CLASSES**2 * 31, dtype=np.int64)
    total[place] = -1 if place == 0 else 1  # a change of a node that the selected model never classified
    with pytest.raises(BadMessage, match="contradict each other"):
        adaptation_counts(total, CLASSES)
    with pytest.raises(BadMessage, match="negative count"):
        adapted_counts(np.full(2 * CLASSES**2 + len(CANDIDATES), -1), CLASSES)
