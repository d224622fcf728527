"""The steps that methods share: local training, class counts, averaging."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedepd.methods.base import Client, weight_of
from fedepd.network.contract import Error, Inputs
from fedepd.network.kernels import cross_entropy_
from fedepd.network.training import Gradient, Objective, descend
from fedepd.types import ClientData, Reply, TaskInfo, Tensors

AT_ONCE = 1 << 13
"""Numbers of each model that are mixed at a time, so that their copies in float64 fit a cache."""


def model_part(tensors: Mapping[str, Tensor]) -> Tensors:
    """The backbone's parameters among other tensors."""
    return with_prefix(tensors, "encoder.", "classifier.")


def with_prefix(tensors: Mapping[str, Tensor], *prefixes: str) -> Tensors:
    return {name: value for name, value in tensors.items() if name.startswith(prefixes)}


def renamed(tensors: Mapping[str, Tensor], old: str, new: str) -> Tensors:
    """The entries whose names start with ``old``, which becomes ``new``."""
    return {new + name[len(old) :]: value for name, value in tensors.items() if name.startswith(old)}


def cross_entropy(client: Client[Any], inputs: Inputs, shift: Tensor | None = None) -> Gradient:
    """Eq. 9: the mean cross-entropy of the training nodes, with fresh dropout at every step.

    A ``shift`` [C] is added to the logits first.
    """

    def error(logits: Tensor) -> tuple[float, Tensor]:
        return cross_entropy_(logits, inputs.labels, shift), logits

    return through_the_network(client, inputs, error)


def of_logits(client: Client[Any], inputs: Inputs, criterion: Callable[[Tensor, Tensor], Tensor]) -> Gradient:
    """The same for any ``criterion`` of the training nodes' logits and classes."""

    def error(logits: Tensor) -> tuple[float, Tensor]:
        logits.requires_grad_()
        loss = criterion(logits, inputs.labels)
        return float(loss.detach()), torch.autograd.grad(loss, logits)[0]

    return through_the_network(client, inputs, error)


def through_the_network(
    client: Client[Any], inputs: Inputs, error: Error, stream: str = "dropout"
) -> Gradient:
    """The same for a loss of the training nodes' logits that brings its own gradient.

    ``stream`` names the random numbers of dropout. Two views of one round need two names.
    """
    draws = client.draws(stream)
    return Gradient(lambda params: client.model.gradient(params, inputs, draws, error))


def held_near(plain: Gradient, anchor: Tensors, strength: float) -> Gradient:
    """The loss plus strength / 2 · ||w - anchor||², and its gradient. Of strength 0 it is the loss itself."""
    if strength == 0:
        return plain

    def of(params: Tensors) -> tuple[float, Tensors]:
        loss, grads = plain.of(params)
        apart = {name: params[name] - value for name, value in anchor.items()}
        squares = sum(float(gap.square().sum()) for gap in apart.values())
        pulled = {
            name: gap.mul_(strength) + grads[name] if name in grads else gap.mul_(strength)
            for name, gap in apart.items()
        }
        return loss + strength / 2 * squares, {**grads, **pulled}

    return Gradient(of)


def fit(
    client: Client[Any],
    params: Tensors,
    state: Tensors,
    loss: Objective,
    *,
    trainable: Sequence[str] | None = None,
    epochs: int | None = None,
    stage: str = "fit",
    weight_decay: float | None = None,
) -> tuple[Tensors, Tensors, float]:
    """Train the named parameters (default: all) on ``loss``.

    The optimiser's moments of each ``stage`` are in the state under its name. Returns the parameters, the
    state with new moments, and the mean loss. A client without training nodes is left as it is.
    """
    if not bool(client.data.train_mask.any()):
        return params, state, float("nan")
    names = sorted(params) if trainable is None else list(trainable)
    moments = renamed(state, f"{stage}.moments.", "")
    steps = client.training.epochs if epochs is None else epochs
    params, moments, mean_loss = descend(params, names, loss, steps, client.training, moments, weight_decay)
    kept = {name: value for name, value in state.items() if not name.startswith(f"{stage}.moments.")}
    return params, {**kept, **renamed(moments, "", f"{stage}.moments.")}, mean_loss


def reply(client: Client[Any], tensors: Tensors, **scalars: float) -> Reply:
    data = client.data
    finite = {name: value for name, value in scalars.items() if value == value}
    return Reply(tensors, data.graph.num_nodes, int(data.train_mask.sum()), finite, client.round)


def own_model(client: Client[Any], tensors: Tensors, *stream: int | str) -> Tensors:
    """The model among the tensors.

    Before there is one, it is the initial weights of the run's seed. A ``stream`` names initial weights of
    its own.
    """
    return model_part(tensors) or client.model.initial(client.info, client.seed, *stream)


def own_classifier(client: Client[Any], tensors: Tensors) -> Tensors:
    """The classifier among the tensors; before there is one, that of the run's initial weights."""
    return with_prefix(tensors, "classifier.") or with_prefix(own_model(client, {}), "classifier.")


def train_alone(client: Client[Inputs], state: Tensors) -> tuple[Reply, Tensors]:
    """A round at a client that keeps its model to itself."""
    params, state, loss = fit(client, own_model(client, state), state, cross_entropy(client, client.prepared))
    return reply(client, {}, loss=loss), {**state, **params}


def class_counts(data: ClientData) -> Tensor:
    """Training nodes of each class at the client, int64 [C]."""
    return torch.bincount(data.graph.y[data.train_mask], minlength=data.graph.num_classes)


def summed_counts(old: Tensor, replies: Mapping[int, Reply], name: str = "count") -> Tensor:
    """Training nodes of each class over the clients that answered, [C].

    A class whose owners are all absent in a round keeps its last number.
    """
    total = torch.stack([replies[k].tensors[name] for k in sorted(replies)]).sum(0, dtype=torch.float64)
    return torch.where(total > 0, total.to(old.dtype), old)


def log_prior(counts: Tensor, own: Tensor | None = None, share: float = 0.0) -> Tensor | None:
    """The logarithm of every class's share of the training nodes, [C]: what balanced softmax adds to logits.

    ``counts`` are those of all clients. A ``share`` of the prior comes from the client's ``own`` counts.
    None before any count is known.
    Choice: a class without a node counts as half a node of all, so that no logarithm is infinite.
    """
    total = float(counts.sum())
    if total <= 0:
        return None
    prior = counts.to(torch.float64) / total
    if own is not None and share > 0 and bool(own.any()):
        prior = (1 - share) * prior + share * own.to(torch.float64) / own.sum()
    return prior.clamp(min=0.5 / total).log().to(torch.float32)


def class_sums(rows: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """The sum of the rows of each class, [C, width]."""
    return torch.zeros(num_classes, rows.shape[1]).index_add_(0, labels, rows)


def weighted_mean(tensors: Tensors, replies: Mapping[int, Reply], weights: Mapping[int, float]) -> Tensors:
    """Each named tensor's mean over the replies.

    It is summed in float64 in the order of the clients, so that the bits do not depend on who answered first.
    Weights are renormalised over the replies at hand. Where they are all zero, the tensors stay as they are.
    """
    total = sum(weights[k] for k in sorted(replies))
    if total <= 0:
        return tensors
    out: Tensors = {}
    for name, old in tensors.items():
        mean = torch.zeros(old.shape, dtype=torch.float64)
        for k in sorted(replies):
            if weights[k] > 0:
                mean.add_(replies[k].tensors[name].to(torch.float64), alpha=weights[k] / total)
        out[name] = mean.to(old.dtype)
    return out


def average(info: TaskInfo, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
    """FedAvg's mean of the named tensors, weighted by the clients' sizes."""
    return weighted_mean(tensors, replies, {k: weight_of(info, r) for k, r in replies.items()})


def own_means(replies: Mapping[int, Reply], weights: Tensor) -> Tensors:
    """A mean of the models for every client, named "client3.encoder.weight" and so on.

    Row k of the weights [K, K], float64, is the client's own mixture. Clients ascend.
    """
    ids, out = sorted(replies), Tensors()
    for name, first in model_part(replies[ids[0]].tensors).items():
        models = [replies[k].tensors[name].reshape(-1) for k in ids]
        mixed = torch.empty(len(ids), first.numel())  # [K, ...]
        for part, *some in zip(*(torch.split(each, AT_ONCE, -1) for each in (mixed, *models)), strict=True):
            part.copy_(weights @ torch.stack(some).to(torch.float64))
        out.update({f"client{k}.{name}": own.reshape(first.shape) for k, own in zip(ids, mixed, strict=True)})
    return out


def own_mean(tensors: Tensors, client_id: int) -> Tensors:
    """The client's own mean among those of :func:`own_means`, or the common model before its first one."""
    return renamed(tensors, f"client{client_id}.", "") or model_part(tensors)


def class_mean(old: Tensor, pairs: Iterable[tuple[Tensor, Tensor]]) -> Tensor:
    """The weighted mean of each class: values [C, ...] and weights [C] of every client, in the order of the
    clients.

    It is summed in float64. A class without weight keeps its old value.
    """
    column = (-1,) + (1,) * (old.ndim - 1)
    total = torch.zeros(old.shape[0], dtype=torch.float64).reshape(column)
    weighted = torch.zeros(old.shape, dtype=torch.float64)
    for values, weights in pairs:
        weight = weights.to(torch.float64).reshape(column)
        weighted += weight * values
        total += weight
    return torch.where(total > 0, (weighted / total).to(old.dtype), old)
