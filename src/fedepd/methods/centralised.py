"""Centralised: one client holds the whole graph, with the edges between clients. It is no federated method.

It is the ceiling of every table.

Down: nothing.  Up: nothing.  Bytes: 0. With one client this is FedAvg, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import own_model, train_alone
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.types import ClientData, Fields, Reply, Tensors


@final
@dataclass(frozen=True)
class Centralised(Method[Inputs]):
    label: ClassVar[str] = "Centralised"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    has_global: ClassVar[bool] = False
    merges_clients: ClassVar[bool] = True

    @property
    def averages(self) -> bool:
        """Nothing is sent."""
        return False

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        return train_alone(client, state)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        return {}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return tensors

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return {}

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(own_model(client, tensors), client.prepared)
