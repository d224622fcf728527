from __future__ import annotations

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedprox import FedProx
from fedepd.methods.steps import cross_entropy
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
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


@pytest.mark.parametrize("sparse", [False, True])
def test_without_its_penalty_it_is_fedavg_bit_for_bit(sparse: bool) -> None:
    clients = toy_clients(sparse=sparse)
    theirs, ours, held = (
        run_rounds(m, clients)[0][-1].tensors for m in (FedAvg(), FedProx(mu=0.0), FedProx(mu=5.0))
    )
    assert_same(theirs, ours)
    assert not torch.equal(held["classifier.weight"], ours["classifier.weight"])


def test_two_steps_by_hand() -> None:
    """Plain gradient descent, no dropout, no decay. The penalty's gradient mu (w - w0) is 0 at w0, so that

    w1 = w0 - lr g(w0),   w2 = w1 - lr (g(w1) + mu (w1 - w0)),

    where g is the gradient of the mean cross-entropy.
    """
    mu, lr = 0.7, 0.5
    training = Training(epochs=2, optimizer="sgd", lr=lr, weight_decay=0.0)
    data = toy_client()
    client = make_client(FedProx(mu=mu), data, DRY, training)
    sent = initial(FedAvg(), make_server([data], DRY, training))
    g = cross_entropy(client, client.prepared)
    first = {name: sent[name] - lr * grad for name, grad in g.of(sent)[1].items()}
    plain = {name: first[name] - lr * grad for name, grad in g.of(first)[1].items()}
    penalty = {name: lr * mu * (first[name] - sent[name]) for name in sent}
    reply, _ = FedProx(mu=mu).client_step(client, sent, {})
    assert_near(reply.tensors, {name: plain[name] - penalty[name] for name in sent})
    assert max(float(value.abs().max()) for value in penalty.values()) > 1e-3  # far above rounding
    squares = sum(float((first[name] - sent[name]).square().sum()) for name in sent)
    losses = (g.of(sent)[0] + g.of(first)[0] + mu / 2 * squares) / 2
    assert reply.scalars["loss"] == pytest.approx(losses, rel=1e-5)


def test_a_stronger_penalty_keeps_clients_nearer() -> None:
    """After 20 steps: the distance from the model that was sent falls as mu grows."""
    data, apart = toy_client(), []
    for mu in (0.0, 1.0, 100.0):
        training = Training(epochs=20, weight_decay=0.0)
        client = make_client(FedProx(mu=mu), data, DRY, training)
        sent = initial(FedAvg(), make_server([data], DRY, training))
        reply, _ = FedProx(mu=mu).client_step(client, sent, {})
        apart.append(sum(float((reply.tensors[name] - sent[name]).square().sum()) for name in sent))
    assert apart[0] > 1.2 * apart[1] > 1.44 * apart[2]


@pytest.mark.parametrize("mu", [-1.0, float("inf"), float("nan")])
def test_bad_settings_are_refused(mu: float) -> None:
    with pytest.raises(BadConfig, match="mu is"):
        FedProx(mu=mu)
