"""FedGAC (our reading): attention apart from values, aggregation by agreement and by class.

Known: FedEPD cites "FedGAC" (li2024fedgac) as adaptive gradient aggregation coupled with decoupled attention for long-tailed federated
graphs, and prints its results. No paper, page or code of it could be found (the repository of that name on GitHub is another method), so
every formula below is ours (methods.md 8), made to fit that phrase; nothing here is the authors' and no number is a reproduction.
Down: the model, attention.project [d, a], attention.pair [a, 2].  Up: the same and class.count [C]: class counts leave the client.
Bytes per client: down 4 (|Θ| + d·a + 2a), up 4 (|Θ| + d·a + 2a + C), a = 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.gate import Field, Fields, same_fields
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import Loss, class_counts, class_mean, fit, model_part, reply, weight_of, weighted_mean, with_prefix
from fedepd.models import Backbone, glorot
from fedepd.options import option
from fedepd.sparse import Sparse, adjacency, spmm, to_scipy
from fedepd.types import ClientData, Graph, Reply, Tensors


@dataclass(frozen=True, eq=False)
class Edges:
    """Both directions of every edge and one self-loop per node, m = 2e + n in all, sorted by target: a symmetric CSR pattern."""

    offsets: Tensor
    """int32 [n + 1]: where each target's edges begin; never two equal, thanks to the self-loops."""
    columns: Tensor
    """int32 [m]: the sources."""
    target: Tensor
    """int64 [m]."""
    source: Tensor
    """int64 [m]."""
    mirror: Tensor
    """int64 [m]: where the same edge stands in the other direction."""

    @classmethod
    def of(cls, graph: Graph) -> Edges:
        pattern = sp.csr_matrix(adjacency(graph.edge_index, graph.num_nodes) + sp.identity(graph.num_nodes, format="csr"))
        pattern.sort_indices()
        places = sp.csr_matrix((np.arange(pattern.nnz), pattern.indices, pattern.indptr), shape=pattern.shape)
        source = torch.tensor(pattern.indices.astype(np.int64))
        return cls(
            offsets=torch.tensor(pattern.indptr.astype(np.int32)),
            columns=source.to(torch.int32),
            target=torch.repeat_interleave(torch.tensor(np.diff(pattern.indptr).astype(np.int64))),
            source=source,
            mirror=torch.tensor(sp.csr_matrix(places.T).data.astype(np.int64)),
        )

    @property
    def num_nodes(self) -> int:
        return self.offsets.shape[0] - 1

    def matrix(self, weights: Tensor) -> Tensor:
        """The CSR matrix [n, n] with these entries."""
        return torch.sparse_csr_tensor(self.offsets, self.columns, weights, size=(self.num_nodes,) * 2, check_invariants=False)

    def reduce(self, values: Tensor, how: str) -> Tensor:
        """The "sum" or "max" over each target's edges, at each of its edges: [m]."""
        return torch.segment_reduce(values, how, offsets=self.offsets.to(torch.int64)).index_select(0, self.target)


@dataclass(frozen=True, eq=False)
class Prepared:
    features: Sparse | Tensor
    """X itself, [n, d]: attention changes in every step, so no product with it can be cached."""
    score_scale: Tensor
    """[n, 1]: what a node's features are multiplied by before scoring."""
    edges: Edges
    train: Tensor
    """int64 [t]."""
    labels: Tensor
    """int64 [t]."""
    class_weights: Tensor
    """ω [C]; 0 for a class without training nodes."""
    counts: Tensor
    """Training nodes per class, float32 [C]."""


@final
@dataclass(frozen=True)
class FedGACReading(Method[Prepared]):
    label: ClassVar[str] = "FedGAC (our reading)"

    attention_width: int = option(16, "columns of the projection that attention scores are read from")
    score_rows: Literal["sum1", "raw"] = option("sum1", "attention scores read features whose absolute values sum to 1, or raw ones")
    # Choice: raw rows let one Adam step move a score by several units where a node has many words, and attention then overfits within
    # ten rounds; GAT's own code divides rows by their sums. Taken by validation macro-F1 (email, cora, coauthor_cs, roman_empire_proxy).
    slope: float = option(0.2, "slope of the leaky ReLU on attention scores below 0")
    beta: float = option(0.999, "effective-number weight of the balanced loss; 0: plain cross-entropy, 1: inverse class counts")
    kappa: float = option(0.25, "how much further the classifier of a rare class steps at the server; 0: not at all")
    longest_step: float = option(4.0, "the largest such factor")
    floor: float = option(1e-3, "say of a client whose update opposes the mean update, against 1 for one that agrees with it")

    def __post_init__(self) -> None:
        if self.attention_width < 1:
            raise BadConfig(f"attention_width is {self.attention_width}; the projection needs at least 1 column")
        if not 0 <= self.beta <= 1:
            raise BadConfig(f"beta is {self.beta}; it must lie in [0, 1]")
        if self.kappa < 0 or self.longest_step < 1 or self.floor < 0:
            raise BadConfig("kappa and floor must be 0 or more, longest_step 1 or more")

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        graph, counts = data.graph, class_counts(data)
        return Prepared(
            features=Sparse.of(to_scipy(graph.x)) if graph.is_sparse else graph.x,
            score_scale=1 / row_sums(graph.x) if self.score_rows == "sum1" else torch.ones(graph.num_nodes, 1),
            edges=Edges.of(graph),
            train=data.train_mask.nonzero().reshape(-1),
            labels=graph.y[data.train_mask],
            class_weights=effective_weights(counts, self.beta),
            counts=counts.to(torch.float32),
        )

    def logits(self, params: Tensors, model: Backbone, prepared: Prepared, draws: np.random.Generator | None = None) -> Tensor:
        """The backbone with attention in place of its convolution and ELU in place of ReLU: [n, C]."""
        # Choice: one attention, scored on the raw features, serves both layers: with it the traffic is the spec's |Θ| + 16 d + 32.
        alpha = edge_softmax(self.scores(params, prepared), prepared.edges)

        def layer(times: Callable[[Tensor], Tensor], name: str) -> Tensor:
            weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
            if model.backbone == "gcn":
                return attend(alpha, times(weight), prepared.edges) + bias
            neighbours, own = weight.chunk(2)
            return attend(alpha, times(neighbours), prepared.edges) + times(own) + bias

        def hidden(times: Callable[[Tensor], Tensor], name: str) -> Tensor:
            h = F.elu(layer(times, name))  # [n, h]
            mask = model.dropout_mask(h.shape[0], draws) if draws is not None else None
            return h if mask is None else h * mask

        h = hidden(lambda weight: product(prepared.features, weight), "encoder")
        if model.head == "gcn":
            return layer(h.mm, "classifier")
        return model.classify(params, hidden(h.mm, "encoder.second"))

    def scores(self, params: Tensors, prepared: Prepared) -> Tensor:
        """s_ij = LeakyReLU(a1·U x_i + a2·U x_j) for every edge j -> i: [m]."""
        pair = product(prepared.features, params["attention.project"] @ params["attention.pair"])  # X (U [a1 a2]), [n, 2]
        at_target, at_source = (pair * prepared.score_scale).t().contiguous()
        edges = prepared.edges
        return F.leaky_relu(at_target.index_select(0, edges.target) + at_source.index_select(0, edges.source), self.slope)

    def client_step(self, client: Client[Prepared], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        """Each epoch: one step of the values on plain cross-entropy, then one of the attention on the class-balanced loss."""
        params, losses = message, []
        plain = self._loss(client, "dropout", None)
        balanced = self._loss(client, "dropout of attention", client.prepared.class_weights)
        values, attention = sorted(model_part(message)), sorted(with_prefix(message, "attention."))
        for _ in range(client.training.epochs):
            params, state, loss = fit(client, params, state, plain, trainable=values, epochs=1, stage="values")
            params, state, _ = fit(client, params, state, balanced, trainable=attention, epochs=1, stage="attention")
            losses.append(loss)
        # Choice: counts go with every reply (4 C bytes), not once, so that the server needs no memory of who joined when.
        sent = {**params, "class.count": client.prepared.counts}
        return reply(client, sent, loss=float(np.mean(losses)) if losses else float("nan")), {**state, **params}

    def _loss(self, client: Client[Prepared], purpose: str, class_weights: Tensor | None) -> Loss:
        draws, prepared = client.draws(purpose), client.prepared

        def loss(params: Tensors) -> Tensor:
            logits = self.logits(params, client.model, prepared, draws)
            return F.cross_entropy(logits[prepared.train], prepared.labels, weight=class_weights)  # Σ ω CE / Σ ω

        return loss

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        draws = server.torch_draws("attention")
        return {
            **params,
            "attention.project": glorot(server.info.num_features, self.attention_width, draws),
            "attention.pair": glorot(self.attention_width, 2, draws),
        }

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        shared = with_prefix(tensors, "encoder.", "attention.")
        weights = agreement_weights(shared, replies, {k: weight_of(server.info, r) for k, r in replies.items()}, self.floor)
        return {**weighted_mean(shared, replies, weights), **self._classifier(with_prefix(tensors, "classifier."), replies)}

    def _classifier(self, classifier: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        """Column c moves to the mean over the owners of class c, weighted by N_k^c, and r_c times as far; unowned columns stay."""
        counts = {k: r.tensors["class.count"] for k, r in replies.items()}
        total = torch.stack(list(counts.values())).sum(0)
        further = (total.max() / total.clamp(min=1)).pow(self.kappa).clamp(1.0, self.longest_step)  # r_c, [C]
        out: Tensors = {}
        for name, old in classifier.items():
            mean = class_mean(old.t(), ((replies[k].tensors[name].t(), counts[k]) for k in sorted(replies))).t()
            out[name] = (mean + (further - 1) * (mean - old)).contiguous()
        return out

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return {**same_fields(tensors), "class.count": Field((server.info.num_classes,), "count")}

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        with torch.no_grad():
            return self.logits(tensors, client.model, client.prepared)


def effective_weights(counts: Tensor, beta: float) -> Tensor:
    """ω_c = (1 - β) / (1 - β^N_c), float32 [C]; its limit 1 / N_c at β = 1; 0 where N_c = 0."""
    n = counts.to(torch.float64).clamp(min=1)
    weights = 1 / n if beta == 1 else (1 - beta) / (1 - beta**n)
    return torch.where(counts > 0, weights, 0.0).to(torch.float32)


def agreement_weights(tensors: Tensors, replies: Mapping[int, Reply], weights: Mapping[int, float], floor: float) -> dict[int, float]:
    """q_k = w_k (max(0, cos(Δ_k, Δ̄)) + floor), Δ̄ = Σ w_k Δ_k; w itself where no update agrees with the mean.

    Choice: the floor is a share of w_k, so that parallel updates give exactly FedAvg and a client without training nodes no say.
    """
    total = sum(weights.values())
    if total <= 0:
        return dict(weights)
    updates = torch.stack([torch.cat([(r.tensors[name] - old).reshape(-1) for name, old in tensors.items()]) for r in replies.values()])
    w = torch.tensor([weights[k] / total for k in replies])
    cosines = F.cosine_similarity(updates, (w @ updates)[None], dim=1).clamp(min=0).tolist()
    if not any(cosines):
        return dict(weights)
    return {k: weights[k] * (cosine + floor) for k, cosine in zip(replies, cosines, strict=True)}


def row_sums(x: Tensor) -> Tensor:
    """Σ |x_ij|, [n, 1]; 1 for a row of zeros."""
    sums = torch.tensor(abs(to_scipy(x)).sum(1), dtype=torch.float32) if x.layout == torch.sparse_csr else x.abs().sum(1, keepdim=True)
    return torch.where(sums > 0, sums, 1.0)


def product(features: Sparse | Tensor, weight: Tensor) -> Tensor:
    """X W, with a gradient for W: [n, columns]."""
    return spmm(features, weight) if isinstance(features, Sparse) else features @ weight


class _EdgeSoftmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, edges: Edges) -> Tensor:
        weights = (scores - edges.reduce(scores, "max")).exp_()
        alpha = weights.div_(edges.reduce(weights, "sum"))
        ctx.save_for_backward(alpha)
        ctx.edges = edges
        return alpha

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (alpha,) = ctx.saved_tensors
        weighted = alpha * grads[0]
        return weighted - alpha * ctx.edges.reduce(weighted, "sum"), None


def edge_softmax(scores: Tensor, edges: Edges) -> Tensor:
    """α, the softmax of the scores over each target's edges: [m]."""
    alpha: Tensor = _EdgeSoftmax.apply(scores, edges)  # type: ignore[no-untyped-call]
    return alpha


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, alpha: Tensor, values: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(alpha, values)
        ctx.edges = edges
        return torch.mm(edges.matrix(alpha), values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        alpha, values = ctx.saved_tensors
        edges, grad = ctx.edges, grads[0].contiguous()
        grad_alpha = grad_values = None
        if ctx.needs_input_grad[0]:  # g_i · v_j on the edges alone, without an [m, h] intermediate
            grad_alpha = torch.sparse.sampled_addmm(edges.matrix(alpha), grad, values.t(), beta=0.0).values()
        if ctx.needs_input_grad[1]:
            grad_values = torch.mm(edges.matrix(alpha.index_select(0, edges.mirror)), grad)
        return grad_alpha, grad_values, None


def attend(alpha: Tensor, values: Tensor, edges: Edges) -> Tensor:
    """Σ_j α_ij v_j: [n, columns]."""
    out: Tensor = _Attend.apply(alpha, values, edges)  # type: ignore[no-untyped-call]
    return out
