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
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server, weight_of
from fedepd.methods.parts.prototypes import (
    Prepared,
    class_prototypes,
    nearest,
    no_prototypes,
    prototype_fields,
    pulled,
)
from fedepd.methods.parts.widths import (
    EQUAL,
    HELP,
    check_widths,
    own_network,
    own_widths,
    with_own_network,
)
from fedepd.methods.steps import class_mean, fit, own_model, reply
from fedepd.network.backbones import Backbone
from fedepd.options import ladder, option
from fedepd.types import ClientData, Fields, Reply, TaskInfo, Tensors

OWN = "own.classes"
"""In an exported model: the classes of which the client had training nodes, 1 or 0 each, [C]."""


@final
@dataclass(frozen=True)
class FedProto(Method[Prepared]):
    label: ClassVar[str] = "FedProto"
    added: ClassVar[frozenset[str]] = frozenset({"widths"})
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
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

    widths: str = option(EQUAL, HELP)

    def __post_init__(self) -> None:
        if self.lam < 0:
            raise BadConfig(f"lam is {self.lam}; give 0 or more")
        own_widths(self.widths)

    @property
    def averages(self) -> bool:
        """Prototypes are sent, models are not."""
        return False

    def network_of(self, model: Backbone, client_id: int, tensors: Tensors) -> Backbone:
        return own_network(self.widths, model, client_id, tensors)

    def weights(self, info: TaskInfo, fields: Fields, reply: Reply) -> Tensors:
        return {"prototype.mean": self._weights(info, [reply], reply.tensors["prototype.count"][None])[0]}

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        return Prepared.of(data, model)

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        if self.optimizer_own:
            client = client.trained_by(optimizer="sgd", lr=0.01, weight_decay=0.0)
        client = with_own_network(self.widths, client, state)
        loss_of = pulled(client, message, self.lam, self.form, self.embedding)
        params, state, loss = fit(client, self._own(client, state), state, loss_of)
        return reply(client, class_prototypes(client, params), loss=loss), {**state, **params}

    def _own(self, client: Client[Prepared], tensors: Tensors) -> Tensors:
        return (
            own_model(client, tensors)
            if self.common_start
            else own_model(client, tensors, client.data.client_id)
        )

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        check_widths(self.widths, server.model)
        return no_prototypes(server)

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
        return prototype_fields(server)

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        client = with_own_network(self.widths, client, tensors)
        params = self._own(client, tensors)
        if self.predict_by == "logits":
            return client.model.predict(params, client.prepared.inputs)
        held = tensors.get(OWN, client.prepared.counts) > 0
        return nearest(client, params, tensors, (tensors["prototype.count"] > 0) & held)

    def without_labels(self, tensors: Tensors, counts: Tensor) -> Tensors:
        """With the classes that the client chooses from."""
        if self.predict_by == "logits":
            return tensors
        return {**tensors, OWN: (counts > 0).to(torch.float32)}
