"""HierTail: a graph U-Net whose pooled nodes act as groups of classes, trained with balanced contrast; federated by FedAvg.

Wang et al., "Mastering Long-Tail Complexity on Graphs: Characterization, Learning, and Generalization", KDD 2024, arXiv 2305.09938.
Official code: wanghh7/HierTail @2cd9e63 (read, not copied). Equation numbers (b.1-b.5) are those of methods.md, section 5.
Down: the model, down.* [h, h] + [h], up.* the same, pool.weight [L, h].  Up: the same.
Bytes each way per client: 4 (|Θ| + 2 (h² + h) + L·h), with a sage backbone 4 (|Θ| + 2 (2 h² + h) + L·h); depth 0: 4 |Θ|.
Ours: at most ``anchors`` nodes in each contrast; k_1 = int(r n / C) kept within 1 .. ``most_kept`` and the pooled A² capped per row, so
that nothing is quadratic in nodes; centres and nodes share one numbering of groups (the official code labels nodes by node number and
centres by position); x⁰ is the backbone's hidden layer, dropout included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, ClassVar, final

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.gate import Fields, same_fields
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import Loss, average, fit, reply
from fedepd.models import Backbone, Inputs, glorot
from fedepd.options import option
from fedepd.sparse import Sparse, adjacency, normalised
from fedepd.types import ClientData, Reply, Tensors

OWN_LR = 1e-3
_FLOOR = 1e-7
_LOWEST = -60.0
"""exp(-60) is lost beside the floor; below about -87 the exponential is a denormal number, ten times slower to compute."""
_CHUNK = 128
"""Rows of a contrast held at a time; few enough to stay in the processor's cache."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    """Depth 0: the backbone's own; otherwise with a convolution whose self-loops weigh 2."""
    with_loops: sp.csr_matrix
    """A + I, [n, n]."""
    sizes: tuple[int, ...]
    """k_1, ..., k_L: the nodes kept at each depth."""


@final
@dataclass(frozen=True)
class HierTail(Method[Prepared]):
    label: ClassVar[str] = "HierTail"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "official": {"contrast": 1.0, "temperature": 0.1, "optimizer_own": True},
    }

    depth: int = option(3, "L: how often the graph is pooled; 0: the backbone alone")
    contrast: float = option(0.01, "w: weight of the balanced contrastive terms")
    temperature: float = option(1.0, "tau of the contrast")
    # Choice: 0.01 and 1 are the authors' CoraFull script; their code's own 1 and 0.1 are the official preset. On Email (a seed, 40 rounds)
    # accuracy is 54 without contrast (depth 3); at depth 2, 42 with w = tau = 1 and 8 with tau = 0.1, with ten times the centres 44 and 11.
    first_ratio: float = option(1.0, "nodes kept by the first pooling, times n / C")
    ratio: float = option(0.5, "share of the nodes kept by each further pooling; in (0, 1]")
    anchors: int = option(512, "nodes drawn as rows and columns of a contrast, beside all centres")
    # Choice: a contrast costs anchors squared; 2,048 (methods.md 15) makes a round 13-27 times FedAvg's, 512 makes it 2-8 times.
    most_kept: int = option(2048, "most nodes that the first pooling keeps, so that pooled graphs are small matrices")
    square: bool = option(True, "pool on the squared graph, so that kept nodes two steps apart stay joined")
    cap: int = option(32, "largest weights kept per row of a pooled squared graph; 0: all")
    optimizer_own: bool = option(False, "the official Adam, lr 0.001, in place of the run's optimiser")

    def __post_init__(self) -> None:
        for name in ("depth", "contrast", "cap"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a finite number, 0 or more")
        for name in ("temperature", "first_ratio", "anchors", "most_kept"):
            if not 0 < getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; give a positive finite number")
        if not 0 < self.ratio <= 1:
            raise BadConfig(f"ratio is {self.ratio}; it must lie in (0, 1]")

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        graph, inputs = data.graph, model.inputs(data)
        adj = adjacency(graph.edge_index, graph.num_nodes)
        if self.depth and model.backbone == "gcn":
            # Self-loops of weight 2: D^-1/2 (A + 2 I) D^-1/2, D counting both, is what A / 2 gives with loops of weight 1.
            operator = Sparse.of(normalised(0.5 * adj), symmetric=True)
            features = inputs.features if graph.is_sparse else operator.times(graph.x)
            inputs = Inputs(operator, features, inputs.train, operator.rows(inputs.train), inputs.labels)
        with_loops = sp.csr_matrix(adj + sp.identity(graph.num_nodes, dtype=np.float32, format="csr"))
        return Prepared(inputs, with_loops, self.sizes(graph.num_nodes, graph.num_classes))

    def sizes(self, num_nodes: int, num_classes: int) -> tuple[int, ...]:
        """k_1 = int(r n / C) within bounds; then the ``ratio`` of the depth above, rounded up."""
        size, out = min(num_nodes, self.most_kept, max(1, int(self.first_ratio * num_nodes / num_classes))), []
        for _ in range(self.depth):
            out.append(size)
            size = ceil(self.ratio * size)
        return tuple(out)

    def client_step(self, client: Client[Prepared], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        if self.optimizer_own:
            client = client.trained_by(optimizer="adam", lr=OWN_LR)
        params, state, loss = fit(client, message, state, self._loss(client))
        return reply(client, params, loss=loss), {**state, **params}

    def _loss(self, client: Client[Prepared]) -> Loss:
        inputs, dropout, draws = client.prepared.inputs, client.draws("dropout"), client.draws("anchors")

        def loss(params: Tensors) -> Tensor:
            levels, last = self._network(client, params, dropout)
            logits = client.model.logits(params, last, inputs, train_only=True)
            total = F.cross_entropy(logits, inputs.labels)
            if self.contrast == 0:
                return total
            chosen = self._anchors(inputs.labels.shape[0], draws)
            terms = balanced_contrast(logits[chosen], inputs.labels[chosen], self.temperature)
            for centres in levels[1 : self.depth]:
                chosen = self._anchors(levels[0].shape[0], draws)
                terms = terms + group_contrast(levels[0][chosen], centres, self.temperature)
            return total + self.contrast * terms  # b.5

        return loss

    def _anchors(self, rows: int, draws: np.random.Generator) -> Tensor:
        """All rows, or as many as allowed, drawn without replacement: int64."""
        return torch.arange(rows) if rows <= self.anchors else torch.from_numpy(draws.choice(rows, self.anchors, replace=False))

    def _network(self, client: Client[Prepared], params: Tensors, dropout: np.random.Generator | None) -> tuple[list[Tensor], Tensor]:
        """x^0 .. x^L, and the rows [n, h] that the last layer reads."""
        # Choice: the official code drops nothing with one-layer convolutions; x⁰ is the backbone's H, dropout included, as for everyone.
        x = client.model.encode(params, client.prepared.inputs, dropout)  # b.1
        levels: list[Tensor] = [x]
        kept: list[Tensor] = []
        graphs: list[Tensor] = []
        for size, weight in zip(client.prepared.sizes, params.get("pool.weight", ()), strict=True):
            keep, x = pool(x, weight, size)
            adj = self._pooled(graphs[-1] if graphs else client.prepared.with_loops, keep)
            x = torch.relu(layer(client.model, params, "down", x, adj))
            levels.append(x)
            kept.append(keep)
            graphs.append(adj)
        for depth in reversed(range(self.depth)):  # b.3
            x = levels[depth].index_add(0, kept[depth], x)
            if depth:
                x = torch.relu(layer(client.model, params, "up", x, graphs[depth - 1]))
        return levels, x

    def _pooled(self, graph: sp.csr_matrix | Tensor, keep: Tensor) -> Tensor:
        """b.2: the weights between the kept nodes, loops removed, [k, k]; ``graph`` is the sparse A + I, or a pooled A.

        Choice: the square is taken of the kept rows alone, (A + I)[keep] (A + I)[keep]ᵀ, and capped after that: the same numbers as in the
        full square, which is never stored; and the cap falls on edges that survive the pooling, of 32 among all n nodes few would.
        """
        if isinstance(graph, Tensor):
            rows = (graph + torch.eye(graph.shape[0]))[keep]
            adj = rows @ rows.t() if self.square else rows[:, keep]
        else:
            sparse_rows = graph[keep.numpy()]
            adj = torch.from_numpy((sparse_rows @ sparse_rows.T if self.square else sparse_rows[:, keep.numpy()]).toarray())
        adj = adj.fill_diagonal_(0.0)
        return strongest(adj, self.cap) if self.cap and self.square else adj

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        if self.depth == 0:
            return params
        hidden, draws = server.model.hidden, server.torch_draws("unet")
        rows = hidden * (2 if server.model.backbone == "sage" else 1)
        out = dict(params)
        for name in ("down", "up"):
            out[f"{name}.weight"], out[f"{name}.bias"] = glorot(rows, hidden, draws), torch.zeros(hidden)
        bound = hidden**-0.5
        return {**out, "pool.weight": torch.empty(self.depth, hidden).uniform_(-bound, bound, generator=draws)}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return same_fields(tensors)

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        with torch.no_grad():
            _, last = self._network(client, tensors, None)
            return client.model.logits(tensors, last, client.prepared.inputs)


def layer(model: Backbone, params: Tensors, name: str, x: Tensor, adj: Tensor) -> Tensor:
    """A convolution on a pooled graph: [k, h]."""
    degrees = adj.sum(1, keepdim=True)
    if model.backbone == "sage":
        rows = torch.cat([adj @ x / degrees.clamp(min=_FLOOR), x], dim=1)
    else:
        scale = (degrees + 2).rsqrt()  # self-loops of weight 2
        rows = scale * (adj @ (scale * x) + 2 * scale * x)
    return torch.addmm(params[f"{name}.bias"], rows, params[f"{name}.weight"])


def pool(x: Tensor, weight: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """b.2: the ``size`` nodes of the largest score ⟨x, p⟩ / ‖p‖, ascending, and their rows times tanh(score)."""
    score = x @ (weight / weight.norm().clamp(min=_FLOOR))
    order = torch.argsort(score.detach(), descending=True, stable=True)  # Choice: ties by node number
    keep = order[:size].sort().values
    return keep, x[keep] * torch.tanh(score[keep])[:, None]


def strongest(adj: Tensor, cap: int) -> Tensor:
    """Without all edges that are among the ``cap`` largest of neither of their ends: [k, k], symmetric."""
    if adj.shape[0] <= cap:
        return adj
    kept = torch.zeros(adj.shape, dtype=torch.bool).scatter_(1, adj.topk(cap, dim=1).indices, True)
    return adj * (kept | kept.t())


def group_contrast(nodes: Tensor, centres: Tensor, temperature: float) -> Tensor:
    """b.5: the contrast of nodes and all centres, a node belonging to its nearest centre."""
    nearest = torch.cdist(nodes.detach(), centres.detach()).argmin(1)
    return balanced_contrast(torch.cat([nodes, centres]), torch.cat([nearest, torch.arange(centres.shape[0])]), temperature)


def balanced_contrast(rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
    """b.4: mean_i [ log D_i − (1 / n_ℓi) Σ_{j: ℓj = ℓi} log e_ij ], where every class weighs the same in D_i."""
    out: Tensor = _BalancedContrast.apply(rows, labels, temperature)  # type: ignore[no-untyped-call]
    return out


class _BalancedContrast(torch.autograd.Function):
    """The gradient is taken along with the loss, some rows at a time: no [m, m] matrix is ever held."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, labels: Tensor, temperature: float) -> Tensor:
        share = 1.0 / torch.bincount(labels)[labels].to(rows.dtype)  # 1 / n_ℓ, [m]
        columns, floor_mass = rows.t() / temperature, _FLOOR * share.sum()
        grad, total = torch.zeros_like(rows), rows.new_zeros(())
        for start in range(0, rows.shape[0], _CHUNK):
            part = slice(start, start + _CHUNK)
            similar = rows[part] @ columns  # [c, m]
            top, where = similar.max(1, keepdim=True)
            shifted = similar.sub_(top).clamp_(min=_LOWEST).exp_()  # e without its floor
            without_floor = shifted @ share
            mass = without_floor + floor_mass  # D, [c]
            i, j = (labels[part, None] == labels).nonzero(as_tuple=True)
            positive = shifted[i, j]
            weight = share[start + i]
            total += mass.log().sum() - ((positive + _FLOOR).log() * weight).sum()
            pull = positive / (positive + _FLOOR) * weight
            slope = shifted.mul_(share).div_(mass[:, None])  # d loss / d similar, [c, m]
            slope.index_put_((i, j), -pull, accumulate=True)
            through_top = torch.zeros_like(mass).index_add_(0, i, pull) - without_floor / mass
            slope.scatter_add_(1, where, through_top[:, None])
            grad[part] += slope @ rows
            grad.addmm_(slope.t(), rows[part])
        ctx.save_for_backward(grad.div_(temperature * max(rows.shape[0], 1)))
        return total / max(rows.shape[0], 1)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = ctx.saved_tensors
        return grads[0] * grad, None, None
