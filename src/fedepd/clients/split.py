"""The split into training, validation and test nodes, made in each client and for each of its classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from fedepd.clients.partition import subgraphs
from fedepd.clients.vault import vault
from fedepd.errors import BadConfig, UnknownName
from fedepd.options import option
from fedepd.rng import seeded_numpy
from fedepd.types import HIDDEN, ClientData, Graph, Partition, Unscaled

SplitRule = Literal["floor", "keep_one"]
Scored = Literal["test", "vault"]


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
    vault: float = option(
        0.0,
        "share of each class's nodes that is set aside before the split, the same for every seed; "
        "no training, validation or test node is among them",
    )
    score_on: Scored = option(
        "test", "final scores are of the test nodes, or of the vault instead; 'tune' never sees the vault"
    )

    def __post_init__(self) -> None:
        if self.split not in get_args(SplitRule):
            raise UnknownName("split rule", self.split, get_args(SplitRule))
        if not (self.train_share > 0 and self.val_share >= 0 and self.train_share + self.val_share < 1):
            raise BadConfig(
                f"train_share={self.train_share} and val_share={self.val_share} leave no test or "
                f"training nodes; for example, give 0.6 and 0.2"
            )
        if not 0 <= self.vault < 1:
            raise BadConfig(f"vault is {self.vault}; give a share from 0 to below 1, for example 0.2")
        if self.score_on not in get_args(Scored):
            raise UnknownName("value of score_on", self.score_on, get_args(Scored))
        if self.score_on == "vault" and not self.vault:
            raise BadConfig("score_on is vault, but no node is set aside; give a vault too, for example 0.2")


def split(
    graph: Graph, config: SplitConfig, generator: np.random.Generator, aside: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Training, validation and test masks of one client's graph, bool [n] each.

    Unlabelled nodes are in none, and nodes that were set ``aside`` [n] neither. Where these are scored, they
    take the place of the test nodes.
    """
    y = graph.y.numpy()
    usable = y >= 0 if aside is None else (y >= 0) & ~aside.numpy()
    shuffled = generator.permutation(np.flatnonzero(usable))  # [labelled]
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
    if aside is not None and config.score_on == "vault":
        masks[2] = aside & (graph.y >= 0)
    return masks[0], masks[1], masks[2]


def split_client(
    client: int,
    graph: Graph,
    global_ids: Tensor,
    config: SplitConfig,
    seed: int,
    aside: Tensor | None,
    unscaled: Unscaled | None = None,
) -> ClientData:
    """One client, split with its own random stream.

    ``aside``: the vault, bool by global number; None where there is none. Then a label of no mask is not
    known at the client, so nothing that is computed from the client can depend on it.
    """
    mine = None if aside is None else aside[global_ids]
    train, val, test = split(graph, config, seeded_numpy(seed, "split", client), mine)
    if aside is not None:
        graph = replace(graph, y=torch.where(train | val | test, graph.y, HIDDEN))
    return ClientData(client, graph, train, val, test, global_ids, unscaled)


def make_clients(graph: Graph, partition: Partition, config: SplitConfig, seed: int) -> list[ClientData]:
    """Cut the graph into clients and split each with its own random stream.

    The result holds the true labels. The caller hides them with ``ClientData.hidden``.
    """
    aside = vault(graph, config.vault) if config.vault else None
    return [
        split_client(client, local, global_ids, config, seed, aside)
        for client, (local, global_ids) in enumerate(subgraphs(graph, partition))
    ]
