"""The client's half of FedProto and FedTGP: class means of embeddings, and the penalty that draws to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.methods.base import Client, Server
from fedepd.methods.steps import class_counts, class_sums, cross_entropy
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.training import Gradient, Objective
from fedepd.types import ClientData, Field, Fields, Tensors


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    counts: Tensor
    """Training nodes per class, int64 [C]."""

    @staticmethod
    def of(data: ClientData, model: Backbone) -> Prepared:
        return Prepared(model.inputs(data), class_counts(data))


def pulled(
    client: Client[Prepared],
    message: Tensors,
    lam: float,
    form: Literal["original", "openfgl"] = "original",
    embedding: Literal["clean", "dropped"] = "clean",
) -> Objective:
    """Cross-entropy + lam · R. While no prototype is known, it is the cross-entropy alone."""
    inputs, counts = client.prepared.inputs.of_training, client.prepared.counts
    target = message["prototype.mean"][inputs.labels]  # [t, h]
    known = (message["prototype.count"] > 0)[inputs.labels]  # [t]
    if lam == 0 or not bool(known.any()):
        return cross_entropy(client, inputs)
    share = known / (inputs.labels.shape[0] if form == "original" else counts[inputs.labels])  # [t]
    draws = client.draws("dropout")

    def of_dropped(params: Tensors) -> Tensor:
        hidden = client.model.encode(params, inputs, draws)
        logits = client.model.logits(params, hidden, inputs, train_only=True)
        return F.cross_entropy(logits, inputs.labels) + lam * penalty(hidden[inputs.train], target, share)

    def of_both(logits: Tensor, hidden: Tensor) -> tuple[float, Tensor, Tensor]:
        supervised = F.cross_entropy(logits.requires_grad_(), inputs.labels)
        total = supervised.detach() + lam * penalty(hidden, target, share)
        weight = (torch.tensor(lam) * share / hidden.shape[1])[:, None]  # in the order of autograd
        return (
            float(total),
            torch.autograd.grad(supervised, logits)[0],
            (hidden - target).mul_(2).mul_(weight),
        )

    if embedding == "dropped":
        return of_dropped
    return Gradient(lambda params: client.model.gradient_of_both(params, inputs, draws, of_both))


def penalty(hidden: Tensor, target: Tensor, share: Tensor) -> Tensor:
    """R: the training nodes' mean squared distances to their targets, weighted by their shares."""
    return (share * (hidden - target).square().mean(1)).sum()


def class_prototypes(client: Client[Prepared], params: Tensors) -> Tensors:
    """Class means of the training nodes' embeddings, in evaluation mode. Absent classes have zeros."""
    inputs, counts = client.prepared.inputs.of_training, client.prepared.counts
    with torch.no_grad():
        hidden = client.model.encode(params, inputs)[inputs.train]  # [t, h]
    sums = class_sums(hidden, inputs.labels, client.info.num_classes)
    return {
        "prototype.mean": sums / counts.clamp(min=1)[:, None],
        "prototype.count": counts.to(torch.float32),
    }


def nearest(client: Client[Prepared], params: Tensors, tensors: Tensors, candidates: Tensor) -> Tensor:
    """Minus the distance to the prototypes of the candidates [C], and nothing for other classes: [n, C].

    Without a candidate, the logits.
    """
    inputs = client.prepared.inputs
    if not bool(candidates.any()):
        return client.model.predict(params, inputs)
    with torch.no_grad():
        distance = torch.cdist(client.model.encode(params, inputs), tensors["prototype.mean"])  # [n, C]
    return (-distance).masked_fill(~candidates, float("-inf"))


def no_prototypes(server: Server) -> Tensors:
    """The server's tensors before round 1."""
    classes = server.info.num_classes
    return {
        "prototype.mean": torch.zeros(classes, server.model.hidden),
        "prototype.count": torch.zeros(classes),
    }


def prototype_fields(server: Server) -> Fields:
    classes = server.info.num_classes
    means = Field((classes, server.model.hidden), "mean", of="prototype.count")
    return {"prototype.mean": means, "prototype.count": Field((classes,), "count")}
