"""FedSage+ in sketch form: a generator learns which neighbours are lost, and FedAvg trains on mended graphs.

Zhang et al., "Subgraph Federated Learning with Missing Neighbor Generation", NeurIPS 2021, arXiv 2106.13430.
Official code: zkhku/fedsage @5b3429a; a second form: OpenFGL flcore/fedsage_plus (both read, not used).
Down: the model, generator.in [r, h], generator.number.weight [h, 1], generator.number.bias [1], generator.out
[h, s·r] and mending [1], for s slots and a sketch of r = min(d, 256) columns; while the generator trains,
from the second round on, also centre.K [32, r] of every other client.
Up: the model; while the generator trains also the generator, and in round 1 centre [32, r].
Bytes per client: down 4 (|Θ| + r·h + h + 2 + s·r·h), and 128 r for each other client; up 4 |Θ|, or as much as
goes down without centres, in round 1 128 r more.
The centres are means of sketched features. No privacy is claimed; ``cross`` none sends none.
Ours: features are generated in a count sketch, because the published last layer would have 89 million numbers
on CoraFull. The generator has one convolution, is averaged like the model, and adds no noise. The classifier
trains from round 1 on. There is one split, generated edges go both ways, and the mended graph is that of the
unimpaired one. Instead of features of other clients' nodes, centres are exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal, final

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.parts.mended import Generator, centres_of, imagined, mended_by, missing
from fedepd.methods.parts.sketch import WIDTH, Sketch
from fedepd.methods.steps import average, cross_entropy, fit, model_part, reply, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Inputs, glorot
from fedepd.network.sparse import Sparse, adjacency, normalised
from fedepd.network.training import Objective
from fedepd.options import ladder, option
from fedepd.types import ClientData, Field, Fields, Reply, Tensors, same_fields

CENTRES = 32
"""Centres of a client's sketched features."""


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    adj: sp.csr_matrix
    """A, 0/1, [n, n]."""
    mended: Callable[[Generator], Inputs]
    """What the network reads of the graph that a generator mended. The last one is kept, so that the graph is
    not mended in every round.
    """


@dataclass(frozen=True, eq=False)
class Lost:
    """What the generator is to find again: neighbours that were hidden from the training nodes."""

    rows: Tensor
    """What the generator reads of the training nodes on the impaired graph, [t, r]."""
    number: Tensor
    """Hidden neighbours of each, [t]."""
    node: Tensor
    """int64 [a]: the training node of each active slot."""
    slot: Tensor
    """int64 [a]: its place among the node's slots."""
    candidates: Tensor
    """int64 [a, s]: rows of ``sketched`` that it may find; a shorter list repeats its first."""
    found: Tensor
    """bool [a]: whether there is any."""
    sketched: Tensor
    """The sketch of every node, [n, r]."""


@final
@dataclass(frozen=True)
class FedSagePlus(Method[Prepared]):
    label: ClassVar[str] = "FedSage+"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}

    generator_rounds: int = option(
        10, "first rounds that also train the generator, at most half of all", search=ladder(5, 10, 20)
    )
    slots: int = option(
        5, "generated neighbours of a node at most; 0: FedAvg", search=ladder(2, 5, 10, below=1)
    )
    hidden_share: float = option(
        0.5,
        "share of the nodes in question that is hidden to train the generator",
        search=ladder(0.25, 0.5, 0.75),
    )
    hide: Literal["val", "unlabelled"] = option(
        "val", "validation nodes may be hidden, as by the authors, or all that do not train"
    )
    cross: Literal["centres", "none"] = option(
        "centres", "generated features are also compared with centres of the other clients, or not"
    )

    def __post_init__(self) -> None:
        if self.generator_rounds < 0 or self.slots < 0:
            raise BadConfig(
                f"generator_rounds is {self.generator_rounds} and slots is {self.slots}; give 0 or more"
            )
        if not 0 < self.hidden_share <= 1:
            raise BadConfig(f"hidden_share is {self.hidden_share}; it must lie in (0, 1]")

    def idle(self) -> Mapping[str, str]:
        every = ("hidden_share", "hide", "cross")
        if self.slots == 0:
            return dict.fromkeys(("generator_rounds", *every), "slots")
        return dict.fromkeys(("slots", *every), "generator_rounds") if self.generator_rounds == 0 else {}

    def generating(self, last_round: int) -> int:
        """The rounds that train the generator; 0: there is none."""
        return min(self.generator_rounds, last_round // 2) if self.slots else 0

    def complete_from(self, last_round: int) -> int:
        return min(self.generating(last_round) + 1, last_round)

    @property
    def exchanges(self) -> bool:
        return self.cross == "centres" and self.slots > 0 and self.generator_rounds > 0

    @property
    def needs_single_replies(self) -> str:
        return "FedSage+ hands each client's centres to the others" if self.exchanges else ""

    # --- at a client

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        adj = adjacency(data.graph.edge_index, data.graph.num_nodes)
        adj.sort_indices()
        inputs = model.inputs(data)
        mended = partial(mended_by, data, model, adj, inputs, self.slots)
        return Prepared(inputs, adj, lru_cache(maxsize=1)(mended))

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        generates = client.round <= self.generating(client.last_round)
        inputs = client.prepared.inputs if generates else self._inputs(client, message)
        params, state, loss = fit(client, model_part(message), state, cross_entropy(client, inputs))
        sent = dict(params)
        if generates:
            lost = self._lost(client)
            generator, state, _ = fit(
                client,
                with_prefix(message, "generator."),
                state,
                self._generator_loss(lost, list(with_prefix(message, "centre.").values())),
                stage="generating",
            )
            sent |= generator
            if self.exchanges and client.round == 1:
                linked = np.diff(client.prepared.adj.indptr) > 0
                rows = lost.sketched[torch.from_numpy(linked)] if linked.any() else lost.sketched
                sent["centre"] = centres_of(rows, CENTRES, client.draws("centres"))
        kept = {name: value for name, value in state.items() if name not in message}
        return reply(client, sent, loss=loss), {**kept, **params}

    def _lost(self, client: Client[Prepared]) -> Lost:
        """Hide some nodes. Choice: others in each round, where the authors hide the same ones."""
        data, adj, train = client.data, client.prepared.adj, client.prepared.inputs.train
        sketched = Sketch.of(client.info.num_features, client.seed).rows(data.graph.x)
        pool = (data.val_mask if self.hide == "val" else ~data.train_mask).nonzero().reshape(-1).numpy()
        count = int(self.hidden_share * len(pool))
        hidden = np.zeros(adj.shape[0], dtype=bool)
        hidden[client.draws("hidden").permutation(pool)[:count]] = True
        shown = sp.diags((~hidden).astype(np.float32))
        impaired = sp.csr_matrix(shown @ adj @ shown)
        impaired.eliminate_zeros()
        rows = Sparse.of(normalised(impaired)[train.numpy()]).times(sketched)
        missing = sp.csr_matrix(adj[train.numpy()] @ sp.diags(hidden.astype(np.float32)))
        missing.eliminate_zeros()
        number = np.diff(missing.indptr)
        active = np.minimum(np.maximum(number, 1), self.slots)
        node = np.repeat(np.arange(len(number)), active)
        slot = np.arange(len(node)) - np.repeat(np.cumsum(active) - active, active)
        # The first ``slots`` hidden neighbours of a node; past the end of its list, its first one again.
        places = (
            np.arange(self.slots)[None] % np.maximum(number, 1)[node][:, None] + missing.indptr[node][:, None]
        )
        found = number[node] > 0
        ends = np.append(missing.indices, 0).astype(np.int64)
        candidates = ends[np.where(found[:, None], places, len(ends) - 1)]
        return Lost(
            rows,
            torch.from_numpy(number.astype(np.float32)),
            torch.from_numpy(node),
            torch.from_numpy(slot),
            torch.from_numpy(candidates),
            torch.from_numpy(found),
            sketched,
        )

    def _generator_loss(self, lost: Lost, others: list[Tensor]) -> Objective:
        """How many neighbours are missing, what they look like, and what other clients' nodes look like."""

        wanted = lost.sketched[lost.candidates[lost.found]]

        def loss(params: Tensors) -> Tensor:
            hidden, number = missing(params, lost.rows)
            slots = imagined(params, hidden, lost.node, lost.slot, self.slots)
            total = F.smooth_l1_loss(number, lost.number) + greedy(slots[lost.found], wanted)
            return total + crosswise(slots, torch.stack(others)) if others else total

        return loss

    def _inputs(self, client: Client[Prepared], tensors: Tensors) -> Inputs:
        """The mended graph, once there is a generator that can mend it."""
        generator = with_prefix(tensors, "generator.")
        if not generator or float(tensors["mending"]) == 0:
            return client.prepared.inputs
        return client.prepared.mended(Generator(generator, client.seed))

    def adaptation(self, client: Client[Prepared], tensors: Tensors) -> tuple[Tensors, Objective]:
        """The model, on the mended graph."""
        return model_part(tensors), cross_entropy(client, self._inputs(client, tensors))

    def classifier_reads(
        self, client: Client[Prepared], tensors: Tensors
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        return *client.model.training_rows(tensors, self._inputs(client, tensors)), None

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        inputs = self._inputs(client, tensors)
        if inputs is client.prepared.inputs:
            return client.model.predict(tensors, inputs)
        with torch.no_grad():
            logits = client.model.logits(tensors, client.model.encode(tensors, inputs), inputs)
        return logits[: client.data.graph.num_nodes]

    # --- at the server

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        if not self.generating(server.last_round):
            return params
        read, width, draws = (
            min(server.info.num_features, WIDTH),
            server.model.hidden,
            server.torch_draws("generator"),
        )
        return {
            **params,
            "generator.in": glorot(read, width, draws),
            "generator.number.weight": glorot(width, 1, draws),
            "generator.number.bias": torch.zeros(1),
            "generator.out": glorot(width, self.slots * read, draws),
            "mending": torch.zeros(1),
        }

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        """Everything but the client's own centres."""
        return {name: value for name, value in tensors.items() if name != f"centre.{client_id}"}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        last = self.generating(server.last_round)
        out = {**tensors, **average(server.info, model_part(tensors), replies)}
        if server.round > last:
            return out
        out |= average(server.info, with_prefix(tensors, "generator."), replies)
        if self.exchanges and server.round == 1:
            out |= {f"centre.{k}": replies[k].tensors["centre"] for k in sorted(replies)}
        if server.round == last:
            out = {name: value for name, value in out.items() if not name.startswith("centre.")}
            out["mending"] = torch.ones(1)
        return out

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        if server.round > self.generating(server.last_round):
            return same_fields(model_part(tensors))
        fields = same_fields(with_prefix(tensors, "encoder.", "classifier.", "generator."))
        if self.exchanges and server.round == 1:
            fields["centre"] = Field((CENTRES, tensors["generator.in"].shape[0]))
        return fields


def greedy(slots: Tensor, wanted: Tensor) -> Tensor:
    """The mean square distance of each slot [a, r] to the nearest of its candidates [a, s, r], on average.

    0 where there are no slots.
    """
    if not len(slots):
        return slots.sum() * 0
    with torch.no_grad():
        apart = wanted.square().sum(2) - 2 * (wanted @ slots[:, :, None])[:, :, 0]
        nearest = wanted[torch.arange(len(wanted)), apart.argmin(1)]
    return (slots - nearest).square().mean()


def crosswise(slots: Tensor, centres: Tensor) -> Tensor:
    """The same for the nearest of each client's centres [k, m, r], on average over slots and clients.

    The mean of |s - c|² over clients is |s - mean c|² and what does not depend on s.
    """
    clients, count, width = centres.shape
    with torch.no_grad():
        flat = centres.reshape(-1, width)
        apart = (flat.square().sum(1) - 2 * slots @ flat.t()).view(len(slots), clients, count)
        nearest = apart.argmin(2) + count * torch.arange(clients)
        mean = F.embedding_bag(nearest, flat, mode="mean")
        rest = flat.square().mean(1)[nearest].mean() - mean.square().mean()
    return (slots - mean).square().mean() + rest
