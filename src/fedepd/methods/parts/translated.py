"""A network in which nodes of low degree have one neighbour more, guessed by a learned translation.

For Tail-GNN. With a node's row a and the mean a_N of its neighbours' rows, what the neighbourhood misses is
m = a + r_v - a_N, where r_v = γ ∘ r + β, γ = 1 + lrelu(a G1 + a_N G2) and β = lrelu(a B1 + a_N B2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs, convolves_first, glorot, layer_names, times
from fedepd.network.convolution import Convolution, side_by_side
from fedepd.network.sparse import Sparse, neighbour_mean, spmm
from fedepd.types import Tensors

SLOPE = 0.2
"""Of the leaky ReLU, as in the authors' code."""
MATRICES = ("gain1", "gain2", "shift1", "shift2")
"""G1, G2, B1 and B2."""


@dataclass(frozen=True, eq=False)
class View:
    """Some nodes of a graph, each with the neighbours that it is allowed to see."""

    nodes: Tensor
    """int64 [r]."""
    operator: Sparse
    """[r, n]: the backbone's convolution; rows of tail nodes leave room for one neighbour more."""
    tail: Tensor
    """int64 [q]: positions in ``nodes``."""
    who: Tensor
    """int64 [q]: the tail nodes themselves."""
    near: Sparse
    """[q, n]: the mean over the neighbours of a tail node."""
    room: Tensor
    """[q, 1]: what the missing neighbour of a tail node weighs."""

    @classmethod
    def of(
        cls, model: Backbone, nodes: Tensor, adj: sp.csr_matrix, degrees: NDArray[np.int64], tail: Tensor
    ) -> View:
        """Of the neighbours in ``adj`` [r, n], the degrees of all nodes [n], and who is tail, bool [r]."""
        at, count = tail.nonzero().reshape(-1), np.diff(adj.indptr)
        mean = sp.csr_matrix(neighbour_mean(adj))
        if model.backbone == "sage":
            # As in the authors' layer: the mean is not made smaller.
            rows, weight = mean, 1 / (count + 1.0)
        else:
            # Choice: the missing neighbour has the node's own degree, which it raises by one. Eq. 10 of
            # FedEPD, then. Other nodes' rows do not know of it.
            own = count + 1.0 + tail.numpy()
            scaled = sp.diags(own**-0.5) @ adj @ sp.diags((degrees + 1.0) ** -0.5)
            loops = sp.csr_matrix((1 / own, (np.arange(len(own)), nodes.numpy())), shape=adj.shape)
            rows, weight = scaled + loops, 1 / own
        room = torch.from_numpy(weight[at.numpy()]).to(torch.float32)[:, None]
        return cls(nodes, Sparse.of(rows), at, nodes[at], Sparse.of(mean[at.numpy()]), room)

    def convolved(self, params: Tensors, name: str, rows: Tensor) -> Tensor:
        """What the nodes get from their neighbours of ``rows`` [n, w], and from the missing one: [r, w]."""
        out = spmm(self.operator, rows)
        if not self.tail.numel():
            return out
        guess = missing(params, name, rows.index_select(0, self.who), spmm(self.near, rows))
        return out.index_add(0, self.tail, self.room * guess)


@dataclass(frozen=True, eq=False)
class Read:
    """What the classifier reads."""

    rows: Tensor
    """Of the nodes of the last view, [r, width]."""
    forged: Tensor | None
    """Of the forged view, [f, width]."""
    lengths: Tensor
    """Σ over the layers of the mean length of m at head nodes: a number."""


@dataclass(frozen=True, eq=False)
class Views:
    """All that a pass through the network looks at."""

    whole: View
    """All nodes."""
    last: View
    """Those whose rows the classifier reads."""
    forged: View | None = None
    """Head nodes that see few of their neighbours."""
    heads: Sparse | None = None
    """[f, n]: the mean over all neighbours of these; None: nobody asks for the length of m."""
    head_nodes: Tensor | None = None
    """int64 [f]."""

    def with_forged(self, rows: Tensor, forged: Tensor) -> Tensor:
        """The rows of all nodes, in which the forged nodes have their forged ones."""
        assert self.forged is not None
        return rows.index_copy(0, self.forged.nodes, forged)

    def length(self, params: Tensors, name: str, rows: Tensor) -> Tensor:
        """The mean length of m at the head nodes."""
        if self.heads is None or self.head_nodes is None:
            return rows.new_zeros(())
        near = spmm(self.heads, rows)
        lengths: Tensor = missing(params, name, rows.index_select(0, self.head_nodes), near).norm(dim=1)
        return lengths.mean()


def missing(params: Tensors, name: str, own: Tensor, near: Tensor) -> Tensor:
    """m of some nodes, from their rows and the means of their neighbours' rows: [q, w]."""
    first, second = (
        torch.cat([params[f"{name}.{part}{number}"] for part in ("gain", "shift")], 1) for number in (1, 2)
    )
    offset = params[f"{name}.offset"]
    out: Tensor = _Missing.apply(own, near, first, second, offset)  # type: ignore[no-untyped-call]
    return out


class _Missing(torch.autograd.Function):
    """Of [G1 | B1], [G2 | B2] and r. Autograd would pass over the rows three times as often."""

    @staticmethod
    def forward(ctx: Any, own: Tensor, near: Tensor, first: Tensor, second: Tensor, offset: Tensor) -> Tensor:
        moved = F.leaky_relu_(torch.mm(own, first).addmm_(near, second), SLOPE)  # [γ - 1 | β]
        ctx.save_for_backward(own, near, first, second, offset, moved)
        gain, shift = moved.chunk(2, dim=1)
        return torch.sub(own, near).add_(shift).add_(offset).addcmul_(gain, offset)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        own, near, first, second, offset, moved = ctx.saved_tensors
        (grad,) = grads
        of_offset = grad.sum(0).add_((grad * moved.chunk(2, dim=1)[0]).sum(0))
        both = torch.cat([grad * offset, grad], dim=1)
        both = torch.ops.aten.leaky_relu_backward(both, moved, SLOPE, True)
        of_own, of_near = torch.addmm(grad, both, first.t()), torch.addmm(grad, both, second.t(), beta=-1)
        return of_own, of_near, own.t() @ both, near.t() @ both, of_offset


def translations(model: Backbone) -> list[str]:
    """One for each convolution; one for a network of another kind."""
    count = model.layers if isinstance(model.network, Convolution) else 1
    return [f"translate{number}" for number in range(1, count + 1)]


def initial_translations(model: Backbone, draws: torch.Generator) -> Tensors:
    """Glorot matrices, and r uniform in ±1/√w as in the authors' code."""
    out: Tensors = {}
    width = model.hidden
    for name in translations(model):
        out |= {f"{name}.{matrix}": glorot(width, width, draws) for matrix in MATRICES}
        bound = width**-0.5
        out[f"{name}.offset"] = torch.empty(width).uniform_(-bound, bound, generator=draws)
    return out


def read(
    model: Backbone,
    params: Tensors,
    inputs: Inputs,
    features: Sparse | Tensor,
    views: Views,
    dropout: np.random.Generator | None = None,
) -> Read:
    """One pass through the network. ``features`` are X as it is."""
    if not isinstance(model.network, Convolution):
        return _around(model, params, inputs, views, dropout)
    names, moves, lengths = layer_names(model), translations(model), torch.zeros(())
    rows, forged = torch.empty(0), None  # of all nodes, or of those of the last view; of the forged nodes
    for place, name in enumerate(names):
        weight = side_by_side(model, params[f"{name}.weight"])
        before = None if forged is None else views.with_forged(rows, forged) @ weight
        rows = rows @ weight if place else times(features, weight)
        if convolves_first(model):
            ends = model.head == "linear" and place == len(names) - 1
            view, move = views.last if ends else views.whole, moves.pop(0)
            lengths = lengths + views.length(params, move, _for_neighbours(rows, params, move))
            if views.forged is not None:
                forged = _layer(views.forged, params, move, rows if before is None else before)
            rows = _layer(view, params, move, rows)
        rows = _active(model, rows, params[f"{name}.bias"], dropout)
        forged = None if forged is None else _active(model, forged, params[f"{name}.bias"], dropout)
    if moves:
        (move,) = moves
        lengths = lengths + views.length(params, move, rows)
        if views.forged is not None:
            before = rows if forged is None else views.with_forged(rows, forged)
            forged = _last_layer(model, views.forged, params, move, before)
        rows = _last_layer(model, views.last, params, move, rows)
    return Read(rows, forged, lengths)


def _layer(view: View, params: Tensors, move: str, rows: Tensor) -> Tensor:
    """A convolution of the encoder before its bias. sage: the columns for a node's own row come second."""
    read = _for_neighbours(rows, params, move)
    out = view.convolved(params, move, read)
    return out if read is rows else out + rows[:, read.shape[1] :].index_select(0, view.nodes)


def _for_neighbours(rows: Tensor, params: Tensors, move: str) -> Tensor:
    width = params[f"{move}.offset"].shape[0]
    return rows if rows.shape[1] == width else rows[:, :width].contiguous()


def _last_layer(model: Backbone, view: View, params: Tensors, move: str, rows: Tensor) -> Tensor:
    """What the classifier reads."""
    out = view.convolved(params, move, rows)
    return out if model.backbone != "sage" else torch.cat([out, rows.index_select(0, view.nodes)], dim=1)


def _active(model: Backbone, rows: Tensor, bias: Tensor, dropout: np.random.Generator | None) -> Tensor:
    mask = None if dropout is None else model.dropout_mask(rows.shape[0], dropout)
    rows = torch.relu(rows + bias)
    return rows if mask is None else rows * mask


def _around(
    model: Backbone, params: Tensors, inputs: Inputs, views: Views, dropout: np.random.Generator | None
) -> Read:
    """A network of another kind.

    Choice: its encoder counts as one layer. A tail node's row of H makes room for m, and the network goes on
    from there. A forged node's own row of H is the real one. Only the neighbours that m is guessed from are
    few.
    """
    hidden = model.encode(params, inputs, dropout)
    (move,), train_only = translations(model), views.last is not views.whole

    def moved(rows: Tensor, view: View) -> Tensor:
        own = hidden.index_select(0, view.who)
        guess = missing(params, move, own, spmm(view.near, hidden))
        return rows.index_add(0, view.who, view.room * (guess - own))

    rows = moved(hidden, views.whole)
    read = model.smooth(params, rows, inputs, train_only)
    if views.forged is None:
        return Read(read, None, views.length(params, move, hidden))
    place = torch.searchsorted(views.last.nodes, views.forged.nodes)
    forged = model.smooth(params, moved(rows, views.forged), inputs, train_only)[place]
    return Read(read, forged, views.length(params, move, hidden))
