"""GraphSMOTE: rare training nodes are interpolated in embedding space and wired by a learned edge predictor.

The models are averaged by FedAvg.

Zhao, Zhang, Wang, "GraphSMOTE: Imbalanced Node Classification on Graphs with Graph Neural Networks", WSDM
2021, arXiv 2103.08826. Official code: TianxiangZhao/GraphSmote @80c1160 (read, not copied).
Down: the model, decoder.weight [h, h].  Up: the same.  Bytes each way per client: 4 (|Θ| + h²).
Ours: the two-layer backbone instead of three weight layers. The list of minority classes and the class
average are local, over the classes that are present. Non-edges of the reconstruction are sampled, so that
nothing is quadratic in nodes. A node's neighbour is looked up among all nodes; the official code uses the
position within the class as if it were a node. Synthetic nodes are in the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, log
from typing import Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.parts.enlarged import Links, RealGraph, edge_scores, smooth_enlarged
from fedepd.methods.steps import average, class_counts, fit, reply, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.patterns import csr, dots, with_values
from fedepd.network.sparse import Sparse, adjacency, csr_tensor
from fedepd.network.training import Loss
from fedepd.options import ladder, option
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields

OWN_LR, OWN_DROPOUT = 1e-3, 0.1
_CHUNK = 1024
"""Rows of a class whose distances are held at a time."""
_BATCH = 1 << 18
"""Distances that classes compared together may have, unless one class alone has more."""


@dataclass(frozen=True, eq=False)
class Rivals:
    """The members of some classes, one class per row, to be compared with each other in one product."""

    nodes: Tensor
    """int64 [b, l]. A shorter class repeats its first node."""
    repeated: Tensor
    """[b, l]: infinite at such a repetition, else 0."""

    @classmethod
    def of(cls, members: Sequence[Tensor]) -> Rivals:
        nodes = torch.nn.utils.rnn.pad_sequence(list(members), batch_first=True, padding_value=-1)
        return cls(
            torch.where(nodes < 0, nodes[:, :1], nodes),
            torch.zeros(nodes.shape).masked_fill_(nodes < 0, float("inf")),
        )


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    adj: sp.csr_matrix
    """A, 0/1, [n, n]."""
    real: RealGraph
    edges: Tensor
    """A as a pattern for :func:`dots`."""
    rivals: tuple[Rivals, ...]
    """The training nodes of all minority classes."""
    parents: Tensor
    """int64 [s]: the real node that each synthetic node starts from, the same in every step."""
    places: Tensor
    """int64 [s]: where :func:`nearest` says who is nearest to the parent."""
    parent_rows: sp.csr_matrix
    """A[parents], [s, n]."""
    passes: Tensor
    """int64 [s]: which pass over which class a synthetic node belongs to."""
    labels: Tensor
    """int64 [t + s]: classes of the training nodes, then of the synthetic nodes."""


@final
@dataclass(frozen=True)
class GraphSMOTE(Method[Prepared]):
    label: ClassVar[str] = "GraphSMOTE"
    reads_float16: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "authors_values": {
            "up_scale": 1.0,
            "interpolate": "pass",
            "pretrain_rounds": 100,
            "optimizer_own": True,
            "dropout_own": True,
        },
    }

    up_scale: float = option(
        0.0,
        "synthetic nodes per training node of a minority class; "
        "0: as many passes over the class as fit into the class average",
        search=ladder(0.0, 0.5, 1.0, above=2.0),
    )
    wiring: Literal["threshold", "soft"] = option(
        "threshold", "synthetic edges: predicted and cut at the threshold (T), or the scores (O)"
    )
    threshold: float = option(
        0.5,
        "score from which a candidate edge is kept, with wiring threshold",
        search=ladder(0.3, 0.5, 0.7, below=0.1, above=0.9),
    )
    interpolate: Literal["node", "pass"] = option(
        "node", "one place per synthetic node (paper) or per pass over a class (official)"
    )
    rec_weight: float = option(
        1e-6,
        "lambda: weight of the edge reconstruction in the loss",
        search=ladder(1e-7, 1e-6, 1e-5, below=1e-8, above=1e-4),
    )
    pretrain_rounds: int = option(
        10,
        "first rounds that train encoder and decoder on the reconstruction alone, at most half of all",
    )
    optimizer_own: bool = option(False, "the official Adam, lr 0.001, in place of the run's optimiser")
    dropout_own: bool = option(False, "the authors' dropout, 0.1, in place of the run's")

    def __post_init__(self) -> None:
        for name in ("up_scale", "rec_weight", "pretrain_rounds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        if not 0 < self.threshold < 1:
            raise BadConfig(f"threshold is {self.threshold}; it must lie in (0, 1)")

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        inputs = model.inputs(data)
        adj = adjacency(data.graph.edge_index, data.graph.num_nodes)
        adj.sort_indices()
        members = minority_members(data)
        parents, passes = self._plan(data, members)
        rivals = in_batches(members)
        return Prepared(
            inputs=inputs,
            adj=adj,
            real=RealGraph(
                inputs.train,
                Sparse.of(adj[inputs.train.numpy()]),
                torch.from_numpy(np.diff(adj.indptr).astype(np.float32)),
            ),
            edges=csr_tensor(adj, np.int32),
            rivals=rivals,
            parents=parents,
            places=member_places(rivals, data.graph.num_nodes)[parents],
            parent_rows=adj[parents.numpy()],
            passes=passes,
            labels=torch.cat([inputs.labels, data.graph.y[parents]]),
        )

    def pretraining(self, last_round: int) -> int:
        """The rounds that pretrain: never more than half of a run, as in the authors' two equal stages."""
        return min(self.pretrain_rounds, last_round // 2)

    def _plan(self, data: ClientData, members: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The parents of all synthetic nodes and the passes they belong to.

        Choice: floor(average / N) passes of N nodes each, as the official code counts. So a class ends above
        the average by at most N.
        """
        parents, passes = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
        for position, nodes in enumerate(members):
            size = nodes.shape[0]
            count = (
                int(present_average(data) / size) * size if self.up_scale == 0 else int(self.up_scale * size)
            )
            order = torch.arange(count)
            parents.append(nodes[order % size])
            passes.append((order // size) * len(members) + position)
        return torch.cat(parents), torch.unique(torch.cat(passes), return_inverse=True)[1]

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        if self.optimizer_own:
            client = client.trained_by(optimizer="adam", lr=OWN_LR)
        if self.dropout_own:
            client = client.dropping(OWN_DROPOUT)
        params = with_prefix(message, "encoder.", "classifier.", "decoder.")
        if client.round <= self.pretraining(client.last_round):
            names = sorted(with_prefix(params, "encoder.", "decoder."))
            params, state, loss = fit(
                client, params, state, self._pretraining_loss(client), trainable=names, stage="pretrain"
            )
        else:
            params, state, loss = fit(client, params, state, self._loss(client))
        return reply(client, params, loss=loss), {**state, **params}

    def adaptation(self, client: Client[Prepared], tensors: Tensors) -> tuple[Tensors, Loss]:
        return with_prefix(tensors, "encoder.", "classifier.", "decoder."), self._loss(client)

    def _pretraining_loss(self, client: Client[Prepared]) -> Loss:
        dropout, shifts = client.draws("dropout"), client.draws("reconstruction")

        def loss(params: Tensors) -> Tensor:
            hidden = client.model.encode(params, client.prepared.inputs, dropout)
            return reconstruction(hidden @ params["decoder.weight"].t(), client.prepared.edges, shifts)

        return loss

    def _loss(self, client: Client[Prepared]) -> Loss:
        model, prepared = client.model, client.prepared
        dropout, places, shifts = (
            client.draws("dropout"),
            client.draws("interpolation"),
            client.draws("reconstruction"),
        )

        def loss(params: Tensors) -> Tensor:
            hidden = model.encode(params, prepared.inputs, dropout)  # [n, h]
            projected = hidden @ params["decoder.weight"].t()
            if prepared.parents.numel():
                logits = model.classify(params, self._enlarged(client, params, hidden, projected, places))
            else:
                logits = model.logits(params, hidden, prepared.inputs, train_only=True)
            total = F.cross_entropy(logits, prepared.labels)
            return (
                total + self.rec_weight * reconstruction(projected, prepared.edges, shifts)
                if self.rec_weight
                else total
            )

        return loss

    def _enlarged(
        self,
        client: Client[Prepared],
        params: Tensors,
        hidden: Tensor,
        projected: Tensor,
        places: np.random.Generator,
    ) -> Tensor:
        """S of the training nodes, then of the synthetic nodes: [t + s, width]."""
        prepared = client.prepared
        partners = nearest(hidden.detach(), prepared.rivals).index_select(0, prepared.places)
        delta = torch.from_numpy(places.random(prepared.parents.shape[0], dtype=np.float32))
        if self.interpolate == "pass":
            delta = delta[prepared.passes]
        if client.model.convolution is None:
            # Choice: only the layers of gcn and sage can be continued on a graph with more nodes. With
            # another network, synthetic rows lie between the rows that its classifier reads. The predicted
            # edges then serve the reconstruction alone.
            rows = client.model.smooth(params, hidden, prepared.inputs)
            return torch.cat([rows[prepared.inputs.train], between(rows, prepared.parents, partners, delta)])
        synthetic = between(hidden, prepared.parents, partners, delta)  # [s, h]
        candidates = csr_tensor(
            prepared.parent_rows + prepared.adj[partners.numpy()], np.int32
        )  # neighbours of either, once each
        return smooth_enlarged(
            client.model,
            prepared.real,
            hidden,
            synthetic,
            self._wire(params, projected, synthetic, candidates),
        )

    def _wire(self, params: Tensors, projected: Tensor, synthetic: Tensor, candidates: Tensor) -> Links:
        """The rows of the synthetic nodes in the enlarged adjacency."""
        decoder = params["decoder.weight"]
        if self.wiring == "soft":
            return Links.make(candidates, edge_scores(synthetic @ decoder.t(), projected, candidates))
        with torch.no_grad():
            least = log(self.threshold / (1 - self.threshold))
            kept = (dots(candidates, synthetic @ decoder.t(), projected) >= least).numpy()
        before = np.concatenate([[0], kept.cumsum()])  # kept candidates up to each
        ends, columns = candidates.crow_indices().numpy(), candidates.col_indices().numpy()[kept]
        start, index = torch.from_numpy(before[ends].astype(np.int32)), torch.from_numpy(columns)
        ones = torch.ones(columns.shape[0])
        return Links.make(csr(start, index, ones, (synthetic.shape[0], projected.shape[0])), ones)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        # A small start, U(±1/√h), because the squared loss on a sigmoid saturates otherwise.
        bound = server.model.hidden**-0.5
        decoder = torch.empty(server.model.hidden, server.model.hidden)
        return {
            **params,
            "decoder.weight": decoder.uniform_(-bound, bound, generator=server.torch_draws("decoder")),
        }

    def complete_from(self, last_round: int) -> int:
        return min(self.pretraining(last_round) + 1, last_round)

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared.inputs)


def between(rows: Tensor, parents: Tensor, partners: Tensor, delta: Tensor) -> Tensor:
    """A row for each pair of parent and partner, ``delta`` of the way from one to the other: [s, columns].

    Step 2 of GraphSMOTE in docs/reading-the-rivals.md.
    """
    return torch.lerp(rows.index_select(0, parents), rows.index_select(0, partners), delta[:, None])


def present_average(data: ClientData) -> float:
    """Training nodes per class, over the classes that the client has. It is 0 where the client has none.

    Choice: this average says both which classes are minorities and how far they grow. Over all C classes,
    most local classes would lie above it.
    """
    counts = class_counts(data)
    return float(counts.sum()) / max(int((counts > 0).sum()), 1)


def minority_members(data: ClientData) -> tuple[Tensor, ...]:
    """The training nodes of each class that has some, but fewer than the average."""
    counts = class_counts(data)
    minority = ((counts > 0) & (counts < present_average(data))).nonzero().reshape(-1)
    return tuple(
        (data.graph.y == c).nonzero().reshape(-1) for c in minority.tolist()
    )  # hidden labels are -1: training nodes only


def in_batches(members: Sequence[Tensor]) -> tuple[Rivals, ...]:
    """Classes of similar size together, so that little is padded."""
    batches: list[list[Tensor]] = []
    for nodes in sorted(members, key=len, reverse=True):
        if batches and (len(batches[-1]) + 1) * len(batches[-1][0]) ** 2 <= _BATCH:
            batches[-1].append(nodes)
        else:
            batches.append([nodes])
    return tuple(Rivals.of(batch) for batch in batches)


def member_places(rivals: Sequence[Rivals], num_nodes: int) -> Tensor:
    """Where each member stands among all of them, int64 [n]. Other nodes have any number."""
    out, first = torch.zeros(num_nodes, dtype=torch.int64), 0
    for each in rivals:
        own = each.repeated == 0
        out[each.nodes[own]] = (first + torch.arange(own.numel()).reshape(own.shape))[own]
        first += own.numel()
    return out


def nearest(rows: Tensor, rivals: Sequence[Rivals]) -> Tensor:
    """The nearest other member of each member's class by Euclidean distance: int64, batch after batch.

    A member without another is its own nearest.
    """
    found = []
    for each in rivals:
        own = rows[each.nodes]  # [b, l, h]
        squares = (own * own).sum(2).add_(each.repeated)[:, None]
        columns = own.transpose(1, 2)
        parts = []
        for start in range(0, own.shape[1], _CHUNK):
            distance = torch.baddbmm(
                squares, own[:, start : start + _CHUNK], columns, alpha=-2.0
            )  # squared, less the row's own square
            distance.diagonal(start, 1, 2).fill_(float("inf"))
            parts.append(each.nodes.gather(1, torch.from_numpy(distance.numpy().argmin(2))))
        found.append(torch.cat(parts, dim=1).reshape(-1))
    return torch.cat(found)


def reconstruction(projected: Tensor, edges: Tensor, draws: np.random.Generator) -> Tensor:
    """The edge reconstruction Σ_ij ω_ij (B_ij − A_ij)², with ω = 1 on edges and |E| / (n² − |E|) elsewhere.

    Its expectation over ``draws`` is the full sum.
    Choice: sampled pairs that are edges are not rejected. Pairs are drawn from all n², and what edges
    contribute to their sum is subtracted exactly. That is unbiased too, and no pair is looked up. A draw is a
    shift s, for the pairs (i, i + s) and (i, i - s) of all nodes i. There are as many pairs as entries of A,
    or up to n more. So every node is drawn equally often, and the gradient needs no sorting.
    """
    loss: Tensor = _Reconstruction.apply(projected, edges, draws)  # type: ignore[no-untyped-call]
    return loss


class _Reconstruction(torch.autograd.Function):
    """The loss with its gradient.

    Both patterns are symmetric, so a product with the slopes is half of the gradient.
    """

    @staticmethod
    def forward(ctx: Any, projected: Tensor, edges: Tensor, draws: np.random.Generator) -> Tensor:
        n, entries = projected.shape[0], edges.values().numel()
        if entries == 0:
            ctx.save_for_backward(torch.zeros_like(projected))
            return projected.new_zeros(())
        weight = entries / (n * n - entries)  # ω
        on_edges = dots(edges, projected, projected).sigmoid_()
        pairs = shifted_pairs(n, draws.integers(n, size=ceil(entries / 2 / n)))
        anywhere = dots(pairs, projected, projected).sigmoid_()
        size = n * n / anywhere.shape[0]
        loss = (
            (on_edges - 1).square_().sum()
            - weight * torch.dot(on_edges, on_edges)
            + weight * size * torch.dot(anywhere, anywhere)
        )
        on_slope = on_edges.mul(1 - weight).sub_(1).mul_(on_edges).mul_(1 - on_edges)
        slope = (1 - anywhere).mul_(anywhere).mul_(anywhere).mul_(weight * size)
        grad = torch.zeros_like(projected)
        for matrix in (with_values(edges, on_slope), with_values(pairs, slope)):
            grad.add_(Sparse(matrix, matrix).times(projected))
        ctx.save_for_backward(grad.mul_(4))  # 2 of the square, 2 of the symmetry
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        return grads[0] * grad, None, None


def shifted_pairs(n: int, shifts: np.ndarray[Any, Any]) -> Tensor:
    """The pattern of all (i, i + s) and (i, i - s) modulo n, [n, n]. A pair is there once for each draw."""
    columns = (np.arange(n)[:, None] + np.concatenate([shifts, -shifts])) % n
    start = torch.arange(0, columns.size + 1, columns.shape[1], dtype=torch.int32)
    return csr(
        start, torch.from_numpy(columns.reshape(-1).astype(np.int32)), torch.zeros(columns.size), (n, n)
    )
