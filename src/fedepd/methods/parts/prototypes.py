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
from fedepd.network.training import Objective
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

    def loss(params: Tensors) -> Tensor:
        dropped = client.model.encode(params, inputs, draws)
        hidden = dropped if embedding == "dropped" else client.model.encode(params, inputs)
        supervised = F.cross_entropy(
            client.model.logits(params, dropped, inputs, train_only=True), inputs.labels
        )
        return supervised + lam * penalty(hidden[inputs.train], target, share)

    return loss


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
