"""FedAvg: its four checks in docs/reading-the-rivals.md, and its weights."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from fedepd.methods.base import weight_of
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import average, fit, weighted_mean
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import Reply, TaskInfo, Tensors
from toy import (
    assert_near,
    assert_same,
    initial,
    make_client,
    make_server,
    run_rounds,
    toy_client,
    toy_clients,
)

MODEL = Backbone(hidden=8)


def scalar_reply(value: float, num_nodes: int, num_train: int = 1) -> Reply:
    return Reply({"w": torch.tensor([value])}, num_nodes, num_train)


def test_one_client_is_plain_training() -> None:
    """The plain loop: one Adam for the whole run, its dropout drawn from the stream of each round."""
    data, training = toy_client(), Training()
    rounds, exchange = run_rounds(FedAvg(), [data], rounds=4, model=MODEL, training=training)
    client = make_client(FedAvg(), data, MODEL, training)
    server = make_server([data], MODEL, training)
    params = {
        name: value.clone().requires_grad_() for name, value in sorted(initial(FedAvg(), server).items())
    }
    adam = torch.optim.Adam(params.values(), lr=training.lr, weight_decay=training.weight_decay, fused=True)
    for number in (1, 2, 3, 4):
        draws = make_client(FedAvg(), data, MODEL, training, round=number).draws("dropout")
        for _ in range(training.epochs):
            adam.zero_grad()
            hidden = MODEL.encode(params, client.prepared, draws)
            F.cross_entropy(
                MODEL.logits(params, hidden, client.prepared, train_only=True), client.prepared.labels
            ).backward()  # type: ignore[no-untyped-call]
            adam.step()
    plain = {name: value.detach() for name, value in params.items()}
    assert_near(dict(sorted(rounds[-1].tensors.items())), plain)
    assert_near({name: exchange.participants[0].state[name] for name in plain}, plain)


def test_the_mean_is_weighted_by_nodes() -> None:
    """n = (1, 3), parameters 0 and 4: (1 · 0 + 3 · 4) / 4 = 3."""
    replies = {0: scalar_reply(0.0, 1), 1: scalar_reply(4.0, 3)}
    assert average(TaskInfo(1, 2, 2), {"w": torch.zeros(1)}, replies)["w"].tolist() == [3.0]


def test_the_mean_may_be_weighted_by_training_nodes() -> None:
    """Training nodes (3, 1), parameters 0 and 4: 4 / 4 = 1."""
    replies = {0: scalar_reply(0.0, 10, 3), 1: scalar_reply(4.0, 30, 1)}
    assert average(TaskInfo(1, 2, 2, "train"), {"w": torch.zeros(1)}, replies)["w"].tolist() == [1.0]


@pytest.mark.parametrize("weighting", ["nodes", "train"])
def test_a_client_without_training_nodes_has_no_say(weighting: str) -> None:
    info = TaskInfo(1, 2, 2, weighting)  # type: ignore[arg-type]
    assert weight_of(info, scalar_reply(0.0, 100, 0)) == 0.0
    replies = {0: scalar_reply(math.nan, 100, 0), 1: scalar_reply(4.0, 3)}
    assert average(info, {"w": torch.zeros(1)}, replies)["w"].tolist() == [4.0]
    assert average(info, {"w": torch.tensor([7.0])}, {0: replies[0]})["w"].tolist() == [7.0]


def test_weights_are_renormalised_over_those_who_answer() -> None:
    """Of n = (1, 3, 4) the last is absent: still (1 · 0 + 3 · 4) / 4."""
    replies = {0: scalar_reply(0.0, 1), 1: scalar_reply(4.0, 3)}
    assert average(TaskInfo(1, 2, 3), {"w": torch.zeros(1)}, replies)["w"].tolist() == [3.0]


def test_the_order_of_replies_does_not_change_a_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    replies = {k: Reply({"w": torch.randn(50, generator=generator)}, 3 + 7 * k, 1) for k in range(5)}
    start, weights = {"w": torch.zeros(50)}, {k: float(r.num_nodes) for k, r in replies.items()}
    backwards = dict(sorted(replies.items(), reverse=True))
    assert_same(weighted_mean(start, replies, weights), weighted_mean(start, backwards, weights))


def test_permuting_the_clients_leaves_the_result() -> None:
    """Also where the permutation renames them, and with it reorders the sums.

    There is no dropout, whose stream is the client's.
    """
    clients = toy_clients()
    renamed = [toy_clients()[k] for k in (2, 0, 1)]
    renamed = [
        type(c)(i, c.graph, c.train_mask, c.val_mask, c.test_mask, c.global_ids)
        for i, c in enumerate(renamed)
    ]
    (a, _), (b, _) = (
        run_rounds(FedAvg(), cs, model=Backbone(hidden=8, dropout=0.0)) for cs in (clients, renamed)
    )
    for name, value in a[-1].tensors.items():
        torch.testing.assert_close(value, b[-1].tensors[name], rtol=1e-6, atol=1e-6)


def test_one_sgd_step_is_the_step_on_the_mean_loss() -> None:
    """Averaging θ - η ∇L_k with equal weights gives θ - η ∇(mean of L_k)."""
    clients = [toy_client(k, nodes=20) for k in range(3)]
    model, training = (
        Backbone(hidden=8, dropout=0.0),
        Training(epochs=1, optimizer="sgd", lr=0.5, weight_decay=0.0),
    )
    rounds, _ = run_rounds(FedAvg(), clients, rounds=1, model=model, training=training)
    start = initial(FedAvg(), make_server(clients, model, training))
    leaves = {name: value.clone().requires_grad_() for name, value in start.items()}
    losses = []
    for data in clients:
        inputs = model.inputs(data)
        losses.append(
            F.cross_entropy(
                model.logits(leaves, model.encode(leaves, inputs), inputs, train_only=True), inputs.labels
            )
        )
    grads = torch.autograd.grad(torch.stack(losses).mean(), list(leaves.values()))
    for (name, value), grad in zip(start.items(), grads, strict=True):
        torch.testing.assert_close(rounds[0].tensors[name], value - 0.5 * grad, rtol=1e-5, atol=1e-6)


def test_the_personal_model_is_the_one_the_client_sent() -> None:
    method, data = FedAvg(), toy_client()
    message = initial(method, make_server([data], MODEL, Training()))
    reply, state = method.client_step(make_client(method, data, MODEL), message, {})
    assert_same(reply.tensors, {name: state[name] for name in message})
    assert (reply.num_nodes, reply.num_train, reply.round) == (24, 15, 1)


def test_moments_come_back_under_the_name_of_their_stage() -> None:
    client = make_client(FedAvg(), toy_client(), MODEL)
    params: Tensors = {"w": torch.ones(2)}
    state: Tensors = {"other.moments.step": torch.tensor(9.0)}
    for expected in (2, 4):
        params, state, _ = fit(client, params, state, lambda p: p["w"].square().sum(), epochs=2, stage="mine")
        assert state["mine.moments.step"] == expected
    assert state["other.moments.step"] == 9
