"""FedPer: the encoder is averaged, and every client keeps a classifier of its own.

Arivazhagan et al., "Federated Learning with Personalization Layers", 2019, arXiv 1912.00818.
No official code was found. FL-bench and FedRep's program have it.
Down: the encoder.  Up: the encoder.  Bytes each way per client: 4 (|Θ| - w·C - C), w the width that the
classifier reads.
Ours: classifiers start from common weights. A client is scored with the averaged encoder (``score``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, final

from torch import Tensor

from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import average, cross_entropy, fit, own_classifier, reply, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.options import option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields


@final
@dataclass(frozen=True)
class FedPer(Method[Inputs]):
    label: ClassVar[str] = "FedPer"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    has_global: ClassVar[bool] = False

    score: Literal["aggregated", "trained"] = option(
        "aggregated", "a client's own model has the averaged encoder, or its own after its local epochs"
    )

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        own = {**message, **own_classifier(client, state)}
        params, state, loss = fit(client, own, state, cross_entropy(client, client.prepared))
        encoder = with_prefix(params, "encoder.")
        kept = with_prefix(params, "classifier.") if self.score == "aggregated" else params
        return reply(client, encoder, loss=loss), {**state, **kept}

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        return with_prefix(params, "encoder.")

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict({**tensors, **own_classifier(client, tensors)}, client.prepared)
