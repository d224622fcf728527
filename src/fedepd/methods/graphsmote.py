"""GraphSMOTE: interpolate rare training nodes in embedding space and wire them by a learned edge predictor; federated by FedAvg.

Zhao, Zhang, Wang, "GraphSMOTE: Imbalanced Node Classification on Graphs with Graph Neural Networks", WSDM 2021, arXiv 2103.08826.
Official code: TianxiangZhao/GraphSmote @80c1160 (read, not copied). Equation numbers (b.1-b.7) are those of methods.md, section 4.
Down: the model, decoder.weight [h, h].  Up: the same.  Bytes each way per client: 4 (|Θ| + h²).
Ours: the two-layer backbone instead of three weight layers; the minority list and the class average are local, over the classes that
are present; non-edges of the reconstruction are sampled, so that nothing is quadratic in nodes; a node's neighbour is looked up among
all nodes (the official code uses the position within the class as if it were a node); synthetic nodes are in the loss.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.gate import Fields, same_fields
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import Loss, average, class_counts, fit, reply, with_prefix
from fedepd.models import Backbone, Inputs
from fedepd.options import option
from fedepd.sparse import Sparse, adjacency, spmm
from fedepd.types import ClientData, Reply, Tensors

OWN_LR = 1e-3
_CHUNK = 1024
"""Rows of a class whose distances are held at a time."""
_PAIRS = 1 << 14
"""Pairs of rows multiplied at a time."""
_SMALLEST = 1e-6
"""A weighted degree below this is no neighbourhood."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    adj: sp.csr_matrix
    """A, 0/1, [n, n]."""
    train_adj: Sparse
    """A[train], [t, n]."""
    degrees: Tensor
    """float32 [n]."""
    members: tuple[Tensor, ...]
    """The training nodes of each minority class."""
    parents: Tensor
    """int64 [s]: the real node that each synthetic node starts from; the same in every step."""
    passes: Tensor
    """int64 [s]: which pass over which class a synthetic node belongs to."""
    labels: Tensor
    """int64 [t + s]: classes of the training nodes, then of the synthetic nodes."""


@final
@dataclass(frozen=True)
class GraphSMOTE(Method[Prepared]):
    label: ClassVar[str] = "GraphSMOTE"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "official": {"up_scale": 1.0, "interpolate": "pass", "optimizer_own": True},
    }

    up_scale: float = option(0.0, "synthetic nodes per training node of a minority class; 0: as many passes as fit into the class average")
    wiring: Literal["threshold", "soft"] = option("threshold", "synthetic edges: predicted and cut at the threshold (T), or the scores (O)")
    threshold: float = option(0.5, "score from which a candidate edge is kept, with wiring threshold")
    interpolate: Literal["node", "pass"] = option("node", "one place per synthetic node (paper) or per pass over a class (official)")
    rec_weight: float = option(1e-6, "lambda: weight of the edge reconstruction in the loss")
    pretrain_rounds: int = option(0, "first rounds that train encoder and decoder on the reconstruction alone")
    optimizer_own: bool = option(False, "the official Adam, lr 0.001, in place of the run's optimiser")

    def __post_init__(self) -> None:
        for name in ("up_scale", "rec_weight", "pretrain_rounds"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        if not 0 < self.threshold < 1:
            raise BadConfig(f"threshold is {self.threshold}; it must lie in (0, 1)")

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        inputs = model.inputs(data)
        adj = adjacency(data.graph.edge_index, data.graph.num_nodes)
        members = minority_members(data)
        parents, passes = self._plan(data, members)
        return Prepared(
            inputs=inputs,
            adj=adj,
            train_adj=Sparse.of(adj[inputs.train.numpy()]),
            degrees=torch.from_numpy(np.asarray(adj.sum(1), dtype=np.float32).reshape(-1)),
            members=members,
            parents=parents,
            passes=passes,
            labels=torch.cat([inputs.labels, data.graph.y[parents]]),
        )

    def _plan(self, data: ClientData, members: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The parents of all synthetic nodes and the passes they belong to.

        Choice: floor(average / N) passes of N nodes each, as the official code counts, so a class ends above the average by at most N.
        """
        parents, passes = [torch.empty(0, dtype=torch.int64)], [torch.empty(0, dtype=torch.int64)]
        for position, nodes in enumerate(members):
            size = nodes.shape[0]
            count = int(present_average(data) / size) * size if self.up_scale == 0 else int(self.up_scale * size)
            order = torch.arange(count)
            parents.append(nodes[order % size])
            passes.append((order // size) * len(members) + position)
        return torch.cat(parents), torch.unique(torch.cat(passes), return_inverse=True)[1]

    def client_step(self, client: Client[Prepared], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        if self.optimizer_own:
            client = client.trained_by(optimizer="adam", lr=OWN_LR)
        params = with_prefix(message, "encoder.", "classifier.", "decoder.")
        if client.round <= self.pretrain_rounds:
            names = sorted(with_prefix(params, "encoder.", "decoder."))
            params, state, loss = fit(client, params, state, self._pretraining_loss(client), trainable=names, stage="pretrain")
        else:
            params, state, loss = fit(client, params, state, self._loss(client))
        return reply(client, params, loss=loss), {**state, **params}

    def _pretraining_loss(self, client: Client[Prepared]) -> Loss:
        dropout, pairs = client.draws("dropout"), client.draws("reconstruction")

        def loss(params: Tensors) -> Tensor:
            hidden = client.model.encode(params, client.prepared.inputs, dropout)
            return reconstruction(hidden @ params["decoder.weight"].t(), client.data.graph.edge_index, pairs)

        return loss

    def _loss(self, client: Client[Prepared]) -> Loss:
        model, prepared = client.model, client.prepared
        dropout, places, pairs = client.draws("dropout"), client.draws("interpolation"), client.draws("reconstruction")

        def loss(params: Tensors) -> Tensor:
            hidden = model.encode(params, prepared.inputs, dropout)  # b.1, [n, h]
            if prepared.parents.numel():
                logits = model.classify(params, self._enlarged(client, params, hidden, places))  # b.6
            else:
                logits = model.logits(params, hidden, prepared.inputs, train_only=True)
            total = F.cross_entropy(logits, prepared.labels)  # b.7
            if self.rec_weight == 0:
                return total
            return total + self.rec_weight * reconstruction(hidden @ params["decoder.weight"].t(), client.data.graph.edge_index, pairs)

        return loss

    def _enlarged(self, client: Client[Prepared], params: Tensors, hidden: Tensor, places: np.random.Generator) -> Tensor:
        """S of the training nodes, then of the synthetic nodes: [t + s, width]."""
        prepared = client.prepared
        partners = nearest_members(hidden.detach(), prepared.members)[prepared.parents]
        delta = torch.from_numpy(places.random(prepared.parents.shape[0], dtype=np.float32))
        if self.interpolate == "pass":
            delta = delta[prepared.passes]
        synthetic = torch.lerp(hidden[prepared.parents], hidden[partners], delta[:, None])  # b.2, [s, h]
        if client.model.head == "linear":
            return torch.cat([hidden[prepared.inputs.train], synthetic])
        links = self._wire(params["decoder.weight"], hidden, synthetic, candidate_pairs(prepared.adj, prepared.parents, partners))
        return smooth_enlarged(client.model, prepared, hidden, synthetic, links)

    def _wire(self, decoder: Tensor, hidden: Tensor, synthetic: Tensor, candidates: Tensor) -> Links:
        """b.5: the rows of the synthetic nodes in the enlarged adjacency."""
        if self.wiring == "soft":
            return Links.make(candidates, edge_scores(synthetic @ decoder.t(), hidden @ decoder.t(), candidates), hidden, synthetic)
        with torch.no_grad():
            scores = edge_scores(synthetic @ decoder.t(), hidden @ decoder.t(), candidates)
        kept = candidates[:, scores >= self.threshold]
        return Links.make(kept, torch.ones(kept.shape[1]), hidden, synthetic)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        # A small start, U(±1/√h): the squared loss on a sigmoid saturates otherwise.
        bound = server.model.hidden**-0.5
        decoder = torch.empty(server.model.hidden, server.model.hidden)
        return {**params, "decoder.weight": decoder.uniform_(-bound, bound, generator=server.torch_draws("decoder"))}

    def complete_from(self, last_round: int) -> int:
        return min(self.pretrain_rounds + 1, last_round)

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        return client.model.predict(tensors, client.prepared.inputs)


def present_average(data: ClientData) -> float:
    """Training nodes per class, over the classes that the client has; 0 where it has none.

    Choice: one average says who is a minority and how far it grows; over all C classes most local classes would lie above it.
    """
    counts = class_counts(data)
    return float(counts.sum()) / max(int((counts > 0).sum()), 1)


def minority_members(data: ClientData) -> tuple[Tensor, ...]:
    """The training nodes of each class that has some, but fewer than the average."""
    counts = class_counts(data)
    minority = ((counts > 0) & (counts < present_average(data))).nonzero().reshape(-1)
    return tuple((data.graph.y == c).nonzero().reshape(-1) for c in minority.tolist())  # hidden labels are -1: training nodes only


def nearest_members(rows: Tensor, members: Sequence[Tensor]) -> Tensor:
    """The nearest other member of a node's class by Euclidean distance; where there is no other, the node itself: int64 [n]."""
    nearest = torch.arange(rows.shape[0])
    for nodes in members:
        if nodes.shape[0] < 2:
            continue
        own = rows[nodes]
        squares = (own * own).sum(1)
        for start in range(0, nodes.shape[0], _CHUNK):
            part = own[start : start + _CHUNK]
            distance = torch.addmm(squares, part, own.t(), alpha=-2.0)  # squared, less the row's own square: the same order
            distance.diagonal(start).fill_(float("inf"))
            nearest[nodes[start : start + _CHUNK]] = nodes[distance.argmin(1)]
    return nearest


def candidate_pairs(adj: sp.csr_matrix, parents: Tensor, partners: Tensor) -> Tensor:
    """(synthetic node, real node) for every neighbour of the parent or of its partner, once each: int64 [2, m]."""
    union = sp.coo_matrix(adj[parents.numpy()] + adj[partners.numpy()])
    return torch.from_numpy(np.stack([union.row, union.col]).astype(np.int64))


def edge_scores(left: Tensor, right: Tensor, pairs: Tensor) -> Tensor:
    """b.3: B_ij = σ(⟨S e_i, S e_j⟩) for the listed pairs of projected rows, [m]."""
    dots: Tensor = _PairDots.apply(left, right, pairs)  # type: ignore[no-untyped-call]
    return torch.sigmoid(dots)


def reconstruction(projected: Tensor, edges: Tensor, draws: np.random.Generator) -> Tensor:
    """b.4: Σ_ij ω_ij (B_ij − A_ij)², ω = 1 on edges and |E| / (n² − |E|) elsewhere; in expectation over ``draws`` the full sum.

    Choice: instead of rejecting edges among the sampled pairs, as many pairs as edges are drawn from all n², and what edges contribute
    to that sum is subtracted exactly: unbiased too, and no look-up per pair.
    """
    n, e = projected.shape[0], edges.shape[1]
    if e == 0:
        return projected.sum() * 0
    drawn = torch.from_numpy(draws.integers(n, size=(2, e)))
    scores = edge_scores(projected, projected, torch.cat([edges, drawn], dim=1))
    on_edges, anywhere = scores[:e], scores[e:]
    missing = n * n / e * anywhere.square().sum() - 2 * on_edges.square().sum()  # each undirected edge is two entries of A
    return 2 * (on_edges - 1).square().sum() + 2 * e / (n * n - 2 * e) * missing


@dataclass(frozen=True, eq=False)
class Links:
    """The weighted edges between synthetic and real nodes."""

    pairs: Tensor
    """int64 [2, m]: synthetic node, real node."""
    weights: Tensor
    """[m], with a gradient where the scores themselves are the weights."""
    matrix: Sparse
    """The same as numbers, [s, n]."""

    @classmethod
    def make(cls, pairs: Tensor, weights: Tensor, hidden: Tensor, synthetic: Tensor) -> Links:
        return cls(pairs, weights, _scattered(weights, pairs, synthetic.shape[0], hidden.shape[0]))

    def to_synthetic(self, rows: Tensor) -> Tensor:
        out: Tensor = _WeightedSum.apply(self.weights, rows, self.matrix, self.pairs)  # type: ignore[no-untyped-call]
        return out

    def to_real(self, rows: Tensor) -> Tensor:
        flipped = Sparse(self.matrix.transposed, self.matrix.matrix)
        out: Tensor = _WeightedSum.apply(self.weights, rows, flipped, self.pairs.flip(0))  # type: ignore[no-untyped-call]
        return out


def smooth_enlarged(model: Backbone, prepared: Prepared, hidden: Tensor, synthetic: Tensor, links: Links) -> Tensor:
    """S on the enlarged graph, normalised anew: rows of the training nodes, then of the synthetic nodes, [t + s, width]."""
    train = prepared.inputs.train
    real_degrees = prepared.degrees.index_add(0, links.pairs[1], links.weights)
    new_degrees = torch.zeros(synthetic.shape[0]).index_add(0, links.pairs[0], links.weights)
    if model.backbone == "sage":
        real = (spmm(prepared.train_adj, hidden) + links.to_real(synthetic)[train]) / real_degrees[train, None].clamp(min=_SMALLEST)
        new = links.to_synthetic(hidden) / new_degrees[:, None].clamp(min=_SMALLEST)
        return torch.cat([torch.cat([real, new]), torch.cat([hidden[train], synthetic])], dim=1)
    real_scale, new_scale = (real_degrees + 1).rsqrt()[:, None], (new_degrees + 1).rsqrt()[:, None]  # Eq. 10 of FedEPD, both blocks
    h, e = real_scale * hidden, new_scale * synthetic
    real = real_scale[train] * (spmm(prepared.train_adj, h) + h[train] + links.to_real(e)[train])
    return torch.cat([real, new_scale * (e + links.to_synthetic(h))])


def _scattered(values: Tensor, pairs: Tensor, rows: int, columns: int) -> Sparse:
    return Sparse.of(sp.coo_matrix((values.detach().numpy(), tuple(pairs.numpy())), shape=(rows, columns)))


def _pair_dots(left: Tensor, right: Tensor, pairs: Tensor) -> Tensor:
    out = left.new_empty(pairs.shape[1])
    for start in range(0, pairs.shape[1], _PAIRS):
        i, j = pairs[:, start : start + _PAIRS]
        out[start : start + _PAIRS] = left.index_select(0, i).mul_(right.index_select(0, j)).sum(1)
    return out


class _PairDots(torch.autograd.Function):
    """⟨left_i, right_j⟩ for pairs (i, j). Its gradient is a sparse product, so no [pairs, h] array outlives a chunk."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, pairs: Tensor) -> Tensor:
        ctx.save_for_backward(left, right, pairs)
        return _pair_dots(left, right, pairs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        left, right, pairs = ctx.saved_tensors
        spread = _scattered(grads[0], pairs, left.shape[0], right.shape[0])
        return spread.times(right), spread.transposed_times(left), None


class _WeightedSum(torch.autograd.Function):
    """matrix @ rows, where ``weights`` are the entries of ``matrix`` at ``pairs``: a gradient for both."""

    @staticmethod
    def forward(ctx: Any, weights: Tensor, rows: Tensor, matrix: Sparse, pairs: Tensor) -> Tensor:
        ctx.save_for_backward(rows, pairs)
        ctx.matrix = matrix
        return matrix.times(rows)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor, None, None]:
        rows, pairs = ctx.saved_tensors
        grad_weights = _pair_dots(grads[0], rows, pairs) if ctx.needs_input_grad[0] else None
        return grad_weights, ctx.matrix.transposed_times(grads[0].contiguous()), None, None
