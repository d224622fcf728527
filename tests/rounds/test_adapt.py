"""What a client can make of the selected model, and that it forgets no class on the way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedepd.methods import METHODS
from fedepd.methods.base import Client
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedepd.method import FedEPD
from fedepd.methods.fedlc import FedLC
from fedepd.methods.graphsmote import GraphSMOTE
from fedepd.methods.steps import model_part
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.adapt import (
    BEFORE,
    CANDIDATES,
    ENOUGH,
    SEEN,
    STEPS,
    WEIGHT,
    Adapter,
    adapted_logits,
    blended,
    own_choice,
    trained_on,
)
from fedepd.types import Tensors
from toy import CLASSES, initial, make_client, make_server, toy_client

MODEL = Backbone(hidden=4)
GLOBAL = [name for name, method in METHODS.items() if method.has_global]
ALL = torch.ones(CLASSES, dtype=torch.bool)


def started(
    method: Any, missing_class: bool = False, one_node_class: bool = False, **more: Any
) -> tuple[Client[Any], Tensors]:
    data = toy_client(missing_class=missing_class, one_node_class=one_node_class)
    tensors = initial(method, make_server([data], MODEL, Training(), 0, 3))
    return make_client(method, data, MODEL, Training(**more), round=4), method.message(tensors, 0)


def test_the_candidates_are_the_selected_model_and_ten_others() -> None:
    assert len(CANDIDATES) == 11
    assert (CANDIDATES[0].steps, CANDIDATES[0].weight) == (0, 0.0)
    assert {each.steps for each in CANDIDATES} == {0, *STEPS}


@pytest.mark.parametrize("name", GLOBAL)
def test_every_method_with_a_model_for_all_trains_it_on(name: str) -> None:
    method: Any = METHODS[name]()
    client, tensors = started(method)
    models = trained_on(method, client, tensors)
    assert list(models) == [0, *STEPS]
    last = f"{method.last_layer}.weight"
    for before, after in zip((0, *STEPS), STEPS, strict=False):
        assert models[after].keys() == tensors.keys()
        assert not torch.equal(models[before][last], models[after][last])
        assert not torch.equal(models[before]["encoder.weight"], models[after]["encoder.weight"])
    right = [
        (method.predict(client, models[steps]).argmax(1) == client.data.graph.y)[client.data.train_mask]
        for steps in (0, STEPS[-1])
    ]
    assert right[1].sum() > right[0].sum()


@pytest.mark.parametrize(
    "method", [FedAvg(), FedLC(), FedEPD(prune="always"), GraphSMOTE()], ids=lambda method: method.label
)
def test_the_loss_is_the_methods_own_as_in_one_long_round(method: Any) -> None:
    """With new moments, 20 steps and then 20 more are 40 steps of the method's own training. FedEPD has no
    calibration as long as there are no prototypes, so its margin and its pruned edges are those of the base
    loss."""
    client, tensors = started(method, one_node_class=True, epochs=40)
    reply, _ = method.client_step(client, tensors, {})
    found = trained_on(method, client, tensors)[40]
    assert all(torch.equal(value, found[name]) for name, value in model_part(reply.tensors).items())
    plain, start = started(FedAvg(), one_node_class=True)
    by_plain_loss = trained_on(FedAvg(), plain, {name: tensors[name] for name in start})[40]
    same = torch.equal(found["classifier.weight"], by_plain_loss["classifier.weight"])
    assert same == (method.label == "FedAvg")


def test_creff_trains_the_head_that_it_predicts_with() -> None:
    method: Any = METHODS["creff"]()
    client, tensors = started(method)
    after = trained_on(method, client, tensors)[20]
    assert not torch.equal(after["head.weight"], tensors["head.weight"])
    assert torch.equal(after["classifier.weight"], tensors["classifier.weight"])


def test_without_training_nodes_or_a_usable_step_the_model_stays() -> None:
    client, tensors = started(FedAvg())
    nobody = replace(client, data=replace(client.data, train_mask=torch.zeros(24, dtype=torch.bool)))
    assert all(model is tensors for model in trained_on(FedAvg(), nobody, tensors).values())
    wild, tensors = started(FedAvg(), optimizer="sgd", lr=1e30)
    assert all(bool(v.isfinite().all()) for v in trained_on(FedAvg(), wild, tensors)[320].values())


def test_a_blend_is_the_mean_of_log_probabilities() -> None:
    before, after = torch.randn(2, 6, CLASSES).unbind()
    half = (before.log_softmax(1) + after.log_softmax(1)) / 2
    assert torch.allclose(blended(before, after, ALL, 0.5), half, atol=1e-6)
    assert torch.allclose(blended(before, after, ALL, 1.0), after.log_softmax(1), atol=1e-6)
    assert torch.equal(blended(before, after, ALL, 0.0), before.log_softmax(1))


def test_a_class_without_training_nodes_keeps_its_probability() -> None:
    before, after = torch.randn(2, 6, CLASSES).unbind()
    seen = torch.tensor([True, True, False])
    alone = blended(before, after, seen, 1.0).exp()
    assert torch.allclose(alone.sum(1), torch.ones(6), atol=1e-6)
    assert torch.allclose(alone[:, 2], before.softmax(1)[:, 2], atol=1e-6)
    of_two = after[:, :2].softmax(1)
    assert torch.allclose(alone[:, :2] / alone[:, :2].sum(1, keepdim=True), of_two, atol=1e-6)
    assert torch.equal(blended(before, after, ~ALL, 1.0), before.log_softmax(1))


@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_a_class_that_the_client_never_saw_is_still_predicted(weight: float) -> None:
    """The selected model is surely right about class 2, of which the client has no training node. 320 steps
    push that class down until the plain mixture misses it. The mixture of the two models does not."""
    client, tensors = started(FedAvg(), missing_class=True)
    assert 2 not in client.data.graph.y[client.data.train_mask]
    sure = {**tensors, "classifier.bias": torch.tensor([0.0, 0.0, 3.0])}  # says 2 of every node
    after = trained_on(FedAvg(), client, sure)[320]
    first, second = (FedAvg().predict(client, each) for each in (sure, after))
    seen = torch.tensor([True, True, False])
    plain = torch.lerp(first.log_softmax(1), second.log_softmax(1), weight).argmax(1)
    assert (first.argmax(1) == 2).all()
    assert (second.argmax(1) != 2).all()
    assert (plain != 2).any()
    assert (blended(first, second, seen, weight).argmax(1) == 2).all()


def test_what_is_kept_predicts_as_the_candidate() -> None:
    client, tensors = started(FedAvg(), missing_class=True)
    own = {**tensors, "classifier.bias": tensors["classifier.bias"] + 1.0}  # as the guard's own columns
    adapter = Adapter(FedAvg(), client, tensors, own, client)
    for choice, predicted in enumerate(adapter.predicted):
        kept = adapter.kept(choice)
        assert {WEIGHT, SEEN, BEFORE + "classifier.bias"} <= kept.keys()
        assert BEFORE + "encoder.weight" not in kept  # the server has it
        assert torch.equal(adapted_logits(FedAvg(), client, tensors, kept).argmax(1), predicted)


# --- the client's own choice --------------------------------------------------------------------------------


def compared_with(gained: int, nodes: int) -> list[Tensor]:
    """All candidates are as the common one, but for number 4, which is right about ``gained`` nodes more."""
    first = torch.tensor([[nodes // 2, nodes // 2], [0, 0]])
    changes = [torch.zeros(3, 2, 2, dtype=torch.int64) for _ in CANDIDATES]
    changes[4][1, 1, 0] = gained
    return [first, *changes]


@pytest.mark.parametrize(
    ("gained", "nodes", "choice"),
    [
        (20, ENOUGH, 4),
        (20, ENOUGH - 2, 7),  # too few validation nodes to have a say
        (3, ENOUGH, 7),  # 3 of 100 are ± 3.4 points: (3 - 9 / 100) ** 0.5 · 1.96 = 3.34
        (4, ENOUGH, 4),  # 4 of 100 are ± 3.84 points
        (0, ENOUGH, 7),
    ],
)
def test_a_client_leaves_the_common_choice_only_if_it_can_tell(gained: int, nodes: int, choice: int) -> None:
    assert own_choice(7, compared_with(gained, nodes), "acc") == choice
