"""AdaFGL: FedAvg, then every client alone trains on a graph that the global model's predictions correct.

A homophilous branch and a heterophilous one are mixed by how well label propagation works at the client.

Li et al., "AdaFGL: A New Paradigm for Federated Node Classification with Topology Heterogeneity", ICDE 2024,
arXiv 2401.11750. Official code: xkLi-Allen/AdaFGL @1ea2b20 (no licence; read, not used); OpenFGL has a copy.
Down: the model.  Up: the model in stage one, nothing in stage two.
Bytes per client: down 4 |Θ|, up 4 |Θ| in stage one and 0 in stage two. The model that goes down in stage two
is always the same. A client that was away needs it.
Ours: two towers share their first layer. At most 20 partners of a node are added to its graph, and signed
messages come from 256 nodes. Three steps of the released program are mended (``form``); the preset
"released" has them, its graph and its choice of one branch. One round is selected for all clients, where the
authors take the best epoch of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, final

import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.parts.corrected import Form, View, compared, homophily, messages, partners_of, view_of
from fedepd.methods.steps import average, cross_entropy, fit, model_part, reply, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Dropout, Inputs, glorot, times
from fedepd.network.sparse import Sparse, adjacency, factor_of, normalised, spmm
from fedepd.network.training import Loss
from fedepd.options import ladder, option
from fedepd.rng import seeded_numpy
from fedepd.types import ClientData, Fields, Reply, Tensors, same_fields

TOWER, CONFIDENCE, PARTNERS = "tower.", "confidence", "partners"
"""What a client keeps in stage two: the branches' parameters, how homophilous its graph is [1], and the pairs
of its nodes with the same prediction [2, e]."""
SWITCH = 0.9
"""The homophily from which the released program takes the homophilous branch."""
LEAST = 1e-12
"""The smallest probability of a class."""
SLOPE = 0.25
"""Of a PReLU before training."""
ACTIVATIONS = ("homophilous", "own", "smooth", "own.second", "smooth.second", "message.second", "message")


@dataclass(frozen=True, eq=False)
class Prepared:
    inputs: Inputs
    features: Sparse | Tensor
    """X as it is, [n, d]."""
    adjacency: sp.csr_matrix


@dataclass(frozen=True, eq=False)
class Outputs:
    """Logits of the four heads, [n, C] each."""

    homophilous: Tensor
    own: Tensor
    smooth: Tensor
    message: Tensor


@final
@dataclass(frozen=True)
class AdaFGL(Method[Prepared]):
    label: ClassVar[str] = "AdaFGL"
    revision: ClassVar[int] = 2  # before, a node's own message weighed 0 in the form "meant"
    has_global: ClassVar[bool] = False
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "default": {},
        "released": {"form": "released", "mix": "switch", "alpha": 0.05},
    }

    stage_two: float = option(
        0.5,
        "share of the rounds in which every client trains alone; 0: FedAvg",
        search=ladder(0.25, 0.5, 0.75, below=0.1, above=0.9),
    )
    # Choice: 3 steps per round, as many as every method takes by default. The authors take 200 after
    # federation, OpenFGL one per round. On email one step is 1.4 points of balanced accuracy and 2.2 of
    # macro-F1 behind (validation, 60 rounds, seed 100).
    steps: int = option(3, "steps per round in stage two", search=ladder(1, 3, above=10))
    alpha: float = option(
        0.5,
        "weight of the client's own edges in the corrected graph; 1: no others",
        search=ladder(0.05, 0.25, 0.5, 0.75, above=1.0),
    )
    beta: float = option(0.2, "weight of the global model's predictions in signed messages")
    hops: int = option(3, "steps over the corrected graph")
    kappa: float = option(0.5, "share of the neighbours in a step of label propagation")
    mix: Literal["confidence", "switch"] = option(
        "confidence", "mix both branches by the graph's homophily, or take the one that it speaks for"
    )
    form: Form = option(
        "meant",
        "meant: similarity of probabilities, the homophilous branch's probabilities near the global model's, "
        "unlike nodes push away; released: softmax twice, logits near probabilities, inverted push",
    )

    def __post_init__(self) -> None:
        if not 0 <= self.stage_two < 1:
            raise BadConfig(f"stage_two is {self.stage_two}; it must lie in [0, 1)")
        for name in ("alpha", "beta", "kappa"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadConfig(f"{name} is {getattr(self, name)}; it must lie in [0, 1]")
        if self.steps < 1 or self.hops < 0:
            raise BadConfig(f"steps is {self.steps} and hops is {self.hops}; give 1 step and 0 hops or more")

    def idle(self) -> Mapping[str, str]:
        names = ("steps", "alpha", "beta", "hops", "kappa", "mix", "form")
        return {} if self.stage_two else dict.fromkeys(names, "stage_two")

    def stage_one_rounds(self, last_round: int) -> int:
        return last_round - int(self.stage_two * last_round)

    def in_stage_two(self, where: Client[Prepared] | Server) -> bool:
        return where.round > self.stage_one_rounds(where.last_round)

    def complete_from(self, last_round: int) -> int:
        return min(self.stage_one_rounds(last_round) + 1, last_round)

    def prepare(self, data: ClientData, model: Backbone) -> Prepared:
        features = factor_of(data.graph.x)
        return Prepared(model.inputs(data), features, adjacency(data.graph.edge_index, data.graph.num_nodes))

    def client_step(
        self, client: Client[Prepared], message: Tensors, state: Tensors
    ) -> tuple[Reply, Tensors]:
        if self.in_stage_two(client):
            return self._alone(client, message, state)
        loss = cross_entropy(client, client.prepared.inputs)
        params, state, mean = fit(client, model_part(message), state, loss)
        return reply(client, params, loss=mean), {**state, **params}

    def _alone(self, client: Client[Prepared], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        """Stage two. What is kept of stage one goes: the message has the global model."""
        if not bool(client.data.train_mask.any()):
            # Choice: nothing can be trained here, so the client keeps the global model.
            return reply(client, {}), {}
        if CONFIDENCE not in state:
            found = torch.tensor([self._homophily(client)])
            partners = partners_of(compared(self._soft(client, message), self.form))
            state = {CONFIDENCE: found, PARTNERS: partners, **self._towers(client)}
        view = self._view(client, {**message, PARTNERS: state[PARTNERS]})
        params, state, mean = fit(
            client,
            with_prefix(state, TOWER),
            {name: value for name, value in state.items() if not name.startswith(TOWER)},
            self._loss(client, view),
            epochs=self.steps,
            stage="towers",
        )
        return reply(client, {}, loss=mean), {**state, **params}

    def _homophily(self, client: Client[Prepared]) -> float:
        inputs, classes = client.prepared.inputs, client.info.num_classes
        operator = Sparse.of(normalised(client.prepared.adjacency), symmetric=True)
        draws = client.draws("halves")
        return homophily(operator, inputs.train, inputs.labels, classes, self.kappa, draws)

    def _view(self, client: Client[Prepared], tensors: Tensors) -> View:
        """What the global model, which is fixed in stage two, says of the nodes.

        Similar nodes are looked for once. On another graph, such as an exported model's, they are not known.
        """
        soft = self._soft(client, tensors)
        partners = tensors[PARTNERS] if PARTNERS in tensors else partners_of(compared(soft, self.form))
        draws = seeded_numpy(client.seed, "anchors", client.data.client_id)
        return view_of(soft, partners, client.prepared.adjacency, self.alpha, draws)

    def _soft(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        """P̂, [n, C]."""
        return client.model.predict(model_part(tensors), client.prepared.inputs).softmax(1)

    def without_labels(self, tensors: Tensors, counts: Tensor) -> Tensors:
        """Without the pairs of the client's own nodes: an exported model meets other graphs."""
        return {name: value for name, value in tensors.items() if name != PARTNERS}

    def _towers(self, client: Client[Prepared]) -> Tensors:
        """The branches' parameters before training. All first layers are one matrix."""
        width, columns, classes = client.model.hidden, client.info.num_features, client.info.num_classes
        draws, blocks = client.torch_draws("towers"), self.hops + 1
        own = glorot(columns, width, draws)
        wide = [glorot(blocks * columns, width, draws).chunk(blocks) for _ in range(2)]
        first = [own, *(part for pair in zip(*wide, strict=True) for part in pair)]  # own, then by hops
        made = {"first.weight": torch.cat(first, dim=1), "first.bias": torch.zeros(3 * width)}
        for name in ("own", "smooth", "message"):
            made[f"{name}.second.weight"] = glorot(width, width, draws)
            made[f"{name}.second.bias"] = torch.zeros(width)
        for name in ("homophilous", "own", "smooth", "message"):
            made[f"{name}.last.weight"] = glorot(width, classes, draws)
            made[f"{name}.last.bias"] = torch.zeros(classes)
        made |= {f"{name}.slope": torch.full((1,), SLOPE) for name in ACTIVATIONS}
        return {TOWER + name: value for name, value in made.items()}

    def outputs(self, client: Client[Prepared], params: Tensors, view: View, dropout: Dropout) -> Outputs:
        """The logits of all heads."""
        width, features = client.model.hidden, client.prepared.features

        def active(rows: Tensor, name: str) -> Tensor:
            return dropout(F.prelu(rows, params[f"{TOWER}{name}.slope"]))

        def layer(rows: Tensor, name: str) -> Tensor:
            return torch.addmm(params[f"{TOWER}{name}.bias"], rows, params[f"{TOWER}{name}.weight"])

        first = times(features, params[f"{TOWER}first.weight"])
        wide = smoothed(first[:, width:], view.operator, self.hops)  # [n, 2 h]
        rows = torch.cat([wide[:, :width], first[:, :width], wide[:, width:]], dim=1)
        rows = rows + params[f"{TOWER}first.bias"]
        names = ("homophilous", "own", "smooth")
        calm, own, smooth = (active(part, name) for name, part in zip(names, rows.chunk(3, 1), strict=True))
        deep = {"own": own, "smooth": smooth, "message": smooth}
        deep = {name: active(layer(part, f"{name}.second"), f"{name}.second") for name, part in deep.items()}
        said = {name: layer(part, f"{name}.last") for name, part in deep.items()}
        sent = messages(said["message"], view, self.beta, params[f"{TOWER}message.slope"], self.form)
        return Outputs(layer(calm, "homophilous.last"), said["own"], said["smooth"], sent)

    def _loss(self, client: Client[Prepared], view: View) -> Loss:
        inputs = client.prepared.inputs
        dropout = Dropout(client.model.dropout, client.model.hidden, client.draws("dropout"))

        def loss(params: Tensors) -> Tensor:
            out = self.outputs(client, params, view, dropout)
            heads = (out.homophilous, out.own, out.smooth, out.message)
            near = out.homophilous if self.form == "released" else out.homophilous.softmax(1)
            wrong = torch.stack([F.cross_entropy(each[inputs.train], inputs.labels) for each in heads])
            return wrong.sum() + F.mse_loss(near, view.soft)

        return loss

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return tensors if self.in_stage_two(server) else average(server.info, tensors, replies)

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return {} if self.in_stage_two(server) else same_fields(tensors)

    def predict(self, client: Client[Prepared], tensors: Tensors) -> Tensor:
        params = with_prefix(tensors, TOWER)
        if not params:
            return client.model.predict(model_part(tensors), client.prepared.inputs)
        view = self._view(client, tensors)
        with torch.no_grad():
            out = self.outputs(client, params, view, Dropout(0.0, client.model.hidden, None))
        trust = self._trust(float(tensors[CONFIDENCE]))
        return mixed(out, compared(view.soft, self.form), trust).clamp(min=LEAST).log()

    def _trust(self, confidence: float) -> float:
        """The homophilous branch's weight."""
        return confidence if self.mix == "confidence" else float(confidence >= SWITCH)


def mixed(out: Outputs, soft: Tensor, trust: float) -> Tensor:
    """Probabilities [n, C]: the homophilous branch with the global model's P̂, and the mean of the others."""
    calm = (out.homophilous.softmax(1) + soft) / 2
    rest = (out.own.softmax(1) + out.smooth.softmax(1) + out.message.softmax(1)) / 3
    return trust * calm + (1 - trust) * rest


def smoothed(first: Tensor, operator: Sparse, hops: int) -> Tensor:
    """X W_0 + Ã (X W_1 + Ã (X W_2 + ...)) from [X W_0 | X W_1 | ...]: what [X | Ã X | ...] times W is."""
    *rest, out = first.chunk(hops + 1, dim=1)
    for part in reversed(rest):
        out = part + spmm(operator, out)
    return out
