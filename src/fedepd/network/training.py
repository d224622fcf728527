"""How a client trains. Optimiser, epochs and weighting are the same for every method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.network.kernels import Adam
from fedepd.options import ladder, option
from fedepd.types import Tensors


@dataclass(frozen=True)
class Training:
    """Local training and aggregation weights."""

    # Choice: Algorithm 2 shows plain gradient steps. Adam, weight decay and kept moments are the defaults of
    # OpenFGL, on which the paper ran its experiments.
    epochs: int = option(3, "full-batch steps per round at each client", search=ladder(1, 3, 5, above=10))
    optimizer: Literal["adam", "sgd"] = option("adam", "the optimiser of every method")
    lr: float = option(1e-2, "learning rate", search=ladder(3e-3, 1e-2, 3e-2, 0.1, below=1e-3, above=0.3))
    weight_decay: float = option(
        5e-4,
        "L2 penalty added to the gradient, biases included",
        search=ladder(0.0, 5e-5, 5e-4, 5e-3, above=5e-2),
    )
    keep_moments: bool = option(
        True, "keep the optimiser's moments at the client across rounds, as OpenFGL does"
    )
    weighting: Literal["nodes", "train"] = option(
        "nodes", "a client's weight in the average: all its nodes, or its training nodes"
    )
    participation: float = option(1.0, "share of the clients that take part in a round")

    max_norm: float = option(
        1e6, "largest L2 norm of a tensor in a reply; a reply with a larger one is refused"
    )

    def __post_init__(self) -> None:
        if self.epochs < 0:
            raise BadConfig(f"epochs is {self.epochs}; give 0 or more")
        if not 0 < self.lr < float("inf"):
            raise BadConfig(f"lr is {self.lr}; the learning rate must be positive and finite")
        if not 0 < self.participation <= 1:
            raise BadConfig(f"participation is {self.participation}; it must lie in (0, 1]")
        if not 0 <= self.weight_decay < float("inf"):
            raise BadConfig(f"weight_decay is {self.weight_decay}; give a finite number, 0 or more")
        if not self.max_norm > 0:
            raise BadConfig(
                f"max_norm is {self.max_norm}; it must be positive, otherwise every reply would be refused"
            )


Loss = Callable[[Tensors], Tensor]


@dataclass(frozen=True)
class Gradient:
    """A loss that computes its own gradient. On a small graph, autograd costs more than the arithmetic."""

    of: Callable[[Tensors], tuple[float, Tensors]]
    """Returns the loss, and its gradient for each parameter that it depends on."""


Objective = Loss | Gradient


def descend(
    params: Tensors,
    trainable: Sequence[str],
    objective: Objective,
    epochs: int,
    training: Training,
    moments: Tensors,
    weight_decay: float | None = None,
) -> tuple[Tensors, Tensors, float]:
    """Take ``epochs`` optimiser steps on the named parameters. The arguments are not changed.

    The ``objective`` is evaluated anew for every step. Returns all parameters, the new moments and the mean
    loss.
    """
    if epochs == 0 or not trainable:
        return params, moments, float("nan")
    trained = {name: params[name].detach().clone() for name in trainable}
    current = {**params, **trained}
    gradient = objective if isinstance(objective, Gradient) else by_autograd(objective, trainable)
    step = _Optimiser(
        trained, training, moments, training.weight_decay if weight_decay is None else weight_decay
    )
    total = 0.0
    for _ in range(epochs):
        loss, grads = gradient.of(current)
        # A parameter that the loss does not depend on (for example, no synthetic node in this step) has no
        # gradient. It counts as zero.
        step(
            {
                name: grads[name] if name in grads else torch.zeros_like(value)
                for name, value in trained.items()
            }
        )
        total += loss
    return {**params, **trained}, step.moments() if training.keep_moments else {}, total / epochs


def by_autograd(loss_of: Loss, trainable: Sequence[str]) -> Gradient:
    def of(params: Tensors) -> tuple[float, Tensors]:
        leaves = {name: params[name].detach().requires_grad_() for name in trainable}
        loss = loss_of({**params, **leaves})
        grads = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
        return float(loss.detach()), {
            name: grad for name, grad in zip(leaves, grads, strict=True) if grad is not None
        }

    return Gradient(of)


class _Optimiser:
    """Adam or plain SGD, in place on the values.

    Adam computes as torch.optim.Adam does, with explicit moments.
    """

    def __init__(self, values: Tensors, training: Training, moments: Tensors, weight_decay: float) -> None:
        self.values, self.training, self.weight_decay = values, training, weight_decay
        if training.optimizer == "adam":
            self.first = {name: _moment(moments, f"first.{name}", value) for name, value in values.items()}
            self.second = {name: _moment(moments, f"second.{name}", value) for name, value in values.items()}
            self.adam = {
                name: Adam(value, self.first[name], self.second[name]) for name, value in values.items()
            }
            self.steps = int(moments["step"]) if "step" in moments else 0

    def __call__(self, grads: Tensors) -> None:
        lr, decay = self.training.lr, self.weight_decay
        if self.training.optimizer == "sgd":
            for name, value in self.values.items():
                value.sub_(grads[name].add(value, alpha=decay), alpha=lr)
            return
        self.steps += 1
        for name, adam in self.adam.items():
            adam.step(grads[name], self.steps, lr, decay)

    def moments(self) -> Tensors:
        if self.training.optimizer == "sgd":
            return {}
        out: Tensors = {"step": torch.tensor(float(self.steps))}
        for name in self.values:
            out[f"first.{name}"], out[f"second.{name}"] = self.first[name], self.second[name]
        return out


def _moment(moments: Tensors, name: str, like: Tensor) -> Tensor:
    return moments[name].clone() if name in moments else torch.zeros_like(like)
