from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.moon import Moon, contrast, cosine
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from toy import assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients

DRY = Backbone(hidden=8, dropout=0.0)


def test_without_its_contrast_it_is_fedavg_bit_for_bit() -> None:
    ours, _ = run_rounds(Moon(mu=0.0), toy_clients())
    theirs, _ = run_rounds(FedAvg(), toy_clients())
    assert_same(ours[-1].tensors, theirs[-1].tensors)


def test_the_contrast_acts_from_the_second_round_on() -> None:
    """Before, a client has no last model."""
    ours, _ = run_rounds(Moon(), toy_clients(), rounds=2)
    theirs, _ = run_rounds(FedAvg(), toy_clients(), rounds=2)
    assert_same(ours[0].tensors, theirs[0].tensors)
    assert not torch.equal(ours[1].tensors["encoder.weight"], theirs[1].tensors["encoder.weight"])


def test_the_contrast_by_hand() -> None:
    """A row on the wanted one, at a right angle to the last: cosines 1 and 0, over 0.5: log(1 + e^-2).

    Both alike: log 2. The other way round: log(1 + e^2).
    """
    row, other = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0]])
    assert float(contrast(row, 3 * row, other, 0.5)) == pytest.approx(math.log(1 + math.exp(-2)), abs=1e-6)
    assert float(contrast(row, other, row, 0.5)) == pytest.approx(math.log(1 + math.exp(2)), abs=1e-6)
    assert float(contrast(row, row, row, 0.5)) == pytest.approx(math.log(2), abs=1e-6)


def test_rows_without_a_direction_have_no_gradient() -> None:
    rows = torch.tensor([[0.0, 0.0], [1.0, 1.0]], requires_grad=True)
    found = cosine(rows, torch.tensor([[1.0, 2.0], [0.0, 0.0]]))
    assert found.tolist() == [0.0, 0.0]
    (grad,) = torch.autograd.grad(found.sum(), rows)
    assert grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_the_client_trains_on_both_terms() -> None:
    """One step from given weights, dropout off: the reported loss, by formulas of torch."""
    data, method, training = toy_client(), Moon(mu=2.0, temperature=0.3), Training(epochs=1)
    client = make_client(method, data, DRY, training, round=2)
    sent = initial(FedAvg(), make_server([data], DRY, training))
    last = DRY.init(client.info, torch.Generator().manual_seed(9))
    reply, _ = method.client_step(client, sent, last)
    h, before = DRY.encode(sent, client.prepared), DRY.encode(last, client.prepared)
    pairs = torch.stack([F.cosine_similarity(h, h), F.cosine_similarity(h, before)], 1) / 0.3
    expected = F.cross_entropy(DRY.logits(sent, h, client.prepared, train_only=True), client.prepared.labels)
    apart = F.cross_entropy(pairs, torch.zeros(len(h), dtype=torch.int64))
    expected = expected + 2 * (apart - math.log(2))
    assert reply.scalars["loss"] == pytest.approx(float(expected), abs=1e-5)


@pytest.mark.parametrize("settings", [{"mu": -1.0}, {"temperature": 0.0}, {"temperature": float("nan")}])
def test_bad_settings_are_refused(settings: Any) -> None:
    with pytest.raises(BadConfig, match=f"{next(iter(settings))} is"):
        Moon(**settings)
