"""A client's graph with generated neighbours, for FedSage+.

Generated nodes have features in the columns of a sketch. Their product with a weight is that of both
sketches, so wide sparse features stay sparse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.methods.parts.sketch import Sketch
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs
from fedepd.network.sparse import Sparse, csr_tensor, normalised, to_scipy
from fedepd.types import HIDDEN, ClientData, Tensors


@dataclass(frozen=True, eq=False)
class WithGenerated(Sparse):
    """X [n, d], and below it the rows whose sketches were generated: [n + m, d]."""

    sketch: Sparse
    """[r, d]."""
    generated: Tensor
    """[m, r]."""

    @property
    def shape(self) -> torch.Size:
        return torch.Size((self.matrix.shape[0] + len(self.generated), self.matrix.shape[1]))

    def times(self, dense: Tensor) -> Tensor:
        return torch.cat([super().times(dense), self.generated @ self.sketch.times(dense)])

    def transposed_times(self, dense: Tensor) -> Tensor:
        real = self.matrix.shape[0]
        out = super().transposed_times(dense[:real].contiguous())
        return out.add_(self.sketch.transposed_times(self.generated.t() @ dense[real:]))


@dataclass(frozen=True, eq=False)
class Generator:
    """A generator of neighbours. Two with the same numbers are equal."""

    params: Tensors
    seed: int
    """The run's, which the sketch follows from."""

    def __hash__(self) -> int:
        return hash((self.seed, *self.params))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Generator)
            and (self.seed, *self.params) == (other.seed, *other.params)
            and all(torch.equal(value, other.params[name]) for name, value in self.params.items())
        )


def mended_by(
    data: ClientData, model: Backbone, adj: sp.csr_matrix, inputs: Inputs, slots: int, generator: Generator
) -> Inputs:
    """The inputs on the mended graph; ``inputs`` where the generator misses nobody."""
    sketch = Sketch.of(data.graph.x.shape[1], generator.seed)
    with torch.no_grad():
        rows = Sparse.of(normalised(adj), symmetric=True).times(sketch.rows(data.graph.x))
        hidden, number = missing(generator.params, rows)
        parents, places = chosen_slots(number, slots)
        if not len(parents):
            return inputs
        new = imagined(generator.params, hidden, parents, places, slots)
    return mended_inputs(model, data, sketch, parents, new)


def missing(params: Tensors, rows: Tensor) -> tuple[Tensor, Tensor]:
    """What a generator makes of nodes [n, r]: hidden rows [n, h], and how many neighbours they miss [n]."""
    hidden = torch.relu(rows @ params["generator.in"])
    number = F.softplus(hidden @ params["generator.number.weight"] + params["generator.number.bias"])
    return hidden, number[:, 0]


def imagined(params: Tensors, hidden: Tensor, node: Tensor, slot: Tensor, slots: int) -> Tensor:
    """What the neighbour in slot ``slot[i]`` of node ``node[i]`` looks like in sketch space, [a, r].

    Only slots that are asked for are computed.
    """
    order = torch.argsort(slot, stable=True)
    parts = torch.split(hidden[node[order]], torch.bincount(slot, minlength=slots).tolist())
    weights = params["generator.out"].chunk(slots, dim=1)
    rows = torch.cat([part @ weight for part, weight in zip(parts, weights, strict=True)])
    return rows[torch.argsort(order)]


def mended_inputs(
    model: Backbone, data: ClientData, sketch: Sketch, parents: Tensor, generated: Tensor
) -> Inputs:
    """What the network reads of the graph in which generated node i [m, r] is a neighbour of ``parents[i]``.

    Messages go both ways. The generated nodes come last, and none of them is a training node.
    """
    graph, count = data.graph, len(parents)
    new = torch.arange(graph.num_nodes, graph.num_nodes + count)
    larger = replace(
        graph,
        x=_below(graph.x, sketch, generated),
        edge_index=torch.cat([graph.edge_index, torch.stack([parents, new])], dim=1),
        y=torch.cat([graph.y, graph.y.new_full((count,), HIDDEN)]),
    )
    train = torch.cat([data.train_mask, torch.zeros(count, dtype=torch.bool)])
    inputs = model.inputs(replace(data, graph=larger, train_mask=train))
    if not graph.is_sparse:
        return inputs
    x = Sparse.of(to_scipy(graph.x))
    return replace(inputs, features=WithGenerated(x.matrix, x.transposed, sketch.matrix, generated))


def _below(x: Tensor, sketch: Sketch, generated: Tensor) -> Tensor:
    """X with rows for the generated nodes: zeros where it is sparse, else what their sketches stand for."""
    if x.layout != torch.sparse_csr:
        return torch.cat([x, sketch.matrix.transposed_times(generated.t().contiguous()).t()])
    rows = to_scipy(x).copy()
    rows.resize((rows.shape[0] + len(generated), rows.shape[1]))
    return csr_tensor(rows)


def chosen_slots(numbers: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """Who gets generated neighbours, and which of its slots: int64 [m] each, ascending by node.

    Node v gets its number [n], rounded, and ``most`` at most. Where all together would be more than there are
    nodes, those with the largest numbers come first.
    """
    wanted = numbers.round().clamp(0, most).to(torch.int64)
    order = torch.argsort(numbers, descending=True, stable=True)
    before = wanted[order].cumsum(0) - wanted[order]
    allowed = torch.minimum(wanted[order], (len(numbers) - before).clamp(min=0))
    wanted = torch.zeros_like(wanted).index_copy(0, order, allowed)
    parents = torch.repeat_interleave(torch.arange(len(numbers)), wanted)
    first = torch.repeat_interleave(wanted.cumsum(0) - wanted, wanted)
    return parents, torch.arange(len(parents)) - first


def centres_of(rows: Tensor, count: int, draws: np.random.Generator, steps: int = 10) -> Tensor:
    """k-means by Lloyd's steps from distinct rows, drawn: [count, r]. If these are fewer, they repeat."""
    shuffled = rows[torch.from_numpy(draws.permutation(len(rows)))]
    _, which = np.unique(shuffled.numpy(), axis=0, return_index=True)
    centres = shuffled[torch.from_numpy(np.sort(which)[:count])]
    for _ in range(steps):
        nearest = torch.cdist(rows, centres).argmin(1)
        sizes = torch.bincount(nearest, minlength=len(centres))[:, None]
        means = torch.zeros_like(centres).index_add_(0, nearest, rows) / sizes.clamp(min=1)
        centres = torch.where(sizes > 0, means, centres)
    return centres[torch.arange(count) % len(centres)]
