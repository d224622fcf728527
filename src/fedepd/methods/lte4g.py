"""LTE4G, federated: experts for classes and degrees on a frozen encoder teach two students, and class
prototypes say which of them answers.

Yun et al., "LTE4G: Long-Tail Experts for Graph Neural Networks", CIKM 2022, arXiv 2208.10205. Official code:
SukwonYun/LTE4G @cd17498 (no licence; read, not used). It is centralised; the federation is ours.
Down: the model, class.count [C], stage [1], and weight [w, C] and bias [C] of high, low and student,
prototype.mean [C, w], prototype.count [C].
Up in stage one: the model, class.count [C]. In stage two: high, in its second half low, and part [C]. In
stage three: student, part [C]. In the first round after stage one and in the last: prototype.mean [C, w] and
prototype.count [C].
Bytes per client: down 4 (|Θ| + 4w·C + 5C + 1); up in stage one 4 (|Θ| + C), later 4 (w·C + 2C), and 4 (w·C +
C) more with prototypes.
Ours: classes are ranked by training nodes alone. The experts of head and of tail classes are columns of one
matrix, and so are the students. They are linear on what the classifier reads, start from the classifier, and
are averaged over the clients that train them. Each stage has a fixed number of rounds. Prototypes are filled
up with neighbours only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.graphsmote import present_average
from fedepd.methods.parts.groups import (
    curriculum,
    distance,
    group_loss,
    head_classes,
    head_logits,
    mixed,
    nearest_class,
    routed,
    similarity,
)
from fedepd.methods.steps import (
    average,
    class_counts,
    class_mean,
    class_sums,
    cross_entropy,
    fit,
    model_part,
    of_logits,
    renamed,
    reply,
    summed_counts,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.sparse import adjacency
from fedepd.network.training import Objective
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, TaskInfo, Tensors, same_fields

HEADS = ("high", "low", "student")
PROTOTYPES = ("prototype.mean", "prototype.count")


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    adj: sp.csr_matrix
    """A, 0/1, [n, n]."""
    high: Tensor
    """bool [t]: which training nodes have a high degree."""
    counts: Tensor
    """Training nodes per class, int64 [C]."""


@final
@dataclass(frozen=True)
class LTE4G(Method[Prepared]):
    label: ClassVar[str] = "LTE4G"
    reads_float16: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}

    experts: float = option(
        0.2, "share of the rounds that train experts", search=ladder(0.1, 0.2, 0.3, below=0.05, above=0.4)
    )
    students: float = option(
        0.2,
        "share of the rounds that train students, at least one round of two or more; 0: stage one alone",
        search=ladder(0.1, 0.2, 0.3, below=0.05, above=0.4),
    )
    degree: int = option(
        5, "a node with at least so many neighbours has a high degree", search=ladder(3, 5, 10, above=20)
    )
    class_weight: bool = option(
        True, "weigh a node in stage one by 1 / training nodes of its class at all clients"
    )
    gamma: float = option(
        1.0, "power of the focal factor in stage one; 0: none", search=ladder(0.0, 1.0, 2.0)
    )
    alpha: float = option(0.6, "factor of the loss in stage one without class_weight")
    focal: Literal["scalar", "node"] = option(
        "scalar", "one focal factor for all nodes, as in the authors' code, or one for each node"
    )
    fill: bool = option(True, "prototypes of small classes also have neighbours of their nodes")
    route: Literal["hard", "soft"] = option(
        "hard", "the student of the nearest prototype's group answers, or both, weighed by similarity"
    )

    def __post_init__(self) -> None:
        if self.experts < 0 or self.students < 0 or not self.experts + self.students < 1:
            raise BadConfig(
                f"experts is {self.experts} and students is {self.students}; "
                "give shares of 0 or more, whose sum is below 1"
            )
        if self.degree < 0:
            raise BadConfig(f"degree is {self.degree}; give 0 or more")
        for name, least in (("gamma", 0), ("alpha", 1e-6)):
            if not least <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, at least {least:g}")

    def idle(self) -> Mapping[str, str]:
        idle = {"alpha": "class_weight"} if self.class_weight else {}
        idle |= {"focal": "gamma"} if self.gamma == 0 else {}
        if self.students > 0:
            return idle
        return idle | {name: "students" for name in ("experts", "degree", "fill", "route")}

    # --- stages

    def stages(self, last_round: int) -> tuple[int, int, int]:
        """The rounds of stage one, of the first half of stage two, and of stage two."""
        if self.students == 0 or last_round < 2:
            return last_round, 0, 0
        third = min(max(1, round(self.students * last_round)), last_round - 1)
        second = min(round(self.experts * last_round), last_round - third - 1)
        return last_round - second - third, (second + 1) // 2, second

    def head_of(self, number: int, last_round: int) -> str | None:
        """What a round trains: "high", "low" or "student"; None in stage one."""
        first, half, second = self.stages(last_round)
        if number <= first:
            return None
        return "high" if number <= first + half else "low" if number <= first + second else "student"

    def makes_prototypes(self, number: int, last_round: int) -> bool:
        first, _, _ = self.stages(last_round)
        return number > first and number in (first + 1, last_round)

    def complete_from(self, last_round: int) -> int:
        first, _, second = self.stages(last_round)
        return min(first + second + 1, last_round)

    # --- at a client

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        adj = adjacency(data.graph.edge_index, data.graph.num_nodes)
        adj.sort_indices()
        inputs = model.inputs(data)
        high = torch.from_numpy(np.diff(adj.indptr) >= self.degree)[inputs.train]
        return Prepared(inputs, adj, high, class_counts(data))

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        head = self.head_of(client.round, client.last_round)
        if head is not None:
            return self._head_step(client, message, state, head)
        params, state, loss = fit(client, model_part(message), state, self._base_loss(client, message))
        counts = {"class.count": client.prepared.counts.to(torch.float32)}
        return reply(client, {**params, **counts}, loss=loss), {**state, **params}

    def _base_loss(self, client: Client[Prepared], tensors: Tensors) -> Objective:
        inputs, counts = client.prepared.inputs, client.prepared.counts
        if not self.class_weight and self.gamma == 0 and self.alpha == 1:
            return cross_entropy(client, inputs)
        # Choice: in the first round nobody knows the sums, and under the guard some stay hidden. A client's
        # own number is then the least that there are.
        known = torch.maximum(tensors["class.count"], counts.to(torch.float32)).clamp(min=1)
        weight = 1 / known if self.class_weight else None

        def criterion(logits: Tensor, labels: Tensor) -> Tensor:
            return self.focal_loss(logits, labels, weight)

        return of_logits(client, inputs, criterion)

    def focal_loss(self, logits: Tensor, labels: Tensor, weight: Tensor | None) -> Tensor:
        """(1 - e^-CE)^gamma times the cross-entropy, weighted by class, or alpha times the plain one.

        Choice: the authors' factor is one number for all nodes, of the plain mean. "node" is what focal loss
        means elsewhere.
        """
        each = F.cross_entropy(logits, labels, reduction="none")
        share = torch.full_like(each, 1 / max(len(each), 1))
        if weight is not None:
            share = weight[labels] / weight[labels].sum()
        seen = (each * (1 / max(len(each), 1))).sum() if self.focal == "scalar" else each
        factor = (-torch.expm1(-seen)).clamp(min=1e-12) ** self.gamma if self.gamma > 0 else 1.0
        return (1.0 if weight is not None else self.alpha) * (factor * share * each).sum()

    def _head_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors, head: str
    ) -> tuple[Reply, Tensors]:
        """Stages two and three. The averaged model is frozen."""
        prepared = client.prepared
        rows, labels = client.model.training_rows(message, prepared.inputs)
        groups = head_classes(message["class.count"])
        used = {"high": prepared.high, "low": ~prepared.high}.get(head, torch.ones_like(prepared.high))
        loss_of = (
            self._student_loss(client, message, rows, groups)
            if head == "student"
            else lambda params: group_loss(params, head, rows[used], labels[used], groups)
        )
        params, loss = with_prefix(message, f"{head}."), float("nan")
        if bool(used.any()):
            params, state, loss = fit(client, params, state, loss_of, stage=head)
        in_head = int(groups[labels[used]].sum())
        part = torch.where(groups, float(in_head), float(int(used.sum()) - in_head))
        sent = {**params, "part": part}
        if self.makes_prototypes(client.round, client.last_round):
            sent |= self._prototypes(client, message)
        kept = {name: value for name, value in state.items() if name not in message}
        return reply(client, sent, loss=loss), {**kept, **params}

    def _student_loss(
        self, client: Client[Prepared], message: Tensors, rows: Tensor, groups: Tensor
    ) -> Objective:
        """Cross-entropy, and the distance to what both experts say of the nodes of their degree."""
        labels, high = client.prepared.inputs.labels, client.prepared.high
        first, _, second = self.stages(client.last_round)
        before, epochs = first + second, client.training.epochs
        steps, done = (client.last_round - before) * epochs, (client.round - before - 1) * epochs
        numbers = iter(range(done, done + epochs))

        def loss(params: Tensors) -> Tensor:
            total = group_loss(params, "student", rows, labels, groups)
            ease = curriculum(next(numbers), steps)
            for teacher, who, weight in (("high", high, ease), ("low", ~high, 1 - ease)):
                taught = distance(message, teacher, params, rows[who], labels[who], groups)
                total = total + weight * taught
            return total

        return loss

    def _prototypes(self, client: Client[Prepared], message: Tensors) -> Tensors:
        """The mean of what the classifier reads of each class's training nodes, and their number.

        Classes below the local average also have those neighbours of their nodes that the model of stage one
        rates highest.
        """
        prepared, model = client.prepared, client.model
        with torch.no_grad():
            rows = model.smooth(message, model.encode(message, prepared.inputs), prepared.inputs)  # [n, w]
        labels, train = prepared.inputs.labels, prepared.inputs.train
        nodes, classes = train, labels
        if self.fill:
            likely = model.classify(message, rows).softmax(1)
            more = filled_up(prepared, int(present_average(client.data)), likely)
            nodes, classes = torch.cat([train, more[0]]), torch.cat([labels, more[1]])
        size = torch.bincount(classes, minlength=client.info.num_classes).clamp(min=1)[:, None]
        mean = class_sums(rows[nodes], classes, client.info.num_classes) / size
        return dict(zip(PROTOTYPES, (mean, prepared.counts.to(torch.float32)), strict=True))

    def adaptation(self, client: Client[Prepared], tensors: Tensors) -> tuple[Tensors, Objective]:
        """The students, by their cross-entropy; before there are any, the model, by that of stage one."""
        if float(tensors["stage"]) < 3:
            return model_part(tensors), self._base_loss(client, tensors)
        rows, labels = client.model.training_rows(tensors, client.prepared.inputs)
        groups = head_classes(tensors["class.count"])
        return with_prefix(tensors, "student."), lambda params: group_loss(
            params, "student", rows, labels, groups
        )

    # --- at the server

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        classes = server.info.num_classes
        heads: Tensors = {}
        for name in HEADS:
            heads |= renamed(params, "classifier.", f"{name}.")
        return {
            **params,
            **heads,
            "class.count": torch.zeros(classes),
            "stage": torch.ones(1),
            "prototype.mean": torch.zeros(classes, server.model.width),
            "prototype.count": torch.zeros(classes),
        }

    def weights(self, info: TaskInfo, fields: Fields, reply: Reply) -> Tensors:
        by_size = super().weights(info, fields, reply)
        return {
            name: reply.tensors["part"] if fields[name].factors is not None else weight
            for name, weight in by_size.items()
        }

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        ordered, head = [replies[k] for k in sorted(replies)], self.head_of(server.round, server.last_round)
        out = dict(tensors)
        if head is None:
            out |= average(server.info, model_part(tensors), replies)
            out["class.count"] = summed_counts(tensors["class.count"], replies, "class.count")
            for name in HEADS:
                # Choice: experts and students start from the classifier, not at random. They have tens of
                # steps here, where the authors' have a thousand.
                out |= renamed(out, "classifier.", f"{name}.")
        else:
            for name in with_prefix(tensors, f"{head}."):
                columns = [(r.tensors[name].movedim(-1, 0), r.tensors["part"]) for r in ordered]
                out[name] = class_mean(tensors[name].movedim(-1, 0), columns).movedim(0, -1).contiguous()
            if head == "high":
                out |= renamed(out, "high.", "low.")
        if self.makes_prototypes(server.round, server.last_round):
            means = [tuple(r.tensors[name] for name in PROTOTYPES) for r in ordered]
            out["prototype.mean"] = class_mean(tensors["prototype.mean"], means)  # type: ignore[arg-type]
            counted = torch.stack([count for _, count in means]).sum(0)
            out["prototype.count"] = torch.where(counted > 0, counted, tensors["prototype.count"])
        out["stage"] = torch.full((1,), {None: 1.0, "student": 3.0}.get(head, 2.0))
        return out

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        classes, head = server.info.num_classes, self.head_of(server.round, server.last_round)
        if head is None:
            return {**same_fields(model_part(tensors)), "class.count": Field((classes,), "count")}
        fields: dict[str, Field] = {"part": Field((classes,), "weight", classes=0)}
        for name, value in with_prefix(tensors, f"{head}.").items():
            fields[name] = Field(tuple(value.shape), classes=value.ndim - 1, factors=(1.0,) * classes)
        if self.makes_prototypes(server.round, server.last_round):
            mean = Field(tuple(tensors["prototype.mean"].shape), "mean", of="prototype.count")
            fields |= {"prototype.mean": mean, "prototype.count": Field((classes,), "count")}
        return fields

    # --- inference

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        inputs, known = client.prepared.inputs, tensors["prototype.count"] > 0
        if float(tensors["stage"]) < 3 or not bool(known.any()):
            return client.model.predict(tensors, inputs)
        with torch.no_grad():
            rows = client.model.smooth(tensors, client.model.encode(tensors, inputs), inputs)
            logits = head_logits(tensors, "student", rows)
        near = similarity(rows, tensors["prototype.mean"], known)
        groups = head_classes(tensors["class.count"])
        if self.route == "soft":
            return mixed(logits, near, groups)
        return routed(logits, groups[nearest_class(near, tensors["class.count"])], groups)


def filled_up(prepared: Prepared, wanted: int, likely: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes without a label that classes below ``wanted`` are filled up with, and the classes: int64 each.

    Choice: exactly up to the average. The authors compare with the number of all nodes found so far.
    """
    adj, labels, train = prepared.adj, prepared.inputs.labels, prepared.inputs.train
    unlabelled = torch.ones(adj.shape[0], dtype=torch.bool).index_fill(0, train, False)
    nodes, classes = [train[:0]], [labels[:0]]
    small = ((prepared.counts > 0) & (prepared.counts < wanted)).nonzero().reshape(-1)
    for each in small.tolist():
        near = np.unique(adj[train[labels == each].numpy()].indices).astype(np.int64)
        candidates = torch.from_numpy(near)
        candidates = candidates[unlabelled[candidates]]
        order = torch.argsort(likely[candidates, each], descending=True, stable=True)
        chosen = candidates[order[: wanted - int(prepared.counts[each])]]
        nodes.append(chosen)
        classes.append(torch.full_like(chosen, each))
    return torch.cat(nodes), torch.cat(classes)
