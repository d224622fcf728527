"""FedTAD: the server distils the clients into the global classifier, each class from those reliable for it.

Zhu et al., "FedTAD: Topology-aware Data-free Knowledge Distillation for Subgraph Federated Learning", IJCAI
2024, arXiv 2404.14061. Official code: zyl24/FedTAD @3285d54 (no licence; read, not used). Its main program
does not parse, so there is no preset of it. OpenFGL has a copy.
Down: the model.  Up: the model, reliability [C].
Bytes per client: down 4 |Θ|, up 4 (|Θ| + C).
A generator at the server makes pseudo nodes of every class. Ours makes rows of the hidden layer, not of the
features, and so only the classifier is distilled. The authors' program can do either. Features of thousands
of columns would cost several rounds of training.
Ours: the structure code is the walk's return probabilities. The authors' is drawn at random, node numbers
among it, so that their reliability is a class's training nodes times noise (preset "released_counts").
The server's optimisers have no weight decay, and the generator no dropout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.parts.reliability import reliability
from fedepd.methods.steps import (
    average,
    class_counts,
    cross_entropy,
    fit,
    model_part,
    renamed,
    reply,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs, classify, glorot
from fedepd.network.training import Loss, Training, descend
from fedepd.options import ladder, option
from fedepd.types import HIDDEN, ClientData, Field, Fields, Graph, Reply, Tensors, same_fields

FEWEST = 100
"""Pseudo nodes of a server epoch, or two of each class where that is more."""
NOISE = 32
WIDTHS = (64, 128, 256)
"""Units of the generator's layers."""
LINKS = 5
"""A pseudo node's links: to those most like it, itself among them, as in the authors' code."""
GENERATOR, OF_GENERATOR, OF_STUDENT = "generator.", "moments.generator.", "moments.student."
"""What the server keeps beside the model: the generator, and the moments of both optimisers."""
STUDENT = ["classifier.bias", "classifier.weight"]


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    reliability: Tensor
    """φ, float32 [C]."""


@final
@dataclass(frozen=True)
class FedTAD(Method[Prepared]):
    label: ClassVar[str] = "FedTAD"
    weighs_edges: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "released_counts": {"reliable_by": "counts"},
    }

    server_epochs: int = option(
        5,
        "pseudo graphs per round that the server distils on; 0 is FedAvg",
        search=ladder(2, 5, 10, below=1, above=20),
    )
    generator_steps: int = option(1, "steps of the generator on a pseudo graph")
    student_steps: int = option(5, "steps of the global classifier on a pseudo graph")
    generator_lr: float = option(1e-3, "learning rate of the generator")
    student_lr: float = option(
        1e-3,
        "learning rate of the distillation",
        search=ladder(3e-4, 1e-3, 3e-3, below=1e-4, above=1e-2),
    )
    semantic: float = option(1.0, "weight of the teachers' cross-entropy in the generator's loss (lambda 1)")
    diverse: float = option(1.0, "weight of the pseudo nodes' likeness in the generator's loss (lambda 2)")
    reliable_by: Literal["walk", "counts"] = option(
        "walk",
        "a client's weight in a class: likeness of its training nodes to their neighbours, in features and "
        "return probabilities of a walk, or their number",
    )
    distance: Literal["l1", "l2"] = option(
        "l1", "of teachers' and student's logits: absolute, as by the authors, or squared"
    )

    def __post_init__(self) -> None:
        for name in ("server_epochs", "generator_steps", "student_steps", "semantic", "diverse"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        for name in ("generator_lr", "student_lr"):
            if not 0 < getattr(self, name) < float("inf"):
                raise BadConfig(
                    f"{name} is {getattr(self, name)}; a learning rate must be positive and finite"
                )

    def idle(self) -> Mapping[str, str]:
        if self.server_epochs:
            return {}
        names = ("generator_steps", "student_steps", "generator_lr", "student_lr")
        return dict.fromkeys((*names, "semantic", "diverse", "reliable_by", "distance"), "server_epochs")

    @property
    def needs_single_replies(self) -> str:
        return "FedTAD weighs the clients' single models in each class"

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        found = class_counts(data).to(torch.float32) if self.reliable_by == "counts" else reliability(data)
        return Prepared(model.inputs(data), found)

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        loss = cross_entropy(client, client.prepared.inputs)
        params, state, mean = fit(client, model_part(message), state, loss)
        # Choice: sent in every round, not in the first alone. Clients may join later, and C numbers are few.
        sent = {**params, "reliability": client.prepared.reliability}
        return reply(client, sent, loss=mean), {**state, **params}

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        classes, draws = server.info.num_classes, server.torch_draws("generator")
        widths = (NOISE + classes, *WIDTHS, server.model.hidden)
        made = {f"{GENERATOR}class": torch.randn(classes, classes, generator=draws)}
        for place, (rows, columns) in enumerate(pairwise(widths), start=1):
            made[f"{GENERATOR}layer{place}.weight"] = glorot(rows, columns, draws)
            made[f"{GENERATOR}layer{place}.bias"] = torch.zeros(columns)
        return {**params, **made}

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        return model_part(tensors)

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        held = {**tensors, **average(server.info, model_part(tensors), replies)}
        ordered = [replies[k] for k in sorted(replies)]
        shares = reliance(torch.stack([r.tensors["reliability"] for r in ordered]))  # [K, C]
        if not bool((shares > 0).any()):
            return held
        teachers = [model_part(r.tensors) for r in ordered]
        draws = server.torch_draws("noise")
        for _ in range(self.server_epochs):
            held = self._epoch(server.model, held, teachers, shares, draws)
        return held

    def _epoch(
        self, model: Backbone, held: Tensors, teachers: list[Tensors], shares: Tensor, draws: torch.Generator
    ) -> Tensors:
        """One pseudo graph: the generator learns where teachers and student differ, then the student."""
        labels = dealt((shares.sum(0) > 0).nonzero().reshape(-1))  # [m]
        noise = torch.randn(len(labels), NOISE, generator=draws)
        weights = node_weights(shares, labels)  # [K, m]
        maker = with_prefix(held, GENERATOR)
        loss = self._generator_loss(model, model_part(held), teachers, weights, noise, labels)
        how = Training(optimizer="adam", lr=self.generator_lr, weight_decay=0.0)
        maker, moments, _ = descend(
            maker, sorted(maker), loss, self.generator_steps, how, renamed(held, OF_GENERATOR, "")
        )
        held = {**held, **maker, **renamed(moments, "", OF_GENERATOR)}
        with torch.no_grad():
            rows = generated(maker, noise, labels)
        return self._distil(model, held, teachers, rows, weights)

    def _generator_loss(
        self,
        model: Backbone,
        student: Tensors,
        teachers: list[Tensors],
        weights: Tensor,
        noise: Tensor,
        labels: Tensor,
    ) -> Loss:
        """The teachers' cross-entropy, less their distance to the student, and the likeness of the nodes."""

        def loss(params: Tensors) -> Tensor:
            rows = generated(params, noise, labels)
            inputs = pseudo_graph(model, rows.detach(), len(student["classifier.bias"]))
            taught = torch.stack([read(model, each, rows, inputs) for each in teachers])  # [K, m, C]
            apart = self._apart(read(model, student, rows, inputs), taught.detach(), weights)
            wrong = F.cross_entropy(taught.flatten(0, 1), labels.repeat(len(teachers)), reduction="none")
            known = self.semantic * (weights.reshape(-1) * wrong).sum()
            return known - apart + self.diverse * len(teachers) * likeness(noise, rows)

        return loss

    def _distil(
        self, model: Backbone, held: Tensors, teachers: list[Tensors], rows: Tensor, weights: Tensor
    ) -> Tensors:
        """Steps of the global classifier towards the teachers on fixed pseudo nodes [m, h]."""
        student = model_part(held)
        with torch.no_grad():
            inputs = pseudo_graph(model, rows, len(student["classifier.bias"]))
            taught = torch.stack([read(model, each, rows, inputs) for each in teachers])  # [K, m, C]
            seen = model.smooth(student, rows, inputs)  # [m, w]

        def loss(params: Tensors) -> Tensor:
            return self._apart(classify(params, seen), taught, weights)

        how = Training(optimizer="adam", lr=self.student_lr, weight_decay=0.0)
        student, moments, _ = descend(
            student, STUDENT, loss, self.student_steps, how, renamed(held, OF_STUDENT, "")
        )
        return {**held, **student, **renamed(moments, "", OF_STUDENT)}

    def _apart(self, logits: Tensor, taught: Tensor, weights: Tensor) -> Tensor:
        """Σ_k Σ_c β_k^c times the mean distance of student [m, C] and teacher [K, m, C] over nodes of c."""
        gap = logits - taught
        gaps = gap.abs() if self.distance == "l1" else gap.square()
        return (weights * gaps.mean(2)).sum()

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        about = {"reliability": Field((server.info.num_classes,), classes=0)}
        return {**same_fields(model_part(tensors)), **about}

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared.inputs)


def reliance(phi: Tensor) -> Tensor:
    """β: each class's reliabilities [K, C] as shares over the clients. A class that nobody has gets 0.

    Choice: over the clients, as the authors have it. OpenFGL divides by a client's sum over its classes.
    """
    phi = phi.clamp(min=0)
    total = phi.sum(0)
    return torch.where(total > 0, phi / total.clamp(min=torch.finfo(phi.dtype).tiny), 0.0)


def dealt(classes: Tensor, fewest: int = FEWEST) -> Tensor:
    """The pseudo nodes' classes, dealt in turn, two of each class or more: [m].

    Choice: the authors give the rest of 100 / C to the last class, and nothing to others beyond 100 classes.
    """
    return classes[torch.arange(max(fewest, 2 * len(classes))) % len(classes)]


def node_weights(shares: Tensor, labels: Tensor) -> Tensor:
    """β of each client in each pseudo node's class, over the number of the class's nodes: [K, m]."""
    return shares[:, labels] / torch.bincount(labels, minlength=shares.shape[1])[labels]


def generated(params: Tensors, noise: Tensor, labels: Tensor) -> Tensor:
    """Rows of the hidden layer, [m, h]: the generator of noise [m, 32] and classes [m]."""
    rows = torch.cat([noise, params[f"{GENERATOR}class"][labels]], dim=1)
    last = len(WIDTHS) + 1
    for place in range(1, last + 1):
        name = f"{GENERATOR}layer{place}"
        rows = torch.addmm(params[f"{name}.bias"], rows, params[f"{name}.weight"])
        rows = rows if place == last else torch.tanh(rows)
    return rows


def pseudo_graph(model: Backbone, rows: Tensor, classes: int) -> Inputs:
    """The pseudo nodes' graph, each linked to those most like it by cosine. Its features are never read."""
    directions = F.normalize(rows, dim=1)
    count = len(rows)
    nearest = (directions @ directions.t()).topk(min(LINKS, count), dim=1).indices  # [m, 5]
    links = torch.stack([torch.arange(count).repeat_interleave(nearest.shape[1]), nearest.reshape(-1)])
    none, labels = torch.zeros(count, dtype=torch.bool), torch.full((count,), HIDDEN)
    graph = Graph.make(torch.zeros(count, 1), links, labels, classes, part=True)
    return model.inputs(ClientData(0, graph, none, none, none, torch.arange(count)))


def read(model: Backbone, params: Tensors, rows: Tensor, inputs: Inputs) -> Tensor:
    """The logits of hidden rows, [m, C]."""
    return classify(params, model.smooth(params, rows, inputs))


def likeness(noise: Tensor, rows: Tensor) -> Tensor:
    """exp of the mean over all pairs of -|z_i - z_j|² / 32 · |g_i - g_j|₁ / h; 1 where all rows are alike."""
    of_noise = torch.cdist(noise, noise).square() / NOISE
    of_rows = torch.cdist(rows, rows, p=1) / rows.shape[1]
    return torch.exp((-of_noise * of_rows).mean())
