from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.balanced_experts import BalancedExperts, by_frequency, favoured, groups, of_experts
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import log_prior
from fedepd.network.backbones import Backbone
from fedepd.network.kernels import cross_entropy_
from fedepd.network.training import Training, by_autograd
from fedepd.types import Tensors
from toy import assert_same, make_client, make_server, relabelled, run_rounds, toy_client, toy_clients


def started(method: BalancedExperts, data: Any, model: Backbone) -> Tensors:
    server = make_server([data], model, Training())
    return method.server_init(server, model.init(server.info, torch.Generator().manual_seed(1)))


def test_one_expert_without_prior_is_fedavg() -> None:
    clients = toy_clients()
    ours, _ = run_rounds(BalancedExperts(experts=1, prior_weight=0.0), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same({n: ours[-1].tensors[n] for n in theirs[-1].tensors}, theirs[-1].tensors)


def test_one_expert_with_a_uniform_prior_is_fedavg() -> None:
    """15 training nodes, 5 of each class: a shift that all classes share."""
    data = toy_client()
    y = data.graph.y.clone()
    y[data.train_mask] = torch.arange(15) % 3
    data = relabelled(data, y)
    ours, _ = run_rounds(BalancedExperts(experts=1), [data])
    theirs, _ = run_rounds(FedAvg(), [data])
    for name, value in theirs[-1].tensors.items():
        torch.testing.assert_close(ours[-1].tensors[name], value, rtol=1e-3, atol=1e-4)


def test_the_loss_by_hand() -> None:
    """π = (.8, .2), z = (0, 0), class 1: -log .2 = log 5."""
    prior = log_prior(torch.tensor([8.0, 2.0]))
    assert prior is not None
    loss = cross_entropy_(torch.zeros(1, 2), torch.tensor([1]), prior)
    assert loss == pytest.approx(math.log(5), abs=1e-6)


def test_a_gradient_of_the_bias_shows_the_counts() -> None:
    """At logits 0 the gradient of the bias is 1/C - N^c / t, so that counts (6, 3, 1) of 10 are read off."""
    logits, labels = torch.zeros(10, 3), torch.tensor([0] * 6 + [1] * 3 + [2])
    cross_entropy_(logits, labels)
    torch.testing.assert_close(1 / 3 - logits.sum(0), torch.tensor([0.6, 0.3, 0.1]), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("model", [Backbone(hidden=8, dropout=0.0), Backbone("sage", 2, 0.0, "linear")])
def test_the_gradient_is_that_of_the_summed_losses(model: Backbone) -> None:
    data, method = toy_client(), BalancedExperts()
    client = make_client(method, data, model)
    params = {n: v for n, v in started(method, data, model).items() if n != "count"}
    shift = torch.tensor([0.0, -1.0, 2.0])

    def loss_of(leaves: Tensors) -> torch.Tensor:
        s = model.smooth(leaves, model.encode(leaves, client.prepared), client.prepared, True)
        z = [s @ leaves[f"{h}.weight"] + leaves[f"{h}.bias"] + shift for h in method.heads]
        return torch.stack([F.cross_entropy(each, client.prepared.labels) for each in z]).sum()

    loss, grads = of_experts(client, method.heads, shift).of(params)
    expected, wanted = by_autograd(loss_of, sorted(params)).of(params)
    assert loss == pytest.approx(expected, abs=1e-5)
    assert grads.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(grads[name], value, rtol=1e-4, atol=1e-5)


def test_equal_heads_predict_as_one() -> None:
    data, model = toy_client(), Backbone(hidden=8)
    single, method = BalancedExperts(experts=1), BalancedExperts()
    params = started(single, data, model)
    same = {f"{h}.{p}": params[f"classifier.{p}"] for h in method.heads for p in ("weight", "bias")}
    client = make_client(method, data, model)
    torch.testing.assert_close(
        method.predict(client, {**params, **same}), single.predict(client, params), rtol=1e-5, atol=1e-6
    )


def test_experts_start_apart() -> None:
    tensors = started(BalancedExperts(), toy_client(), Backbone(hidden=8))
    assert not torch.equal(tensors["expert2.weight"], tensors["expert3.weight"])


def test_clients_are_ordered_by_how_frequent_their_classes_are() -> None:
    """N = (90, 10). Client 0 has the tail only (10), 1 both alike (50), 2 the head only (90), 3 nothing."""
    counts = {0: [0.0, 5.0], 1: [3.0, 3.0], 2: [7.0, 0.0], 3: [0.0, 0.0]}
    held = {k: torch.tensor(value) for k, value in counts.items()}
    assert by_frequency(torch.tensor([90.0, 10.0]), held) == [2, 1, 0, 3]


def test_groups_have_nearly_equal_sizes() -> None:
    assert [list(part) for part in groups([4, 3, 2, 1], 3)] == [[4], [3], [2, 1]]
    assert [list(part) for part in groups([7], 3)] == [[], [], [7]]


def test_a_group_has_its_share_of_the_average() -> None:
    """Sizes 1, 3, 4, the first two in the group: .8 * 1/4, .8 * 3/4, and .2."""
    assert favoured({0: 1.0, 1: 3.0, 2: 4.0}, {0, 1}, 0.8) == pytest.approx({0: 0.2, 1: 0.6, 2: 0.2})
    assert favoured({0: 1.0, 1: 3.0}, {0, 1}, 0.8) == {0: 1.0, 1: 3.0}


def test_other_heads_are_frozen_in_an_expert_s_turn() -> None:
    """10 rounds, 4 of them turns: rounds 7, 8, 9, 10 belong to experts 0, 1, 2, 0."""
    data, model, method = toy_client(), Backbone(hidden=8), BalancedExperts(expert_phase=0.4)
    server = make_server([data], model, Training(), rounds=10)
    turns = [method.turn(replace(server, round=number)) for number in range(1, 11)]
    assert turns == [None] * 6 + [0, 1, 2, 0]
    client = make_client(method, data, model, round=8, last_round=10)
    before = started(method, data, model)
    sent, _ = method.client_step(client, before, {})
    changed = {n for n, value in sent.tensors.items() if n != "count" and not torch.equal(value, before[n])}
    assert changed == {"encoder.weight", "encoder.bias", "expert2.weight", "expert2.bias"}


def test_turns_need_single_replies() -> None:
    assert not BalancedExperts().needs_single_replies
    assert "compares" in BalancedExperts(expert_phase=0.4).needs_single_replies
    assert BalancedExperts().idle() == {"group_weight": "expert_phase"}
    rounds, _ = run_rounds(BalancedExperts(expert_phase=0.6), toy_clients())
    assert all(bool(value.isfinite().all()) for value in rounds[-1].tensors.values())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"experts": 0}, "experts is 0"),
        ({"prior_weight": -1.0}, "prior_weight is -1"),
        ({"expert_phase": 1.0}, "expert_phase is 1"),
        ({"group_weight": 2.0}, "group_weight is 2"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        BalancedExperts(**settings)
