"""FedProx: FedAvg whose clients are held near the model that the server sent.

Li et al., "Federated Optimization in Heterogeneous Networks", MLSys 2020, arXiv 1812.06127.
Down: the model.  Up: the model.  Bytes each way per client: 4 |Θ|, as FedAvg.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from torch import Tensor

from fedepd.methods import Client, Method, Server
from fedepd.methods.steps import average, cross_entropy, fit, model_part, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.training import Gradient
from fedepd.options import option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields


@final
@dataclass(frozen=True)
class FedProx(Method[Inputs]):
    label: ClassVar[str] = "FedProx"
    mu: float = option(0.01, "how strongly a client is held near the server's model; 0: FedAvg")

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        sent, plain = model_part(message), cross_entropy(client, client.prepared)

        def proximal(params: Tensors) -> tuple[float, Tensors]:
            """The loss plus mu / 2 ||w - w_sent||^2, and its gradient."""
            loss, grads = plain.of(params)
            apart = {name: params[name] - sent[name] for name in sent}
            penalty = self.mu / 2 * sum(float((gap**2).sum()) for gap in apart.values())
            return loss + penalty, {name: grads[name] + self.mu * apart[name] for name in grads}

        params, state, loss = fit(client, sent, state, Gradient(proximal))
        return reply(client, params, loss=loss), {**state, **params}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)
