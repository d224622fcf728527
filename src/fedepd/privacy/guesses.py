"""What an attacker computes itself: the rows of all candidate nodes, by every model that it has.

It knows the code, the settings, every message and reply, and the candidates' features. It knows their edges,
or knows none. It does not know which model and which layer a row was made with, so it tries them all and
keeps the one that explains what it sees best.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fedepd.methods.contract import readable
from fedepd.methods.steps import model_part
from fedepd.network.backbones import Backbone
from fedepd.privacy.rows import Row
from fedepd.privacy.view import Seen, View
from fedepd.types import ClientData, Tensors

Embedding = Tensor
"""Rows of all candidates, float64 [n, w]."""
SAME = 1e-4
"""Two rows are the same if they differ by no more than this share of their length."""
Fit = Callable[[Row, Embedding], float]
"""How well the candidates explain a row, at best."""


def embeddings(view: View, seen: Seen, source: int, edges_known: bool) -> Iterator[Embedding]:
    """The candidates' rows under each model and layer that the attacker can think of."""
    clients = view.behind(source)
    for params in models(view, seen, source):
        graphs: Sequence[Callable[[ClientData], Tensor]] = [no_edges]
        if edges_known:
            graphs = [whole_graph, lambda c: trained_on(view, c, seen.messages[source])]
        for edges in graphs:
            layers = [layers_of(*network_of(view, c.client_id, params), c, edges(c)) for c in clients]
            yield from (torch.cat(parts) for parts in zip(*layers, strict=True))


def models(view: View, seen: Seen, source: int) -> list[Tensors]:
    """The models that the server holds in a round: the one it sent, and the one that came back.

    Where neither is complete it has the initial weights, which follow from the seed.
    """
    server = view.simulation.server
    needed = server.model.shapes(server.info).keys()
    both = [model_part(seen.messages[source]), model_part(seen.replies[source].tensors)]
    return [m for m in both if m.keys() >= needed] or [server.model.initial(server.info, server.seed)]


def network_of(view: View, client: int, params: Tensors) -> tuple[Backbone, Tensors]:
    """A client's network and the weights that the attacker guesses for it.

    Where clients have networks of their own, no model was sent, and these are its initial weights.
    """
    server = view.simulation.server
    own = view.simulation.experiment.method.network_of(server.model, client, {})
    return (own, params) if own is server.model else (own, own.initial(server.info, server.seed))


def layers_of(model: Backbone, params: Tensors, data: ClientData, edges: Tensor) -> tuple[Tensor, ...]:
    """What the classifier reads of all nodes, and the hidden layer, float64 [n, ...] each."""
    inputs = model.inputs(data.hidden(), edges)
    with torch.no_grad():
        hidden = model.encode(params, inputs)
        return model.smooth(params, hidden, inputs).double(), hidden.double()


def no_edges(data: ClientData) -> Tensor:
    return data.graph.edge_index[:, :0]


def whole_graph(data: ClientData) -> Tensor:
    return data.graph.edge_index


def trained_on(view: View, data: ClientData, message: Tensors) -> Tensor:
    """The edges that the method trains on. Whoever knows the graph can run the method's own code on it."""
    method = view.simulation.experiment.method
    return method.training_edges(data.hidden(), prepared(view, data.client_id), message)


@lru_cache(maxsize=256)
def prepared(view: View, client: int) -> object:
    data = next(c for c in view.simulation.clients if c.client_id == client)
    method, model = view.simulation.experiment.method, view.simulation.server.model
    return method.prepare(readable(method, data).hidden(), model)


def likeness(row: Tensor, candidates: Embedding) -> Tensor:
    """How well each candidate explains a row, [n]: the cosine, and one more if the two are the same.

    A gradient of one node is a column times the node's row, so of a matrix [C, w] it is its main direction
    that is compared, whatever its sign.

    Choice: the cosine, because a sum and a mean have the same direction, and because edges that are not known
    change a row's length more than its direction. It was chosen on email, seed 0, by what it finds there: in
    the last round and with the model that came back, 26 of 38 nodes without edges, and the distance 20.
    """
    value = row.double()
    if value.ndim == 1:
        same = (candidates - value).norm(dim=1) <= SAME * value.norm()
        cosine = torch.cosine_similarity(candidates, value[None])
        return torch.where(same, cosine + 1, cosine)
    main = torch.linalg.svd(value.reshape(-1, value.shape[-1]), full_matrices=False)[2][0]
    return torch.cosine_similarity(candidates, main[None]).abs()


def best_fit(rows: Sequence[Row], tried: Sequence[Embedding], fit: Fit) -> tuple[str, Embedding] | None:
    """The field, and the embedding that explains the rows of that field best. None: nothing has their width.

    The attacker sees how well a guess explains a row, so it needs no truth for this.
    """
    fits = []
    for name in sorted({row.field for row in rows}):
        mine = [row for row in rows if row.field == name]
        for place, candidates in enumerate(tried):
            if mine[0].value.shape[-1] == candidates.shape[1]:
                fits.append((sum(fit(row, candidates) for row in mine), -place, name))
    if not fits:
        return None
    _, place, name = max(fits)
    return name, tried[-place]
