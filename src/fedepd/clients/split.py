"""The split into training, validation and test nodes, made in each client and for each of its classes."""

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
    """How each client splits its labelled nodes. Nodes outside training and validation are test nodes."""

    split: SplitRule = option(
        "floor",
        "floor: round the number of training nodes down, so a class with one node at a client is only tested "
        "there; keep_one: every class at a client has a training node",
    )
    train_share: float = option(0.6, "share of a class's nodes at a client that are training nodes")
    val_share: float = option(0.2, "share of a class's nodes at a client that are validation nodes")

    def __post_init__(self) -> None:
        if self.split not in get_args(SplitRule):
            raise UnknownName("split rule", self.split, get_args(SplitRule))
        if not (self.train_share > 0 and self.val_share >= 0 and self.train_share + self.val_share < 1):
            raise BadConfig(
                f"train_share={self.train_share} and val_share={self.val_share} leave no test or "
                f"training nodes; for example, give 0.6 and 0.2"
            )


def split(graph: Graph, config: SplitConfig, generator: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Training, validation and test masks of one client's graph, bool [n] each.

    Unlabelled nodes are in none.
    """
    y = graph.y.numpy()
    shuffled = generator.permutation(np.flatnonzero(y >= 0))  # [labelled]
    if graph.time is not None:
        # Choice: the oldest nodes of each class at each client train, the next ones validate, and the newest
        # ones test. With one day for all classes, a kind of fraud that is new would have no training node.
        shuffled = shuffled[np.argsort(graph.time.numpy()[shuffled], kind="stable")]
    by_class = shuffled[np.argsort(y[shuffled], kind="stable")]
    _, first, class_of, sizes = np.unique(
        y[by_class], return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.arange(by_class.size) - first[class_of]  # [labelled]: 0, 1, ... inside each class

    # OpenFGL's floor rule, in its floating point: int(0.6 * n) and int((0.6 + 0.2) * n).
    train_end = (config.train_share * sizes).astype(np.int64)  # [local classes]
    if config.split == "keep_one":
        # Choice: every class whose training share rounds to zero keeps one training node, not only a class
        # with a single local node.
        train_end = np.maximum(train_end, 1)
    val_end = np.maximum(train_end, ((config.train_share + config.val_share) * sizes).astype(np.int64))
    # [labelled]: 0 train, 1 validation, 2 test
    part = (rank >= train_end[class_of]).astype(np.int64) + (rank >= val_end[class_of])

    masks = torch.zeros(3, graph.num_nodes, dtype=torch.bool)
    masks[torch.from_numpy(part), torch.from_numpy(by_class)] = True
    return masks[0], masks[1], masks[2]


def make_clients(graph: Graph, partition: Partition, config: SplitConfig, seed: int) -> list[ClientData]:
    """Cut the graph into clients and split each with its own random stream.

    The result holds the true labels. The caller hides them with ``ClientData.hidden``.
    """
    clients = []
    for client, (local, global_ids) in enumerate(subgraphs(graph, partition)):
        train, val, test = split(local, config, seeded_numpy(seed, "split", client))
        clients.append(ClientData(client, local, train, val, test, global_ids))
    return clients
