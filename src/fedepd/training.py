"""How a client trains: the same optimiser, base epochs and weighting for every method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from fedepd.errors import BadConfig
from fedepd.options import option
from fedepd.types import Tensors


@dataclass(frozen=True)
class Training:
    """Local training and aggregation weights."""

    # Choice: Algorithm 2 shows plain gradient steps; Adam, weight decay and kept moments are the defaults of OpenFGL, the paper's test bed.
    epochs: int = option(3, "full-batch steps per round at each client")
    optimizer: Literal["adam", "sgd"] = option("adam", "the optimiser of every method")
    lr: float = option(1e-2, "learning rate")
    weight_decay: float = option(5e-4, "L2 penalty added to the gradient, biases included")
    keep_moments: bool = option(True, "keep the optimiser's moments at the client across rounds, as OpenFGL does")
    weighting: Literal["nodes", "train"] = option("nodes", "a client's weight in the average: all its nodes, or its training nodes")
    participation: float = option(1.0, "share of the clients that take part in a round")

    max_norm: float = option(1e6, "a reply with a tensor of a larger L2 norm is refused")

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
            raise BadConfig(f"max_norm is {self.max_norm}; it must be positive, or every reply would be refused")


def descend(
    params: Tensors,
    trainable: Sequence[str],
    loss_of: Callable[[Tensors], Tensor],
    epochs: int,
    training: Training,
    moments: Tensors,
    weight_decay: float | None = None,
) -> tuple[Tensors, Tensors, float]:
    """``epochs`` optimiser steps on the named parameters; nothing that was passed in is written to.

    ``loss_of(params)`` is evaluated anew for every step. Returns all parameters, the new moments and the mean loss.
    """
    if epochs == 0 or not trainable:
        return params, moments, float("nan")
    leaves = [params[name].detach().clone().requires_grad_() for name in trainable]
    current = {**params, **dict(zip(trainable, leaves, strict=True))}
    step = _Optimiser(trainable, leaves, training, moments, training.weight_decay if weight_decay is None else weight_decay)
    total = 0.0
    for _ in range(epochs):
        loss = loss_of(current)
        # A parameter that a loss does not reach (e.g. no synthetic node this step) has no gradient: it is treated as zero.
        grads = torch.autograd.grad(loss, leaves, allow_unused=True)
        step([torch.zeros_like(leaf) if g is None else g for g, leaf in zip(grads, leaves, strict=True)])
        total += float(loss.detach())
    trained = {name: leaf.detach() for name, leaf in zip(trainable, leaves, strict=True)}
    return {**params, **trained}, step.moments() if training.keep_moments else {}, total / epochs


class _Optimiser:
    """torch's own Adam or SGD as a function over explicit moments."""

    def __init__(self, names: Sequence[str], leaves: list[Tensor], training: Training, moments: Tensors, weight_decay: float) -> None:
        self.names, self.leaves, self.training, self.weight_decay = names, leaves, training, weight_decay
        if training.optimizer == "adam":
            self.first = [_moment(moments, f"first.{n}", p) for n, p in zip(names, leaves, strict=True)]
            self.second = [_moment(moments, f"second.{n}", p) for n, p in zip(names, leaves, strict=True)]
            self.steps = [_moment(moments, "step", torch.zeros(())) for _ in names]

    def __call__(self, grads: list[Tensor]) -> None:
        with torch.no_grad():
            if self.training.optimizer == "sgd":
                sgd(
                    self.leaves, grads, [None] * len(grads), weight_decay=self.weight_decay, momentum=0.0, lr=self.training.lr,
                    dampening=0.0, nesterov=False, maximize=False, foreach=False,
                )  # fmt: skip
                return
            adam(
                self.leaves, grads, self.first, self.second, [], self.steps, fused=True, amsgrad=False, beta1=0.9, beta2=0.999,
                lr=self.training.lr, weight_decay=self.weight_decay, eps=1e-8, maximize=False,
            )  # fmt: skip

    def moments(self) -> Tensors:
        if self.training.optimizer == "sgd":
            return {}
        out: Tensors = {"step": self.steps[0]}
        for name, first, second in zip(self.names, self.first, self.second, strict=True):
            out[f"first.{name}"], out[f"second.{name}"] = first, second
        return out


def _moment(moments: Tensors, name: str, like: Tensor) -> Tensor:
    return moments[name].clone() if name in moments else torch.zeros_like(like, requires_grad=False)
