from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedrep import FedRep
from fedepd.methods.steps import cross_entropy, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from toy import assert_near, initial, make_client, make_server, run_rounds, toy_client, toy_clients

DRY = Backbone(hidden=8, dropout=0.0)
PLAIN = Training(epochs=1, optimizer="sgd", lr=0.5, weight_decay=0.0)


def test_a_round_by_hand() -> None:
    """Plain gradient steps, no dropout: two of the classifier at the encoder that was sent, then one of the
    encoder at the classifier that came of it."""
    data, method = toy_client(), FedRep(head_epochs=2)
    client = make_client(method, data, DRY, PLAIN)
    whole = initial(FedAvg(), make_server([data], DRY, PLAIN))
    g, expected = cross_entropy(client, client.prepared), dict(whole)
    for part in ("classifier.", "classifier.", "encoder."):
        grads = g.of(expected)[1]
        expected |= {n: expected[n] - 0.5 * grads[n] for n in with_prefix(expected, part)}
    start = with_prefix(whole, "classifier.")
    reply, state = method.client_step(client, with_prefix(whole, "encoder."), start)
    assert_near(reply.tensors, with_prefix(expected, "encoder."))
    assert_near(with_prefix(state, "classifier."), with_prefix(expected, "classifier."))


def test_the_classifier_is_nearer_to_its_optimum_with_more_steps() -> None:
    data, losses = toy_client(), []
    for steps in (1, 10, 50):
        method = FedRep(head_epochs=steps)
        client = make_client(method, data, DRY, Training(epochs=0))
        sent = with_prefix(initial(FedAvg(), make_server([data], DRY, PLAIN)), "encoder.")
        reply, state = method.client_step(client, sent, {})
        rows, labels = DRY.training_rows({**sent, **state}, client.prepared)
        losses.append(float(F.cross_entropy(DRY.classify(state, rows), labels)))
        assert torch.equal(reply.tensors["encoder.weight"], sent["encoder.weight"])
    assert losses[0] > losses[1] > losses[2]


def test_classifiers_stay_at_home_and_differ() -> None:
    rounds, exchange = run_rounds(FedRep(), toy_clients())
    assert set(rounds[-1].bytes_up) == {"encoder.weight", "encoder.bias"} == set(rounds[-1].tensors)
    heads = [exchange.participants[k].state["classifier.weight"] for k in range(3)]
    assert not torch.equal(heads[0], heads[1])


def test_a_client_without_training_nodes_replies_what_it_got() -> None:
    clients = [toy_client(0, train=False), toy_client(1)]
    rounds, exchange = run_rounds(FedRep(score="trained"), clients, rounds=1)
    start = Backbone(hidden=8).initial(exchange.participants[0].info, 0)
    assert torch.equal(exchange.participants[0].state["encoder.weight"], start["encoder.weight"])
    assert not torch.equal(rounds[-1].tensors["encoder.weight"], start["encoder.weight"])


def test_bad_settings_are_refused() -> None:
    with pytest.raises(BadConfig, match="head_epochs is 0"):
        FedRep(head_epochs=0)
