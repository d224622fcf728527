"""Training, validation and test nodes: per client, and per class of that client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from fedepd.clients.partition import subgraphs
from fedepd.errors import BadConfig, UnknownName
from fedepd.options import option
from fedepd.rng import seeded_numpy
from fedepd.types import ClientData, Graph, Partition

SplitRule = Literal["floor", "keep_one"]


@dataclass(frozen=True)
class SplitConfig:
    """How each client splits its labelled nodes; the test set is what training and validation leave."""

    split: SplitRule = option(
        "floor",
        "floor: rounded down, a class with one local node is only tested; keep_one: every local class trains",
    )
    train_share: float = option(0.6, "share of each local class that trains")
    val_share: float = option(0.2, "share of each local class that validates")

    def __post_init__(self) -> None:
        if self.split not in get_args(SplitRule):
            raise UnknownName("split rule", self.split, get_args(SplitRule))
        if not (self.train_share > 0 and self.val_share >= 0 and self.train_share + self.val_share < 1):
            raise BadConfig(
                f"train_share={self.train_share} and val_share={self.val_share} leave no test or training nodes; use 0.6, 0.2"
            )


def split(graph: Graph, config: SplitConfig, generator: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Training, validation and test masks, bool [n] each, of one client's graph. Nodes without a label are in none."""
    y = graph.y.numpy()
    shuffled = generator.permutation(np.flatnonzero(y >= 0))  # [labelled]
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    _, first, class_of, sizes = np.unique(
        y[by_class], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.arange(by_class.size) - first[class_of]  # [labelled]: 0, 1, ... inside each class

    # OpenFGL's floor rule, in its floating point: int(0.6 * n) and int((0.6 + 0.2) * n).
    train_end = (config.train_share * sizes).astype(np.int64)  # [local classes]
    if config.split == "keep_one":
        # Choice: not only a class with one local node, but any whose training share rounds to nothing (small shares), keeps one.
        train_end = np.maximum(train_end, 1)
    val_end = np.maximum(train_end, ((config.train_share + config.val_share) * sizes).astype(np.int64))
    part = (rank >= train_end[class_of]).astype(np.int64) + (
        rank >= val_end[class_of]
    )  # [labelled]: 0 train, 1 val, 2 test

    masks = torch.zeros(3, graph.num_nodes, dtype=torch.bool)
    masks[torch.from_numpy(part), torch.from_numpy(by_class)] = True
    return masks[0], masks[1], masks[2]


def make_clients(graph: Graph, partition: Partition, config: SplitConfig, seed: int) -> list[ClientData]:
    """Cut the graph and split every client by its own random stream. True labels inside: the caller hides them (``ClientData.hidden``)."""
    clients = []
    for client, (local, global_ids) in enumerate(subgraphs(graph, partition)):
        train, val, test = split(local, config, seeded_numpy(seed, "split", client))
        clients.append(ClientData(client, local, train, val, test, global_ids))
    return clients
