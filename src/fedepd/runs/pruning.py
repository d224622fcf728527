"""FedEPD's purification for any other method: a control that shows what pruning alone gives.

The clients' graphs are pruned before the run begins. The method then trains and is tested on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.fedepd.purify import purified_edges
from fedepd.methods.fedepd.vote import for_pruning, pruning_votes
from fedepd.runs.experiment import Experiment
from fedepd.types import ClientData


def pruned(clients: list[ClientData], experiment: Experiment) -> list[ClientData]:
    """The clients on the graphs that the setting ``pruned`` says.

    Raises:
        BadConfig: The method prunes by itself.
    """
    how = experiment.protocol.pruned
    if how == "no":
        return clients
    if "purify" in [field.name for field in fields(experiment.method)]:
        raise BadConfig(
            f"pruned is {how}, but {experiment.method.label} prunes by itself; leave pruned out, or see its "
            "setting prune"
        )
    kept = [purified_edges(client.graph) for client in clients]
    if how == "by_vote" and not favoured(clients, kept):
        return clients
    return [replace(c, graph=c.graph.with_edges(edges)) for c, edges in zip(clients, kept, strict=True)]


def favoured(clients: Sequence[ClientData], kept: Sequence[Tensor]) -> bool:
    """Whether the clients vote for pruning. Votes use training labels only."""
    votes = [pruning_votes(c.hidden(), edges) for c, edges in zip(clients, kept, strict=True)]
    return for_pruning(torch.stack(votes).sum(0))


def check_not_pruned(experiment: Experiment, what: str) -> None:
    """Refuse the control where graphs come later that nobody prunes.

    Raises:
        BadConfig: The setting ``pruned`` is on.
    """
    if experiment.protocol.pruned != "no":
        raise BadConfig(
            f"pruned is {experiment.protocol.pruned}, but that is a control for simulations, and {what}; "
            "leave pruned out"
        )
