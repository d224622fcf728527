"""FedYoYo: logits carry a log-prior of the classes, and a view of the graph teaches a weaker one.

Yan et al., "You Are Your Own Best Teacher: Achieving Centralized-level Performance in Federated Learning
under Heterogeneous and Long-tailed Data", ICCV 2025, arXiv 2503.06916.
Official code: shanss132/FedYoYo @342686e (no licence; read, not used; two of its modules are missing).
Down: the model, count [C] over all clients.  Up: the model, count [C].
Bytes each way per client: 4 (|Θ| + C).
Ours: the views are views of a graph, not of an image. The prior is made of training counts, not of "effective
numbers" of features, and mixed once. In the first round there is none yet.
The preset "authors_values" has the client's own prior alone, because the released loop mixes it in again at
every batch, so that nothing else is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.parts.views import dropped_view
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
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.kernels import cross_entropy_
from fedepd.network.training import Gradient
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, Tensors, same_fields


@final
@dataclass(frozen=True)
class FedYoYo(Method[Inputs]):
    label: ClassVar[str] = "FedYoYo"
    works_without_rows: ClassVar[bool] = True  # without counts the logits have no shift
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "authors_values": {"own_prior": 1.0, "lam": 4.0, "optimizer_own": True},
    }

    tau: float = option(
        1.5,
        "weight of the log-prior that is added to the logits in the loss; 0 switches it off",
        search=ladder(0.5, 1.0, 1.5, below=0.0, above=2.0),
    )
    own_prior: float = option(0.1, "share of the client's own classes in the prior (gamma); in [0, 1]")
    # Choice: 0.1, mixed once. An absent class then keeps most of its share of all clients, and so stays in
    # the softmax.
    lam: float = option(
        1.5,
        "weight of the distillation from the whole view to the weaker one (lambda); 0 switches it off",
        search=ladder(0.5, 1.5, 4.0, below=0.0),
    )
    temperature: float = option(1.5, "temperature of the distillation")
    warm_up: int = option(
        50, "rounds in which the weight of the distillation grows; at most a quarter of the run"
    )
    drop_edges: float = option(0.2, "share of the edges that the weaker view lacks; in [0, 1)")
    drop_columns: float = option(0.2, "share of the feature columns that the weaker view lacks; in [0, 1)")
    # Choice: columns, not single values, so that sparse features stay as they are and one mask serves all
    # nodes. Edges and columns are drawn once a round: to make a view costs as much as a step.
    optimizer_own: bool = option(False, "clients train by the authors' SGD, rate 0.1")

    def __post_init__(self) -> None:
        for name in ("tau", "lam", "warm_up"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        if not 0 <= self.own_prior <= 1:
            raise BadConfig(f"own_prior is {self.own_prior}; it is a share and lies in [0, 1]")
        if not 0 < self.temperature < float("inf"):
            raise BadConfig(f"temperature is {self.temperature}; give a finite number above 0")
        for name in ("drop_edges", "drop_columns"):
            if not 0 <= getattr(self, name) < 1:
                raise BadConfig(f"{name} is {getattr(self, name)}; it is a share and lies in [0, 1)")

    @property
    def views(self) -> int:
        return 1 if self.lam == self.drop_edges == self.drop_columns == 0 else 2

    def idle(self) -> dict[str, str]:
        idle = {"own_prior": "tau"} if self.tau == 0 else {}
        return {**idle, "temperature": "lam", "warm_up": "lam"} if self.lam == 0 else idle

    def distillation(self, number: int, last_round: int) -> float:
        """The weight of the distillation in a round."""
        return self.lam * min(1.0, number / max(1.0, min(self.warm_up, last_round / 4)))

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        inputs, shift, counts = client.prepared, self._shift(client, message), class_counts(client.data)
        loss = cross_entropy(client, inputs, shift)
        if self.views == 2 and bool(counts.any()):
            weaker = dropped_view(client, inputs, self.drop_edges, self.drop_columns)
            weight = self.distillation(client.round, client.last_round)
            loss = two_views(client, weaker, shift, weight, self.temperature)
        trainer = client.trained_by(optimizer="sgd", lr=0.1) if self.optimizer_own else client
        params, state, mean_loss = fit(trainer, model_part(message), state, loss)
        tensors = {**params, "count": counts.to(torch.float32)}
        return reply(client, tensors, loss=mean_loss), {**state, **params}

    def _shift(self, client: Client[Inputs], message: Tensors) -> Tensor | None:
        """What is added to the logits in the loss, [C]: tau log m."""
        if self.tau == 0:
            return None
        prior = log_prior(message["count"], class_counts(client.data), self.own_prior)
        return None if prior is None else self.tau * prior

    def classifier_reads(
        self, client: Client[Inputs], tensors: Tensors
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return *client.model.training_rows(tensors, client.prepared), self._shift(client, tensors)

    def adaptation(self, client: Client[Inputs], tensors: Tensors) -> tuple[Tensors, Gradient]:
        """The model, by the cross-entropy of the shifted logits. The weaker view is for the rounds alone."""
        return model_part(tensors), cross_entropy(client, client.prepared, self._shift(client, tensors))

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        return {**params, "count": torch.zeros(server.info.num_classes)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        params = average(server.info, model_part(tensors), replies)
        return {**params, "count": summed_counts(tensors["count"], replies)}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return {**same_fields(model_part(tensors)), "count": Field((server.info.num_classes,), "count")}

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)


def two_views(
    client: Client[Inputs], weaker: Inputs, shift: Tensor | None, weight: float, temperature: float
) -> Gradient:
    """Half the cross-entropy of either view, and ``weight`` times the distillation between them.

    The whole graph teaches the weaker view, where it is right. Nothing flows back into the teacher.
    """
    labels, teacher = client.prepared.labels, torch.empty(0)

    def of_whole(logits: Tensor) -> tuple[float, Tensor]:
        nonlocal teacher
        teacher = logits.clone() if shift is None else logits + shift
        return cross_entropy_(logits, labels, shift, 0.5), logits

    def of_weaker(logits: Tensor) -> tuple[float, Tensor]:
        student = logits.clone() if shift is None else logits + shift
        loss = cross_entropy_(logits, labels, shift, 0.5)
        if weight == 0:
            return loss, logits
        taught, grad = distilled(teacher, student, labels, temperature)
        return loss + weight * taught, logits.add_(grad, alpha=weight)

    whole = through_the_network(client, client.prepared, of_whole)
    weak = through_the_network(client, weaker, of_weaker, "dropout of the weaker view")

    def of(params: Tensors) -> tuple[float, Tensors]:
        loss, grads = whole.of(params)
        more, others = weak.of(params)
        return loss + more, {name: value + others[name] for name, value in grads.items()}

    return Gradient(of)


def distilled(teacher: Tensor, student: Tensor, labels: Tensor, temperature: float) -> tuple[float, Tensor]:
    """KL(teacher ‖ student) at a temperature, and its gradient in the student's logits [t, C].

    It is the mean over the rows where the teacher is right, and 0 where it is right nowhere.
    """
    right = teacher.argmax(1) == labels
    grad = torch.zeros_like(student)
    if not bool(right.any()):
        return 0.0, grad
    wanted = (teacher[right] / temperature).log_softmax(1)
    found = (student[right] / temperature).log_softmax(1)
    rows = found.shape[0]
    grad[right] = (found.exp() - wanted.exp()) / (temperature * rows)
    return float((wanted.exp() * (wanted - found)).sum()) / rows, grad
