from __future__ import annotations

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.feddc import FedDC
from fedepd.methods.fedprox import FedProx
from fedepd.methods.steps import model_part, renamed
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import Reply, Tensors
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


def start() -> tuple[Tensors, Tensors]:
    """The initial weights, and what FedAvg makes of them in one round."""
    server = make_server(toy_clients(), Backbone(hidden=8), Training())
    return initial(FedAvg(), server), run_rounds(FedAvg(), toy_clients(), rounds=1)[0][0].tensors


def test_its_first_round_goes_twice_as_far_as_fedavgs() -> None:
    """alpha = 0: drifts and variates are 0, so a client trains as FedAvg's, to θ. Its drift is then θ - w0,
    and the server has mean θ + mean drift = w0 + 2 (mean θ - w0)."""
    before, after = start()
    ours, exchange = run_rounds(FedDC(alpha=0.0), toy_clients(), rounds=1)
    twice = {name: before[name] + 2 * (after[name] - before[name]) for name in before}
    assert_near(model_part(ours[0].tensors), twice)
    _, theirs = run_rounds(FedAvg(), toy_clients(), rounds=1)
    for k in range(3):
        assert_same(model_part(exchange.participants[k].state), model_part(theirs.participants[k].state))


def test_its_first_clients_are_fedproxs() -> None:
    """The anchor is the model that was sent, as long as there is no drift."""
    _, ours = run_rounds(FedDC(alpha=0.7), toy_clients(), rounds=1)
    _, theirs = run_rounds(FedProx(mu=0.7), toy_clients(), rounds=1)
    for k in range(3):
        assert_same(model_part(ours.participants[k].state), model_part(theirs.participants[k].state))


def test_the_servers_steps_by_hand() -> None:
    """One number, one client, three replies, from w = 0: the drift is the sum of (reply - what was sent).

    Reply 1: drift 1, w = 1 + 1 = 2. Reply 2.5: drift 1.5, w = 4. Reply 2 (drawn back): drift -0.5, w = 1.5.
    """
    method, server = FedDC(), make_server([toy_client()], DRY, Training())
    held = method.server_init(server, {"encoder.bias": torch.zeros(1)})
    seen = []
    for value in (1.0, 2.5, 2.0):
        told = {"encoder.bias": torch.tensor([value]), "control.encoder.bias": torch.zeros(1)}
        held = method.server_step(server, held, {0: Reply(told, 4, 3)})
        seen.append((float(held["drift.encoder.bias"]), float(held["encoder.bias"])))
    assert seen == [(1.0, 2.0), (1.5, 4.0), (-0.5, 1.5)]
    assert method.message(held, 0).keys() == {"encoder.bias", "control.encoder.bias"}


def test_the_servers_drift_is_the_mean_of_the_clients() -> None:
    clients = [toy_client(k, nodes=16 + 8 * k) for k in range(3)]
    rounds, exchange = run_rounds(FedDC(), clients)
    sizes = [float(c.graph.num_nodes) for c in clients]
    for name, value in renamed(rounds[-1].tensors, "drift.", "").items():
        drifts = [exchange.participants[k].state[f"drift.{name}"].double() for k in range(3)]
        mean = sum(w * d for w, d in zip(sizes, drifts, strict=True)) / sum(sizes)
        torch.testing.assert_close(value.double(), mean, rtol=1e-4, atol=1e-6)


def test_a_client_is_drawn_to_the_model_less_its_drift() -> None:
    """Plain steps under an alpha so large that the loss is nothing beside it: one step of rate 1 / alpha ends
    on the anchor w - h. The drift is then h + (w - h) - w = 0."""
    alpha = 1e4
    training = Training(epochs=1, optimizer="sgd", lr=1 / alpha, weight_decay=0.0)
    client = make_client(FedDC(alpha=alpha), toy_client(), DRY, training, round=2)
    sent = initial(FedAvg(), make_server([toy_client()], DRY, training))
    drift = {name: torch.full_like(value, 0.5) for name, value in sent.items()}
    zeros = {name: torch.zeros_like(value) for name, value in sent.items()}
    state = {**renamed(drift, "", "drift."), **renamed(zeros, "", "variate.")}
    reply, after = FedDC(alpha=alpha).client_step(client, {**sent, **renamed(zeros, "", "control.")}, state)
    for name, value in sent.items():
        torch.testing.assert_close(reply.tensors[name], value - 0.5, rtol=0, atol=1e-3)
        torch.testing.assert_close(after[f"drift.{name}"], zeros[name], rtol=0, atol=1e-3)


@pytest.mark.parametrize("alpha", [-1.0, float("inf"), float("nan")])
def test_bad_settings_are_refused(alpha: float) -> None:
    with pytest.raises(BadConfig, match="alpha is"):
        FedDC(alpha=alpha)
