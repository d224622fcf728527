"""Logit adjustment under FedAvg: the loss adds tau log N_c to the logit of class c, which favours rare ones.

Menon et al., "Long-tail Learning via Logit Adjustment", ICLR 2021, arXiv 2007.07314.
Ren et al., "Balanced Meta-Softmax for Long-Tailed Visual Recognition", NeurIPS 2020, arXiv 2007.10740.
Both are centralised; the federation is ours. Balanced softmax is the loss with tau = 1: its softmax weighs
e^z by the class counts. It is the preset "balanced_softmax", with each client's own counts.
Down: the model, with prior = global also class.count [C].  Up: the same.  Bytes each way per client: 4 |Θ|,
global 4 (|Θ| + C).
Ours: a class without training nodes counts as one node. With prior = global, round 1 has no counts yet, and
is FedAvg's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import (
    average,
    class_counts,
    cross_entropy,
    fit,
    model_part,
    reply,
    summed_counts,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.training import Gradient
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, Tensors, same_fields

COUNT = "class.count"
"""Training nodes of each class, [C]: of all clients in a message, of one in a reply."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    counts: Tensor
    """Training nodes per class, int64 [C]."""


@final
@dataclass(frozen=True)
class LogitAdjustment(Method[Prepared]):
    label: ClassVar[str] = "Logit adjustment"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "balanced_softmax": {"tau": 1.0, "prior": "local"},
        "post_hoc": {"form": "post_hoc"},
    }

    tau: float = option(
        1.0,
        "strength of the adjustment; 1: balanced softmax; 0: FedAvg",
        search=ladder(0.5, 1.0, 2.0, below=0.25, above=4.0),
    )
    prior: Literal["global", "local"] = option(
        "global", "class counts of all clients together, which are sent, or the client's own"
    )
    # Choice: global. The model is for all clients, and so is the imbalance that it is to be corrected for. A
    # client's own counts correct for a skew that the average has already removed in part.
    form: Literal["loss", "post_hoc"] = option(
        "loss", "adjust the logits in the loss, or subtract the same from those of a plainly trained model"
    )

    def __post_init__(self) -> None:
        if not 0 <= self.tau < float("inf"):
            raise BadConfig(f"tau is {self.tau}; give a finite number, 0 or more")
        if self.form == "post_hoc" and self.prior == "local":
            raise BadConfig(
                "form is post_hoc and prior is local, but one model for all clients has no client's own "
                "counts; set prior to global"
            )

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        return Prepared(model.inputs(data), class_counts(data))

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        params, state, loss = fit(client, model_part(message), state, self._loss(client, message))
        counts = {COUNT: client.prepared.counts.to(torch.float32)} if self.prior == "global" else {}
        return reply(client, {**params, **counts}, loss=loss), {**state, **params}

    def _loss(self, client: Client[Prepared], message: Tensors) -> Gradient:
        return cross_entropy(client, client.prepared.inputs, self._shift(client, message))

    def _shift(self, client: Client[Prepared], message: Tensors) -> Tensor | None:
        """What the loss adds to the logits, [C]; None: nothing."""
        if self.form == "post_hoc":
            return None
        return adjustment(self.tau, client.prepared.counts if self.prior == "local" else message[COUNT])

    def adaptation(self, client: Client[Prepared], tensors: Tensors) -> tuple[Tensors, Gradient] | None:
        return None if self.form == "post_hoc" else (model_part(tensors), self._loss(client, tensors))

    def classifier_reads(
        self, client: Client[Prepared], tensors: Tensors
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        rows, labels = client.model.training_rows(tensors, client.prepared.inputs)
        return rows, labels, self._shift(client, tensors)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        counts = {COUNT: torch.zeros(server.info.num_classes)} if self.prior == "global" else {}
        return {**params, **counts}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        model = average(server.info, model_part(tensors), replies)
        if self.prior == "local":
            return model
        return {**model, COUNT: summed_counts(tensors[COUNT], replies, COUNT)}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        counts = {COUNT: Field((server.info.num_classes,), "count")} if self.prior == "global" else {}
        return {**same_fields(model_part(tensors)), **counts}

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        logits = client.model.predict(tensors, client.prepared.inputs)
        shift = adjustment(self.tau, tensors[COUNT]) if self.form == "post_hoc" else None
        return logits if shift is None else logits - shift


def adjustment(tau: float, counts: Tensor) -> Tensor | None:
    """tau log N of each class, [C], less the largest of them, which no softmax sees.

    None where nothing is known, or tau is 0.
    """
    if tau == 0 or not bool((counts > 0).any()):
        return None
    shift = tau * counts.to(torch.float32).clamp(min=1).log()
    return shift - shift.max()
