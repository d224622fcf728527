"""Tail-GNN, federated: what the neighbourhood of a node of low degree misses is guessed by a translation that
nodes of high degree teach.

Liu, Nguyen, Fang, "Tail-GNN: Tail-Node Graph Neural Networks", KDD 2021. Official code:
shuaiOKshuai/Tail-GNN @ce0d350 (no licence; read, not used). It is centralised; the federation is ours. Its
tail is of degrees, not of classes.
Down: the model, for each convolution translate*.gain1, .gain2, .shift1 and .shift2 [h, h] and .offset [h],
judge.hidden.weight [C, h], judge.hidden.bias [h] and judge.out.weight [h, 1].  Up: the same and judged [1].
Bytes per client: down 4 (|Θ| + L (4h² + h) + C·h + 2h) with L convolutions (1 for backbones other than gcn
and sage), up 4 more.
Ours: the translation acts after a layer's product with its weights. There it has 4h² numbers instead of 4d²,
and it is the same where γ and β are constant. Training nodes are those of the split, of any degree. Nodes of
high degree are convolved as they are. Only their own rows lose neighbours in the forged view, which is drawn
anew in each round. The judge's hidden layer has h units instead of C, so that every number of a class is in
one row, which the guard can hide. The model's term against the judge is bounded (``adversary``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server, weight_of
from fedepd.methods.parts.translated import Read, View, Views, initial_translations, read
from fedepd.methods.steps import (
    average,
    cross_entropy,
    fit,
    model_part,
    renamed,
    reply,
    weighted_mean,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Dropout, Inputs, glorot
from fedepd.network.convolution import Convolution
from fedepd.network.sparse import Sparse, adjacency, factor_of, neighbour_mean
from fedepd.network.training import Objective, descend
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, TaskInfo, Tensors, same_fields

MOST = 13.8155
"""log((1 - 1e-6) / 1e-6): the judge is never surer than 1 - 1e-6 where its certainty has no bound."""
JUDGE_STEPS = 2
"""Steps of the judge before each step of the model, as in the authors' code."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    features: Sparse | Tensor
    """X as it is."""
    adj: sp.csr_matrix
    """A, 0/1, [n, n]."""
    whole: View
    reached: View
    """All nodes, of which those that no training node's logits depend on are not translated."""
    train: View
    heads: Tensor
    """int64 [f]: the training nodes with more than k neighbours."""
    places: Tensor
    """int64 [f]: their positions among the training nodes."""
    head_means: Sparse
    """[f, n]: the mean over their neighbours."""

    @property
    def has_tail(self) -> bool:
        return bool(self.whole.tail.numel())


@final
@dataclass(frozen=True)
class TailGNN(Method[Prepared]):
    label: ClassVar[str] = "Tail-GNN"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "authors_values": {"adversary": "unbounded", "optimizer_own": True},
    }

    k: int = option(
        5,
        "a node with at most so many neighbours is a tail node; -1: no node is",
        search=ladder(2, 5, 10, below=1, above=20),
    )
    eta: float = option(
        0.1,
        "weight of the judge, who tells forged tail nodes from head nodes; 0: there is none",
        search=ladder(0.0, 0.1, 0.3, above=1.0),
    )
    mu: float = option(
        0.001,
        "weight of the length of what head nodes miss",
        search=ladder(0.0, 1e-3, 1e-2, above=0.1),
    )
    adversary: Literal["bounded", "unbounded"] = option(
        "bounded",
        "the model's term: cross-entropy of a forged node taken for a head node, "
        "or the negative one of a forged node seen through, as in the authors' code",
    )
    # Choice: bounded. Both are least where the judge takes every forged node for a head node. The authors'
    # term has no lower bound there.
    optimizer_own: bool = option(False, "the authors' weight decay, 1e-4, in place of the run's")

    def __post_init__(self) -> None:
        if self.k < -1:
            raise BadConfig(f"k is {self.k}; give -1 or more")
        for name in ("eta", "mu"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        graph, inputs = data.graph, model.inputs(data)
        adj = adjacency(graph.edge_index, graph.num_nodes)
        adj.sort_indices()
        degrees = np.diff(adj.indptr).astype(np.int64)
        tail = torch.from_numpy(degrees <= self.k)
        everyone, train = torch.arange(graph.num_nodes), inputs.train
        # Choice: without a k of 1 or more no number of neighbours can be drawn, so nothing is forged.
        places = (~tail[train] & (self.k >= 1)).nonzero().reshape(-1)
        heads = train[places]
        return Prepared(
            inputs=inputs,
            features=factor_of(graph.x),
            adj=adj,
            whole=View.of(model, everyone, adj, degrees, tail),
            reached=View.of(model, everyone, adj, degrees, tail & reached_by(model, adj, train)),
            train=View.of(model, train, adj[train.numpy()], degrees, tail[train]),
            heads=heads,
            places=places,
            head_means=Sparse.of(neighbour_mean(adj[heads.numpy()])),
        )

    def forged(self, client: Client[Prepared]) -> View | None:
        """Training nodes of high degree, of whose neighbours 1 to k are left, drawn anew in each round."""
        prepared, draws = client.prepared, client.draws("forged")
        if not prepared.heads.numel():
            return None
        rows = prepared.adj[prepared.heads.numpy()]
        kept = draws.integers(1, self.k + 1, rows.shape[0])
        cut = some_of_each_row(rows, kept, draws)
        degrees = np.diff(prepared.adj.indptr).astype(np.int64)
        everyone = torch.ones(rows.shape[0], dtype=torch.bool)
        return View.of(client.model, prepared.heads, cut, degrees, everyone)

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        if self.optimizer_own:
            client = client.trained_by(weight_decay=1e-4)
        judge = Judge(client, with_prefix(message, "judge."), renamed(state, "judging.", ""))
        params, loss_of = self._objective(client, message, judge)
        params, state, loss = fit(client, params, state, loss_of)
        sent = {**with_prefix(message, "translate"), **params, **judge.params}
        said = reply(client, {}, loss=loss)
        weight = weight_of(client.info, said) if self.has_judge(client.prepared) else 0.0
        state = {name: value for name, value in state.items() if not name.startswith("judging.")}
        return replace(said, tensors={**sent, "judged": torch.tensor([weight])}), {
            **state,
            **sent,
            **renamed(judge.moments, "", "judging."),
        }

    def has_judge(self, prepared: Prepared) -> bool:
        """Whether the client has nodes to forge, and asks what they look like."""
        return self.eta > 0 and bool(prepared.heads.numel())

    def _objective(
        self, client: Client[Prepared], tensors: Tensors, judge: Judge
    ) -> tuple[Tensors, Objective]:
        """What is trained, and the loss. With neither tail nor head nodes it is FedAvg's."""
        prepared = client.prepared
        if not prepared.has_tail and not prepared.heads.numel():
            return model_part(tensors), cross_entropy(client, prepared.inputs)
        views = Views(prepared.reached, prepared.train, self.forged(client))
        if self.mu > 0 and prepared.heads.numel():
            views = replace(views, heads=prepared.head_means, head_nodes=prepared.heads)
        draws = client.draws("dropout")

        def loss(params: Tensors) -> Tensor:
            inputs = prepared.inputs
            found = read(client.model, params, inputs, prepared.features, views, draws)
            return self._loss(client, params, found, judge)

        return with_prefix(tensors, "encoder.", "classifier.", "translate"), loss

    def _loss(self, client: Client[Prepared], params: Tensors, found: Read, judge: Judge) -> Tensor:
        labels, places = client.prepared.inputs.labels, client.prepared.places
        real = client.model.classify(params, found.rows)
        total = F.cross_entropy(real, labels)
        if found.forged is None:
            return total
        fake = client.model.classify(params, found.forged)
        total = (total + F.cross_entropy(fake, labels[places])) / 2
        if self.mu > 0:
            total = total + self.mu * found.lengths
        if self.eta == 0:
            return total
        judge.train(real.detach()[places], fake.detach())
        verdict = judge.of(judge.params, fake)
        if self.adversary == "bounded":
            return total + self.eta * F.softplus(-verdict).mean()
        return total - self.eta * F.softplus(verdict.clamp(-MOST, MOST)).mean()

    def adaptation(self, client: Client[Prepared], tensors: Tensors) -> tuple[Tensors, Objective]:
        """Model and translations, by the loss of training. The judge learns along and is not kept."""
        judge = Judge(client, with_prefix(tensors, "judge."), {})
        return self._objective(client, tensors, judge)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        width, draws = server.model.hidden, server.torch_draws("translations")
        return {
            **params,
            **initial_translations(server.model, draws),
            "judge.hidden.weight": glorot(server.info.num_classes, width, draws),
            "judge.hidden.bias": torch.zeros(width),
            "judge.out.weight": glorot(width, 1, draws),
        }

    def weights(self, info: TaskInfo, fields: Fields, reply: Reply) -> Tensors:
        by_size = super().weights(info, fields, reply)
        judged = reply.tensors["judged"]
        return {name: judged if name.startswith("judge.") else weight for name, weight in by_size.items()}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        judged = {k: float(r.tensors["judged"]) for k, r in replies.items()}
        shared = with_prefix(tensors, "encoder.", "classifier.", "translate")
        return {
            **average(server.info, shared, replies),
            **weighted_mean(with_prefix(tensors, "judge."), replies, judged),
        }

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        fields = same_fields(tensors)
        rows = "judge.hidden.weight"
        fields[rows] = Field(fields[rows].shape, classes=0)
        return {**fields, "judged": Field((1,), "weight")}

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        if not client.prepared.has_tail:
            return client.model.predict(tensors, client.prepared.inputs)
        return client.model.classify(tensors, self._read(client, tensors, client.prepared.whole))

    def _read(self, client: Client[Prepared], tensors: Tensors, last: View) -> Tensor:
        """What the classifier reads of a view's nodes in evaluation, [r, width]."""
        prepared = client.prepared
        with torch.no_grad():
            views = Views(prepared.whole, last)
            return read(client.model, tensors, prepared.inputs, prepared.features, views).rows

    def classifier_reads(
        self, client: Client[Prepared], tensors: Tensors
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        rows = self._read(client, tensors, client.prepared.train)
        return rows, client.prepared.inputs.labels, None


class Judge:
    """The discriminator of one round at a client: it takes head nodes for 1 and forged tail nodes for 0."""

    def __init__(self, client: Client[Any], params: Tensors, moments: Tensors) -> None:
        self.params, self.moments, self._training = params, moments, client.training
        # As in the authors' code, its inputs have dropout; by the run's share.
        share = client.model.dropout
        self._dropout = Dropout(share, client.info.num_classes, client.draws("judge"))

    def of(self, params: Tensors, logits: Tensor) -> Tensor:
        """log (D / (1 - D)) of some nodes' logits: [rows, 1]."""
        seen = self._dropout(F.elu(logits))
        hidden = F.elu(torch.addmm(params["judge.hidden.bias"], seen, params["judge.hidden.weight"]))
        return hidden @ params["judge.out.weight"]

    def train(self, real: Tensor, fake: Tensor) -> None:
        """Steps on the mean of both cross-entropies."""

        def loss(params: Tensors) -> Tensor:
            heads, forged = self.of(params, real), self.of(params, fake)
            return (F.softplus(-heads).mean() + F.softplus(forged).mean()) / 2

        names = sorted(self.params)
        self.params, self.moments, _ = descend(
            self.params, names, loss, JUDGE_STEPS, self._training, self.moments
        )


def reached_by(model: Backbone, adj: sp.csr_matrix, nodes: Tensor) -> Tensor:
    """Whose hidden rows the logits of some nodes depend on, or more: bool [n]."""
    out = np.zeros(adj.shape[0], dtype=bool)
    out[nodes.numpy()] = True
    for _ in range(model.network.reach(model) - isinstance(model.network, Convolution)):
        out |= adj @ out.astype(np.float32) > 0
    return torch.from_numpy(out)


def some_of_each_row(adj: sp.csr_matrix, kept: Any, draws: np.random.Generator) -> sp.csr_matrix:
    """A row keeps as many entries as ``kept`` [r] says, or all if it has fewer; which ones is drawn."""
    row = np.repeat(np.arange(adj.shape[0]), np.diff(adj.indptr))
    order = np.lexsort((draws.random(adj.nnz), row))
    rank = np.empty(adj.nnz, dtype=np.int64)
    rank[order] = np.arange(adj.nnz) - adj.indptr[row[order]]
    chosen = rank < np.asarray(kept)[row]
    return sp.csr_matrix((adj.data[chosen], (row[chosen], adj.indices[chosen])), shape=adj.shape)
