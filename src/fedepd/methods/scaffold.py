"""SCAFFOLD: FedAvg whose clients correct each gradient by how theirs differ from everybody's.

Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated Learning", ICML 2020, arXiv
1910.06378.
A second form: OpenFGL flcore/scaffold (preset "openfgl").
Down: the model, control [|Θ|].  Up: the same.  Bytes each way per client: 8 |Θ|.
Ours: a variate is the mean of the gradients of a round's steps (``variate``), and Adam gets the corrected
gradient. Clients weigh by their size. The server takes whole steps (its rate is 1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

from torch import Tensor

from fedepd.methods.base import Client, Method, Server
from fedepd.methods.parts.variates import (
    Variate,
    control_fields,
    fit_corrected,
    mean_control,
    without_control,
)
from fedepd.methods.steps import average, cross_entropy, model_part, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.options import option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields


@final
@dataclass(frozen=True)
class Scaffold(Method[Inputs]):
    label: ClassVar[str] = "SCAFFOLD"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}, "openfgl": {"variate": "steps"}}

    variate: Variate = option(
        "gradients",
        "a client's variate: the mean of its gradients in the round, or the distance that it went, "
        "divided by steps and learning rate",
    )
    # Choice: gradients. With plain gradient steps and no weight decay both are the same number (option II of
    # the paper). With Adam, the optimiser of every method here, a distance is no gradient: each coordinate
    # moves by about lr, so its variate is about 1, whatever the gradient is, and drowns it.

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        plain = cross_entropy(client, client.prepared)
        params, control, state, loss = fit_corrected(client, message, state, plain, self.variate)
        return reply(client, {**params, **control}, loss=loss), {**state, **params}

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        return {**params, **without_control(params)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        model = average(server.info, model_part(tensors), replies)
        return {**model, **mean_control(server, tensors, replies)}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return {**same_fields(model_part(tensors)), **control_fields(tensors)}

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(model_part(tensors), client.prepared)
