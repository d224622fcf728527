"""FedAvgM: FedAvg whose server goes on in the direction of its last rounds, with momentum.

Hsu, Qi and Brown, "Measuring the Effects of Non-Identical Data Distribution for Federated Visual
Classification", 2019, arXiv 1909.06335.
Down: the model.  Up: the model.  Bytes each way per client: 4 |Θ|, as FedAvg.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fedepd.methods import Client, Method, Server
from fedepd.methods.steps import average, cross_entropy, fit, model_part, renamed, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.options import option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields


@final
@dataclass(frozen=True)
class FedAvgM(Method[Inputs]):
    label: ClassVar[str] = "FedAvgM"
    momentum: float = option(0.5, "share of the server's last step that the next one repeats; 0: FedAvg")

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        params, state, loss = fit(client, message, state, cross_entropy(client, client.prepared))
        return reply(client, params, loss=loss), {**state, **params}

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        return params | {f"step.{name}": torch.zeros_like(value) for name, value in params.items()}

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        """The last step stays at the server."""
        return model_part(tensors)

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        """The mean of the replies, and ``momentum`` times the last step on top of it."""
        before, last = model_part(tensors), renamed(tensors, "step.", "")
        mean = average(server.info, before, replies)
        after = {name: value + self.momentum * last[name] for name, value in mean.items()}
        return after | {f"step.{name}": value - before[name] for name, value in after.items()}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(model_part(tensors))

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)
