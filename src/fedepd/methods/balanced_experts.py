"""Global Balanced Experts: several heads on one encoder, all with the prior of the classes in their loss.

In the last rounds each head can be trained mainly by clients whose classes are of its frequency.

Zeng et al., "Global Balanced Experts for Federated Long-Tailed Learning", ICCV 2023.
Official code: Spinozaaa/Federated-Long-tailed-Learning @9944e7a (no licence; read, not used). Its main loop
puts the old model back after every round, so there is no preset with the authors' values.
Down: the model, whose classifier is the first expert, expertI.weight [w, C] and expertI.bias [C] of the
others, count [C] over all clients.  Up: the same, with the client's own count.
Bytes each way per client: 4 (|Θ| + (E - 1) (w + 1) C + C) with E experts.
Ours: the prior is made of training counts. The authors infer it from the first update of the classifier. A
gradient of the bias shows the same counts (docs/reading-the-rivals.md), and Adam's update shows none.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server, weight_of
from fedepd.methods.steps import (
    average,
    class_counts,
    cross_entropy,
    fit,
    log_prior,
    model_part,
    reply,
    summed_counts,
    through_the_network,
    weighted_mean,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs, glorot
from fedepd.network.kernels import cross_entropy_
from fedepd.network.training import Gradient
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, Tensors, same_fields

PARTS = ("weight", "bias")


@final
@dataclass(frozen=True)
class BalancedExperts(Method[Inputs]):
    label: ClassVar[str] = "Balanced Experts"
    revision: ClassVar[int] = 2  # before, frozen experts moved the encoder in another one's turn
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    works_without_rows: ClassVar[bool] = True  # without counts the logits have no shift, and clients no order
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "expert_phase": {"expert_phase": 0.4},
    }

    experts: int = option(3, "heads whose mean predicts (E)")
    prior_weight: float = option(
        1.0,
        "weight of the log-prior that is added to the logits in the loss; 0 switches it off",
        search=ladder(0.5, 1.0, 1.5, below=0.0, above=2.0),
    )
    expert_phase: float = option(
        0.0,
        "share of the rounds, at the end, in which the experts take turns",
        search=ladder(0.0, 0.2, 0.4, above=0.6),
    )
    # Choice: none by default. The authors have 20 of 100 clients in a round, which they choose by their
    # classes. Where all clients take part there is no one to choose.
    group_weight: float = option(
        0.8, "in an expert's turn, weight of the clients whose classes are of its frequency (beta); in [0, 1]"
    )

    def __post_init__(self) -> None:
        if not 1 <= self.experts <= 10:
            raise BadConfig(f"experts is {self.experts}; give 1 to 10")
        if not 0 <= self.prior_weight < float("inf"):
            raise BadConfig(f"prior_weight is {self.prior_weight}; give a finite number, 0 or more")
        if not 0 <= self.expert_phase < 1:
            raise BadConfig(f"expert_phase is {self.expert_phase}; a share of rounds must lie in [0, 1)")
        if not 0 <= self.group_weight <= 1:
            raise BadConfig(f"group_weight is {self.group_weight}; it is a share and lies in [0, 1]")

    @property
    def heads(self) -> list[str]:
        return ["classifier", *(f"expert{number}" for number in range(2, self.experts + 1))]

    @property
    def needs_single_replies(self) -> str:
        if self.expert_phase == 0:
            return ""
        return "Balanced Experts compares the clients' classes in an expert's turn"

    @property
    def averages(self) -> bool:
        """In turns, clients are weighed by more than their size."""
        return self.expert_phase == 0

    def idle(self) -> dict[str, str]:
        return {"group_weight": "expert_phase"} if self.expert_phase == 0 else {}

    def turn(self, where: Client[Inputs] | Server) -> int | None:
        """Whose turn the round is: a number from 0 on, or None before the turns begin."""
        before = where.last_round - round(self.expert_phase * where.last_round)
        return (where.round - before - 1) % self.experts if where.round > before else None

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        params, turn = self._params(message), self.turn(client)
        frozen = () if turn is None else tuple(f"{head}." for head in self.heads if head != self.heads[turn])
        trainable = [name for name in sorted(params) if not name.startswith(frozen)]
        # Choice: every turn has moments of its own, because those of frozen heads would grow old.
        stage = "fit" if turn is None else f"turn{turn}"
        loss = self._loss(client, message, turn)
        params, state, mean_loss = fit(client, params, state, loss, trainable=trainable, stage=stage)
        tensors = {**params, "count": class_counts(client.data).to(torch.float32)}
        return reply(client, tensors, loss=mean_loss), {**state, **params}

    @staticmethod
    def _params(tensors: Tensors) -> Tensors:
        return with_prefix(tensors, "encoder.", "classifier.", "expert")

    def _shift(self, tensors: Tensors) -> Tensor | None:
        """What is added to every expert's logits in the loss, [C]."""
        prior = log_prior(tensors["count"]) if self.prior_weight > 0 else None
        return None if prior is None else self.prior_weight * prior

    def _loss(self, client: Client[Inputs], tensors: Tensors, turn: int | None = None) -> Gradient:
        """Of all experts. In an expert's turn of that one alone, which then weighs as much as all."""
        shift = self._shift(tensors)
        if self.experts == 1:
            return cross_entropy(client, client.prepared, shift)
        if turn is None:
            return of_experts(client, self.heads, shift)
        return of_experts(client, [self.heads[turn]], shift, float(self.experts))

    def classifier_reads(
        self, client: Client[Inputs], tensors: Tensors
    ) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """None of several experts, because the first alone does not predict."""
        if self.experts > 1:
            return None
        return *client.model.training_rows(tensors, client.prepared), self._shift(tensors)

    def adaptation(self, client: Client[Inputs], tensors: Tensors) -> tuple[Tensors, Gradient]:
        return self._params(tensors), self._loss(client, tensors)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        """Every expert starts from weights of its own."""
        draws, classes = server.torch_draws("experts"), server.info.num_classes
        others = {}
        for head in self.heads[1:]:
            others[f"{head}.weight"] = glorot(server.model.width, classes, draws)
            others[f"{head}.bias"] = torch.zeros(classes)
        return {**params, **others, "count": torch.zeros(classes)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        params, count = self._params(tensors), summed_counts(tensors["count"], replies)
        turn = self.turn(server)
        if turn is None:
            params = average(server.info, params, replies)
        else:
            sizes = {k: weight_of(server.info, r) for k, r in replies.items()}
            order = by_frequency(count, {k: r.tensors["count"] for k, r in replies.items()})
            group = set(groups(order, self.experts)[turn])
            params = weighted_mean(params, replies, favoured(sizes, group, self.group_weight))
        return {**params, "count": count}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        fields = same_fields(model_part(tensors))
        for name, value in self._params(tensors).items():
            if name not in fields:
                fields[name] = Field(tuple(value.shape), classes=value.ndim - 1)
        return {**fields, "count": Field((server.info.num_classes,), "count")}

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        """The mean of the experts' logits, which are the logits of their mean."""
        mean = {
            f"classifier.{part}": torch.stack([tensors[f"{head}.{part}"] for head in self.heads]).mean(0)
            for part in PARTS
        }
        return client.model.predict({**tensors, **mean}, client.prepared)


def of_experts(
    client: Client[Inputs], heads: Sequence[str], shift: Tensor | None, weight: float = 1.0
) -> Gradient:
    """The sum of the experts' cross-entropies, times a weight.

    The heads side by side are one classifier of E C columns, so that one pass through the network serves all.
    """
    labels = client.prepared.labels

    def error(logits: Tensor) -> tuple[float, Tensor]:
        blocks = [block.contiguous() for block in logits.chunk(len(heads), 1)]
        loss = sum(cross_entropy_(block, labels, shift, weight) for block in blocks)
        return loss, torch.cat(blocks, 1)

    joined = through_the_network(client, client.prepared, error)

    def of(params: Tensors) -> tuple[float, Tensors]:
        wide = {f"classifier.{part}": torch.cat([params[f"{h}.{part}"] for h in heads], -1) for part in PARTS}
        loss, grads = joined.of({**with_prefix(params, "encoder."), **wide})
        apart = {
            f"{head}.{part}": grad
            for part in PARTS
            for head, grad in zip(heads, grads[f"classifier.{part}"].chunk(len(heads), -1), strict=True)
        }
        return loss, {**with_prefix(grads, "encoder."), **apart}

    return Gradient(of)


def by_frequency(total: Tensor, counts: Mapping[int, Tensor]) -> list[int]:
    """The clients in order, those whose classes are the most frequent of all first: by Σ_c N^c p_k(c)."""
    score = {k: float(total @ held / held.sum().clamp(min=1)) for k, held in counts.items()}
    return sorted(score, key=lambda k: (-score[k], k))


def groups(order: Sequence[int], number: int) -> list[Sequence[int]]:
    """The order cut into so many parts of nearly equal size."""
    cuts = [len(order) * part // number for part in range(number + 1)]
    return [order[a:b] for a, b in itertools.pairwise(cuts)]


def favoured(sizes: Mapping[int, float], group: set[int], share: float) -> dict[int, float]:
    """The clients' weights: a ``share`` for the group and the rest for the others, each by their sizes.

    Where either has no weight, all clients count by their sizes.
    """
    inside = sum(size for k, size in sizes.items() if k in group)
    outside = sum(size for k, size in sizes.items() if k not in group)
    if inside <= 0 or outside <= 0:
        return dict(sizes)
    return {
        k: share * size / inside if k in group else (1 - share) * size / outside for k, size in sizes.items()
    }
