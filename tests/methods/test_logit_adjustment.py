from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.logit_adjustment import COUNT, LogitAdjustment, adjustment
from fedepd.methods.steps import class_counts, model_part
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import Reply
from toy import (
    assert_near,
    assert_same,
    make_client,
    make_server,
    relabelled,
    run_rounds,
    toy_client,
    toy_clients,
)

DRY = Backbone(hidden=8, dropout=0.0)


@pytest.mark.parametrize("settings", [{}, {"prior": "local"}, {"form": "post_hoc"}])
def test_without_strength_it_is_fedavg_bit_for_bit(settings: Any) -> None:
    ours, _ = run_rounds(LogitAdjustment(tau=0.0, **settings), toy_clients())
    theirs, _ = run_rounds(FedAvg(), toy_clients())
    assert_same(model_part(ours[-1].tensors), theirs[-1].tensors)
    assert ours[-1].confusions is not None
    assert theirs[-1].confusions is not None
    assert_same(ours[-1].confusions[1], theirs[-1].confusions[1])


def test_after_training_means_a_model_of_fedavg() -> None:
    """form = post_hoc trains as FedAvg, and predicts z - tau log(N / N_max)."""
    method = LogitAdjustment(tau=2.0, form="post_hoc")
    ours, _ = run_rounds(method, toy_clients())
    theirs, _ = run_rounds(FedAvg(), toy_clients())
    last = ours[-1].tensors
    assert_same(model_part(last), theirs[-1].tensors)
    client = make_client(method, toy_client(1), Backbone(hidden=8))
    counts = sum(class_counts(data) for data in toy_clients()).double()  # type: ignore[union-attr]
    expected = client.model.predict(last, client.prepared.inputs) - 2 * (counts / counts.max()).log()
    torch.testing.assert_close(method.predict(client, last), expected.float(), rtol=1e-5, atol=1e-5)


def test_with_equal_counts_it_is_fedavg() -> None:
    """15 training nodes, 5 of each class: every shift is log 5 - log 5 = 0."""
    data = toy_client()
    y = data.graph.y.clone()
    y[data.train_mask] = torch.arange(15) % 3
    data = relabelled(data, y)
    ours, _ = run_rounds(LogitAdjustment(prior="local"), [data])
    theirs, _ = run_rounds(FedAvg(), [data])
    assert_near(ours[-1].tensors, theirs[-1].tensors)


def test_shift_and_loss_by_hand() -> None:
    """Counts (8, 2): tau log N less the largest is (0, tau log 1/4).

    z = (0, 0), y = 1: -log(2 / 10) = ln 5 = 1.6094 for tau = 1; for tau = 2 -log(4 / 68) = ln 17 = 2.8332.
    An absent class counts as one node: (8, 0) gives log 1/8.
    """
    counts, z, y = torch.tensor([8, 2]), torch.zeros(1, 2), torch.tensor([1])
    for tau, expected in ((1.0, math.log(5)), (2.0, math.log(17))):
        shift = adjustment(tau, counts)
        assert shift is not None
        assert float(F.cross_entropy(z + shift, y)) == pytest.approx(expected, abs=1e-5)
    absent = adjustment(1.0, torch.tensor([8, 0]))
    assert absent is not None
    assert absent.tolist() == pytest.approx([0.0, -math.log(8)])
    assert adjustment(1.0, torch.zeros(2)) is None
    assert adjustment(0.0, counts) is None


def test_balanced_softmax_weighs_by_counts() -> None:
    """Ren et al.: -log(N_y e^z_y / Σ N_c e^z_c), the mean over the client's training nodes."""
    data = toy_client(one_node_class=True)
    method = LogitAdjustment(**LogitAdjustment.presets["balanced_softmax"])
    client = make_client(method, data, DRY, Training(epochs=1))
    params = DRY.init(client.info, torch.Generator().manual_seed(1))
    reply, _ = method.client_step(client, params, {})
    z = DRY.predict(params, client.prepared.inputs)[data.train_mask].double()
    weighted, y = class_counts(data) * z.exp(), data.graph.y[data.train_mask]
    expected = -(weighted[torch.arange(len(y)), y] / weighted.sum(1)).log().mean()
    assert reply.scalars["loss"] == pytest.approx(float(expected), abs=1e-5)
    assert COUNT not in reply.tensors


def test_counts_are_summed_and_act_from_round_two_on() -> None:
    clients = [toy_client(0, missing_class=True), toy_client(1), toy_client(2, one_node_class=True)]
    ours, _ = run_rounds(LogitAdjustment(), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same(model_part(ours[0].tensors), theirs[0].tensors)
    assert not torch.equal(ours[1].tensors["classifier.bias"], theirs[1].tensors["classifier.bias"])
    expected = torch.stack([class_counts(data) for data in clients]).sum(0)
    assert ours[0].tensors[COUNT].tolist() == expected.tolist()


def test_a_class_that_is_absent_from_a_round_keeps_its_count() -> None:
    method, model = LogitAdjustment(), {"encoder.bias": torch.zeros(1)}
    server = make_server(toy_clients(), DRY, Training())
    held = {**model, COUNT: torch.tensor([4.0, 9.0])}
    replies = {k: Reply({**model, COUNT: torch.tensor([3.0, 0.0])}, 5, 3) for k in range(2)}
    assert method.server_step(server, held, replies)[COUNT].tolist() == [6.0, 9.0]


def test_the_guard_refits_with_the_same_shift() -> None:
    data = toy_client(one_node_class=True)
    method = LogitAdjustment(prior="local", tau=0.5)
    client = make_client(method, data, DRY)
    _, labels, shift = method.classifier_reads(client, DRY.init(client.info, torch.Generator()))
    counts = class_counts(data).double()
    assert torch.equal(labels, data.graph.y[data.train_mask])
    assert shift is not None
    torch.testing.assert_close(shift.double(), 0.5 * (counts / counts.max()).log(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("settings", [{"tau": -1.0}, {"tau": float("nan")}])
def test_bad_strengths_are_refused(settings: Any) -> None:
    with pytest.raises(BadConfig, match="tau is"):
        LogitAdjustment(**settings)


def test_a_local_prior_cannot_be_subtracted_afterwards() -> None:
    with pytest.raises(BadConfig, match="set prior to global"):
        LogitAdjustment(form="post_hoc", prior="local")
