"""Seeded long-tailed graphs with features, partly heterophilic.

The model is a degree-corrected block model over classes and communities.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from fedepd.datasets.published import SHAPES
from fedepd.errors import BadConfig
from fedepd.network.sparse import csr_tensor
from fedepd.rng import seeded_numpy
from fedepd.types import Graph

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_DRAWS = 100
"""If not all edges are placed after this many rounds of drawing, there is no room for them."""
DEGREE_EXPONENT = 2.5
"""Exponent of the power law of degrees. Citation and co-purchase graphs lie between 2 and 3."""


def synthetic(
    nodes: int = 1_500,
    edges: int = 6_000,
    classes: int = 10,
    imbalance: float = 50.0,
    smallest: int | None = 14,
    features: int = 64,
    homophily_head: float = 0.8,
    homophily_tail: float = 0.35,
    communities: int = 20,
    inside: float = 0.85,
    community_skew: float = 1.0,
    signal: float = 3.0,
    sparse: bool = False,
    words_per_node: float = 60.0,
    seed: int = 0,
    name: str = "synthetic",
) -> Graph:
    """A graph with exactly these numbers of nodes, edges and classes. Class 0 is the largest.

    imbalance: size of the largest class divided by the size of the smallest. smallest: size of the smallest
    class. None: the size that a power law gives. homophily_head, homophily_tail: share of a node's edges that
    stay in its class, for the largest and the smallest class. The other classes lie between by rank. The
    remaining edges go to nodes of other classes in proportion to their degrees, so mostly to head classes. If
    the head is less homophilic than the tail, its many edges to other classes lower the tail's share.
    communities: number of communities. inside: share of edges that stay inside a community, as far as there
    is room. community_skew: Dirichlet parameter of each class over the communities. The smaller it is, the
    fewer communities hold a class. signal: distance between the features of different classes. Dense features
    are Gaussians around class means at this distance from the origin. Sparse features are about
    words_per_node words. A share signal / (1 + signal) of them comes from the class's own tenth of the
    vocabulary.
    """
    _check(
        nodes,
        edges,
        classes,
        imbalance,
        homophily_head,
        homophily_tail,
        inside,
        features,
        communities,
        community_skew,
        signal,
    )
    rng = seeded_numpy(seed, "synthetic", name)
    sizes = planned_sizes(nodes, classes, imbalance, smallest)
    y = rng.permutation(np.repeat(np.arange(classes), sizes))  # [n]
    shares = rng.dirichlet(np.full(communities, community_skew), size=classes).cumsum(1)  # [C, communities]
    community = (rng.random((nodes, 1)) > shares[y]).sum(1).clip(max=communities - 1)  # [n]
    homophily = np.linspace(homophily_head, homophily_tail, classes)  # [C]
    edge_index = _edges(
        rng, edges, _Blocks(y, community, homophily[y], _degree_weights(rng, nodes, edges)), inside
    )
    x = (
        _bags_of_words(rng, y, features, words_per_node, signal)
        if sparse
        else _gaussians(rng, y, features, signal)
    )
    return Graph.make(x, torch.from_numpy(edge_index), torch.from_numpy(y), num_classes=classes, name=name)


def planned_sizes(nodes: int, classes: int, imbalance: float, smallest: int | None = None) -> Ints:
    """Descending power-law class sizes that add up to ``nodes``.

    The first divided by the last is ``imbalance``, as nearly as integers allow.
    """
    law = np.arange(1, classes + 1) ** -(np.log(imbalance) / np.log(classes))
    if smallest is None:
        ideal = nodes * law[-1] / law.sum()
        near = np.arange(max(1, round(0.9 * ideal)), round(1.1 * ideal) + 2)
        near = near[np.argsort(np.abs(near - ideal), kind="stable")]
        error = np.abs(np.round(imbalance * near) / near - imbalance)
        smallest = int(
            near[np.where(_fits(nodes, classes, near, np.round(imbalance * near)), error, np.inf).argmin()]
        )
    largest = nodes - smallest if classes == 2 else round(imbalance * smallest)
    if smallest < 1 or not _fits(nodes, classes, smallest, largest):
        raise BadConfig(
            f"synthetic: {nodes} nodes cannot form {classes} classes of {smallest} to {largest} nodes; "
            f"change nodes or imbalance"
        )
    shape = (law - law[-1]) / max(law[0] - law[-1], 1e-12)  # from 1 down to 0
    low, high = 1e-6, 1e6
    for _ in range(100):  # bend the law until the sizes add up
        bend = np.sqrt(low * high)
        low, high = (
            (bend, high) if (smallest + (largest - smallest) * shape**bend).sum() > nodes else (low, bend)
        )
    sizes = np.floor(smallest + (largest - smallest) * shape**high).astype(np.int64)
    return _hand_out(sizes, nodes - int(sizes.sum()), largest)


def _fits(nodes: int, classes: int, smallest: Any, largest: Any) -> Any:
    """Whether the classes between the first and the last have room for the remaining nodes."""
    return (largest + smallest * (classes - 1) <= nodes) & (nodes <= smallest + largest * (classes - 1))


def _hand_out(sizes: Ints, missing: int, largest: int) -> Ints:
    """Give the nodes that rounding left over to the classes between the first and the last, one each."""
    while missing > 0:
        room = 1 + np.flatnonzero(sizes[1:-1] < largest)[:missing]
        sizes[room] += 1
        missing -= room.size
    return sizes


def _degree_weights(rng: np.random.Generator, nodes: int, edges: int) -> Floats:
    """Power-law weights, cut so that no node is expected to touch more than a tenth of the others."""
    weights = rng.random(nodes) ** (-1 / (DEGREE_EXPONENT - 1))
    return np.minimum(weights, max(2.0, 0.1 * nodes * weights.mean() / max(2 * edges / nodes, 1)))


class _Blocks(NamedTuple):
    label: Ints
    community: Ints
    homophily: Floats
    weight: Floats


def _edges(rng: np.random.Generator, count: int, blocks: _Blocks, inside: float) -> Ints:
    """``count`` distinct undirected edges, [2, e].

    Every node is the source of one if there are enough edges.
    """
    n = blocks.label.size
    starts = rng.permutation(n)[:count]
    same = rng.random(starts.size) < blocks.homophily[starts]
    # An edge is seen from both ends: a class uses its share of homophily for itself, so 1 - homophily of its
    # ends remain for other classes.
    within, across = blocks.weight * blocks.homophily, blocks.weight * (1 - blocks.homophily)
    share = within.sum() / blocks.weight.sum()
    num_same = min(max(int(same.sum()) + round(share * (count - starts.size)), 0), count)
    keys = [
        _edges_of_kind(rng, num_same, starts[same], True, within, blocks, inside),
        _edges_of_kind(rng, count - num_same, starts[~same], False, across, blocks, inside),
    ]
    return np.stack(np.divmod(np.concatenate(keys), n))


def _edges_of_kind(
    rng: np.random.Generator,
    count: int,
    source: Ints,
    same_class: bool,
    weight: Floats,
    blocks: _Blocks,
    inside: float,
) -> Ints:
    """``count`` distinct edges inside classes or between them, as keys low * n + high.

    The nodes in ``source`` get an edge first.
    """
    n, cumulative = weight.size, weight.cumsum()
    everywhere = np.zeros_like(blocks.community)
    keys = np.empty(0, dtype=np.int64)
    for _ in range(MAX_DRAWS):
        local = rng.random(source.size) < inside
        target = source.copy()
        target[local] = _draw(rng, source[local], same_class, blocks.label, blocks.community, weight)
        alone = target == source  # not local, or the community has no suitable node
        target[alone] = _draw(rng, source[alone], same_class, blocks.label, everywhere, weight)
        low, high = np.minimum(source, target), np.maximum(source, target)
        drawn = np.concatenate([keys, (low * n + high)[low != high]])
        _, first = np.unique(drawn, return_index=True)
        keys = drawn[np.sort(first)[:count]]  # the earlier ones stay
        if keys.size == count:
            return keys
        extra = int(1.05 * (count - keys.size)) + 16
        more = np.searchsorted(cumulative, rng.random(extra) * cumulative[-1]).clip(max=n - 1)
        source = np.concatenate([source[low == high], more])
    kind = "inside classes" if same_class else "between classes"
    raise BadConfig(
        f"synthetic: only {keys.size} of {count} distinct edges {kind} fit; "
        f"ask for fewer edges or another homophily"
    )


def _draw(
    rng: np.random.Generator, source: Ints, same_class: bool, label: Ints, group: Ints, weight: Floats
) -> Ints:
    """For each source, a node of its group, in its class or another; the source itself if there is none."""
    order = np.lexsort((label, group))
    total = np.concatenate([[0.0], weight[order].cumsum()])
    classes = int(label.max()) + 1
    keys = (group * classes + label)[order]
    own = group[source] * classes + label[source]
    start, end = (total[np.searchsorted(keys, own, side=side)] for side in ("left", "right"))
    first, last = (total[np.searchsorted(keys, group[source] * classes + offset)] for offset in (0, classes))
    u = rng.random(source.size)
    if same_class:
        position = start + u * (end - start)
    else:
        position = first + u * (last - first - (end - start))
        # Skip the source's own class.
        position = np.where(position >= start, position + (end - start), position)
    found = order[(np.searchsorted(total, position, side="right") - 1).clip(max=label.size - 1)]
    allowed = (group[found] == group[source]) & ((label[found] == label[source]) == same_class)
    return np.where(allowed, found, source)


def _gaussians(rng: np.random.Generator, y: Ints, features: int, signal: float) -> torch.Tensor:
    means = rng.standard_normal((int(y.max()) + 1, features), dtype=np.float32)
    means *= signal / np.linalg.norm(means, axis=1, keepdims=True)  # [C, d]
    return torch.from_numpy(means[y] + rng.standard_normal((y.size, features), dtype=np.float32))


def _bags_of_words(
    rng: np.random.Generator, y: Ints, features: int, words_per_node: float, signal: float
) -> torch.Tensor:
    """0/1 features in CSR. Common words have low numbers.

    Every class also has a topic, a tenth of the vocabulary.
    """
    topic_size = max(1, features // 10)
    topics = rng.integers(features, size=(int(y.max()) + 1, topic_size))
    row = np.repeat(np.arange(y.size), rng.poisson(words_per_node, size=y.size).clip(min=1))
    common = (features * rng.random(row.size) ** 2).astype(np.int64)
    own = topics[y[row], rng.integers(topic_size, size=row.size)]
    word = np.where(rng.random(row.size) < signal / (1 + signal), own, common)
    keys = np.unique(row * features + word)
    ones = np.ones(keys.size, dtype=np.float32)
    return csr_tensor(sp.csr_matrix((ones, (keys // features, keys % features)), shape=(y.size, features)))


TWINS: dict[str, dict[str, Any]] = {
    "corafull": {"homophily": 0.57, "smallest": 15, "sparse": True, "words_per_node": 60.0},
    "arxiv": {"homophily": 0.65, "smallest": 29},
    # Choice: no homophily is published for the Amazon datasets. 0.75 is that of the 20 Clothing classes whose
    # labels we have.
    "electronics": {"homophily": 0.75, "sparse": True, "words_per_node": 59.0},
    "clothing": {"homophily": 0.75, "smallest": 101, "sparse": True, "words_per_node": 33.0},
    "roman_empire": {"homophily": 0.05, "smallest": 312},
    "email": {"homophily": 0.34, "smallest": 1},
    "computers": {"homophily": 0.78, "smallest": 291, "sparse": True, "words_per_node": 574.0, "signal": 1.0},
}
"""What a twin shares with its original beyond Table 1.

These are the share of edges inside a class, the size of the smallest class and the kind of features.
"""

TAIL_OF_HEAD = 0.6
"""Homophily of a twin's smallest class divided by that of its largest."""


def twin(name: str, seed: int = 0) -> Graph:
    """A graph with the sizes and the imbalance ratio of one row of Table 1, or of Amazon-Computers."""
    row, more = SHAPES[name], dict(TWINS[name])
    sizes = planned_sizes(row.nodes, row.classes, row.imbalance_ratio, more.get("smallest"))
    mean_rank = (np.linspace(0, 1, row.classes) * sizes).sum() / row.nodes
    head = min(0.98, more.pop("homophily") / (1 - (1 - TAIL_OF_HEAD) * mean_rank))
    more.setdefault("smallest", None)
    return synthetic(
        nodes=row.nodes,
        edges=row.edges,
        classes=row.classes,
        imbalance=row.imbalance_ratio,
        features=row.features,
        homophily_head=head,
        homophily_tail=TAIL_OF_HEAD * head,
        communities=max(8, round(row.nodes**0.5 / 4)),
        seed=seed,
        name=f"twin:{name}",
        **more,
    )


def _check(
    nodes: int,
    edges: int,
    classes: int,
    imbalance: float,
    homophily_head: float,
    homophily_tail: float,
    inside: float,
    *positive: float,
) -> None:
    if not 2 <= classes <= nodes:
        raise BadConfig(
            f"synthetic: classes is {classes}; give at least 2 and at most {nodes}, the number of nodes"
        )
    if not 0 <= edges <= nodes * (nodes - 1) // 4:
        most = nodes * (nodes - 1) // 4
        raise BadConfig(f"synthetic: edges is {edges}; {nodes} nodes allow 0..{most}, half of all pairs")
    if imbalance < 1:
        raise BadConfig(
            f"synthetic: imbalance is {imbalance}; it is largest class / smallest class, so give at least 1"
        )
    for what, share in (
        ("homophily_head", homophily_head),
        ("homophily_tail", homophily_tail),
        ("inside", inside),
    ):
        if not 0 <= share <= 1:
            raise BadConfig(f"synthetic: {what} is {share}; it is a share and must lie in 0..1")
    if min(positive) <= 0:
        raise BadConfig(
            f"synthetic: features, communities, community_skew and signal must be positive, "
            f"but one is {min(positive)}"
        )
