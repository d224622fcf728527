"""FedLC: the local loss subtracts a margin from the logits, which is larger for locally rare classes.

Zhang et al., "Federated Learning with Label Distribution Skew via Logits Calibration", ICML 2022, arXiv
2209.00189.
No official code was found. tau and the clamp on absent classes are those of KarhouTam/FL-bench
(src/client/fedlc.py; read, not used).
Down: the model.  Up: the model.  Bytes each way per client: 4 |Θ|. The counts stay at the client.
Ours: the true class stays in the denominator (``form``), and an absent class counts as one node (``absent``).
The preset "authors_values" has both as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import average, class_counts, cross_entropy, fit, model_part, of_logits, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.training import Gradient
from fedepd.options import ladder, option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields

CLAMP = 1e-8
"""FL-bench's count of an absent class. Its margin is 100 tau, so the class all but leaves the softmax."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    margin: Tensor
    """[C]: tau N^(-1/4); infinite for a masked class."""


@final
@dataclass(frozen=True)
class FedLC(Method[Prepared]):
    label: ClassVar[str] = "FedLC"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "authors_values": {"tau": 1.0, "form": "paper", "absent": "clamp"},
        "fl_bench": {"tau": 1.0, "absent": "clamp"},
    }

    # Choice: 2 instead of 1, by the search that every method had (docs/methods.md).
    tau: float = option(
        2.0,
        "intensity of the margins; 0 switches them off",
        search=ladder(0.5, 1.0, 2.0, 4.0, below=0.25, above=8.0),
    )
    form: Literal["ce", "paper"] = option(
        "ce", "calibrated cross-entropy, or as printed: without the true class in the denominator"
    )
    # Choice: ce. The printed loss has no lower bound: it falls for ever as logits grow. FL-bench's author saw
    # it collapse.
    absent: Literal["floor1", "clamp", "mask"] = option(
        "floor1",
        "a class without a local training node counts as 1 node, as 1e-8 nodes, or is out of the softmax",
    )
    # Choice: an absent class counts as one node. Outside the softmax nothing would push it down, and it would
    # win at inference where most classes are absent.

    def __post_init__(self) -> None:
        if self.tau < 0:
            raise BadConfig(f"tau is {self.tau}; give 0 or more")
        if self.form == "paper" and self.absent == "mask":
            raise BadConfig(
                "form is paper and absent is mask, which leaves a client with one class an empty sum; "
                "set absent to floor1 or clamp"
            )

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        return Prepared(model.inputs(data), self.margins(class_counts(data)))

    def margins(self, counts: Tensor) -> Tensor:
        """m_k^c of a client's training counts, [C]."""
        effective = counts.to(torch.float32).clamp(min=CLAMP if self.absent == "clamp" else 1.0)
        margin = self.tau * effective.pow(-0.25)
        return margin.masked_fill(counts == 0, float("inf")) if self.absent == "mask" else margin

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        params, state, loss = fit(client, model_part(message), state, self._loss(client))
        return reply(client, params, loss=loss), {**state, **params}

    def _loss(self, client: Client[Prepared]) -> Gradient:
        inputs, margin = client.prepared.inputs, client.prepared.margin
        if self.form == "ce":
            return cross_entropy(client, inputs, -margin)
        return of_logits(client, inputs, lambda logits, labels: printed_loss(logits - margin, labels))

    def adaptation(self, client: Client[Prepared], tensors: Tensors) -> tuple[Tensors, Gradient]:
        return model_part(tensors), self._loss(client)

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared.inputs)


def printed_loss(adjusted: Tensor, labels: Tensor) -> Tensor:
    """Mean of -log(e^{a_y} / Σ_{c≠y} e^{a_c}) over the rows of ``adjusted`` [t, C]."""
    true = labels[:, None]
    others = adjusted.scatter(1, true, float("-inf"))
    return (others.logsumexp(1) - adjusted.gather(1, true)[:, 0]).mean()
