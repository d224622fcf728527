"""Columns of closed classes, fitted to the encoder that a client has received."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from fedepd.methods.base import Client, Method
from fedepd.network.kernels import cross_entropy_
from fedepd.network.training import Gradient, Training, descend
from fedepd.types import CLASSIFIER, Tensors

STEPS, RATE = 30, 0.02
"""Adam steps on the columns alone.

A client trained them with its own encoder, and predicts with the averaged one.

Choice: on email (60 rounds, 3 seeds, validation nodes decide) without these steps balanced accuracy is 1.7
points
lower.
"""


def refitted(method: Method[Any], client: Client[Any], message: Tensors, closed: Tensor) -> Tensors:
    """The message with the columns of the ``closed`` classes [C] fitted to the client's training nodes.

    All other parameters stay as they are. A method that does not say what its classifier reads is left alone.
    """
    if not bool(closed.any()) or not all(name in message for name in CLASSIFIER):
        return message  # a method whose models stay at home sends none
    reads = method.classifier_reads(client, message)
    if reads is None:
        return message
    rows, labels, shift = reads
    others = client.model.classify(message, rows)  # [t, C], of which the closed columns are computed anew
    columns = closed.nonzero().reshape(-1)
    own = {name: message[name].index_select(message[name].ndim - 1, columns) for name in CLASSIFIER}

    def error(params: Tensors) -> tuple[float, Tensors]:
        logits = others.index_copy(1, columns, client.model.classify(params, rows))
        loss = cross_entropy_(logits, labels, shift)  # logits become their gradient
        grad = logits.index_select(1, columns)
        return loss, {"classifier.weight": rows.t() @ grad, "classifier.bias": grad.sum(0)}

    how = Training(optimizer="adam", lr=RATE, weight_decay=0.0)
    found, _, _ = descend(own, list(CLASSIFIER), Gradient(error), STEPS, how, {})
    axes = {name: message[name].ndim - 1 for name in CLASSIFIER}
    return {**message, **{n: message[n].index_copy(axes[n], columns, found[n]) for n in CLASSIFIER}}
