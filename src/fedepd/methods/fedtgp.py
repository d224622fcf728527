"""FedTGP: models stay private, and the server trains the prototypes that they are drawn to, with a margin.

Zhang et al., "FedTGP: Trainable Global Prototypes with Adaptive-Margin-Enhanced Contrastive Learning for Data
and Model Heterogeneity in Federated Learning", AAAI 2024, arXiv 2401.03230.
Official code: TsingZ0/FedTGP; a second form: OpenFGL flcore/fedtgp.
Down: prototype.mean [C, h], prototype.count [C].  Up: the same, of the client.  Bytes each way per client: 4
(C·h + C).
Ours: full-batch steps, at the server 100 (there 1,000 epochs of batches of 10). Clients predict by their own
classifier, as FedProto's do here (there by the nearest prototype: ``predict_by``). Clients start from common
weights. A prototype of a class that nobody has trained is never used. OpenFGL's server also learns from rows
of zeros, for the classes that a client lacks, and divides each mean by all class counts in turn. Ours does
neither.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, final

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.parts.prototypes import (
    Prepared,
    class_prototypes,
    nearest,
    no_prototypes,
    prototype_fields,
    pulled,
)
from fedepd.methods.parts.widths import (
    EQUAL,
    HELP,
    check_widths,
    own_network,
    own_widths,
    with_own_network,
)
from fedepd.methods.steps import fit, own_model, reply, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import descend
from fedepd.options import ladder, option
from fedepd.types import ClientData, Fields, Reply, Tensors

FAR = float("inf")


@final
@dataclass(frozen=True)
class FedTGP(Method[Prepared]):
    label: ClassVar[str] = "FedTGP"
    added: ClassVar[frozenset[str]] = frozenset({"widths"})
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    has_global: ClassVar[bool] = False

    lam: float = option(
        1.0,
        "weight of the penalty at the clients (lambda); 0 is isolated training",
        search=ladder(0.1, 0.3, 1.0, 3.0, below=0.03, above=10.0),
    )
    margin: float = option(
        100.0, "largest margin; below it, the margin is the largest of the distances to the next class"
    )
    server_epochs: int = option(
        100, "steps of the server's training in a round", search=ladder(10, 30, 100, above=300)
    )
    server_lr: float = option(
        0.01, "rate of the server's plain gradient steps", search=ladder(0.003, 0.01, 0.03, 0.1, above=0.3)
    )
    # Choice: 100 full-batch steps instead of 1,000 epochs of batches, because a round must not cost more at
    # the server than at all clients. They are plain gradient steps, as the authors' are. Adam's would carry
    # the prototypes far away from all embeddings: the server's loss falls for ever as they move apart, and
    # the clients' penalty then rises from round to round.
    predict_by: Literal["logits", "prototypes"] = option(
        "logits", "the private classifier, or the nearest prototype of any class (official code)"
    )

    widths: str = option(EQUAL, HELP)

    def __post_init__(self) -> None:
        own_widths(self.widths)
        for name in ("lam", "margin", "server_epochs"):
            if not 0 <= getattr(self, name) < FAR:
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        if not 0 < self.server_lr < FAR:
            raise BadConfig(f"server_lr is {self.server_lr}; it must be positive and finite")

    @property
    def averages(self) -> bool:
        """Prototypes are sent, models are not."""
        return False

    @property
    def needs_single_replies(self) -> str:
        return "FedTGP compares prototypes with those of every single client"

    def network_of(self, model: Backbone, client_id: int, tensors: Tensors) -> Backbone:
        return own_network(self.widths, model, client_id, tensors)

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        return Prepared.of(data, model)

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        client = with_own_network(self.widths, client, state)
        params, state, loss = fit(client, own_model(client, state), state, pulled(client, message, self.lam))
        return reply(client, class_prototypes(client, params), loss=loss), {**state, **params}

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        check_widths(self.widths, server.model)
        return {**no_prototypes(server), **initial_maker(server)}

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        """What makes the prototypes stays at the server."""
        return with_prefix(tensors, "prototype.")

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        ordered = [replies[k].tensors for k in sorted(replies)]
        counts = torch.stack([r["prototype.count"] for r in ordered])  # [K, C]
        means = torch.stack([r["prototype.mean"] for r in ordered])  # [K, C, h]
        rows, classes = means[counts > 0], (counts > 0).nonzero()[:, 1]  # [m, h], [m]
        if rows.shape[0] == 0:
            return tensors
        margin = adaptive_margin(rows, classes, self.margin)
        maker, _, _ = descend(
            with_prefix(tensors, "maker."),
            sorted(with_prefix(tensors, "maker.")),
            lambda params: separation(made(params), rows, classes, margin),
            self.server_epochs,
            replace(server.training, optimizer="sgd", lr=self.server_lr),
            {},
            weight_decay=0.0,
        )
        known = torch.where(counts.sum(0) > 0, counts.sum(0), tensors["prototype.count"])
        with torch.no_grad():
            return {**maker, "prototype.mean": made(maker), "prototype.count": known}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return prototype_fields(server)

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        client = with_own_network(self.widths, client, tensors)
        params = own_model(client, tensors)
        if self.predict_by == "logits":
            return client.model.predict(params, client.prepared.inputs)
        return nearest(client, params, tensors, tensors["prototype.count"] > 0)


def initial_maker(server: Server) -> Tensors:
    """The server's own network: a row for each class, through one hidden layer of as many units.

    Rows are normal numbers; weights and biases are torch's initial ones: within 1 / √h on either side.
    """
    classes, width = server.info.num_classes, server.model.hidden
    draws = server.torch_draws("maker")
    bound: float = width**-0.5

    def even(*shape: int) -> Tensor:
        return (2 * torch.rand(*shape, generator=draws) - 1) * bound

    return {
        "maker.rows": torch.randn(classes, width, generator=draws),
        "maker.first.weight": even(width, width),
        "maker.first.bias": even(width),
        "maker.second.weight": even(width, width),
        "maker.second.bias": even(width),
    }


def made(maker: Tensors) -> Tensor:
    """The prototypes of all classes, [C, h]."""
    middle = (maker["maker.rows"] @ maker["maker.first.weight"] + maker["maker.first.bias"]).relu()
    return middle @ maker["maker.second.weight"] + maker["maker.second.bias"]


def adaptive_margin(rows: Tensor, classes: Tensor, largest: float) -> float:
    """The largest of the classes' distances to the next class, by their mean rows; at most ``largest``."""
    present = sorted(set(classes.tolist()))
    if len(present) < 2:
        return largest
    means = torch.stack([rows[classes == c].mean(0) for c in present])  # [p, h]
    apart = exact_distances(means, means).fill_diagonal_(FAR)
    return min(float(apart.min(1).values.max()), largest)


def separation(prototypes: Tensor, rows: Tensor, classes: Tensor, margin: float) -> Tensor:
    """The cross-entropy of minus the distances [m, C], in which a row's own class is ``margin`` further."""
    distances = exact_distances(rows, prototypes)
    own = F.one_hot(classes, prototypes.shape[0]) * margin
    return F.cross_entropy(-(distances + own), classes)


def exact_distances(a: Tensor, b: Tensor) -> Tensor:
    """Not by products, which would lose digits where rows are close. The gradient at distance 0 is 0."""
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")
