from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.lte4g import HEADS, LTE4G, filled_up
from fedepd.methods.steps import class_counts, model_part, renamed, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import ClientData, Graph, Reply, Tensors
from toy import assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients

MODEL = Backbone(hidden=8)
PLAIN: dict[str, Any] = {"class_weight": False, "gamma": 0.0, "alpha": 1.0}


def started(method: LTE4G) -> Tensors:
    return initial(method, make_server([toy_client()], MODEL, Training()))


@pytest.mark.parametrize("sparse", [False, True])
def test_stage_one_alone_with_plain_cross_entropy_is_fedavg(sparse: bool) -> None:
    clients = toy_clients(sparse=sparse)
    ours, _ = run_rounds(LTE4G(experts=0.0, students=0.0, **PLAIN), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same(model_part(ours[-1].tensors), theirs[-1].tensors)
    client = make_client(LTE4G(), clients[0], MODEL)
    predicted = LTE4G().predict(client, ours[-1].tensors)
    assert torch.equal(predicted, MODEL.predict(theirs[-1].tensors, client.prepared.inputs))


@pytest.mark.parametrize(
    ("last_round", "stages", "heads"),
    [
        (1, (1, 0, 0), [None]),
        (2, (1, 0, 0), [None, "student"]),
        (3, (1, 1, 1), [None, "high", "student"]),
        (10, (6, 1, 2), [None] * 6 + ["high", "low", "student", "student"]),
        (60, (36, 6, 12), [None] * 36 + ["high"] * 6 + ["low"] * 6 + ["student"] * 12),
    ],
)
def test_the_stages_by_hand(last_round: int, stages: tuple[int, int, int], heads: list[str | None]) -> None:
    """.6, .2 and .2 of the rounds. Students have one at least, and stage one has another."""
    method = LTE4G()
    assert method.stages(last_round) == stages
    assert [method.head_of(number, last_round) for number in range(1, last_round + 1)] == heads
    assert method.complete_from(last_round) == (
        1 if last_round == 1 else 1 + len(heads) - heads.count("student")
    )


def test_the_model_is_frozen_after_stage_one_and_each_head_after_its_own() -> None:
    rounds, exchange = run_rounds(LTE4G(), toy_clients(), rounds=10)
    after = [each.tensors for each in rounds]
    for later in after[6:]:
        assert_same(model_part(later), model_part(after[5]))
    for name in HEADS:
        assert_same(with_prefix(after[5], name), renamed(after[5], "classifier.", f"{name}."))
    assert not torch.equal(after[6]["high.weight"], after[5]["high.weight"])
    assert_same(with_prefix(after[7], "high."), with_prefix(after[6], "high."))
    assert not torch.equal(after[9]["student.weight"], after[8]["student.weight"])
    assert_same(with_prefix(after[9], "low."), with_prefix(after[7], "low."))
    assert [float(each["stage"]) for each in after] == [1.0] * 6 + [2.0] * 2 + [3.0] * 2
    for participant in exchange.participants.values():
        assert set(participant.state) & set(after[9]) == {"student.weight", "student.bias"}


def test_without_fine_tuning_the_low_expert_is_the_high_one() -> None:
    """3 rounds: one of stage two, which trains the experts of high degrees."""
    rounds, _ = run_rounds(LTE4G(), toy_clients())
    assert_same(renamed(rounds[1].tensors, "high.", ""), renamed(rounds[1].tensors, "low.", ""))
    assert not torch.equal(rounds[1].tensors["high.weight"], rounds[0].tensors["high.weight"])


def test_the_focal_loss_by_hand() -> None:
    """Two classes at logits (0, 0): CE = log 2, factor 1 - ½. Without class weights .5 · .6 · .6931 = .20794.

    Logits (log 3, 0) and classes 0, 1: CE log 4/3 and log 4, so 1 - p is ¼ and ¾. Weights 1 : 3 for "node":
    (¼ · ¼ · .28768 + ¾ · ¾ · 1.38629) = .79777.
    """
    labels, half = torch.tensor([0, 1]), torch.zeros(2, 2)
    unweighted = LTE4G(class_weight=False)
    assert float(unweighted.focal_loss(half, labels, None)) == pytest.approx(0.20794, abs=1e-5)
    assert float(LTE4G(**PLAIN).focal_loss(half, labels, None)) == pytest.approx(math.log(2), abs=1e-6)
    sure = torch.tensor([[math.log(3), 0.0]] * 2)
    found = LTE4G(focal="node").focal_loss(sure, labels, torch.tensor([1.0, 3.0]))
    assert float(found) == pytest.approx(0.79777, abs=1e-5)


def test_class_weights_are_those_of_all_clients() -> None:
    """Counts (1, 3) of all: weights 1 and 1/3, so shares ¾ and ¼. In round 1 the client's own counts do."""
    method = LTE4G(gamma=0.0)
    rounds, _ = run_rounds(method, toy_clients())
    total = sum(class_counts(each) for each in toy_clients())
    assert rounds[0].tensors["class.count"].tolist() == total.tolist()  # type: ignore[union-attr]
    data = toy_client()
    how = Training(epochs=1, optimizer="sgd", lr=0.5, weight_decay=0.0)
    client = make_client(method, data, Backbone(hidden=8, dropout=0.0), how)
    message = {**started(method), "class.count": torch.tensor([100.0, 100.0, 1000.0])}
    reply, _ = method.client_step(client, message, {})
    logits = MODEL.predict(message, client.prepared.inputs)[data.train_mask].requires_grad_()
    weight = torch.tensor([0.01, 0.01, 0.001])
    loss = torch.nn.functional.cross_entropy(logits, data.graph.y[data.train_mask], weight=weight)
    (grad,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(
        reply.tensors["classifier.bias"], message["classifier.bias"] - 0.5 * grad.sum(0)
    )


def reply_with(weight: float, part: float) -> Reply:
    tensors = {
        "high.weight": torch.full((8, 3), weight),
        "high.bias": torch.full((3,), weight),
        "part": torch.tensor([part, part, 0.0]),
    }
    return Reply(tensors, 9, 9)


def test_a_head_is_averaged_over_those_who_train_it() -> None:
    """3 nodes say 0 and 1 node says 4: 1. A client without nodes of the part says 9 in vain.

    Nobody has nodes of the group of class 2, whose column stays.
    """
    method, data = LTE4G(), [toy_client()] * 3
    server = replace(make_server(data, MODEL, Training(), rounds=10), round=7)
    assert method.head_of(7, 10) == "high"
    before = started(method)
    made = {"prototype.mean": torch.zeros(3, 8), "prototype.count": torch.zeros(3)}
    replies = {
        k: replace(each, tensors={**each.tensors, **made})
        for k, each in enumerate([reply_with(0.0, 3.0), reply_with(4.0, 1.0), reply_with(9.0, 0.0)])
    }
    after = method.server_step(server, before, replies)
    assert after["high.weight"][:, :2].tolist() == [[1.0, 1.0]] * 8
    assert after["high.bias"].tolist() == [1.0, 1.0, float(before["high.bias"][2])]
    assert torch.equal(after["high.weight"][:, 2], before["high.weight"][:, 2])
    weights = method.weights(server.info, method.reply_fields(server, before), replies[1])
    assert weights["high.weight"].tolist() == [1.0, 1.0, 0.0]


def test_prototypes_are_filled_up_with_likely_neighbours() -> None:
    """Class 1 has one training node, 3, and wants three. Its neighbours 4, 5 and 6 rate .2, .9 and .5.

    Node 0 is a neighbour too, but a training node of class 0.
    """
    edges = torch.tensor([[3, 3, 3, 3, 1], [4, 5, 6, 0, 7]])
    y = torch.tensor([0, 0, 0, 1, 1, 1, 1, 0])
    train = torch.tensor([True, True, True, True, False, False, False, False])
    graph = Graph.make(torch.eye(8), edges, y, 2)
    data = ClientData(0, graph, train, ~train, ~train, torch.arange(8))
    prepared = make_client(LTE4G(), data, MODEL).prepared
    likely = torch.zeros(8, 2)
    likely[[4, 5, 6], 1] = torch.tensor([0.2, 0.9, 0.5])
    nodes, classes = filled_up(prepared, 3, likely)
    assert (nodes.tolist(), classes.tolist()) == ([5, 6], [1, 1])
    none, _ = filled_up(prepared, 1, likely)
    assert not none.numel()


def test_an_empty_part_trains_nothing() -> None:
    """Without edges no node has a high degree: the client's expert goes back as it came, with weight 0."""
    method, data = LTE4G(), toy_client(edges=False)
    client = make_client(method, data, MODEL, round=2)
    message = {**started(method), "class.count": class_counts(data).to(torch.float32)}
    reply, _ = method.client_step(client, message, {})
    assert_same(with_prefix(reply.tensors, "high."), with_prefix(message, "high."))
    assert reply.tensors["part"].tolist() == [0.0, 0.0, 0.0]
    assert "loss" not in reply.scalars
    counts = reply.tensors["prototype.count"]
    assert counts.tolist() == class_counts(data).tolist()


def test_the_students_answer_from_stage_three_on() -> None:
    method, data = LTE4G(), toy_clients()
    rounds, _ = run_rounds(method, data, rounds=10)
    client = make_client(method, data[0], MODEL)
    for each in rounds:
        plain = MODEL.predict(each.tensors, client.prepared.inputs)
        assert torch.equal(method.predict(client, each.tensors), plain) == (each.number < 9)
    soft = LTE4G(route="soft").predict(client, rounds[-1].tensors)
    torch.testing.assert_close(soft.exp().sum(1), torch.ones(len(soft)))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"experts": 0.5, "students": 0.5}, "experts is 0.5 and students is 0.5; give shares"),
        ({"students": -0.1}, "students is -0.1"),
        ({"degree": -1}, "degree is -1; give 0 or more"),
        ({"gamma": -1.0}, "gamma is -1.0; give a finite number, at least 0"),
        ({"alpha": 0.0}, "alpha is 0.0; give a finite number, at least 1e-06"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        LTE4G(**settings)


def test_settings_that_change_nothing_are_named() -> None:
    assert LTE4G().idle() == {"alpha": "class_weight"}
    assert LTE4G(students=0.0, **PLAIN).idle() == {
        "focal": "gamma", "experts": "students", "degree": "students", "fill": "students", "route": "students"
    }  # fmt: skip
