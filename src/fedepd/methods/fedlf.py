"""FedLF: logits scaled by local class shares, features pulled to class centres, and decorrelated.

Lu, Li and Jiang, "FedLF: Adaptive Logit Adjustment and Feature Optimization in Federated Long-Tailed
Learning", ACML 2024, arXiv 2409.12105.
Official code: 18sym/FedLF @99f98b3 (no licence; read, not used). Its main file pulls detached features, which
moves nothing, and no file decorrelates. So there is no preset with the authors' values.
Down: the model, centre [C, w], centre.known [C].  Up: the model; after the warm-up also centre [C, w], count
[C]. w is the width of what the classifier reads.
Bytes per client: down 4 (|Θ| + C·w + C); up 4 |Θ|, after the warm-up 4 (|Θ| + C·w + C).
Ours: centres act on what is trained. They are averaged over owners only. The bias is scaled too. The form of
the decorrelation is ours; it is off but in the preset "paper".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import (
    average,
    class_counts,
    class_mean,
    class_sums,
    fit,
    model_part,
    reply,
    through_the_network,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.kernels import cross_entropy_
from fedepd.network.training import Gradient, Objective
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, Tensors, same_fields

LEAST = 1e-6
"""Added to every owner's weight in a class centre, so that a class whose owners all disagree has one."""


@final
@dataclass(frozen=True)
class FedLF(Method[Inputs]):
    label: ClassVar[str] = "FedLF"
    revision: ClassVar[int] = 2  # before, the pull was a mean over the nodes whose class has a centre
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    works_without_rows: ClassVar[bool] = True  # without centres nothing is pulled
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}, "paper": {"decorrelation": 0.01}}

    alpha: float = option(
        0.25,
        "smallest factor of a logit in the loss, that of an absent class; 1 switches the factors off",
        search=ladder(0.1, 0.25, 0.5, above=1.0),
    )
    centre_weight: float = option(
        0.5,
        "weight of the pull to the class centres of all clients; 0 switches it off",
        search=ladder(0.1, 0.5, 2.0, below=0.0),
    )
    decorrelation: float = option(0.0, "weight of the decorrelation of what the classifier reads")
    warm_up: int = option(10, "rounds before the first class centres; at most a quarter of the run")

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise BadConfig(f"alpha is {self.alpha}; the smallest factor lies in [0, 1]")
        for name in ("centre_weight", "decorrelation", "warm_up"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")

    @property
    def has_centres(self) -> bool:
        return self.centre_weight > 0

    @property
    def needs_single_replies(self) -> str:
        return "FedLF weighs each client's class centres by their directions" if self.has_centres else ""

    def idle(self) -> dict[str, str]:
        return {} if self.has_centres else {"warm_up": "centre_weight"}

    def sends_centres(self, where: Client[Inputs] | Server) -> bool:
        return self.has_centres and where.round >= min(self.warm_up, where.last_round // 4)

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        params, state, loss = fit(client, model_part(message), state, self._loss(client, message))
        tensors = {**params, **self._centres(client, params)} if self.sends_centres(client) else params
        return reply(client, tensors, loss=loss), {**state, **params}

    def factors(self, counts: Tensor) -> Tensor:
        """a_k^c of a client's training counts, [C]: 1 for its largest class, alpha for an absent one."""
        return (1 - self.alpha) * counts.to(torch.float32) / counts.max().clamp(min=1) + self.alpha

    def _loss(self, client: Client[Inputs], message: Tensors) -> Objective:
        inputs, factors = client.prepared.of_training, self.factors(class_counts(client.data))
        known = (
            message["centre.known"][inputs.labels] > 0
            if self.has_centres
            else torch.zeros_like(inputs.labels, dtype=torch.bool)
        )
        if self.decorrelation == 0 and not bool(known.any()):
            return scaled_cross_entropy(client, factors)
        target = message["centre"][inputs.labels[known]] if bool(known.any()) else torch.empty(0)
        # As in the authors' second file, a node whose class has no centre counts in the mean, as 0.
        pull, draws = self.centre_weight * float(known.float().mean()), client.draws("dropout")

        def loss(params: Tensors) -> Tensor:
            s = client.model.smooth(params, client.model.encode(params, inputs, draws), inputs, True)
            total = F.cross_entropy(factors * client.model.classify(params, s), inputs.labels)
            if bool(known.any()):
                total = total + pull * (s[known] - target).abs().mean()
            return total + self.decorrelation * correlation(s) if self.decorrelation > 0 else total

        return loss

    def _centres(self, client: Client[Inputs], params: Tensors) -> Tensors:
        """Class means of what the classifier reads, in evaluation mode. Absent classes have zeros."""
        counts = class_counts(client.data)
        sums = class_sums(*client.model.training_rows(params, client.prepared), client.info.num_classes)
        return {"centre": sums / counts.clamp(min=1)[:, None], "count": counts.to(torch.float32)}

    def adaptation(self, client: Client[Inputs], tensors: Tensors) -> tuple[Tensors, Objective]:
        return model_part(tensors), self._loss(client, tensors)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        if not self.has_centres:
            return params
        classes = server.info.num_classes
        empty = torch.zeros(classes, server.model.width)
        return {**params, "centre": empty, "centre.known": torch.zeros(classes)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        new = {**tensors, **average(server.info, model_part(tensors), replies)}
        if self.sends_centres(server):
            sent = [(replies[k].tensors["centre"], replies[k].tensors["count"] > 0) for k in sorted(replies)]
            known = tensors["centre.known"] > 0
            owners = ((f, agreement(tensors["centre"], f, owned, known)) for f, owned in sent)
            new["centre"] = class_mean(tensors["centre"], owners)
            new["centre.known"] = torch.stack([known, *(owned for _, owned in sent)]).any(0).float()
        return new

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        fields = same_fields(model_part(tensors))
        if self.sends_centres(server):
            fields["centre"] = Field(tuple(tensors["centre"].shape), "mean", of="count")
            fields["count"] = Field((server.info.num_classes,), "count")
        return fields

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)


def scaled_cross_entropy(client: Client[Inputs], factors: Tensor) -> Gradient:
    """The mean cross-entropy of the logits times ``factors`` [C]."""

    def error(logits: Tensor) -> tuple[float, Tensor]:
        logits.mul_(factors)
        loss = cross_entropy_(logits, client.prepared.labels)  # logits become the gradient of the scaled ones
        return loss, logits.mul_(factors)

    return through_the_network(client, client.prepared, error)


def agreement(old: Tensor, centre: Tensor, owned: Tensor, known: Tensor) -> Tensor:
    """A client's weight in the centre of each class, [C]: the cosine to the old centre, at least a little.

    It is 1 where there is no old centre, and 0 where the client has no node of the class.
    """
    cosine = F.cosine_similarity(old, centre, dim=1).clamp(min=0) + LEAST
    return torch.where(owned, torch.where(known, cosine, 1.0), 0.0)


def correlation(s: Tensor) -> Tensor:
    """How correlated the columns of s [t, w] are: ‖K‖² / w² - 1 / w, with K their correlations.

    It is 0 where no column says anything of another.
    """
    rows, width = s.shape
    spread = (s.var(0, unbiased=False) + 1e-8).sqrt()
    standard = (s - s.mean(0)) / spread
    between = standard.t() @ standard / rows
    return between.square().sum() / width**2 - 1 / width
