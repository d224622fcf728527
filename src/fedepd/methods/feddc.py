"""FedDC: a client remembers how far it has drifted, and the average takes the drifts into account.

Gao et al., "FedDC: Federated Learning with Non-IID Data via Local Drift Decoupling and Correction", CVPR
2022, arXiv 2203.11751.
Official code: gaoliang13/FedDC; a second form: OpenFGL flcore/feddc.
Down: the model, control [|Θ|].  Up: the same.  Bytes each way per client: 8 |Θ|. The drift stays at the
client; the server adds up the mean of all drifts by itself.
Ours: clients weigh by their size, also in the mean drift. Variates are SCAFFOLD's (``variate``). OpenFGL
leaves the mean update out of the correction's gradient (a bracket is missing) and adds each update to the
drift one round late. Ours does neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.parts.variates import (
    Variate,
    control_fields,
    fit_corrected,
    mean_control,
    taking_part,
    without_control,
)
from fedepd.methods.steps import average, cross_entropy, held_near, model_part, renamed, reply, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.options import ladder, option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields

DRIFT = "drift."
"""Begins the names of the mean drift at the server, and of a client's own drift in its state."""


@final
@dataclass(frozen=True)
class FedDC(Method[Inputs]):
    label: ClassVar[str] = "FedDC"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True

    alpha: float = option(
        0.1,
        "how strongly a client is held near the server's model less its own drift",
        search=ladder(0.01, 0.1, 1.0, below=0.001, above=10.0),
    )
    variate: Variate = option(
        "gradients",
        "what corrects the gradients: their mean in the last round, or the distance that the client went, "
        "divided by steps and learning rate",
    )
    # Choice: gradients, for the same reason as SCAFFOLD's.

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < float("inf"):
            raise BadConfig(f"alpha is {self.alpha}; give a finite number, 0 or more")

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        sent, drift = model_part(message), renamed(state, DRIFT, "")
        anchor = {name: sent[name] - drift[name] for name in sent} if drift else sent
        local = held_near(cross_entropy(client, client.prepared), anchor, self.alpha)
        params, control, state, loss = fit_corrected(client, message, state, local, self.variate)
        moved = {name: params[name] - anchor[name] for name in sent}  # the drift so far, and this round's
        told = {**params, **control}
        return reply(client, told, loss=loss), {**state, **params, **renamed(moved, "", DRIFT)}

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        nowhere = {DRIFT + name: torch.zeros_like(value) for name, value in params.items()}
        return {**params, **without_control(params), **nowhere}

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        """The mean drift stays at the server, which has added it to the model."""
        return {name: value for name, value in tensors.items() if not name.startswith(DRIFT)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        old, drift = model_part(tensors), renamed(with_prefix(tensors, DRIFT), DRIFT, "")
        mean, share = average(server.info, old, replies), taking_part(server, replies)
        drift = {name: drift[name] + share * (mean[name] - value) for name, value in old.items()}
        model = {name: mean[name] + drift[name] for name in old}
        return {**model, **mean_control(server, tensors, replies), **renamed(drift, "", DRIFT)}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return {**same_fields(model_part(tensors)), **control_fields(tensors)}

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(model_part(tensors), client.prepared)
