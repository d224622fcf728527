"""FED-PUB: every client receives an average of its own, over clients whose models do alike on a random graph.

Each client multiplies the weights that it received by a private mask, and so takes what suits its graph.

Baek et al., "Personalized Subgraph Federated Learning", ICML 2023, arXiv 2206.10206.
Official code: JinheonBaek/FED-PUB @302980d (no licence; read, not used); a copy is in OpenFGL.
Down: the client's model.  Up: the model, function [C]: its mean logits on the random graph.
Bytes per client: down 4 |Θ|, up 4 (|Θ| + C). Masks never leave, and the seed says what the random graph is.
Ours: the run's backbone instead of two convolutions and a linear layer, whose outputs before the last
activation the authors compare. Clients without training nodes have no weight. Masks have no weight decay.
The released program takes both penalties from detached tensors, so they do nothing there: preset "released".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, final

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import (
    average,
    cross_entropy,
    fit,
    model_part,
    own_mean,
    own_means,
    reply,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.sparse import csr_tensor
from fedepd.network.training import Gradient
from fedepd.options import ladder, option
from fedepd.rng import seeded_numpy
from fedepd.types import HIDDEN, ClientData, Field, Fields, Graph, Reply, Tensors, same_fields

MASK = "mask."
"""Before the name of the weight that a mask belongs to."""
GRAPHS, NODES, SHARE = 5, 100, 0.1
"""The random graph: so many parts of so many nodes each, and the share of all pairs in a part with an edge.
"""
DENSE = 1000
"""Up to so many columns, the random graph's features are dense."""
ENTRIES = 256
"""Choice: of wider features a row has so many non-zero columns, scaled to the same variance. Dense rows of
8,710 columns would cost more than a round of training. Both kinds have covariance I."""


@final
@dataclass(frozen=True)
class FedPUB(Method[Inputs]):
    label: ClassVar[str] = "FED-PUB"
    weighs_edges: ClassVar[bool] = True
    reads_float16: ClassVar[bool] = True
    has_global: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "released": {"sparsity": 0.0, "proximal": 0.0},
        "paper": {"sparsity": 1e-3, "proximal": 1e-3},
    }

    tau: float = option(
        10.0,
        "how sharply similar models are preferred in an average; 0: all alike",
        search=ladder(3.0, 10.0, 30.0, below=1.0, above=100.0),
    )
    masks: bool = option(True, "train a private mask of every weight matrix")
    # Choice: 1e-5 instead of the paper's 1e-3. Adam turns a constant pull into steps of the learning rate, so
    # that 1e-3, far above the gradient of a single weight, brings all masks to 0 within 100 steps.
    sparsity: float = option(
        1e-5, "weight of the masks' L1 norm (lambda 1)", search=ladder(0.0, 1e-6, 1e-5, 1e-4, above=1e-3)
    )
    proximal: float = option(
        1e-3,
        "weight of the distance to the received model, from round 2 on (lambda 2)",
        search=ladder(0.0, 1e-3, 1e-2, above=0.1),
    )
    threshold: float = option(1e-3, "in evaluation a mask's smaller entries count as 0")

    def __post_init__(self) -> None:
        for name in ("tau", "sparsity", "proximal", "threshold"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")

    def idle(self) -> Mapping[str, str]:
        return {} if self.masks else {"sparsity": "masks", "threshold": "masks"}

    @property
    def averages(self) -> bool:
        """Every client gets a mean of its own."""
        return False

    @property
    def needs_single_replies(self) -> str:
        return "FED-PUB compares the clients with each other"

    def prepare(self, data: ClientData, model: Backbone) -> Inputs:
        return model.inputs(data)

    def client_step(self, client: Client[Inputs], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        received = model_part(message)
        masks = (with_prefix(state, MASK) or open_masks(received)) if self.masks else {}
        decay = client.training.weight_decay if masks else 0.0
        # A mask's decay would remove weights. With masks, weights decay by hand.
        params, state, loss = fit(
            client,
            {**received, **masks},
            {name: value for name, value in state.items() if not name.startswith(MASK)},
            self._objective(client, received, decay),
            weight_decay=0.0 if masks else None,
        )
        does = client.model.predict(effective(params, self.threshold), random_graph(client)).mean(0)  # [C]
        return reply(client, {**model_part(params), "function": does}, loss=loss), {**state, **params}

    def _objective(self, client: Client[Inputs], received: Tensors, decay: float) -> Gradient:
        """The cross-entropy with masked weights, and both penalties; FedAvg's own where there is neither."""
        plain, proximal = cross_entropy(client, client.prepared), self.proximal if client.round > 1 else 0.0
        if not self.masks and proximal == 0:
            return plain

        def of(params: Tensors) -> tuple[float, Tensors]:
            loss, by_effective = plain.of(effective(params))
            cost, grads = penalties(params, received, self.sparsity, proximal)
            return loss + cost, through_masks(params, by_effective, grads, decay)

        return Gradient(of)

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        common = average(server.info, model_part(tensors), replies)
        return {**tensors, **common, **own_means(replies, sharing(replies, self.tau))}

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        """The client's own average. Before its first one, it is FedAvg's."""
        return own_mean(tensors, client_id)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        about = {"function": Field((server.info.num_classes,), classes=0)}
        return {**same_fields(model_part(tensors)), **about}

    def predict(self, client: Client[Inputs], tensors: Tensors) -> Tensor:
        return client.model.predict(effective(tensors, self.threshold), client.prepared)


def open_masks(params: Tensors) -> Tensors:
    """A mask of ones for every matrix. Biases have none."""
    return {MASK + name: torch.ones_like(value) for name, value in params.items() if value.ndim == 2}


def effective(tensors: Tensors, threshold: float = 0.0) -> Tensors:
    """The network that the masks make of its weights. Entries below the threshold count as 0."""
    return {
        name: value if (mask := tensors.get(MASK + name)) is None else value * cut(mask, threshold)
        for name, value in model_part(tensors).items()
    }


def cut(mask: Tensor, threshold: float) -> Tensor:
    return mask if threshold == 0 else torch.where(mask.abs() >= threshold, mask, 0.0)


def penalties(params: Tensors, received: Tensors, sparsity: float, proximal: float) -> tuple[float, Tensors]:
    """λ1 Σ |M|₁ + λ2 Σ |W - W̄|₂ and its gradient: λ1 sign(M), and λ2 times the unit vector from W̄ to W.

    At W = W̄ it is 0. A penalty of weight 0 is left out.
    """
    cost, grads = 0.0, Tensors()
    if sparsity > 0:
        for name, mask in with_prefix(params, MASK).items():
            cost += sparsity * float(mask.abs().sum())
            grads[name] = sparsity * mask.sign()
    if proximal > 0:
        for name, old in received.items():
            way = params[name] - old
            length = float(way.norm())
            if length > 0:
                cost += proximal * length
                grads[name] = way.mul_(proximal / length)
    return cost, grads


def through_masks(params: Tensors, by_effective: Tensors, added: Tensors, decay: float) -> Tensors:
    """The gradients of W and M: with G that of W∘M, they are G∘M + decay W and G∘W, and what is added."""
    grads = dict(added)
    for name, g in by_effective.items():
        mask, weight = params.get(MASK + name), params[name]
        of_weight = g if mask is None else g * mask
        if decay > 0:
            of_weight = torch.add(of_weight, weight, alpha=decay)
        grads[name] = of_weight if name not in added else of_weight + added[name]
        if mask is not None:
            own = MASK + name
            grads[own] = g * weight if own not in added else torch.addcmul(added[own], g, weight)
    return grads


def sharing(replies: Mapping[int, Reply], tau: float) -> Tensor:
    """Row k holds the weights of client k's average, float64 [K, K]. Rows and columns ascend by client.

    A weight grows as exp(tau cos(e_k, e_j)). Where nobody has training nodes, a client keeps its own model.
    """
    ordered = [replies[k] for k in sorted(replies)]
    does = torch.stack([r.tensors["function"] for r in ordered]).to(torch.float64)  # [K, C]
    directions = F.normalize(does, dim=1)
    trained = torch.tensor([r.num_train > 0 for r in ordered])
    if not bool(trained.any()):
        return torch.eye(len(ordered), dtype=torch.float64)
    similar = tau * (directions @ directions.t())
    return similar.masked_fill(~trained, -torch.inf).softmax(1)


def random_graph(client: Client[Any]) -> Inputs:
    """The graph on which all clients of a run compare their models."""
    return _random_graph(client.model, client.info.num_features, client.info.num_classes, client.seed)


@lru_cache(maxsize=4)
def _random_graph(model: Backbone, columns: int, classes: int, seed: int) -> Inputs:
    """Parts of an Erdős-Rényi graph with normal features. Nothing in it is a client's."""
    draws, count = seeded_numpy(seed, "fedpub", columns), GRAPHS * NODES
    pairs = np.stack(np.triu_indices(NODES, 1))
    edges = [
        NODES * part + pairs[:, kept]
        for part, kept in enumerate(draws.random((GRAPHS, pairs.shape[1])) < SHARE)
    ]
    if columns <= DENSE:
        x = torch.from_numpy(draws.standard_normal((count, columns), dtype=np.float32))
    else:
        places = np.stack([np.sort(draws.choice(columns, ENTRIES, replace=False)) for _ in range(count)])
        values = draws.standard_normal((count, ENTRIES), dtype=np.float32) * np.float32(
            (columns / ENTRIES) ** 0.5
        )
        starts = np.arange(0, count * ENTRIES + 1, ENTRIES)
        x = csr_tensor(sp.csr_matrix((values.ravel(), places.ravel(), starts), shape=(count, columns)))
    none = torch.zeros(count, dtype=torch.bool)
    labels = torch.full((count,), HIDDEN)
    graph = Graph.make(x, torch.from_numpy(np.concatenate(edges, axis=1)), labels, classes, part=True)
    return model.inputs(ClientData(0, graph, none, none, none, torch.arange(count)))
