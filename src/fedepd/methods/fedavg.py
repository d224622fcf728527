"""FedAvg: average locally trained models.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data", AISTATS 2017,
arXiv 1602.05629.
Down: the model.  Up: the model.  Bytes each way per client: 4 |Θ|, |Θ| = d·h + h + h·C + C.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import average, cross_entropy, fit, model_part, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields


@final
@dataclass(frozen=True)
class FedAvg(Method[Inputs]):
    label: ClassVar[str] = "FedAvg"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        params, state, loss = fit(client, model_part(message), state, cross_entropy(client, client.prepared))
        return reply(client, params, loss=loss), {**state, **params}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)
