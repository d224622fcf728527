"""Small federations to test with: three clients, three classes, every awkward case on request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.methods.base import Client, Method, Server
from fedepd.network.backbones import Backbone
from fedepd.network.contract import Dropout, Inputs, Network, Shapes, times
from fedepd.network.sparse import csr_tensor, spmm
from fedepd.network.training import Training
from fedepd.rng import seeded
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import Round, train
from fedepd.rounds.participant import Participant
from fedepd.types import ClientData, Graph, TaskInfo, Tensors

CLASSES = 3
FEATURES = 6


@dataclass(frozen=True)
class OneLine(Network):
    """As little as the contract of a network asks for."""

    def shapes(self, model: Backbone, num_features: int) -> Shapes:
        return {"encoder.weight": (num_features, model.hidden)}

    def encode(self, model: Backbone, params: Tensors, inputs: Inputs, dropout: Dropout) -> Tensor:
        return dropout(torch.tanh(spmm(inputs.operator, times(inputs.features, params["encoder.weight"]))))


def toy_client(
    client_id: int = 0,
    nodes: int = 24,
    seed: int = 0,
    sparse: bool = False,
    edges: bool = True,
    train: bool = True,
    missing_class: bool = False,
    one_node_class: bool = False,
) -> ClientData:
    """A client whose features name the class noisily. Class 2 may be missing, or have one training node."""
    rng = np.random.default_rng([seed, client_id])
    y = rng.choice(2 if missing_class or one_node_class else CLASSES, size=nodes)
    y[: 2 if missing_class or one_node_class else CLASSES] = np.arange(
        2 if missing_class or one_node_class else CLASSES
    )
    if one_node_class:
        y[3] = 2
    x = np.eye(CLASSES, FEATURES)[y] + 0.3 * rng.standard_normal((nodes, FEATURES))
    if sparse:
        x = np.where(np.abs(x) > 0.3, x, 0.0)
    pairs = rng.integers(0, nodes, size=(2, 3 * nodes)) if edges else np.empty((2, 0), dtype=np.int64)
    features = csr_tensor(sp.csr_matrix(x)) if sparse else torch.tensor(x, dtype=torch.float32)
    graph = Graph.make(features, torch.tensor(pairs), torch.tensor(y), CLASSES, name="toy")
    role = torch.arange(nodes) % 5  # 0, 1, 2 train; 3 val; 4 test
    if one_node_class:
        role[3] = 0
    return ClientData(
        client_id, graph, (role < 3) & train, role == 3, role == 4, torch.arange(nodes) + 1000 * client_id
    )


def toy_clients(count: int = 3, **more: Any) -> list[ClientData]:
    return [toy_client(k, nodes=20 + 4 * k, **more) for k in range(count)]


def make_server(
    clients: Sequence[ClientData], model: Backbone, training: Training, seed: int = 0, rounds: int = 3
) -> Server:
    graph = clients[0].graph
    info = TaskInfo(graph.num_features, graph.num_classes, len(clients), training.weighting)
    return Server(info, model, training, seed, 0, rounds)


def make_client(
    method: Method[Any],
    data: ClientData,
    model: Backbone | None = None,
    training: Training | None = None,
    seed: int = 0,
    round: int = 1,
    last_round: int = 3,
) -> Client[Any]:
    """A client ready for ``method.client_step``; its labels are hidden as in a run."""
    model, training = model or Backbone(hidden=8), training or Training()
    hidden = data.hidden()
    info = TaskInfo(data.graph.num_features, data.graph.num_classes, 1, training.weighting)
    return Client(hidden, method.prepare(hidden, model), info, model, training, seed, round, last_round)


def initial(method: Method[Any], server: Server) -> Tensors:
    return method.server_init(server, server.model.init(server.info, seeded(server.seed, "init")))


def run_rounds(
    method: Method[Any],
    clients: Sequence[ClientData],
    rounds: int = 3,
    seed: int = 0,
    model: Backbone | None = None,
    training: Training | None = None,
    workers: int = 1,
    threaded_from: int | None = None,
) -> tuple[list[Round], InProcess]:
    """Run a method as the simulator does: its rounds, and the exchange with the clients' states."""
    model, training = model or Backbone(hidden=8), training or Training()
    server = make_server(clients, model, training, seed, rounds)
    participants = [Participant(method, c, server.info, model, training, seed, rounds) for c in clients]
    exchange = InProcess(participants, workers, threaded_from)
    out = list(
        train(
            method,
            server,
            initial(method, server),
            [c.client_id for c in clients],
            exchange,
            evaluate_every=1,
        )
    )
    exchange.close()
    return out, exchange


def relabelled(data: ClientData, y: Tensor) -> ClientData:
    return replace(data, graph=replace(data.graph, y=y))
