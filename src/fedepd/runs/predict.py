"""The model of all clients, and its logits as anybody has them who holds it and a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods import Client, Method
from fedepd.methods.steps import renamed
from fedepd.rounds.adapt import adapted_logits
from fedepd.runs.experiment import Experiment
from fedepd.runs.selection import below
from fedepd.types import HIDDEN, ClientData, Graph, TaskInfo, Tensors

ADAPTED = "adapted."
"""Begins the names of what a client keeps beside the selected model (``rounds.adapt``)."""


def check_common(method: Method[Any], what: str) -> None:
    """Refuse a method without a model for all clients. ``what`` is not possible then."""
    if not (method.has_global or method.merges_clients):
        own = ", or the model of one client, with --client" if what == "export" else ""
        raise BadConfig(
            f"{method.label} keeps one model per client and no common one, so there is nothing to {what}; "
            f"{what} a run of a method whose headline model is 'global' in 'fedepd methods', or of "
            f"'centralised'{own}"
        )


def common_model(method: Method[Any], tensors: Tensors) -> Tensors:
    """The model of all clients, from the tensors of the selected round."""
    return below(tensors, "client0.") if method.merges_clients else tensors


def logits(experiment: Experiment, info: TaskInfo, tensors: Tensors, graph: Graph) -> Tensor:
    """Logits of a graph [n, C], as a client without any training node would have them.

    Its features are as the protocol wants them. Its labels are not looked at.
    """
    return logits_at(experiment, info, tensors, unlabelled(graph, info))


def unlabelled(graph: Graph, info: TaskInfo) -> ClientData:
    """A client that holds the graph, without any training node."""
    n = graph.num_nodes
    none = torch.zeros(n, dtype=torch.bool)
    hidden = replace(
        graph,
        y=torch.full((n,), HIDDEN),
        num_classes=info.num_classes,
        label_names=(),
        owner=None,
        owner_names=(),
    )
    return ClientData(0, hidden, none, none, none, torch.arange(n))


def logits_at(experiment: Experiment, info: TaskInfo, tensors: Tensors, data: ClientData) -> Tensor:
    """Logits as a client with these data would have them, [n, C]. A method may use its training labels."""
    with torch.no_grad():
        return predicted(experiment, tensors, client_with(experiment, info, data))


def client_with(experiment: Experiment, info: TaskInfo, data: ClientData) -> Client[Any]:
    """A client with these data, outside training."""
    e = experiment
    prepared = e.method.prepare(data, e.model)
    return Client(data, prepared, info, e.model, e.training, e.protocol.seed, 0, e.protocol.rounds)


def predicted(experiment: Experiment, tensors: Tensors, client: Client[Any]) -> Tensor:
    """What the client's model says about its nodes, adapted or not: [n, C]."""
    method, kept = experiment.method, renamed(tensors, ADAPTED, "")
    message = {name: value for name, value in tensors.items() if not name.startswith(ADAPTED)}
    if method.has_global:
        message = method.message(message, 0)  # else they are a client's own already
    return adapted_logits(method, client, message, kept) if kept else method.predict(client, message)


def with_adapted(message: Tensors, kept: Tensors) -> Tensors:
    """One set of tensors for an adapted model: the selected one, and what the client keeps beside it."""
    return {**message, **renamed(kept, "", ADAPTED)}
