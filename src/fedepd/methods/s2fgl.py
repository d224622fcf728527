"""S2FGL: a client's model keeps the received one's view of class representatives and of graph frequencies.

Tan et al., "S2FGL: Spatial Spectral Federated Graph Learning", ICML 2025, arXiv 2507.02409.
Official code: Wonder7racer/S2FGL @2be8300 (no licence; read, not used).
Down: the model, table [4 C, w], table.known [4 C].  Up: the model, sum [C, w], count [C].
Bytes per client: down 4 (|Θ| + 4 C·w + 4 C); up 4 (|Θ| + C·w + C). w is the width of what the classifier
reads.
Ours: the run's backbone instead of ACM-GCN. Important nodes are chosen among training nodes. Rows that nobody
could fill are left out of the table. One symmetric graph of neighbours, that of the received model, gives the
frequencies of both models, once a round, and a frequency is never cut in two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import average, class_mean, class_sums, cross_entropy, fit, model_part, reply
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.sparse import adjacency, neighbour_mean
from fedepd.network.training import Objective
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, Tensors, same_fields

DRAWS, DRAWN = 4, 0.7
"""The table has one representative of each class from each of 4 draws of 70 % of the clients."""
RESTART = 0.85
"""Of the walk that says which nodes are important."""
NEIGHBOURS, FREQUENCIES = 3, 10
"""Nearest rows that are joined, and how many of the lowest and of the highest frequencies are compared."""
MOST_ROWS, MOST_NODES = 256, 1024
"""Rows of the frequencies and nodes of the table's penalty. Of more, a sample is drawn in every round."""
ALIKE = 1e-4
"""Frequencies that differ by less are one."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    ranked: Tensor
    """int64 [t]: places of the training nodes among themselves, the most important first."""
    nodes: int

    @property
    def represented(self) -> Tensor:
        """Places of the training nodes that representatives are made of."""
        return self.ranked[: max(1, self.nodes // 3)]

    @property
    def compared(self) -> Tensor:
        """Places of the training nodes whose frequencies are compared."""
        return self.ranked[: max(1, self.nodes // 5)]


@final
@dataclass(frozen=True)
class S2FGL(Method[Prepared]):
    label: ClassVar[str] = "S2FGL"
    reads_float16: ClassVar[bool] = True
    works_without_rows: ClassVar[bool] = True  # without a table there is no penalty
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "authors_values": {"optimizer_own": True},
    }

    spatial: float = option(
        5.0,
        "weight of the agreement on class representatives; 0 switches it off",
        search=ladder(0.5, 5.0, 50.0, below=0.0),
    )
    spectral: float = option(
        1.0,
        "weight of the agreement on graph frequencies; 0 switches it off",
        search=ladder(0.0, 1.0, 10.0),
    )
    temperature: float = option(1.0, "temperature of the similarities to class representatives")
    optimizer_own: bool = option(False, "the authors' SGD, rate 0.2, and 10 steps per round")

    def __post_init__(self) -> None:
        for name in ("spatial", "spectral"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        if not 0 < self.temperature < float("inf"):
            raise BadConfig(f"temperature is {self.temperature}; give a finite number above 0")

    @property
    def needs_single_replies(self) -> str:
        if self.spatial == 0:
            return ""
        return "S2FGL compares draws of clients in its table"

    def idle(self) -> dict[str, str]:
        return {"temperature": "spatial"} if self.spatial == 0 else {}

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        adj = adjacency(data.graph.edge_index, data.graph.num_nodes)
        score = importance(adj, data.train_mask.numpy())
        ranked = torch.from_numpy(np.argsort(-score, kind="stable"))
        return Prepared(model.inputs(data), ranked, data.graph.num_nodes)

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        own = {"optimizer": "sgd", "lr": 0.2, "epochs": 10} if self.optimizer_own else {}
        trainer = client.trained_by(**own)
        params, state, loss = fit(trainer, model_part(message), state, self._loss(client, message))
        tensors = {**params, **self._sums(client, params)} if self.spatial > 0 else params
        return reply(client, tensors, loss=loss), {**state, **params}

    def _loss(self, client: Client[Prepared], message: Tensors) -> Objective:
        """Cross-entropy and both penalties. In the first round it is the cross-entropy alone."""
        inputs, model = client.prepared.inputs, client.model
        begun = client.round > 1 and inputs.train.numel() > 0
        agree = self._spatial(client, message) if begun and self.spatial > 0 else None
        spectrum = self._spectrum(client, message) if begun and self.spectral > 0 else None
        if agree is None and spectrum is None:
            return cross_entropy(client, inputs)
        draws = client.draws("dropout")

        def loss(params: Tensors) -> Tensor:
            h = model.encode(params, inputs, draws)
            s = model.smooth(params, h, inputs, train_only=agree is None)
            trained = s if agree is None else s[inputs.train]
            total = F.cross_entropy(model.classify(params, trained), inputs.labels)
            if agree is not None:
                total = total + self.spatial * agree.penalty(s)
            if spectrum is not None:
                total = total + self.spectral * spectrum.penalty(trained)
            return total

        return loss

    def _spatial(self, client: Client[Prepared], message: Tensors) -> Agreement | None:
        table = message["table"][message["table.known"] > 0]
        if table.shape[0] == 0:
            return None
        inputs, nodes = client.prepared.inputs, None
        if client.prepared.nodes > 4 * MOST_NODES:
            drawn = client.draws("table nodes").choice(client.prepared.nodes, MOST_NODES, replace=False)
            nodes = torch.from_numpy(np.sort(drawn))
        with torch.no_grad():
            s = client.model.smooth(message, client.model.encode(message, inputs), inputs)
        return Agreement.with_model(s, table, nodes, self.temperature)

    def _spectrum(self, client: Client[Prepared], message: Tensors) -> Spectrum:
        rows = client.prepared.compared
        if rows.shape[0] > MOST_ROWS:
            drawn = client.draws("spectrum").choice(rows.shape[0], MOST_ROWS, replace=False)
            rows = rows[torch.from_numpy(np.sort(drawn))]
        wanted = client.model.training_rows(message, client.prepared.inputs)[0][rows]
        return Spectrum(rows, wanted, ends_of_spectrum(wanted))

    def _sums(self, client: Client[Prepared], params: Tensors) -> Tensors:
        """Of the important training nodes, what the classifier reads: its sum by class, and their number."""
        rows, labels = client.model.training_rows(params, client.prepared.inputs)
        chosen, classes = client.prepared.represented, client.info.num_classes
        return {
            "sum": class_sums(rows[chosen], labels[chosen], classes),
            "count": torch.bincount(labels[chosen], minlength=classes).to(torch.float32),
        }

    def adaptation(self, client: Client[Prepared], tensors: Tensors) -> tuple[Tensors, Objective]:
        """Both penalties hold the model near the selected one, which is what it starts from."""
        return model_part(tensors), self._loss(client, tensors)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        if self.spatial == 0:
            return params
        rows = DRAWS * server.info.num_classes
        return {**params, "table": torch.zeros(rows, server.model.width), "table.known": torch.zeros(rows)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        params = average(server.info, model_part(tensors), replies)
        if self.spatial == 0:
            return params
        draws, clients = server.torch_draws("table"), sorted(replies)
        size = max(1, int(DRAWN * len(clients)))
        chosen = [torch.randperm(len(clients), generator=draws)[:size].tolist() for _ in range(DRAWS)]
        drawn = [[replies[clients[k]] for k in sorted(each)] for each in chosen]
        return {**params, **representatives(tensors["table"], tensors["table.known"], drawn)}

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        fields = same_fields(model_part(tensors))
        if self.spatial > 0:
            classes = server.info.num_classes
            fields["sum"] = Field((classes, server.model.width), "sum", of="count")
            fields["count"] = Field((classes,), "count")
        return fields

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared.inputs)


def importance(adj: sp.csr_matrix, train: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Λ of the training nodes, [t]: how much a walk from each ends at itself, and at training nodes.

    With P = (I - .15 A_rw)^-1 and t the training nodes: P_ii + .85 Σ_j P_ij t_j. P is nearly the identity, so
    its series to second order is off by less than .004.
    Choice: training nodes only. Whenever a third of the nodes are labelled, the authors' rule chooses no
    others, and otherwise it would read hidden labels.
    """
    walk, t = neighbour_mean(adj), train.astype(np.float64)
    step, twice = 1 - RESTART, (1 - RESTART) ** 2
    once = walk @ t
    back = np.asarray(walk.multiply(walk.T).sum(1)).reshape(-1)  # (A_rw²)_ii
    score = 1 + twice * back + RESTART * (t + step * once + twice * (walk @ once))
    found: np.ndarray[Any, Any] = np.asarray(score)[train]
    return found


@dataclass(frozen=True, eq=False)
class Agreement:
    """How alike nodes and class representatives are, as the received model has it."""

    table: Tensor
    """Rows of length 1, [m, w]."""
    wanted: Tensor
    """Shares of the representatives for every node, as logarithms, [n', m]."""
    nodes: Tensor | None
    temperature: float

    @classmethod
    def with_model(cls, s: Tensor, table: Tensor, nodes: Tensor | None, temperature: float) -> Agreement:
        unit = F.normalize(table, dim=1)
        return cls(unit, shares(s if nodes is None else s[nodes], unit, temperature), nodes, temperature)

    def penalty(self, s: Tensor) -> Tensor:
        """The mean over nodes of KL(wanted ‖ found), times the temperature squared."""
        found = shares(s if self.nodes is None else s[self.nodes], self.table, self.temperature)
        divergence = F.kl_div(found, self.wanted, reduction="batchmean", log_target=True)
        return self.temperature**2 * divergence


def shares(s: Tensor, unit: Tensor, temperature: float) -> Tensor:
    """log softmax of the cosines of the rows of s and ``unit``, [n, m]."""
    return (F.normalize(s, dim=1) @ unit.t() / temperature).log_softmax(1)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The received model's rows of some training nodes, and the frequencies that are compared."""

    rows: Tensor
    wanted: Tensor
    vectors: Tensor
    """V, orthonormal columns, [m, f]."""

    def penalty(self, trained: Tensor) -> Tensor:
        """The mean square of V Vᵀ (f - f^g). As V is orthonormal, that of Vᵀ (f - f^g) has the same sum."""
        change = trained[self.rows] - self.wanted
        return (self.vectors.t() @ change).square().sum() / change.numel()


def ends_of_spectrum(rows: Tensor) -> Tensor:
    """Eigenvectors of the lowest and the highest frequencies of the graph of nearest rows, [m, f].

    Choice: all vectors of a frequency or none. The lowest is 0 once per connected part, and ten of more such
    vectors would be an arbitrary choice.
    """
    count = rows.shape[0]
    unit = F.normalize(rows.to(torch.float64), dim=1)
    alike = (unit @ unit.t()).fill_diagonal_(-2.0)
    near = alike.topk(min(NEIGHBOURS, count - 1), dim=1).indices
    joined = torch.zeros_like(alike).scatter_(1, near, alike.gather(1, near).clamp(min=0))
    joined = torch.maximum(joined, joined.t())
    frequency, vectors = torch.linalg.eigh(torch.diag(joined.sum(1)) - joined)
    few = min(FREQUENCIES, count)
    ends = (frequency <= frequency[few - 1] + ALIKE) | (frequency >= frequency[-few] - ALIKE)
    found: Tensor = vectors[:, ends].to(rows.dtype)
    return found


def representatives(table: Tensor, known: Tensor, drawn: list[list[Reply]]) -> Tensors:
    """The table of class means, one block [C, w] from each draw of clients.

    A class of which no drawn client has a node keeps its old row.
    """
    size = len(drawn)
    blocks, marks = [], []
    for old, before, chosen in zip(table.chunk(size), known.chunk(size), drawn, strict=True):
        counts = [r.tensors["count"] for r in chosen]
        means = [r.tensors["sum"] / n.clamp(min=1)[:, None] for r, n in zip(chosen, counts, strict=True)]
        blocks.append(class_mean(old, zip(means, counts, strict=True)))
        marks.append(torch.maximum(before, (torch.stack(counts).sum(0) > 0).to(before.dtype)))
    return {"table": torch.cat(blocks), "table.known": torch.cat(marks)}
