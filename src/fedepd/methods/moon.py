"""MOON: FedAvg whose clients draw embeddings to the server's model's, and away from their own last ones.

Li, He and Song, "Model-Contrastive Federated Learning", CVPR 2021, arXiv 2103.16257.
Official code: QinbinLi/MOON; a second form: OpenFGL flcore/moon.
Down: the model.  Up: the model.  Bytes each way per client: 4 |Θ|, as FedAvg. The last model stays at the
client.
Ours: as OpenFGL, the hidden layer without a projection head, and all nodes of the client. A node whose row is
all zero has no direction and no part in the contrast.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import average, cross_entropy, fit, model_part, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.training import Objective
from fedepd.options import ladder, option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields

INDIFFERENT = math.log(2)
"""The contrast of rows that are as near to both models. It is subtracted, so that the losses of a client's
first round, which has no contrast, and of later ones compare. No gradient sees it."""
SHORTEST = 1e-6
"""Rows that are shorter have no direction."""


@final
@dataclass(frozen=True)
class Moon(Method[Inputs]):
    label: ClassVar[str] = "MOON"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True

    mu: float = option(
        1.0, "weight of the contrast; 0: FedAvg", search=ladder(0.1, 1.0, 5.0, below=0.01, above=10.0)
    )
    temperature: float = option(
        0.5, "divides the cosines of the contrast", search=ladder(0.1, 0.5, 1.0, above=2.0)
    )

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise BadConfig(f"mu is {self.mu}; give a finite number, 0 or more")
        if not 0 < self.temperature < float("inf"):
            raise BadConfig(f"temperature is {self.temperature}; it must be positive and finite")

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        sent, last = model_part(message), model_part(state)
        params, state, loss = fit(client, sent, state, self._loss(client, sent, last))
        return reply(client, params, loss=loss), {**state, **params}

    def _loss(self, client: Client[Inputs], sent: Tensors, last: Tensors) -> Objective:
        """Cross-entropy + mu · contrast. Before the client has a last model, the cross-entropy alone."""
        inputs, model = client.prepared, client.model
        if self.mu == 0 or not last:
            return cross_entropy(client, inputs)
        with torch.no_grad():
            wanted, left = model.encode(sent, inputs), model.encode(last, inputs)  # [n, h]
        draws = client.draws("dropout")

        def loss(params: Tensors) -> Tensor:
            hidden = model.encode(params, inputs, draws)
            supervised = F.cross_entropy(model.logits(params, hidden, inputs, train_only=True), inputs.labels)
            return supervised + self.mu * (contrast(hidden, wanted, left, self.temperature) - INDIFFERENT)

        return loss

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)


def contrast(rows: Tensor, wanted: Tensor, left: Tensor, temperature: float) -> Tensor:
    """The mean over the rows [n, h] of -log(e^a / (e^a + e^b)): a and b are cosines over the temperature."""
    gap = (cosine(rows, left) - cosine(rows, wanted)) / temperature
    return F.softplus(gap).mean()


def cosine(rows: Tensor, others: Tensor) -> Tensor:
    """Row by row, [n]; 0 without a gradient where either row has no direction."""
    lengths, theirs = rows.norm(dim=1), others.norm(dim=1)
    found = (rows * others).sum(1) / (lengths.clamp(min=SHORTEST) * theirs.clamp(min=SHORTEST))
    return torch.where((lengths > SHORTEST) & (theirs > SHORTEST), found, 0.0)
