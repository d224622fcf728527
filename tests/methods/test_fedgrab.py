from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedgrab import Balancer, FedGraB, beyond_half, factor_of
from fedepd.methods.steps import fit, of_logits
from fedepd.network.backbones import Backbone
from toy import assert_same, make_client, run_rounds, toy_client, toy_clients

OFF: dict[str, Any] = {"gain": 0.0, "sum_gain": 0.0, "change_gain": 0.0}
EVERY = torch.ones(2, dtype=torch.bool)


@pytest.mark.parametrize("sparse", [False, True])
def test_without_gains_and_with_cross_entropy_it_is_fedavg(sparse: bool) -> None:
    clients = toy_clients(sparse=sparse)
    ours, _ = run_rounds(FedGraB(form="ce", **OFF), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same({n: ours[-1].tensors[n] for n in theirs[-1].tensors}, theirs[-1].tensors)


def test_without_gains_it_is_one_against_all() -> None:
    method, data = FedGraB(**OFF), toy_client()
    client = make_client(method, data, Backbone(hidden=8, dropout=0.0))
    params = client.model.initial(client.info, 0)
    ours, _ = method.client_step(client, {**params, "count": torch.tensor([5.0, 4.0, 6.0])}, {})

    def criterion(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        true = F.one_hot(labels, 3).float()
        return F.binary_cross_entropy_with_logits(logits, true, reduction="sum") / len(labels)

    theirs, _, loss = fit(client, params, {}, of_logits(client, client.prepared, criterion))
    assert ours.scalars["loss"] == pytest.approx(loss, abs=1e-5)
    for name, value in theirs.items():
        torch.testing.assert_close(ours.tensors[name], value, rtol=1e-3, atol=1e-5)


def test_the_factors_by_hand() -> None:
    out = torch.tensor([-2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 10.0, -10.0])
    expected = torch.tensor([0.3927, 0.6314, 1.0, 1.5483, 2.3197, 4.5085, 9.4283, 0.0075])
    torch.testing.assert_close(factor_of(out), expected, rtol=1e-3, atol=1e-4)
    assert float(factor_of(torch.zeros(1))) == 1.0


def test_a_constant_error_by_hand() -> None:
    """Error 1: 10 + .01 + .1, then 10 + .02, then 10 + .03; of these the factors are taken."""
    method = FedGraB(control="all", most=100.0)
    balancer = Balancer(method, EVERY[:1], 1, {"down": torch.ones(1)})
    for out in (10.11, 10.02, 10.03):
        up, down = balancer.factors()
        assert float(up) == pytest.approx(float(factor_of(torch.tensor(out))), rel=1e-5)
        assert float(down) == pytest.approx(float(factor_of(torch.tensor(-out))), rel=1e-5)


def test_a_rare_class_by_hand() -> None:
    """Logits 0 and a class without nodes: the first step pushes it down by 1/2 and never up.

    The next error is .5 and the output 10.11 * .5 = 5.055: factors 5.818 up and .0880 down.
    """
    balancer = Balancer(FedGraB(control="all"), EVERY, 2)
    true = torch.tensor([[1.0, 0.0]] * 4)
    first = balancer.balanced((torch.full((4, 2), 0.5) - true) / 4, true)
    assert balancer.known["down"].tolist() == [0.0, 0.5]
    assert balancer.known["up"].tolist() == [0.5, 0.0]
    torch.testing.assert_close(first, (torch.full((4, 2), 0.5) - true) / 4, rtol=0, atol=0)
    up, down = balancer.factors()
    assert (float(up[1]), float(down[1])) == pytest.approx((5.818, 0.0880), abs=1e-3)
    assert (float(up[0]), float(down[0])) == pytest.approx((0.0880, 5.818), abs=1e-3)


def test_balanced_pushes_change_nothing() -> None:
    """Two classes, two nodes of each, logits 0: up and down are 1/4 each, so every error stays 0."""
    balancer = Balancer(FedGraB(control="all"), EVERY, 2)
    true = F.one_hot(torch.tensor([0, 1, 0, 1]), 2).float()
    grad = (0.5 - true) / 4
    for _ in range(3):
        assert torch.equal(balancer.balanced(grad, true), grad)


def test_symmetric_classes_have_equal_factors() -> None:
    balancer = Balancer(FedGraB(control="all"), EVERY, 2)
    true = F.one_hot(torch.tensor([0, 1]), 2).float()
    for push in (0.3, 0.9, 0.1):
        balancer.balanced((push - true) / 2, true)
        up, down = balancer.factors()
        assert up[0] == up[1]
        assert down[0] == down[1]


def test_other_classes_have_no_controller() -> None:
    """Class 1 is not controlled: nothing is remembered of it, and its gradient stays."""
    balancer = Balancer(FedGraB(), torch.tensor([True, False]), 2)
    true = torch.tensor([[1.0, 0.0]] * 3)
    grad = (0.5 - true) / 3
    for _ in range(3):
        out = balancer.balanced(grad, true)
    assert torch.equal(out[:, 1], grad[:, 1])
    assert not torch.equal(out[:, 0], grad[:, 0])
    assert all(float(value[1]) == 0 for value in balancer.known.values())


def test_which_classes_are_controlled() -> None:
    """Of 20 nodes, class 1 has 8 and class 3 has 5: together more than half. Ties go by number."""
    assert beyond_half(torch.tensor([4.0, 8.0, 3.0, 5.0])).tolist() == [True, False, True, False]
    assert beyond_half(torch.tensor([5.0, 5.0])).tolist() == [False, True]
    assert not bool(beyond_half(torch.zeros(3)).any())
    counts, weight = torch.tensor([2, 0, 1]), {"classifier.weight": torch.tensor([[3.0, 1.0, 2.0]])}
    assert FedGraB(control="norms")._controlled(weight, counts).tolist() == [False, True, False]
    assert FedGraB(control="all")._controlled({}, counts).tolist() == [True, True, True]
    assert FedGraB(control="all", absent="plain")._controlled({}, counts).tolist() == [True, False, True]


def test_controllers_outlive_a_round() -> None:
    _, exchange = run_rounds(FedGraB(control="all"), toy_clients(), rounds=2)
    state = exchange.participants[0].state
    assert {"grab.up", "grab.down", "grab.error", "grab.sum"} <= state.keys()
    assert bool(state["grab.down"].any())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gain": -1.0}, "gain is -1"),
        ({"most": float("nan")}, "most is nan"),
        ({"memory": 0.0}, "memory is 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        FedGraB(**settings)
