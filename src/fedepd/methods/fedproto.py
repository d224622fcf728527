"""FedProto: models stay private, and only class means of embeddings are exchanged.

A penalty pulls local embeddings towards the global means of their classes.

Tan et al., "FedProto: Federated Prototype Learning across Heterogeneous Clients", AAAI 2022, arXiv
2105.00243.
Official code: yuetan031/FedProto @97e42e2; a second form: OpenFGL flcore/fedproto (preset "openfgl").
Down: prototype.mean [C, h], prototype.count [C].  Up: the same, of the client.  Bytes each way per client: 4
(C·h + C).
Ours: full-batch steps. Prototypes are made in evaluation mode after training, not from the batches of the
last epoch.
Clients start from common weights. A prototype that no client of the round renews is kept. The official SGD
has no momentum here (there 0.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server, weight_of
from fedepd.methods.steps import (
    class_counts,
    class_mean,
    class_sums,
    cross_entropy,
    fit,
    own_model,
    reply,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.training import Objective
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, TaskInfo, Tensors

OWN = "own.classes"
"""In an exported model: the classes of which the client had training nodes, 1 or 0 each, [C]."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    counts: Tensor
    """Training nodes per class, int64 [C]."""


@final
@dataclass(frozen=True)
class FedProto(Method[Prepared]):
    label: ClassVar[str] = "FedProto"
    weighs_edges: ClassVar[bool] = True
    has_global: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "authors_values": {"common_start": False, "optimizer_own": True},
        "openfgl": {
            "form": "openfgl",
            "class_weights": "zeros",
            "embedding": "dropped",
            "common_start": False,
        },
    }

    lam: float = option(
        1.0,
        "weight of the penalty (lambda); 0 is isolated training",
        search=ladder(0.1, 0.3, 1.0, 3.0, below=0.03, above=10.0),
    )
    form: Literal["original", "openfgl"] = option(
        "original", "penalty: a mean over training nodes, or a sum over classes of class means"
    )
    class_weights: Literal["owners", "counts", "zeros"] = option(
        "owners",
        "a class's prototype: mean over its owners (code), weighted by their training nodes (paper), "
        "or over all clients with zeros for those without it (OpenFGL)",
    )
    # Choice: owners. Zeros for absent classes shrink the prototypes of rare classes towards the origin. They
    # are there only for comparison with OpenFGL.
    embedding: Literal["clean", "dropped"] = option(
        "clean", "penalise the embedding before dropout (original) or after it (OpenFGL)"
    )
    predict_by: Literal["logits", "prototypes"] = option(
        "logits",
        "the private classifier, or the nearest global prototype among the client's training classes",
    )
    common_start: bool = option(
        True, "all clients start from the same weights; off: each from its own, as in the official code"
    )
    # Choice: a common start. Means of embeddings can agree only in one space, and the penalty alone would
    # have to align weights that were drawn apart.
    optimizer_own: bool = option(
        False, "the official SGD, lr 0.01, no weight decay, in place of the run's optimiser"
    )

    def __post_init__(self) -> None:
        if self.lam < 0:
            raise BadConfig(f"lam is {self.lam}; give 0 or more")

    @property
    def averages(self) -> bool:
        """Prototypes are sent, models are not."""
        return False

    def weights(self, info: TaskInfo, fields: Fields, reply: Reply) -> Tensors:
        return {"prototype.mean": self._weights(info, [reply], reply.tensors["prototype.count"][None])[0]}

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        return Prepared(model.inputs(data), class_counts(data))

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        if self.optimizer_own:
            client = client.trained_by(optimizer="sgd", lr=0.01, weight_decay=0.0)
        params, state, loss = fit(client, self._own(client, state), state, self._loss(client, message))
        return reply(client, self._prototypes(client, params), loss=loss), {**state, **params}

    def _own(self, client: Client[Prepared], tensors: Tensors) -> Tensors:
        return (
            own_model(client, tensors)
            if self.common_start
            else own_model(client, tensors, client.data.client_id)
        )

    def _loss(self, client: Client[Prepared], message: Tensors) -> Objective:
        """Cross-entropy + lam · R. While no prototype is known, it is the cross-entropy alone."""
        inputs, counts = client.prepared.inputs, client.prepared.counts
        target = message["prototype.mean"][inputs.labels]  # [t, h]
        known = (message["prototype.count"] > 0)[inputs.labels]  # [t]
        if self.lam == 0 or not bool(known.any()):
            return cross_entropy(client, inputs)
        share = known / (inputs.labels.shape[0] if self.form == "original" else counts[inputs.labels])  # [t]
        draws = client.draws("dropout")

        def loss(params: Tensors) -> Tensor:
            dropped = client.model.encode(params, inputs, draws)
            hidden = dropped if self.embedding == "dropped" else client.model.encode(params, inputs)
            supervised = F.cross_entropy(
                client.model.logits(params, dropped, inputs, train_only=True), inputs.labels
            )
            return supervised + self.lam * penalty(hidden[inputs.train], target, share)

        return loss

    def _prototypes(self, client: Client[Prepared], params: Tensors) -> Tensors:
        """Class means of the training nodes' embeddings, in evaluation mode. Absent classes have zeros."""
        inputs, counts = client.prepared.inputs, client.prepared.counts
        with torch.no_grad():
            hidden = client.model.encode(params, inputs)[inputs.train]  # [t, h]
        sums = class_sums(hidden, inputs.labels, client.info.num_classes)
        return {
            "prototype.mean": sums / counts.clamp(min=1)[:, None],
            "prototype.count": counts.to(torch.float32),
        }

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        classes = server.info.num_classes
        return {
            "prototype.mean": torch.zeros(classes, server.model.hidden),
            "prototype.count": torch.zeros(classes),
        }

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        ordered = [replies[k] for k in sorted(replies)]
        counts = torch.stack([r.tensors["prototype.count"] for r in ordered])  # [K, C]
        owned = counts.sum(0) > 0
        means = [r.tensors["prototype.mean"] for r in ordered]
        weights = self._weights(server.info, ordered, counts) * owned  # [K, C]
        return {
            "prototype.mean": class_mean(tensors["prototype.mean"], zip(means, weights, strict=True)),
            "prototype.count": torch.where(owned, counts.sum(0), tensors["prototype.count"]),
        }

    def _weights(self, info: TaskInfo, replies: Sequence[Reply], counts: Tensor) -> Tensor:
        """Each client's weight in each class, [K, C]."""
        if self.class_weights == "counts":
            return counts
        if self.class_weights == "owners":
            return (counts > 0).to(counts.dtype)
        return torch.tensor([weight_of(info, r) for r in replies])[:, None].expand_as(counts)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        classes = server.info.num_classes
        means = Field((classes, server.model.hidden), "mean", of="prototype.count")
        return {"prototype.mean": means, "prototype.count": Field((classes,), "count")}

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        params, inputs = self._own(client, tensors), client.prepared.inputs
        if self.predict_by == "logits":
            return client.model.predict(params, inputs)
        held = tensors.get(OWN, client.prepared.counts) > 0
        candidates = (tensors["prototype.count"] > 0) & held  # [C]
        if not bool(candidates.any()):
            return client.model.predict(params, inputs)
        with torch.no_grad():
            distance = torch.cdist(client.model.encode(params, inputs), tensors["prototype.mean"])  # [n, C]
        return (-distance).masked_fill(~candidates, float("-inf"))

    def without_labels(self, tensors: Tensors, counts: Tensor) -> Tensors:
        """With the classes that the client chooses from."""
        if self.predict_by == "logits":
            return tensors
        return {**tensors, OWN: (counts > 0).to(torch.float32)}


def penalty(hidden: Tensor, target: Tensor, share: Tensor) -> Tensor:
    """R: the training nodes' mean squared distances to their targets, weighted by their shares."""
    return (share * (hidden - target).square().mean(1)).sum()
