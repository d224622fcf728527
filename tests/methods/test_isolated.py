from __future__ import annotations

import torch

from fedepd.methods.fedavg import FedAvg
from fedepd.methods.isolated import Isolated
from fedepd.methods.steps import model_part, own_model
from fedepd.network.training import Training
from toy import assert_same, make_client, run_rounds, toy_client, toy_clients


def test_nothing_crosses() -> None:
    rounds, _ = run_rounds(Isolated(), toy_clients())
    assert [(r.bytes_up, r.bytes_down, r.tensors) for r in rounds] == [({}, {}, {})] * 3


def test_one_client_alone_is_fedavg_with_one_client() -> None:
    """Averaging one model changes no bit, and both start from the run's initial weights."""
    _, alone = run_rounds(Isolated(), [toy_client()])
    rounds, _ = run_rounds(FedAvg(), [toy_client()])
    assert_same(model_part(alone.participants[0].state), rounds[-1].tensors)


def test_the_other_clients_change_nothing() -> None:
    _, alone = run_rounds(Isolated(), [toy_client(1)])
    _, together = run_rounds(Isolated(), [toy_client(0), toy_client(1), toy_client(2, train=False)])
    assert_same(alone.participants[1].state, together.participants[1].state)


def test_clients_that_never_trained_have_the_common_initial_weights() -> None:
    """One round with half of two clients: one of them is never asked.

    A client without training nodes stays where it began.
    """
    method = Isolated()
    rounds, exchange = run_rounds(method, toy_clients(2), rounds=1, training=Training(participation=0.5))
    idle = exchange.participants[1 - rounds[0].clients[0]]
    start = own_model(make_client(method, toy_client()), {})
    assert idle.state == {}
    untrained = run_rounds(method, [toy_client(train=False)])[1].participants[0]
    assert_same(model_part(untrained.state), start)
    client = make_client(method, toy_client())
    assert torch.equal(method.predict(client, {}), client.model.predict(start, client.prepared))


def test_it_learns() -> None:
    rounds, _ = run_rounds(Isolated(), [toy_client(k, nodes=60, edges=False) for k in range(2)], rounds=20)
    right = [
        float(c["personal_test"].trace() / c["personal_test"].sum())
        for c in (rounds[-1].confusions or {}).values()
    ]
    assert min(right) > 0.8
