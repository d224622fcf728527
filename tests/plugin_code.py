"""The source of a small method and of a small network, as another package would bring them."""

METHOD = '''
"""Down: the model. Up: the model. Bytes: 4 per weight."""
from dataclasses import dataclass
from typing import ClassVar, final
from fedepd.methods import Method
from fedepd.methods.steps import average, cross_entropy, fit, model_part, reply
from fedepd.options import option
from fedepd.types import Reply, Tensors, same_fields
from fedepd.methods import Server
from collections.abc import Mapping

@final
@dataclass(frozen=True)
class Mine(Method):
    label: ClassVar[str] = "Mine"
    tau: float = option(1.0, "what the loss is divided by")

    def prepare(self, data, model):
        return model.inputs(data)

    def client_step(self, client, message, state):
        params, state, loss = fit(client, model_part(message), state, cross_entropy(client, client.prepared))
        return reply(client, params, loss=loss / self.tau), {**state, **params}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server, tensors):
        return same_fields(tensors)

    def predict(self, client, tensors):
        return client.model.predict(tensors, client.prepared)
'''

NETWORK = """
from dataclasses import dataclass
import torch
from fedepd.network.contract import Network, times
@dataclass(frozen=True)
class Plain(Network):
    gain: float = 1.0
    def shapes(self, model, num_features):
        return {"encoder.weight": (num_features, model.hidden)}
    def encode(self, model, params, inputs, dropout):
        return dropout(self.gain * torch.relu(times(inputs.features, params["encoder.weight"])))
"""
