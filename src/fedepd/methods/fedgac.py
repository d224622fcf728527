"""FedGAC (our reading): attention apart from values, aggregation by agreement and by class.

FedEPD's paper cites "FedGAC" (li2024fedgac) as adaptive gradient aggregation coupled with decoupled attention
for long-tailed federated graphs, and prints its results. No paper, page or code of it could be found. The
repository of that name on GitHub is another method. So every formula below is ours, made to fit that phrase.
Nothing here is the authors', and no number is a reproduction.
Down: the model, attention.project [d, a], attention.pair [a, 2].
Up: the same and class.count [C], so class counts leave the client.
Bytes per client: down 4 (|Θ| + d·a + 2a), up 4 (|Θ| + d·a + 2a + C), a = 16.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server, weight_of
from fedepd.methods.steps import (
    class_counts,
    class_mean,
    fit,
    model_part,
    reply,
    weighted_mean,
    with_prefix,
)
from fedepd.network.attention import Edges, Rows, attend, edge_softmax
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs, convolves_first, glorot, layer_names
from fedepd.network.convolution import Convolution, side_by_side
from fedepd.network.sparse import Sparse, adjacency, factor_of, to_scipy
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, Tensors, same_fields

_LOWEST = -80.0
"""Below about -87 the exponential is a denormal number, which takes ten times as long."""


@dataclass(frozen=True, eq=False)
class Prepared:
    features: Sparse | Tensor
    """X itself, [n, d]. Attention changes in every step, so no product with it can be cached."""
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
    inputs: Inputs | None
    """What a network other than gcn and sage reads."""


@dataclass(frozen=True, eq=False)
class Known:
    """Products with the features that two steps in a row need.

    A step of the values does not change the attention, and a step of the attention does not change the
    values.
    """

    values: Tensor | None = None
    """X W of the first layer."""
    pair: Tensor | None = None
    """X (U [a1 a2]), [n, 2]."""


NOTHING = Known()


@final
@dataclass(frozen=True)
class FedGACReading(Method[Prepared]):
    label: ClassVar[str] = "FedGAC (our reading)"

    attention_width: int = option(16, "columns of the projection that attention scores are read from")
    score_rows: Literal["sum1", "raw"] = option(
        "sum1", "attention scores read features whose absolute values sum to 1, or raw ones"
    )
    # Choice: sum1, by validation macro-F1 (email, cora, coauthor_cs, roman_empire_proxy). With raw rows one
    # Adam step moves a score by several units where a node has many words, and attention then overfits within
    # ten rounds. GAT's own code divides rows by their sums too.
    slope: float = option(0.2, "slope of the leaky ReLU on attention scores below 0")
    # Choice: 0.9 instead of the usual 0.999, by the search that every method had (docs/methods.md). With
    # 0.999, rare classes outweigh all others on roman_empire_proxy, and the model falls below FedAvg.
    beta: float = option(
        0.9,
        "effective-number weight of the balanced loss; 0: plain cross-entropy, 1: inverse class counts",
        search=ladder(0.5, 0.9, 0.99, below=0.0, above=0.999),
    )
    kappa: float = option(
        0.25,
        "how much further the classifier of a rare class steps at the server; 0: not at all",
        search=ladder(0.0, 0.25, 0.5, above=1.0),
    )
    longest_step: float = option(4.0, "the largest such factor")
    floor: float = option(
        1e-3, "say of a client whose update opposes the mean update, against 1 for one that agrees with it"
    )

    def __post_init__(self) -> None:
        if self.attention_width < 1:
            raise BadConfig(
                f"attention_width is {self.attention_width}; the projection needs at least 1 column"
            )
        if not 0 <= self.beta <= 1:
            raise BadConfig(f"beta is {self.beta}; it must lie in [0, 1]")
        if self.kappa < 0 or self.longest_step < 1 or self.floor < 0:
            raise BadConfig("kappa and floor must be 0 or more, longest_step 1 or more")

    @property
    def needs_single_replies(self) -> str:
        return "FedGAC weighs each client by how far it agrees with the others"

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        graph, counts = data.graph, class_counts(data)
        train = data.train_mask.nonzero().reshape(-1)
        return Prepared(
            features=factor_of(graph.x),
            score_scale=1 / row_sums(graph.x)
            if self.score_rows == "sum1"
            else torch.ones(graph.num_nodes, 1),
            edges=Edges.of(adjacency(graph.edge_index, graph.num_nodes), train),
            train=train,
            labels=graph.y[train],
            class_weights=effective_weights(counts, self.beta),
            counts=counts.to(torch.float32),
            inputs=None if isinstance(model.network, Convolution) else model.inputs(data),
        )

    def logits(
        self,
        params: Tensors,
        model: Backbone,
        prepared: Prepared,
        draws: np.random.Generator | None = None,
        known: Known = NOTHING,
        train_only: bool = False,
    ) -> Tensor:
        """The backbone with attention instead of its convolution, and ELU instead of ReLU.

        Logits [n, C], or [t, C] of the training nodes.
        """
        # Choice: one attention, scored on the raw features, serves all layers. It costs 16 d + 32 numbers
        # beside the model.
        alpha = edge_softmax(self.scores(params, prepared, known), prepared.edges)
        rows = prepared.edges.train if train_only else prepared.edges.every
        if prepared.inputs is not None:
            # Choice: another network's layers are its own. The attention then stands between its S and the
            # classifier.
            inputs = prepared.inputs
            s = model.smooth(params, model.encode(params, inputs, draws), inputs)
            return attend(alpha, s @ params["classifier.weight"], rows) + params["classifier.bias"]

        def activated(values: Tensor, bias: Tensor) -> Tensor:
            mask = model.dropout_mask(values.shape[0], draws) if draws is not None else None
            return elu(values + bias, mask)  # [n, h]

        h = activated(self._first_values(params, model, prepared, alpha, known), params["encoder.bias"])
        for name in layer_names(model)[1:]:
            wide = self._smooth(model, prepared, alpha, h, prepared.edges.every)
            h = activated(wide @ params[f"{name}.weight"], params[f"{name}.bias"])
        if model.head == "linear":
            return model.classify(params, h[prepared.train] if train_only else h)
        weight = params["classifier.weight"]
        if model.backbone == "gcn" and weight.shape[1] < model.hidden:
            return attend(alpha, h @ weight, rows) + params["classifier.bias"]
        return model.classify(params, self._smooth(model, prepared, alpha, h, rows))

    def _first_values(
        self, params: Tensors, model: Backbone, prepared: Prepared, alpha: Tensor, known: Known
    ) -> Tensor:
        """The first layer before bias and activation: [n, h]."""
        values = product(prepared.features, side_by_side(model, params["encoder.weight"]), known.values)
        if not convolves_first(model):
            return values
        attended = attend(alpha, values[:, : model.hidden], prepared.edges.every)
        return attended if model.backbone == "gcn" else attended + values[:, model.hidden :]

    def _smooth(self, model: Backbone, prepared: Prepared, alpha: Tensor, h: Tensor, rows: Rows) -> Tensor:
        """What a later layer reads: the attended values, with sage beside the node's own."""
        attended = attend(alpha, h, rows)
        if model.backbone == "gcn":
            return attended
        return torch.cat([attended, h[prepared.train] if rows is prepared.edges.train else h], dim=1)

    def scores(self, params: Tensors, prepared: Prepared, known: Known = NOTHING) -> Tensor:
        """s_ij = LeakyReLU(a1·U x_i + a2·U x_j) for every edge j -> i: [m]."""
        pair = product(prepared.features, directions(params), known.pair)  # [n, 2]
        at_target, at_source = (pair * prepared.score_scale).t().contiguous()
        edges = prepared.edges
        return F.leaky_relu(
            at_target.index_select(0, edges.target) + at_source.index_select(0, edges.source), self.slope
        )

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        """Each epoch has one step of the values on plain cross-entropy, then one of the attention on the
        balanced loss.
        """
        model, features = client.model, client.prepared.features
        plain = self._loss(client, "dropout", None)
        balanced = self._loss(client, "dropout of attention", client.prepared.class_weights)
        attention, moments = with_prefix(message, "attention."), with_prefix(state, "attention.moments.")
        known = NOTHING

        def attention_step(values: Tensors) -> None:
            nonlocal attention, moments, known
            if client.prepared.inputs is None:
                first = product(features, side_by_side(model, values["encoder.weight"]))
                known = replace(known, values=first)
            both, loss, names = {**values, **attention}, partial(balanced, known=known), sorted(attention)
            through = client.trained_by(
                keep_moments=True
            )  # from one step of this round to the next, as the values' moments are
            both, moments, _ = fit(through, both, moments, loss, trainable=names, epochs=1, stage="attention")
            attention = with_prefix(both, "attention.")

        def values_loss(values: Tensors) -> Tensor:
            """Before every step of the values but the first, the attention takes the step that follows the
            one before.
            """
            nonlocal known
            if known.pair is not None:
                attention_step({name: value.detach() for name, value in values.items()})
            known = replace(known, pair=product(features, directions(attention)))
            return plain({**values, **attention}, known=known)

        values, state, loss = fit(client, model_part(message), state, values_loss, stage="values")
        if known.pair is not None:
            attention_step(values)
        # Choice: counts go with every reply (4 C bytes), so that the server need not remember who joined
        # when.
        params = {**values, **attention}
        moments = moments if client.training.keep_moments else {}
        return reply(client, {**params, "class.count": client.prepared.counts}, loss=loss), {
            **state,
            **moments,
            **params,
        }

    def _loss(
        self, client: Client[Prepared], purpose: str, class_weights: Tensor | None
    ) -> Callable[..., Tensor]:
        draws, prepared = client.draws(purpose), client.prepared

        def loss(params: Tensors, known: Known = NOTHING) -> Tensor:
            logits = self.logits(params, client.model, prepared, draws, known, train_only=True)
            return F.cross_entropy(logits, prepared.labels, weight=class_weights)  # Σ ω CE / Σ ω

        return loss

    def adaptation(
        self, client: Client[Prepared], tensors: Tensors
    ) -> tuple[Tensors, Callable[[Tensors], Tensor]]:
        """The values, by their plain cross-entropy. The attention stays as it is.

        Choice: one loss trains all that moves. The attention's own loss would need steps in between.
        """
        plain, attention = self._loss(client, "dropout", None), with_prefix(tensors, "attention.")
        known = Known(pair=product(client.prepared.features, directions(attention)))
        return model_part(tensors), lambda values: plain({**values, **attention}, known=known)

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        draws = server.torch_draws("attention")
        return {
            **params,
            "attention.project": glorot(server.info.num_features, self.attention_width, draws),
            "attention.pair": glorot(self.attention_width, 2, draws),
        }

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        shared = with_prefix(tensors, "encoder.", "attention.")
        weights = agreement_weights(
            shared, replies, {k: weight_of(server.info, r) for k, r in replies.items()}, self.floor
        )
        return {
            **weighted_mean(shared, replies, weights),
            **self._classifier(with_prefix(tensors, "classifier."), replies),
        }

    def _classifier(self, classifier: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        """Column c moves towards the mean of the owners of class c, weighted by N_k^c, and r_c times as far.

        Columns that nobody owns stay.
        """
        counts = {k: r.tensors["class.count"] for k, r in replies.items()}
        total = torch.stack(list(counts.values())).sum(0)
        further = (total.max() / total.clamp(min=1)).pow(self.kappa).clamp(1.0, self.longest_step)  # r_c, [C]
        out: Tensors = {}
        for name, old in classifier.items():
            mean = class_mean(
                old.t(), ((replies[k].tensors[name].t(), counts[k]) for k in sorted(replies))
            ).t()
            out[name] = (mean + (further - 1) * (mean - old)).contiguous()
        return out

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return {**same_fields(tensors), "class.count": Field((server.info.num_classes,), "count")}

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        with torch.no_grad():
            return self.logits(tensors, client.model, client.prepared)

    def classifier_reads(self, client: Client[Prepared], tensors: Tensors) -> None:
        """Nothing: the attention stands between the network and its last layer, or behind it."""


def effective_weights(counts: Tensor, beta: float) -> Tensor:
    """ω_c = (1 - β) / (1 - β^N_c), float32 [C]. At β = 1 it is the limit 1 / N_c. Where N_c = 0, it is 0."""
    n = counts.to(torch.float64).clamp(min=1)
    weights = 1 / n if beta == 1 else (1 - beta) / (1 - beta**n)
    return torch.where(counts > 0, weights, 0.0).to(torch.float32)


def agreement_weights(
    tensors: Tensors, replies: Mapping[int, Reply], weights: Mapping[int, float], floor: float
) -> dict[int, float]:
    """q_k = w_k (max(0, cos(Δ_k, Δ̄)) + floor), where Δ̄ = Σ w_k Δ_k. Where no update agrees with the mean,
    it is w_k.

    Choice: the floor is a share of w_k. So parallel updates give exactly FedAvg, and a client without
    training nodes has no weight.
    """
    total = sum(weights.values())
    if total <= 0:
        return dict(weights)
    products = torch.zeros(len(replies), len(replies), dtype=torch.float64)  # Δ_j · Δ_k
    for name, old in tensors.items():
        updates = torch.stack([(r.tensors[name] - old).reshape(-1) for r in replies.values()])
        products += updates @ updates.t()
    w = torch.tensor([weights[k] / total for k in replies], dtype=torch.float64)
    with_mean = products @ w
    lengths = (products.diagonal() * (w @ with_mean)).clamp(min=0).sqrt()
    cosines = (with_mean / lengths.clamp(min=1e-16)).clamp(min=0).tolist()
    if not any(cosines):
        return dict(weights)
    return {k: weights[k] * (cosine + floor) for k, cosine in zip(replies, cosines, strict=True)}


def row_sums(x: Tensor) -> Tensor:
    """Σ |x_ij|, [n, 1]; 1 for a row of zeros."""
    sums = (
        torch.tensor(abs(to_scipy(x)).sum(1), dtype=torch.float32)
        if x.layout == torch.sparse_csr
        else x.abs().sum(1, keepdim=True)
    )
    return torch.where(sums > 0, sums, 1.0)


def directions(params: Tensors) -> Tensor:
    """U [a1 a2], [d, 2]."""
    return (params["attention.pair"].t() @ params["attention.project"].t()).t()


def product(features: Sparse | Tensor, weight: Tensor, known: Tensor | None = None) -> Tensor:
    """X W, with a gradient for W: [n, columns]. ``known`` holds its numbers where they have been computed."""
    out: Tensor = _Product.apply(features, weight, known)  # type: ignore[no-untyped-call]
    return out


class _Product(torch.autograd.Function):
    """A dense X times two columns is written as two rows times Xᵀ, which is up to ten times faster."""

    @staticmethod
    def forward(ctx: Any, features: Sparse | Tensor, weight: Tensor, known: Tensor | None) -> Tensor:
        ctx.features = features
        if known is not None:
            return known.detach()
        if isinstance(features, Sparse):
            return features.times(weight)
        return (weight.t() @ features.t()).t() if weight.shape[1] == 2 else features @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        features, grad = ctx.features, grads[0]
        if isinstance(features, Sparse):
            return None, features.transposed_times(grad), None
        return None, (grad.t() @ features).t() if grad.shape[1] == 2 else features.t() @ grad, None


def elu(x: Tensor, mask: Tensor | None) -> Tensor:
    """ELU, then dropout by the ``mask``."""
    out: Tensor = _Elu.apply(x, mask)  # type: ignore[no-untyped-call]
    return out


class _Elu(torch.autograd.Function):
    """exp(min(x, 0)) is the slope everywhere. Less 1, it is the value below 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor | None) -> Tensor:
        slope = x.clamp(min=_LOWEST, max=0.0).exp_()
        out = x.clamp(min=0.0).add_(slope).sub_(1.0)
        if mask is not None:
            out.mul_(mask)
            slope.mul_(mask)
        ctx.save_for_backward(slope)
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return slope * grads[0], None
