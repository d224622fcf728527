"""LWS, learnable weight scaling, federated: first FedAvg, then one factor per class on the frozen model.

Kang et al., "Decoupling Representation and Classifier for Long-Tailed Recognition", ICLR 2020, arXiv
1910.09217.
Official code: facebookresearch/classifier-balancing @f162ade (BSD). It is centralised; the federation is
ours.
Down: the model, scale [C].  Up in stage one: the model; in stage two: scale [C], owned [C] (not with
averaging = "naive").
Bytes per client: down 4 (|Θ| + C); up 4 |Θ| in stage one, 8 C in stage two (4 C if naive).
Ours: class-aware sampling is replaced by its full-batch expectation. Adam has no weight decay. Scales stay >=
0. The scale of a class is averaged over its owners.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import (
    average,
    class_counts,
    class_mean,
    cross_entropy,
    fit,
    model_part,
    of_logits,
    reply,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.training import Gradient
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, TaskInfo, Tensors, same_fields

OWN_LR, OWN_WEIGHT_DECAY = 0.2, 5e-4


@final
@dataclass(frozen=True)
class LWS(Method[Inputs]):
    label: ClassVar[str] = "LWS"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "authors_values": {
            "stage_two": 0.05,
            "optimizer_own": True,
            "nonnegative": False,
            "averaging": "naive",
        },
    }

    # Choice: 0.2 instead of 0.05, by the search that every method had (docs/methods.md).
    stage_two: float = option(
        0.2,
        "share of the rounds that learn the scales, at least one round of two or more; 0: FedAvg",
        search=ladder(0.1, 0.2, 0.4, below=0.05, above=0.6),
    )
    averaging: Literal["counts", "uniform", "naive"] = option(
        "counts",
        "a class's scale is averaged over the clients that have it, by their training nodes or equally; "
        "naive: over all clients by their size",
    )
    nonnegative: bool = option(
        True, "keep the scales at 0 or above: a negative one turns its class upside down"
    )
    optimizer_own: bool = option(
        False, "stage two by the authors' SGD: rate 0.2 with cosine decay, weight decay 5e-4"
    )
    # Choice: no weight decay by default, because it pulls a scale to 0 and not to 1. The authors' momentum of
    # 0.9 is not offered. Their rate was made for batches of images, and it alone throws the scales off on
    # small graphs with large logits.

    def __post_init__(self) -> None:
        if not 0 <= self.stage_two < 1:
            raise BadConfig(
                f"stage_two is {self.stage_two}; the share of rounds that learn scales must lie in [0, 1)"
            )

    def stage_one_rounds(self, last_round: int) -> int:
        if self.stage_two == 0 or last_round < 2:
            return last_round
        return last_round - min(max(1, round(self.stage_two * last_round)), last_round - 1)

    def in_stage_two(self, where: Client[Inputs] | Server) -> bool:
        return where.round > self.stage_one_rounds(where.last_round)

    def complete_from(self, last_round: int) -> int:
        return min(self.stage_one_rounds(last_round) + 1, last_round)

    def weights(self, info: TaskInfo, fields: Fields, reply: Reply) -> Tensors:
        by_size = super().weights(info, fields, reply)
        return {"scale": reply.tensors["owned"]} if "owned" in fields else by_size

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        if self.in_stage_two(client):
            return self._scale_step(client, message, state)
        params, state, loss = fit(client, model_part(message), state, cross_entropy(client, client.prepared))
        return reply(client, params, loss=loss), {**state, **params}

    def _scale_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        """Stage two.

        Choice: the averaged model is frozen, so a client's personal model is that one with its own scales.
        """
        inputs, counts = client.prepared.of_training, class_counts(client.data)
        with torch.no_grad():
            logits = client.model.logits(
                message, client.model.encode(message, inputs), inputs, train_only=True
            )  # [t, C]

        def loss(params: Tensors) -> Tensor:
            return balanced_loss(self._usable(params["scale"]), logits, inputs.labels, counts)

        decay = OWN_WEIGHT_DECAY if self.optimizer_own else 0.0
        scaled, state, mean_loss = fit(
            self._with_optimizer(client),
            with_prefix(message, "scale"),
            state,
            loss,
            stage="scale",
            weight_decay=decay,
        )
        scaled = {"scale": self._usable(scaled["scale"])}
        owned = (
            {}
            if self.averaging == "naive"
            else {"owned": (counts if self.averaging == "counts" else counts > 0).to(torch.float32)}
        )
        kept = {name: value for name, value in state.items() if name not in message}
        return reply(client, {**scaled, **owned}, loss=mean_loss), {**kept, **scaled}

    def _usable(self, scale: Tensor) -> Tensor:
        return scale.clamp(min=0) if self.nonnegative else scale

    def _with_optimizer(self, client: Client[Inputs]) -> Client[Inputs]:
        if not self.optimizer_own:
            return client
        before = self.stage_one_rounds(client.last_round)
        progress = (client.round - before - 1) / (client.last_round - before)
        rate = OWN_LR * (1 + math.cos(math.pi * progress)) / 2
        return client.trained_by(optimizer="sgd", lr=rate)

    def adaptation(self, client: Client[Inputs], tensors: Tensors) -> tuple[Tensors, Gradient]:
        """The model of stage one, by the cross-entropy of the logits that it predicts with.

        Choice: the scales stay as they are, and the loss sees them. Without them, the first steps would undo
        what stage two has learnt.
        """

        def criterion(logits: Tensor, labels: Tensor) -> Tensor:
            return F.cross_entropy(tensors["scale"] * logits, labels)

        return model_part(tensors), of_logits(client, client.prepared, criterion)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        return {**params, "scale": torch.ones(server.info.num_classes)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        if not self.in_stage_two(server):
            return {**tensors, **average(server.info, model_part(tensors), replies)}
        if self.averaging == "naive":
            return {**tensors, **average(server.info, with_prefix(tensors, "scale"), replies)}
        owners = ((r.tensors["scale"], r.tensors["owned"]) for r in replies.values())
        return {**tensors, "scale": class_mean(tensors["scale"], owners)}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        if not self.in_stage_two(server):
            return same_fields(model_part(tensors))
        fields = {"scale": Field((server.info.num_classes,), classes=0)}
        if self.averaging != "naive":
            fields["owned"] = Field(
                (server.info.num_classes,), "count" if self.averaging == "counts" else "presence"
            )
        return fields

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared) * tensors["scale"]


def balanced_loss(scale: Tensor, logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Class-balanced cross-entropy of scale * logits [t, C]. Every class present has the same weight, and its
    nodes share it.

    The scale of a class without training nodes gets no gradient, because nothing here could ever push it up.
    """
    scale = torch.where(counts > 0, scale, scale.detach())
    return F.cross_entropy(scale * logits, labels, weight=1.0 / counts.clamp(min=1))
