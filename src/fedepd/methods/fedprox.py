"""FedProx: FedAvg whose clients are held near the model that the server sent.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv 1812.06127.
Official code: litian96/FedProx; a second form: OpenFGL flcore/fedprox (mu 0.001).
Down: the model.  Up: the model.  Bytes each way per client: 4 |Θ|, as FedAvg.
Ours: every client takes all its steps. The authors also let slow clients take fewer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import average, cross_entropy, fit, held_near, model_part, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.options import ladder, option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields


@final
@dataclass(frozen=True)
class FedProx(Method[Inputs]):
    label: ClassVar[str] = "FedProx"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True

    mu: float = option(
        0.01,
        "how strongly a client is held near the server's model; 0: FedAvg",
        search=ladder(0.001, 0.01, 0.1, 1.0, below=1e-4, above=10.0),
    )

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise BadConfig(f"mu is {self.mu}; give a finite number, 0 or more")

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        sent = model_part(message)
        proximal = held_near(cross_entropy(client, client.prepared), sent, self.mu)
        params, state, loss = fit(client, sent, state, proximal)
        return reply(client, params, loss=loss), {**state, **params}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)
