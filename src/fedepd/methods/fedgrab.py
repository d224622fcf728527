"""Fed-GraB: for each class a controller balances what pushes its logit up and what pushes it down.

Xiao et al., "Fed-GraB: Federated Long-tailed Learning with Self-Adjusting Gradient Balancer", NeurIPS 2023,
arXiv 2310.07587.
Official code: ZackZikaiXiao/FedGraB @7394da6 (no licence; read, not used). It never trains its classifier, so
there is no preset with the authors' values.
Down: the model; with control = "counts" also count [C] over all clients.  Up: the model, and its own count.
Bytes each way per client: 4 (|Θ| + C), or 4 |Θ| without counts. The controllers stay at the client.
Ours: the classifier is trained. Controlled are the rare classes by counts, not a fixed list from which a
random rule takes some out. The output of a controller is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import (
    average,
    class_counts,
    fit,
    model_part,
    renamed,
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

MEMORY = ("up", "down", "error", "sum")
"""What a controller remembers of each class: pushes so far, its last error, and the sum of its errors."""


@final
@dataclass(frozen=True)
class FedGraB(Method[Inputs]):
    label: ClassVar[str] = "Fed-GraB"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    works_without_rows: ClassVar[bool] = True  # without counts no class is controlled
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}, "all_classes": {"control": "all"}}

    gain: float = option(
        10.0,
        "how strongly a controller answers to its error (Kp); with the next two at 0 nothing is controlled",
        search=ladder(1.0, 10.0, 100.0, below=0.0),
    )
    sum_gain: float = option(0.01, "the same for the sum of its errors (Ki)")
    change_gain: float = option(0.1, "the same for the change of its error (Kd)")
    most: float = option(
        10.0,
        "largest output of a controller, either way; 10 keeps the factors in [0.0075, 9.43]",
        search=ladder(2.0, 4.0, 10.0, below=1.0),
    )
    # Choice: 10. The released program means 100 and bounds nothing, because its bound sets a local name.
    memory: float = option(1.0, "how much of past pushes a step keeps; in (0, 1]")
    control: Literal["counts", "norms", "all"] = option(
        "counts",
        "controlled classes: all but the most frequent that make up half of the training nodes; those whose "
        "column of the classifier is shorter than the median; or all",
    )
    # Choice: counts. The paper's analyser of the prior is not in its program, which controls all classes.
    absent: Literal["controlled", "plain"] = option(
        "controlled", "a class without a local training node: nearly free at that client, or pushed down"
    )
    form: Literal["bce", "ce"] = option("bce", "one against all for each class, or cross-entropy")

    def __post_init__(self) -> None:
        for name in ("gain", "sum_gain", "change_gain", "most"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        if not 0 < self.memory <= 1:
            raise BadConfig(f"memory is {self.memory}; it must lie in (0, 1]")

    @property
    def counts_classes(self) -> bool:
        return self.control == "counts"

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        classes, counts = client.info.num_classes, class_counts(client.data)
        balancer = Balancer(self, self._controlled(message, counts), classes, renamed(state, "grab.", ""))
        params, state, loss = fit(client, model_part(message), state, self._loss(client, balancer))
        tensors = {**params, "count": counts.to(torch.float32)} if self.counts_classes else params
        return reply(client, tensors, loss=loss), {**state, **params, **renamed(balancer.known, "", "grab.")}

    def _controlled(self, message: Tensors, counts: Tensor) -> Tensor:
        """Which classes have a controller, bool [C]."""
        chosen = torch.ones(counts.shape, dtype=torch.bool)
        if self.control == "counts":
            chosen = beyond_half(message["count"])
        elif self.control == "norms":
            lengths = message["classifier.weight"].norm(dim=0)
            chosen = lengths < lengths.median()
        return chosen & (counts > 0) if self.absent == "plain" else chosen

    def _loss(self, client: Client[Inputs], balancer: Balancer | None) -> Gradient:
        labels = client.prepared.labels

        def error(logits: Tensor) -> tuple[float, Tensor]:
            true = F.one_hot(labels, logits.shape[1]).to(logits.dtype)
            loss, grad = plain_error(self.form, logits, labels, true)
            return loss, grad if balancer is None else balancer.balanced(grad, true)

        return through_the_network(client, client.prepared, error)

    def adaptation(self, client: Client[Inputs], tensors: Tensors) -> tuple[Tensors, Gradient]:
        """The model, by its loss without controllers, which remember the rounds."""
        return model_part(tensors), self._loss(client, None)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        return {**params, "count": torch.zeros(server.info.num_classes)} if self.counts_classes else params

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        params = average(server.info, model_part(tensors), replies)
        if not self.counts_classes:
            return params
        return {**params, "count": summed_counts(tensors["count"], replies)}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        count = {"count": Field((server.info.num_classes,), "count")} if self.counts_classes else {}
        return {**same_fields(model_part(tensors)), **count}

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared)


@dataclass(eq=False)
class Balancer:
    """The controllers of one client in one round. Those of other classes remember nothing."""

    method: FedGraB
    controlled: Tensor
    classes: int
    known: Tensors = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known = {name: self.known.get(name, torch.zeros(self.classes)).clone() for name in MEMORY}

    def factors(self) -> tuple[Tensor, Tensor]:
        """What the pushes up and down of each class are multiplied by, [C] each."""
        method, known = self.method, self.known
        error = known["down"] - known["up"]
        change, known["error"] = error - known["error"], error
        known["sum"] = known["sum"] + error
        out = method.gain * error + method.sum_gain * known["sum"] + method.change_gain * change
        out = torch.where(self.controlled, out, 0.0).clamp(-method.most, method.most)
        return factor_of(out), factor_of(-out)

    def balanced(self, grad: Tensor, true: Tensor) -> Tensor:
        """The gradient in the logits [t, C] times the factors, which the controllers also learn from."""
        up, down = self.factors()
        grad = grad * torch.where(true > 0, up, down)
        pushes = grad.abs()
        raised = (pushes * true).sum(0)
        for name, push in (("up", raised), ("down", pushes.sum(0) - raised)):
            self.known[name] = self.method.memory * self.known[name] + torch.where(self.controlled, push, 0.0)
        return grad


def plain_error(form: str, logits: Tensor, labels: Tensor, true: Tensor) -> tuple[float, Tensor]:
    """The loss of the logits [t, C] and its gradient, before any balance."""
    if form == "ce":
        return cross_entropy_(logits, labels), logits
    rows = max(logits.shape[0], 1)
    loss = F.binary_cross_entropy_with_logits(logits, true, reduction="sum")
    return float(loss) / rows, (logits.sigmoid() - true) / rows


def factor_of(out: Tensor) -> Tensor:
    """(10/9) / (1/9 + e^(-x/2)): 1 at 0, up to 10 above and down to 0 below it."""
    return ((10 / 9) / (1 / 9 + torch.exp(-0.5 * out.to(torch.float64)))).to(out.dtype)


def beyond_half(counts: Tensor) -> Tensor:
    """The classes beyond the most frequent ones that make up half of all nodes, bool [C]. None before any."""
    total = float(counts.sum())
    order = torch.argsort(counts, descending=True, stable=True)
    before = counts[order].cumsum(0) - counts[order]
    return torch.zeros(counts.shape, dtype=torch.bool).index_copy(
        0, order, (before >= total / 2) & (total > 0)
    )
