"""Link stealing: do a model's probabilities tell which of its nodes are connected?

The attack is attack 0 of He et al., "Stealing links from graph neural networks" (USENIX Security 2021). It
knows the probabilities of the nodes and nothing else, and takes two nodes with similar ones for connected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedepd.datasets.facts import class_sizes
from fedepd.longtail import class_order, tiers
from fedepd.privacy.figures import TIERS, Figure, auc_figure
from fedepd.privacy.shadows import Scores, audited, client_logits, trained
from fedepd.rng import seeded_numpy
from fedepd.runs.experiment import Experiment
from fedepd.runs.source import Data
from fedepd.types import ClientData, Tensors

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST = 20_000
"""Connected pairs of a tier that are looked at, and as many others."""
TRIES = 50
"""How often unconnected pairs are drawn, at most. A tier of few nodes may have fewer than it has edges."""


@dataclass(frozen=True, eq=False)
class Nodes:
    """All nodes of all clients, as the attack is scored by them."""

    owner: Ints
    """[n]"""
    rank: Ints
    """0 is the largest class, [n]; -1 without a label."""
    edges: Ints
    """Connected pairs of one client, [2, m], the smaller number first."""


def audit_links(
    experiment: Experiment, data: Data, tensors: Tensors | None = None, scores: Scores = "all"
) -> list[Figure]:
    """Attack the probabilities of the model that the experiment ends with, by tier of the rarer class.

    Args:
        experiment: The run's settings.
        data: The run's data.
        tensors: The run's model, if it is at hand. Otherwise it is trained again.
        scores: What the attacker is told of a node: "all" probabilities, or the "top" label with its
            probability rounded to one digit.

    Returns:
        ``links.auc`` (unconnected pairs are any two nodes) and ``links.auc_within`` (any two of one client),
        over all pairs and for each tier. Connected pairs are always of one client: edges between clients are
        cut.

    Raises:
        BadConfig: The method has no model for all clients, or the run was attacked.
    """
    simulation = audited(experiment, data)
    tensors = trained(simulation) if tensors is None else tensors
    info, classes = simulation.server.info, simulation.graph.num_classes
    told = np.zeros((simulation.graph.num_nodes, classes))
    for each in simulation.clients:
        p = softmax(client_logits(simulation.experiment, info, tensors, each).numpy(), axis=1)
        told[each.global_ids.numpy()] = p if scores == "all" else top_only(p)
    sizes = class_sizes(simulation.graph).numpy()
    nodes = all_nodes(simulation.clients, np.argsort(class_order(sizes)))
    cut = tiers(sizes)
    ends = {"head": len(cut.head), "medium": len(cut.head) + len(cut.medium), "tail": classes}
    out = []
    for name, within in (("links.auc", False), ("links.auc_within", True)):
        out += figures_of(name, told, nodes, ends, within, experiment.protocol.seed)
    return out


def top_only(p: Floats) -> Floats:
    """The likeliest class with its probability rounded to one digit, the rest shared evenly: [n, C]."""
    n, classes = p.shape
    score = np.round(p.max(1), 1)
    out = np.repeat(((1 - score) / max(classes - 1, 1))[:, None], classes, axis=1)
    out[np.arange(n), p.argmax(1)] = score
    return out


def all_nodes(clients: Sequence[ClientData], rank_of_class: Ints) -> Nodes:
    """The clients' nodes under their numbers in the whole graph."""
    n = sum(each.graph.num_nodes for each in clients)
    owner, rank, edges = np.zeros(n, np.int64), np.full(n, -1), []
    for each in clients:
        ids, y = each.global_ids.numpy(), each.graph.y.numpy()
        owner[ids] = each.client_id
        rank[ids] = np.where(y >= 0, rank_of_class[y], -1)
        edges.append(ids[each.graph.edge_index.numpy()])
    pairs = np.sort(np.concatenate(edges, axis=1), axis=0)
    return Nodes(owner, rank, np.unique(pairs[:, pairs[0] < pairs[1]], axis=1))


def figures_of(
    name: str, told: Floats, nodes: Nodes, ends: Mapping[str, int], within: bool, seed: int
) -> list[Figure]:
    """One figure for all pairs and for each tier."""
    labelled = nodes.edges[:, (nodes.rank[nodes.edges] >= 0).all(0)]
    draws = seeded_numpy(seed, "links", name)
    wanted = {tier: np.flatnonzero(of_tier(nodes.rank[labelled].max(0), tier, ends)) for tier in TIERS}
    wanted = {tier: draws.permutation(found)[:MOST] for tier, found in wanted.items()}
    strangers = unconnected(nodes, {t: len(found) for t, found in wanted.items()}, ends, within, draws)
    return [
        auc_figure(name, tier, similarity(told, labelled[:, wanted[tier]]), similarity(told, strangers[tier]))
        for tier in TIERS
    ]


def of_tier(rank: Ints, tier: str, ends: Mapping[str, int]) -> NDArray[np.bool_]:
    """Whether the rarer class of a pair is in the tier. ``rank`` is that class's place by size."""
    if tier == "all":
        return rank >= 0
    start = {"head": 0, "medium": ends["head"], "tail": ends["medium"]}[tier]
    return (rank >= start) & (rank < ends[tier])


def unconnected(
    nodes: Nodes, wanted: Mapping[str, int], ends: Mapping[str, int], within: bool, draws: np.random.Generator
) -> dict[str, Ints]:
    """As many unconnected pairs of labelled nodes as wanted for each tier, if they are found: [2, m] each."""
    n = len(nodes.owner)
    known = set((nodes.edges[0] * n + nodes.edges[1]).tolist())
    found: dict[str, dict[int, None]] = {tier: {} for tier in wanted}
    for _ in range(TRIES):
        if all(len(found[tier]) >= count for tier, count in wanted.items()):
            break
        pairs = np.sort(draws.integers(n, size=(2, 2 * max(wanted.values()) + 100)), axis=0)
        rank = nodes.rank[pairs]
        fit = (pairs[0] < pairs[1]) & (rank >= 0).all(0)
        if within:
            fit &= nodes.owner[pairs[0]] == nodes.owner[pairs[1]]
        for tier in wanted:
            chosen = pairs[:, fit & of_tier(rank.max(0), tier, ends)]
            keys = (chosen[0] * n + chosen[1]).tolist()
            found[tier] |= dict.fromkeys(key for key in keys if key not in known)
    keys_of = {tier: np.array(list(found[tier])[:count], np.int64) for tier, count in wanted.items()}
    return {tier: np.stack([keys // n, keys % n]) for tier, keys in keys_of.items()}


def similarity(told: Floats, pairs: Ints) -> Floats:
    """The correlation of two nodes' probabilities, [m].

    Choice: of the eight distances that the paper tries, the correlation distance. The paper finds it the best
    of this attack on average.
    """
    centred = told - told.mean(1, keepdims=True)
    length = np.sqrt((centred**2).sum(1))
    left, right = pairs
    product: Floats = (centred[left] * centred[right]).sum(1)
    below: Floats = np.maximum(length[left] * length[right], 1e-12)
    return product / below
