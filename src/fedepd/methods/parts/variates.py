"""Control variates, as SCAFFOLD and FedDC have them: what a client's gradients are, beside everybody's.

A client adds c - c_k to each of its gradients. c_k is its own variate, and c the mean of all clients'. So a
client steps in the direction that all would take together. The message has c as ``control.NAME``. The reply
has there what c would become if all clients changed as this one did: c + (new c_k - old c_k). The client
keeps its own as ``variate.NAME``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch

from fedepd.methods.base import Client, Server
from fedepd.methods.steps import average, fit, renamed, with_prefix
from fedepd.network.training import Gradient
from fedepd.types import CLASSIFIER, Field, Fields, Reply, Tensors

CONTROL, OWN = "control.", "variate."
Variate = Literal["gradients", "steps"]


class Watched:
    """A loss whose gradient is corrected, with the mean of the gradients before the correction."""

    def __init__(self, plain: Gradient, correction: Tensors) -> None:
        self._plain, self._correction, self._steps = plain, correction, 0
        self._sum: Tensors = {}

    def of(self, params: Tensors) -> tuple[float, Tensors]:
        loss, grads = self._plain.of(params)
        self._steps += 1
        for name, grad in grads.items():
            self._sum[name] = self._sum[name].add_(grad) if name in self._sum else grad.clone()
        moved = {name: gap + grads[name] if name in grads else gap for name, gap in self._correction.items()}
        return loss, {**grads, **moved}

    def mean(self, old: Tensors) -> Tensors:
        """The mean gradient by name. Without a step, and for what has no gradient, it is as before."""
        return {
            name: self._sum[name] / self._steps if name in self._sum else value for name, value in old.items()
        }


def fit_corrected(
    client: Client[Any], message: Tensors, state: Tensors, plain: Gradient, variate: Variate
) -> tuple[Tensors, Tensors, Tensors, float]:
    """Train the model of the message on the corrected loss.

    Returns the parameters, what the reply has beside them, the state with the new variate, and the mean loss.
    """
    control, names = renamed(message, CONTROL, ""), list(renamed(message, CONTROL, ""))
    sent = {name: message[name] for name in names}
    own = renamed(state, OWN, "") or {name: torch.zeros_like(value) for name, value in sent.items()}
    gaps = {name: control[name] - own[name] for name in names}
    watched = Watched(plain, gaps if any(bool(gap.any()) for gap in gaps.values()) else {})
    kept = {name: value for name, value in state.items() if not name.startswith(OWN)}
    params, kept, loss = fit(client, sent, kept, Gradient(watched.of))
    new = watched.mean(own)
    if variate == "steps" and loss == loss:  # without a step the loss is NaN
        scale = 1 / (client.training.epochs * client.training.lr)
        new = {name: (sent[name] - params[name]).mul_(scale).sub_(gaps[name]) for name in names}
    told = {name: control[name] + (new[name] - own[name]) for name in names}
    return params, renamed(told, "", CONTROL), {**kept, **renamed(new, "", OWN)}, loss


def without_control(params: Tensors) -> Tensors:
    """The server's variate before round 1: zeros."""
    return {CONTROL + name: torch.zeros_like(value) for name, value in params.items()}


def mean_control(server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
    """The variate c moved by the mean change of the clients' own ones, by the share that took part.

    Choice: clients weigh as in the average of the models, where the authors weigh all alike. Only so the
    corrections of all clients cancel out in that average.
    """
    old = with_prefix(tensors, CONTROL)
    mean, share = average(server.info, old, replies), taking_part(server, replies)
    if share == 1:
        return mean
    return {name: value + share * (mean[name] - value) for name, value in old.items()}


def taking_part(server: Server, replies: Mapping[int, Reply]) -> float:
    """The share of all clients that trained for these replies.

    A client without training nodes never does. Its variate and its drift stay 0, and count as such.
    """
    trained = sum(r.clients for r in replies.values() if r.num_train > 0)
    return min(1.0, trained / server.info.num_clients)


def control_fields(tensors: Tensors) -> Fields:
    """The fields of the variates. A classifier's has one column for each class."""
    return {
        name: Field(
            tuple(value.shape),
            classes=value.ndim - 1 if name.removeprefix(CONTROL) in CLASSIFIER else None,
        )
        for name, value in with_prefix(tensors, CONTROL).items()
    }
