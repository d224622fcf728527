from __future__ import annotations

from typing import Any

import pytest
import torch

from fedepd.methods.fedavg import FedAvg
from fedepd.methods.scaffold import Scaffold
from fedepd.methods.steps import cross_entropy, model_part, renamed
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.guard import Privacy
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import train
from fedepd.rounds.participant import Participant
from fedepd.types import Tensors
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

DRY = Backbone(hidden=8, dropout=0.0)
PLAIN = Training(epochs=2, optimizer="sgd", lr=0.5, weight_decay=0.0)


@pytest.mark.parametrize("variate", ["gradients", "steps"])
def test_its_first_round_is_fedavgs_bit_for_bit(variate: Any) -> None:
    """All variates are 0 then. The second round differs."""
    ours, _ = run_rounds(Scaffold(variate=variate), toy_clients(), rounds=2)
    theirs, _ = run_rounds(FedAvg(), toy_clients(), rounds=2)
    assert_same(model_part(ours[0].tensors), theirs[0].tensors)
    assert not torch.equal(ours[1].tensors["classifier.bias"], theirs[1].tensors["classifier.bias"])


def test_one_client_has_nothing_to_correct() -> None:
    """c is its own variate, but for rounding: FedAvg."""
    ours, _ = run_rounds(Scaffold(), [toy_client()], training=PLAIN, model=DRY)
    theirs, _ = run_rounds(FedAvg(), [toy_client()], training=PLAIN, model=DRY)
    assert_near(model_part(ours[-1].tensors), theirs[-1].tensors)


def test_two_steps_by_hand() -> None:
    """w1 = w0 - lr (g(w0) + c - c_k), w2 likewise; the new variate is (g(w0) + g(w1)) / 2."""
    data, method = toy_client(), Scaffold()
    client = make_client(method, data, DRY, PLAIN, round=2)
    sent = initial(FedAvg(), make_server([data], DRY, PLAIN))
    draws = torch.Generator().manual_seed(3)
    c, own = ({n: 0.01 * torch.randn(v.shape, generator=draws) for n, v in sent.items()} for _ in range(2))
    g = cross_entropy(client, client.prepared)

    def step(params: Tensors) -> tuple[Tensors, Tensors]:
        grads = g.of(params)[1]
        return grads, {n: v - 0.5 * (grads[n] + c[n] - own[n]) for n, v in params.items()}

    first, once = step(sent)
    second, twice = step(once)
    message = {**sent, **renamed(c, "", "control.")}
    reply, state = method.client_step(client, message, renamed(own, "", "variate."))
    assert_near(model_part(reply.tensors), twice)
    mean = {n: (first[n] + second[n]) / 2 for n in sent}
    assert_near(renamed(state, "variate.", ""), mean)
    assert_near(renamed(reply.tensors, "control.", ""), {n: c[n] + mean[n] - own[n] for n in sent})


def test_both_variates_are_one_under_plain_gradient_steps() -> None:
    """(w0 - w_K) / (K lr) = mean(g) + c - c_k. So option II, c_k - c + (w0 - w_K) / (K lr), is mean(g)."""
    ours, theirs = (
        run_rounds(Scaffold(variate=variate), toy_clients(), model=DRY, training=PLAIN)[0][-1].tensors
        for variate in ("gradients", "steps")
    )
    for name, value in theirs.items():
        torch.testing.assert_close(ours[name], value, rtol=1e-3, atol=1e-5, msg=name)


def test_the_servers_variate_is_the_mean_of_all_so_that_corrections_cancel_out() -> None:
    clients = [toy_client(k, nodes=16 + 8 * k) for k in range(3)]
    rounds, exchange = run_rounds(Scaffold(), clients)
    for name, value in renamed(rounds[-1].tensors, "control.", "").items():
        states = [exchange.participants[k].state[f"variate.{name}"] for k in range(3)]
        sizes = [float(c.graph.num_nodes) for c in clients]
        mean = sum(w * s.double() for w, s in zip(sizes, states, strict=True)) / sum(sizes)
        torch.testing.assert_close(value.double(), mean, rtol=1e-4, atol=1e-6)


def test_under_adam_a_distance_is_no_gradient() -> None:
    """Adam's first steps have length lr in each coordinate, so the variate by distance has entries of about
    1. Gradients are far below that."""
    sizes = {}
    for variate in ("gradients", "steps"):
        _, exchange = run_rounds(Scaffold(variate=variate), [toy_client()], rounds=1, model=DRY)
        sizes[variate] = float(exchange.participants[0].state["variate.classifier.weight"].abs().median())
    assert 0.5 < sizes["steps"] < 1.5
    assert sizes["gradients"] < 0.2


def test_a_closed_class_is_not_corrected_under_the_guard() -> None:
    """A class of one client is closed. Its column of c is the client's own variate, so the gap is 0."""
    privacy = Privacy(guard=True, min_count=5, min_holders=3)
    clients = [toy_client(k, missing_class=k > 0) for k in range(3)]
    server = make_server(clients, DRY, Training(), rounds=3)
    sites = [Participant(Scaffold(), c, server.info, DRY, Training(), 0, 3, privacy) for c in clients]
    exchange = InProcess(sites)
    out = list(
        train(Scaffold(), server, initial(Scaffold(), server), [0, 1, 2], exchange, 1, privacy=privacy)
    )
    exchange.close()
    closed = int((~torch.tensor([c in (out[-1].opened or ()) for c in range(3)])).nonzero()[0, 0])
    assert float(out[-1].tensors["control.classifier.bias"][closed]) == 0.0
    holder = exchange.participants[0].state
    assert float(holder["variate.classifier.bias"][closed]) != 0.0
    torch.testing.assert_close(
        holder["guard.home.control.classifier.bias"][closed], holder["variate.classifier.bias"][closed]
    )
