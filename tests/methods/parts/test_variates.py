from __future__ import annotations

import pytest
import torch

from fedepd.methods.parts.variates import Watched, control_fields, mean_control, taking_part, without_control
from fedepd.network.backbones import Backbone
from fedepd.network.training import Gradient, Training
from fedepd.types import Reply, Tensors
from toy import make_server, toy_clients


def tripled(params: Tensors) -> tuple[float, Tensors]:
    return 1.5, {"w": 3 * params["w"]}


def test_the_correction_moves_the_gradient_and_not_the_variate() -> None:
    """Gradient 3 w at w = 1 and w = 2, correction 10: 13 and 16 are stepped by, and (3 + 6) / 2 is kept."""
    watched = Watched(Gradient(tripled), {"w": torch.tensor([10.0]), "unused": torch.tensor([2.0])})
    seen = [watched.of({"w": torch.tensor([w])})[1] for w in (1.0, 2.0)]
    assert [float(grads["w"]) for grads in seen] == [13.0, 16.0]
    assert [float(grads["unused"]) for grads in seen] == [2.0, 2.0]
    old = {"w": torch.tensor([7.0]), "unused": torch.tensor([8.0])}
    assert {name: float(value) for name, value in watched.mean(old).items()} == {"w": 4.5, "unused": 8.0}


def test_without_a_step_a_variate_stays() -> None:
    old = {"w": torch.tensor([7.0])}
    assert Watched(Gradient(tripled), {}).mean(old)["w"] is old["w"]


@pytest.mark.parametrize(("clients", "expected"), [(4, 4.0), (8, 3.0)])
def test_the_servers_variate_moves_by_the_share_that_took_part(clients: int, expected: float) -> None:
    """c = 2. Four clients of equal size tell 3, 3, 5, 5: the mean is 4. If they are half of all, c moves half
    of the way."""
    server = make_server(toy_clients(clients), Backbone(hidden=2), Training())
    told = [Reply({"control.w": torch.tensor([v])}, 5, 3) for v in (3.0, 3.0, 5.0, 5.0)]
    moved = mean_control(server, {"control.w": torch.tensor([2.0])}, dict(enumerate(told)))
    assert float(moved["control.w"]) == expected


def test_a_sum_stands_for_those_who_trained() -> None:
    server = make_server(toy_clients(4), Backbone(hidden=2), Training())
    assert taking_part(server, {-1: Reply({}, 9, 9, clients=3)}) == 0.75
    assert taking_part(server, {0: Reply({}, 9, 0), 1: Reply({}, 9, 9)}) == 0.25


def test_columns_of_classes_are_declared() -> None:
    """So that the guard can hide them."""
    model = {"encoder.weight": torch.ones(4, 2), "classifier.weight": torch.ones(2, 3)}
    fields = control_fields({**model, **without_control({**model, "classifier.bias": torch.ones(3)})})
    assert {name: field.classes for name, field in fields.items()} == {
        "control.encoder.weight": None,
        "control.classifier.weight": 1,
        "control.classifier.bias": 0,
    }
