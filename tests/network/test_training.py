from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.network.training import Training, descend
from fedepd.types import Tensors
from toy import assert_same


def start() -> Tensors:
    generator = torch.Generator().manual_seed(0)
    return {
        "a": torch.randn(3, 2, generator=generator),
        "b": torch.randn(2, generator=generator),
        "c": torch.randn(2, generator=generator),
    }


def loss_of(params: Tensors) -> Tensor:
    return (
        ((torch.tensor([[1.0, -2.0, 3.0]]) @ params["a"]).tanh() + params["b"] * params["c"]).square().sum()
    )


def with_torch(make: Callable[..., Any], names: list[str], steps: int) -> list[Tensors]:
    """The parameters after each step of torch's own optimiser."""
    params = {name: value.clone().requires_grad_(name in names) for name, value in start().items()}
    optimizer = make([params[name] for name in names])
    out = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(params).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        out.append({name: value.detach().clone() for name, value in params.items()})
    return out


def assert_close(a: Tensors, b: Tensors) -> None:
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_adam_equals_torch_step_by_step_across_calls(weight_decay: float) -> None:
    """Two calls of two steps with the moments handed over are four steps.

    The steps are those of ``torch.optim.Adam`` with its L2 penalty.
    """
    expected = with_torch(
        lambda ps: torch.optim.Adam(ps, lr=0.05, weight_decay=weight_decay), ["a", "b", "c"], 4
    )
    training = Training(lr=0.05, weight_decay=weight_decay)
    moments: Tensors = {}
    params = start()
    for step in expected:
        params, moments, _ = descend(params, ["a", "b", "c"], loss_of, 1, training, moments)
        assert_close(params, step)
    first, kept, _ = descend(start(), ["a", "b", "c"], loss_of, 2, training, {})
    second, kept, _ = descend(first, ["a", "b", "c"], loss_of, 2, training, kept)
    assert_close(second, expected[3])
    assert kept["step"] == 4


def test_forgotten_moments_start_anew() -> None:
    """Without ``keep_moments`` every call is a fresh Adam: its first step is lr · sign(gradient)."""
    training = Training(lr=0.05, weight_decay=0.0, keep_moments=False)
    first, moments, _ = descend(start(), ["a", "b", "c"], loss_of, 3, training, {})
    assert moments == {}
    leaf = {name: value.clone().requires_grad_() for name, value in first.items()}
    gradient = torch.autograd.grad(loss_of(leaf), [leaf["a"]])[0]
    second, _, _ = descend(first, ["a", "b", "c"], loss_of, 1, training, moments)
    torch.testing.assert_close(second["a"], first["a"] - 0.05 * gradient.sign(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_sgd_equals_torch(weight_decay: float) -> None:
    expected = with_torch(
        lambda ps: torch.optim.SGD(ps, lr=0.05, weight_decay=weight_decay), ["a", "b", "c"], 3
    )
    trained, moments, _ = descend(
        start(),
        ["a", "b", "c"],
        loss_of,
        3,
        Training(optimizer="sgd", lr=0.05, weight_decay=weight_decay),
        {},
    )
    assert_close(trained, expected[-1])
    assert moments == {}


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_nothing_passed_in_is_written_to(optimizer: Any) -> None:
    training = Training(optimizer=optimizer)
    params = start()
    _, moments, _ = descend(params, ["a", "b"], loss_of, 2, training, {})
    before = {name: value.clone() for name, value in moments.items()}
    descend(params, ["a", "b"], loss_of, 2, training, moments)
    assert_same(params, start())
    assert_same(moments, before)
    assert not any(value.requires_grad for value in (*params.values(), *moments.values()))


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_frozen_names_are_bit_identical_and_have_no_moments(optimizer: Any) -> None:
    trained, moments, _ = descend(
        start(), ["b"], loss_of, 3, Training(optimizer=optimizer, weight_decay=0.1), {}
    )
    assert_same({name: trained[name] for name in "ac"}, {name: start()[name] for name in "ac"})
    assert not torch.equal(trained["b"], start()["b"])
    assert not any(name.endswith((".a", ".c")) for name in moments)
    assert not any(value.requires_grad for value in trained.values())


@pytest.mark.parametrize(("epochs", "trainable"), [(0, ["a"]), (3, [])])
def test_no_step_changes_nothing_and_has_no_loss(epochs: int, trainable: list[str]) -> None:
    moments = {"step": torch.tensor(7.0)}
    trained, kept, loss = descend(start(), trainable, loss_of, epochs, Training(), moments)
    assert_same(trained, start())
    assert_same(kept, moments)
    assert math.isnan(loss)


def test_the_loss_is_the_mean_over_the_steps() -> None:
    """sgd on w², lr 1/4, from w = 2: losses 4 and 1 (w - ¼ · 2w = w/2), mean 2.5.

    It is evaluated once per step.
    """
    seen: list[float] = []

    def square(params: Tensors) -> Tensor:
        seen.append(float(params["w"].detach()))
        return params["w"].square()

    trained, _, loss = descend(
        {"w": torch.tensor(2.0)}, ["w"], square, 2, Training(optimizer="sgd", lr=0.25, weight_decay=0.0), {}
    )
    assert (seen, loss, float(trained["w"])) == ([2.0, 1.0], 2.5, 0.5)


@pytest.mark.parametrize(("own_weight_decay", "expected"), [(None, 9.0), (0.0, 10.0)])
def test_a_parameter_the_loss_does_not_reach_only_decays(
    own_weight_decay: float | None, expected: float
) -> None:
    """10 - 0.5 · 0.2 · 10 = 9; a stage may have its own weight decay."""
    training, params = (
        Training(optimizer="sgd", lr=0.5, weight_decay=0.2),
        {"w": torch.tensor(1.0), "idle": torch.tensor(10.0)},
    )
    trained, _, _ = descend(params, ["w", "idle"], lambda p: p["w"] * 1.0, 1, training, {}, own_weight_decay)
    assert float(trained["idle"]) == expected


@pytest.mark.parametrize(
    "setting",
    [
        {"epochs": -1}, {"lr": 0.0}, {"lr": -1.0}, {"lr": math.nan}, {"lr": math.inf}, {"weight_decay": -1.0},
        {"weight_decay": math.nan}, {"participation": 0.0}, {"participation": 1.5},
        {"participation": math.nan}, {"max_norm": 0.0}, {"max_norm": math.nan},
    ],
    ids=str,
)  # fmt: skip
def test_values_out_of_range_are_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(setting)).replace("_", ".")):
        Training(**setting)
