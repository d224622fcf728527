from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedlf import FedLF, agreement, correlation, scaled_cross_entropy
from fedepd.methods.steps import class_mean
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training, by_autograd
from fedepd.types import Reply, Tensors
from toy import assert_same, make_client, make_server, relabelled, run_rounds, toy_client, toy_clients


@pytest.mark.parametrize("sparse", [False, True])
def test_without_its_three_parts_it_is_fedavg(sparse: bool) -> None:
    clients = toy_clients(sparse=sparse)
    ours, _ = run_rounds(FedLF(alpha=1.0, centre_weight=0.0), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same(ours[-1].tensors, theirs[-1].tensors)


def test_with_equal_counts_the_factors_are_1() -> None:
    """15 training nodes, 5 of each class: (1 - alpha) + alpha, which is 1 for alpha = .25 exactly."""
    data = toy_client()
    y = data.graph.y.clone()
    y[data.train_mask] = torch.arange(15) % 3
    data = relabelled(data, y)
    ours, _ = run_rounds(FedLF(centre_weight=0.0), [data])
    assert_same(ours[-1].tensors, run_rounds(FedAvg(), [data])[0][-1].tensors)


def test_factors_and_loss_by_hand() -> None:
    """Counts (16, 4, 0), alpha .25: .75 N / 16 + .25 = (1, .4375, .25).

    z = (0, 2), class 1: scaled (0, .875), loss log(1 + e^-.875) = .34844.
    """
    factors = FedLF().factors(torch.tensor([16, 4, 0]))
    assert factors.tolist() == [1.0, 0.4375, 0.25]
    loss = F.cross_entropy(factors[:2] * torch.tensor([[0.0, 2.0]]), torch.tensor([1]))
    assert float(loss) == pytest.approx(0.34844, abs=1e-5)


def test_the_gradient_is_that_of_autograd() -> None:
    """By the logits it is a ∘ (p - y) / t."""
    model, data = Backbone(hidden=8, dropout=0.0), toy_client()
    client = make_client(FedLF(), data, model)
    params, factors = model.initial(client.info, 0), torch.tensor([1.0, 0.5, 0.25])

    def loss_of(leaves: Tensors) -> torch.Tensor:
        h = model.encode(leaves, client.prepared)
        logits = model.logits(leaves, h, client.prepared, train_only=True)
        return F.cross_entropy(factors * logits, client.prepared.labels)

    loss, grads = scaled_cross_entropy(client, factors).of(params)
    expected, wanted = by_autograd(loss_of, sorted(params)).of(params)
    assert loss == pytest.approx(expected, abs=1e-6)
    for name, value in wanted.items():
        torch.testing.assert_close(grads[name], value, rtol=1e-4, atol=1e-6)


def test_a_centre_is_the_mean_over_its_owners() -> None:
    """(1, 0) and (3, 0), and a client without the class: (2, 0) and not (4/3, 0)."""
    old, owned, unknown = torch.zeros(1, 2), torch.tensor([True]), torch.tensor([False])
    sent = [(torch.tensor([[1.0, 0.0]]), owned), (torch.tensor([[3.0, 0.0]]), owned), (old, unknown)]
    pairs = [(f, agreement(old, f, own, unknown)) for f, own in sent]
    assert class_mean(old, pairs).tolist() == [[2.0, 0.0]]


def test_later_owners_count_by_their_cosines() -> None:
    """From (1, 0): (1, 0) has the cosine 1 and (0, 2) has 0, so the centre stays to 1e-5."""
    old, owned = torch.tensor([[1.0, 0.0]]), torch.tensor([True])
    sent = [torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 2.0]])]
    pairs = [(f, agreement(old, f, owned, owned)) for f in sent]
    torch.testing.assert_close(class_mean(old, pairs), old, rtol=0, atol=1e-5)


def test_a_node_at_its_centre_is_not_pulled() -> None:
    """Every s_i is its class's centre: |0| = 0 with gradient sign(0) = 0, so the loss is the other one."""
    model, data = Backbone(hidden=8, dropout=0.0), toy_client()
    method, alike = FedLF(alpha=1.0), torch.ones(3)
    client = make_client(method, data, model)
    params = {n: torch.zeros_like(v) for n, v in model.initial(client.info, 0).items()}
    message = {**params, "centre": torch.zeros(3, 8), "centre.known": alike}
    loss = method._loss(client, message)
    assert callable(loss)
    found, grads = by_autograd(loss, sorted(params)).of(params)
    expected, wanted = scaled_cross_entropy(client, alike).of(params)
    assert found == pytest.approx(expected, abs=1e-6)
    for name, value in wanted.items():
        torch.testing.assert_close(grads[name], value, rtol=1e-5, atol=1e-6)


def test_the_pull_by_hand() -> None:
    """Weights 0: s = 0 and the cross-entropy is log 3. Centres at 2 are 2 away in every coordinate.

    A third of the training nodes are of class 1, which has no centre, and cost 0.
    """
    model, data = Backbone(hidden=8, dropout=0.0), toy_client()
    method = FedLF(centre_weight=0.5)
    client = make_client(method, data, model, Training(epochs=1))
    params = {n: torch.zeros_like(v) for n, v in model.initial(client.info, 0).items()}
    known = torch.tensor([1.0, 0.0, 1.0])
    sent, _ = method.client_step(
        client, {**params, "centre": torch.full((3, 8), 2.0), "centre.known": known}, {}
    )
    assert int((data.graph.y[data.train_mask] == 1).sum()) * 3 == int(data.train_mask.sum())
    assert sent.scalars["loss"] == pytest.approx(1.0986 + 0.5 * 2 * 2 / 3, abs=1e-4)


def test_correlation_by_hand() -> None:
    """Two equal columns: K is all ones, 4/4 - 1/2. Two uncorrelated ones: K = I, 2/4 - 1/2."""
    column = torch.tensor([1.0, -1.0, 1.0, -1.0])
    other = torch.tensor([1.0, 1.0, -1.0, -1.0])
    assert float(correlation(torch.stack([column, column], 1))) == pytest.approx(0.5, abs=1e-6)
    assert float(correlation(torch.stack([column, other], 1))) == pytest.approx(0.0, abs=1e-6)


def test_a_class_that_nobody_has_gets_no_centre() -> None:
    data = toy_client(missing_class=True)
    model, method = Backbone(hidden=8), FedLF(warm_up=0)
    client = make_client(method, data, model, round=1, last_round=40)
    server = make_server([data], model, Training(), rounds=40)
    start = method.server_init(server, model.initial(client.info, 0))
    sent, _ = method.client_step(client, start, {})
    new = method.server_step(server, start, {0: sent, 3: Reply(sent.tensors, 9, 9)})
    assert new["centre.known"].tolist() == [1.0, 1.0, 0.0]
    assert not bool(new["centre"][2].any())
    assert bool(new["centre"].isfinite().all())


def test_centres_begin_after_the_warm_up() -> None:
    """10 rounds, and at most a quarter of the run."""
    clients = toy_clients()
    rounds, _ = run_rounds(FedLF(warm_up=2), clients, rounds=8)
    assert ["centre" in each.bytes_up for each in rounds] == [False] + [True] * 7
    assert [bool(each.tensors["centre.known"].any()) for each in rounds] == [False] + [True] * 7
    assert "directions" in FedLF().needs_single_replies
    assert not FedLF(centre_weight=0.0).needs_single_replies
    assert FedLF(centre_weight=0.0).idle() == {"warm_up": "centre_weight"}


def test_the_preset_of_the_paper_trains() -> None:
    rounds, _ = run_rounds(FedLF(**FedLF.presets["paper"]), toy_clients(edges=False), rounds=8)
    assert rounds[-1].loss < rounds[0].loss


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1.5}, "alpha is 1.5"),
        ({"centre_weight": -1.0}, "centre_weight is -1"),
        ({"decorrelation": float("inf")}, "decorrelation is inf"),
        ({"warm_up": -1}, "warm_up is -1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        FedLF(**settings)
