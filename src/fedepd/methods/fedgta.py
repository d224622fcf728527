"""FedGTA: every client receives an average of its own, over the clients whose propagated labels are like its
own.

The average is weighted by smoothing confidence.

Li et al., "FedGTA: Topology-aware Averaging for Federated Graph Learning", PVLDB 17(1), 2023, arXiv
2401.11755.
Official code: xkLi-Allen/FedGTA @f8f6828; a second form: OpenFGL flcore/fedgta (preset "openfgl").
Down: the client's model.  Up: the model, moments [2·M, C] (raw or central alone: M), confidence [1].
Bytes per client: down 4 |Θ|, up 4 (|Θ| + 2·M·C + 1).
Ours: a client always accepts itself. Clients without training nodes have no weight. Where nobody has
confidence, all accepted clients weigh the same.
"""

from __future__ import annotations

import math
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
from fedepd.methods.steps import cross_entropy, fit, model_part, own_mean, own_means, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.sparse import Sparse, inverse_degrees, normalised, weighted_adjacency
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, Tensors, same_fields

Moments = Literal["hybrid", "raw", "central"]


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    spread: Sparse
    """The operator of the label propagation, [n, n]."""
    degrees: Tensor
    """float64 [n], without self-loops."""
    one_hot: Tensor
    """The training nodes' labels, [t, C]."""


@final
@dataclass(frozen=True)
class FedGTA(Method[Prepared]):
    label: ClassVar[str] = "FedGTA"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    has_global: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "openfgl": {"propagation": "openfgl", "score": "trained"},
    }

    epsilon: float = option(
        0.5,
        "cosine of two clients' moments above which they share; 1 is isolated training",
        search=ladder(0.3, 0.5, 0.7, 0.9, below=0.0, above=0.95),
    )
    steps: int = option(5, "steps of label propagation")
    alpha: float = option(
        0.5,
        "share of the neighbours in a step of label propagation; in [0, 1]",
        search=ladder(0.3, 0.5, 0.7, below=0.1, above=0.9),
    )
    temperature: float = option(20.0, "softening of the propagated labels in the confidence")
    orders: int = option(
        10, "orders M of the moments (official: 6 to 20 by dataset)", search=ladder(5, 10, 20, below=2)
    )
    moments: Moments = option("hybrid", "raw moments, central ones, or both")
    propagation: Literal["official", "openfgl"] = option(
        "official",
        "start from one-hot labels at training nodes and soft labels elsewhere (official), "
        "or from soft labels at training nodes alone, and clamp (OpenFGL)",
    )

    score: Literal["aggregated", "trained"] = option(
        "aggregated",
        "a client's own model: the average that the server makes for it (authors), "
        "or its model after its local epochs (OpenFGL)",
    )

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise BadConfig(f"alpha is {self.alpha}; it must lie in [0, 1]")
        if not self.temperature > 0:
            raise BadConfig(f"temperature is {self.temperature}; it must be positive")
        if self.steps < 0 or self.orders < 1:
            raise BadConfig(
                f"steps is {self.steps} and orders is {self.orders}; give at least 0 steps and 1 order"
            )

    @property
    def averages(self) -> bool:
        """Every client gets a mean of its own."""
        return False

    @property
    def needs_single_replies(self) -> str:
        return "FedGTA compares the clients with each other"

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        adj, inputs = weighted_adjacency(data.graph), model.inputs(data)
        if self.propagation == "openfgl":
            scale = sp.diags(np.sqrt(inverse_degrees(adj)))
            spread = Sparse.of(scale @ adj @ scale, symmetric=True)
        else:
            spread = (
                inputs.operator if model.backbone == "gcn" else Sparse.of(normalised(adj), symmetric=True)
            )
        degrees = torch.from_numpy(np.asarray(adj.sum(1), dtype=np.float64).reshape(-1))
        return Prepared(
            inputs, spread, degrees, F.one_hot(inputs.labels, data.graph.num_classes).to(torch.float32)
        )

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        prepared = client.prepared
        params, state, loss = fit(client, model_part(message), state, cross_entropy(client, prepared.inputs))
        spread = self._propagate(prepared, client.model.predict(params, prepared.inputs).softmax(1))  # [n, C]
        train = prepared.inputs.train
        sharp = spread.softmax(1).index_copy(0, train, prepared.one_hot)
        soft = (spread / self.temperature).softmax(1).index_copy(0, train, prepared.one_hot)
        about = {
            "moments": moments_of(sharp, self.orders, self.moments).reshape(-1, client.info.num_classes),
            # Choice: sent per node, so that it does not grow with the graph. The server knows the number of
            # nodes.
            "confidence": (confidence(soft, prepared.degrees) / soft.shape[0]).to(torch.float32).reshape(1),
        }
        own = params if self.score == "trained" else {}
        return reply(client, {**params, **about}, loss=loss), {**state, **own}

    def _propagate(self, prepared: Prepared, soft: Tensor) -> Tensor:
        """Y after ``steps`` steps of Y <- alpha · Ã Y + (1 - alpha) · Y⁰, [n, C]."""
        train, official = prepared.inputs.train, self.propagation == "official"
        rest = soft if official else torch.zeros_like(soft)
        start = rest.index_copy(0, train, prepared.one_hot if official else soft[train])  # Y⁰
        spread, kept, again = start, (1 - self.alpha) * start, start[train]
        for _ in range(self.steps):
            spread = prepared.spread.times(spread).mul_(self.alpha).add_(kept)
            # Choice: the official code adds Y⁰ once more at the training nodes. The paper does not print it;
            # we keep what the authors ran.
            spread = spread.index_add_(0, train, again) if official else spread.clamp_(0, 1)
        return spread

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return {**tensors, **own_means(replies, sharing(replies, self.epsilon))}

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        """The client's own average. Before its first one, it is the initial weights."""
        return own_mean(tensors, client_id)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        kinds = 2 if self.moments == "hybrid" else 1
        about = {
            "moments": Field((kinds * self.orders, server.info.num_classes), classes=1),
            "confidence": Field((1,), "weight"),
        }
        return {**same_fields(model_part(tensors)), **about}

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared.inputs)


def moments_of(rows: Tensor, orders: int, kind: Moments) -> Tensor:
    """For each order and class, the mean power of the rows (raw) or of their deviations (central): [orders ·
    C].

    "hybrid" is both, one after the other.
    """
    bases = {"raw": [rows], "central": [rows - rows.mean(0)], "hybrid": [rows, rows - rows.mean(0)]}[kind]
    means = []
    for base in bases:
        power = base.clone()
        for order in range(orders):
            power = power.mul_(base) if order else power
            means.append(power.mean(0))  # [C]
    return torch.cat(means)


def confidence(soft: Tensor, degrees: Tensor) -> Tensor:
    """Σ_i d_i (C / e - entropy of row i): never negative, as -p log p <= 1 / e."""
    soft = soft.to(torch.float64)
    return (degrees * (soft.shape[1] / math.e + (soft * torch.log(soft + 1e-8)).sum(1))).sum()


def sharing(replies: Mapping[int, Reply], epsilon: float) -> Tensor:
    """Row k holds the weights of client k's average, float64 [K, K]. Rows and columns ascend by client."""
    ordered = [replies[k] for k in sorted(replies)]
    moments = torch.stack([r.tensors["moments"].reshape(-1) for r in ordered])  # [K, 2·M·C]
    directions = F.normalize(moments.to(torch.float64), dim=1)
    itself = torch.eye(len(ordered), dtype=torch.float64)
    accepted = torch.where(directions @ directions.t() > epsilon, 1.0, itself)
    trained = torch.tensor([float(r.num_train > 0) for r in ordered], dtype=torch.float64)
    nodes = torch.tensor([r.num_nodes for r in ordered], dtype=torch.float64)
    weights = accepted * trained * nodes * torch.cat([r.tensors["confidence"] for r in ordered])
    for fallback in (accepted * trained, itself):
        weights = torch.where(weights.sum(1, keepdim=True) > 0, weights, fallback)
    return weights / weights.sum(1, keepdim=True)
