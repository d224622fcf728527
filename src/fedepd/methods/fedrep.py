"""FedRep: the encoder is averaged; every round a client first fits a classifier of its own, then the encoder.

Collins et al., "Exploiting Shared Representations for Personalized Federated Learning", ICML 2021, arXiv
2102.07078.
Official code: lgcollins/FedRep.
Down: the encoder.  Up: the encoder.  Bytes each way per client: 4 (|Θ| - w·C - C), w the width that the
classifier reads.
Ours: the classifier is fitted to fixed rows, without dropout, and has common initial weights. A client is
scored with the averaged encoder, as by its authors (``score``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import average, cross_entropy, fit, own_classifier, reply, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.options import ladder, option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields


@final
@dataclass(frozen=True)
class FedRep(Method[Inputs]):
    label: ClassVar[str] = "FedRep"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    has_global: ClassVar[bool] = False

    head_epochs: int = option(
        10,
        "steps of the client's own classifier before those of the encoder",
        search=ladder(3, 10, 30, below=1),
    )
    score: Literal["aggregated", "trained"] = option(
        "aggregated", "a client's own model has the averaged encoder, or its own after its local epochs"
    )

    def __post_init__(self) -> None:
        if self.head_epochs < 1:
            raise BadConfig(f"head_epochs is {self.head_epochs}; give at least 1")

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        own, inputs = {**message, **own_classifier(client, state)}, client.prepared
        rows, labels = client.model.training_rows(own, inputs)  # [t, w], [t]

        def of_rows(params: Tensors) -> Tensor:
            return F.cross_entropy(client.model.classify(params, rows), labels)

        head, body = sorted(with_prefix(own, "classifier.")), sorted(with_prefix(own, "encoder."))
        own, state, _ = fit(
            client, own, state, of_rows, trainable=head, epochs=self.head_epochs, stage="head"
        )
        own, state, loss = fit(client, own, state, cross_entropy(client, inputs), trainable=body)
        kept = with_prefix(own, "classifier.") if self.score == "aggregated" else own
        return reply(client, with_prefix(own, "encoder."), loss=loss), {**state, **kept}

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        return with_prefix(params, "encoder.")

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict({**tensors, **own_classifier(client, tensors)}, client.prepared)
