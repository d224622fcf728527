from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedyoyo import FedYoYo, distilled, two_views
from fedepd.methods.steps import cross_entropy, log_prior
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from toy import assert_same, make_client, relabelled, run_rounds, toy_client, toy_clients

PLAIN: dict[str, Any] = {"lam": 0.0, "drop_edges": 0.0, "drop_columns": 0.0}


@pytest.mark.parametrize("sparse", [False, True])
def test_without_prior_and_second_view_it_is_fedavg(sparse: bool) -> None:
    clients = toy_clients(sparse=sparse)
    ours, _ = run_rounds(FedYoYo(tau=0.0, **PLAIN), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same({n: ours[-1].tensors[n] for n in theirs[-1].tensors}, theirs[-1].tensors)


def test_with_equal_counts_it_is_fedavg() -> None:
    """15 training nodes, 5 of each class: a shift that all classes share."""
    data = toy_client()
    y = data.graph.y.clone()
    y[data.train_mask] = torch.arange(15) % 3
    data = relabelled(data, y)
    ours, _ = run_rounds(FedYoYo(**PLAIN), [data])
    theirs, _ = run_rounds(FedAvg(), [data])
    for name, value in theirs[-1].tensors.items():
        torch.testing.assert_close(ours[-1].tensors[name], value, rtol=1e-3, atol=1e-4)


def test_the_shifted_loss_by_hand() -> None:
    """m = (.8, .2), tau = 1.5, z = 0: 4^1.5 = 8, so p = 8/9 and 1/9; the losses are ln 9/8 and ln 9."""
    prior = log_prior(torch.tensor([8.0, 2.0]))
    assert prior is not None
    z = 1.5 * prior[None]
    assert float(F.cross_entropy(z, torch.tensor([1]))) == pytest.approx(math.log(9), abs=1e-6)
    assert float(F.cross_entropy(z, torch.tensor([0]))) == pytest.approx(0.11778, abs=1e-5)


def test_the_client_trains_on_the_shifted_loss_from_round_2_on() -> None:
    """Before counts are known there is no shift."""
    data, model = toy_client(one_node_class=True), Backbone(hidden=8, dropout=0.0)
    method = FedYoYo(**PLAIN)
    client = make_client(method, data, model, Training(epochs=1))
    params = model.init(client.info, torch.Generator().manual_seed(1))
    z = model.predict(params, client.prepared)[data.train_mask]
    labels = data.graph.y[data.train_mask]
    unknown, known = torch.zeros(3), torch.tensor([30.0, 60.0, 10.0])
    first, _ = method.client_step(client, {**params, "count": unknown}, {})
    assert first.scalars["loss"] == pytest.approx(float(F.cross_entropy(z, labels)), abs=1e-5)
    later, _ = method.client_step(client, {**params, "count": known}, {})
    own = torch.bincount(labels, minlength=3) / len(labels)
    shifted = z + 1.5 * torch.log(0.9 * known / 100 + 0.1 * own)
    assert later.scalars["loss"] == pytest.approx(float(F.cross_entropy(shifted, labels)), abs=1e-5)


def test_equal_views_teach_nothing() -> None:
    """Dropout 0 and nothing dropped: KL = 0 with gradient 0, and the loss is the cross-entropy."""
    data, model = toy_client(), Backbone(hidden=8, dropout=0.0)
    client = make_client(FedYoYo(), data, model)
    params = model.init(client.info, torch.Generator().manual_seed(1))
    loss, grads = two_views(client, client.prepared, None, 7.0, 1.5).of(params)
    plain, wanted = cross_entropy(client, client.prepared).of(params)
    assert loss == pytest.approx(plain, abs=1e-6)
    for name, value in wanted.items():
        torch.testing.assert_close(grads[name], value, rtol=1e-5, atol=1e-6)


def test_distillation_is_that_of_autograd() -> None:
    """Rows 0 and 2 are right; row 1 is not, and has no gradient."""
    draws = torch.Generator().manual_seed(3)
    teacher, student = (
        torch.randn(3, 4, generator=draws),
        torch.randn(3, 4, generator=draws).requires_grad_(),
    )
    labels = teacher.argmax(1)
    labels[1] = (labels[1] + 1) % 4
    right = [0, 2]
    expected = F.kl_div(
        (student[right] / 1.5).log_softmax(1), (teacher[right] / 1.5).softmax(1), reduction="batchmean"
    )
    found, grad = distilled(teacher, student.detach(), labels, 1.5)
    assert found == pytest.approx(float(expected.detach()), abs=1e-6)
    torch.testing.assert_close(grad, torch.autograd.grad(expected, student)[0], rtol=1e-5, atol=1e-6)
    assert not bool(grad[1].any())


def test_a_teacher_that_is_never_right_teaches_nothing() -> None:
    found, grad = distilled(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 5.0]]), torch.tensor([1]), 1.0)
    assert found == 0
    assert not bool(grad.any())


@pytest.mark.parametrize(
    ("warm_up", "number", "rounds", "factor"),
    [(50, 25, 200, 0.5), (50, 50, 200, 1), (50, 90, 200, 1), (50, 5, 40, 0.5), (0, 1, 40, 1), (50, 1, 3, 1)],
)
def test_distillation_grows(warm_up: int, number: int, rounds: int, factor: float) -> None:
    """By round / 50, or round / (rounds / 4) in runs of fewer than 200 rounds."""
    assert FedYoYo(lam=3.0, warm_up=warm_up).distillation(number, rounds) == pytest.approx(3 * factor)


def test_the_server_adds_up_the_counts() -> None:
    """Clients of 20, 24, 28 nodes, three fifths of them for training: 12 + 15 + 18."""
    rounds, _ = run_rounds(FedYoYo(), toy_clients(), rounds=1)
    assert float(rounds[-1].tensors["count"].sum()) == 45


@pytest.mark.parametrize("setting", ["own_prior", "temperature", "warm_up"])
def test_idle_settings_change_nothing(setting: str) -> None:
    off: dict[str, Any] = {"tau": 0.0, "lam": 0.0}
    other: dict[str, Any] = {**off, setting: 1}
    assert setting in FedYoYo(**off).idle()
    ours, _ = run_rounds(FedYoYo(**other), toy_clients(), rounds=2)
    theirs, _ = run_rounds(FedYoYo(**off), toy_clients(), rounds=2)
    assert_same(ours[-1].tensors, theirs[-1].tensors)
    assert not FedYoYo().idle()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"tau": -1.0}, "tau is -1"),
        ({"lam": float("inf")}, "lam is inf"),
        ({"warm_up": -1}, "warm_up is -1"),
        ({"own_prior": 1.5}, "own_prior is 1.5"),
        ({"temperature": 0.0}, "temperature is 0"),
        ({"drop_edges": 1.0}, "drop_edges is 1"),
        ({"drop_columns": -0.1}, "drop_columns is -0.1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        FedYoYo(**settings)
