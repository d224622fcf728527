"""Who owns which node: one graph cut into exactly K clients, none of them empty, every node owned once."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor

from fedepd.clients.communities import Ints, first_seen, groups, joined_by_labels, louvain, metis
from fedepd.errors import BadConfig, BadData, FedEPDError, UnknownName
from fedepd.network.sparse import adjacency, csr_tensor, to_scipy
from fedepd.options import option
from fedepd.plugins import Registry
from fedepd.rng import seeded_numpy
from fedepd.shown import shown
from fedepd.types import Graph, Partition

Rule = Callable[[Graph, "PartitionConfig", np.random.Generator], Ints]
"""Takes a graph, the settings and the run's random numbers.

Returns the client of each node, int64 [n], from 0 to clients - 1.
"""
AUTO, OWNER = "auto", "owner"
"""What the graph decides by having an owner column or not; no rule cuts it."""

GIVE_UP = 1000
"""OpenFGL stops looking for a client with room after this many steps of its pointer."""
METIS_PARTS = 100
"""metis+ cuts the graph into this many parts before it joins them. More clients need more parts.

It is OpenFGL's default.
"""


def partition_names() -> list[str]:
    """What the setting ``partition`` may be called. Nothing of a plug-in is imported for it."""
    return [AUTO, *PARTITIONS.names(), OWNER]


@dataclass(frozen=True)
class PartitionConfig:
    """How the graph is divided among clients."""

    clients: int = option(10, "number of clients; an owner column brings its own")
    partition: str = option(
        "auto",
        "auto: owner where the graph has an owner column, else openfgl; "
        "openfgl: Louvain communities, the big ones cut by node number; balanced: whole communities; "
        "dirichlet: label skew without communities; owner: the graph's own owner column; "
        "metis: parts of equal size with few edges between them; "
        "metis+, louvain+: METIS parts or Louvain communities, those with similar labels joined",
        partition_names,
    )
    resolution: float = option(1.0, "Louvain resolution: the higher, the smaller the communities")
    delta: int = option(20, "openfgl: how far a client may be from the mean size")
    dirichlet_alpha: float = option(0.5, "dirichlet: the smaller, the fewer clients share a class")
    shuffle_nodes: bool = option(
        False,
        "let the seed vary the clients of Louvain and METIS, which are the same for every seed otherwise",
    )

    def __post_init__(self) -> None:
        if self.partition not in (AUTO, OWNER) and self.partition not in PARTITIONS:
            raise UnknownName("partition rule", shown(self.partition), [AUTO, *PARTITIONS, OWNER])
        if self.clients < 1:
            raise BadConfig(f"clients is {self.clients}; there must be at least 1 client")
        for name in ("resolution", "dirichlet_alpha"):
            if not 0 < getattr(self, name) < float("inf"):
                raise BadConfig(f"{name} is {getattr(self, name)}; it must be a finite number above 0")
        if self.delta < 0:
            raise BadConfig(f"delta is {self.delta}; it must be at least 0")

    def idle(self) -> dict[str, str]:
        read = READ_BY.get(self.partition, READ_BY_PLUGINS)
        return {f.name: "partition" for f in fields(self) if f.name not in read}

    def resolved(self, graph: Graph) -> PartitionConfig:
        """The settings for this graph: "auto" becomes a rule, and with "owner" every owner is a client."""
        rule = self.partition if self.partition != AUTO else "openfgl" if graph.owner is None else OWNER
        clients = (
            self.clients if rule != OWNER or graph.owner is None else int(torch.unique(graph.owner).numel())
        )
        return replace(self, partition=rule, clients=clients)


def partition(graph: Graph, config: PartitionConfig, seed: int) -> Partition:
    """Divide the nodes by ``config.partition``.

    Without ``shuffle_nodes``, only ``dirichlet`` uses the seed.
    """
    config = config.resolved(graph)
    if config.partition == OWNER:
        owner = _owner(graph)
        return Partition(torch.from_numpy(owner), int(owner.max()) + 1, config.partition)
    if config.clients > graph.num_nodes:
        raise BadConfig(
            f"{config.clients} clients for the {graph.num_nodes} nodes of graph '{graph.name}'; "
            "lower --clients"
        )
    owner = PARTITIONS[config.partition](graph, config, seeded_numpy(seed, "partition", config.partition))
    return Partition(torch.from_numpy(_fill_empty(owner, config.clients)), config.clients, config.partition)


def partition_sha256(partition: Partition) -> str:
    """The same for the same owners, whatever rule found them."""
    return hashlib.sha256(partition.owner.numpy().astype("<i8").tobytes()).hexdigest()


def subgraph(graph: Graph, nodes: Tensor) -> Graph:
    """The induced subgraph of distinct nodes, which keep the order of their numbers."""
    nodes = torch.sort(nodes).values
    return _with(graph, nodes, *_edges_among(graph, nodes))


def subgraphs(graph: Graph, partition: Partition) -> list[tuple[Graph, Tensor]]:
    """Every client's induced subgraph, and its nodes' numbers in the whole graph.

    Edges between clients are dropped.
    """
    owner, clients = partition.owner, partition.num_clients
    sizes = torch.bincount(owner, minlength=clients)  # [K]
    order = torch.argsort(owner, stable=True)  # [n]: by client, then by number, so source < target survives
    local = torch.empty_like(owner)
    local[order] = torch.arange(owner.numel()) - torch.repeat_interleave(sizes.cumsum(0) - sizes, sizes)

    source, target = graph.edge_index
    edge_owner = owner[source]  # [e], of those edges that stay inside a client
    kept = torch.nonzero(edge_owner == owner[target]).reshape(-1)
    edge_owner = edge_owner[kept]
    kept = kept[torch.argsort(edge_owner, stable=True)]
    edge_counts = torch.bincount(edge_owner, minlength=clients).tolist()  # [K]
    parts = zip(torch.split(order, sizes.tolist()), torch.split(kept, edge_counts), strict=True)
    return [(_with(graph, nodes, local[graph.edge_index[:, at]], at), nodes) for nodes, at in parts]


def _edges_among(graph: Graph, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """The edges between ascending ``nodes``, by position in ``nodes``: [2, kept], and which they are."""
    local = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
    local[nodes] = torch.arange(nodes.numel())
    edges = local[graph.edge_index]  # [2, e]
    kept = torch.nonzero((edges >= 0).all(0)).reshape(-1)
    return edges[:, kept], kept


def _rows(x: Tensor, nodes: Tensor) -> Tensor:
    """Rows of dense features, by ascending numbers. Without a copy where they lie beside each other."""
    count = nodes.numel()
    if count and int(nodes[-1]) - int(nodes[0]) == count - 1:
        return x.narrow(0, int(nodes[0]), count)
    return x[nodes]


def _with(graph: Graph, nodes: Tensor, edge_index: Tensor, kept: Tensor) -> Graph:
    x = csr_tensor(to_scipy(graph.x)[nodes.numpy()]) if graph.is_sparse else _rows(graph.x, nodes)
    owner = None if graph.owner is None else graph.owner[nodes]
    ids = None if graph.node_ids is None else graph.node_ids[nodes.numpy()]
    time = None if graph.time is None else graph.time[nodes]
    weight = None if graph.edge_weight is None else graph.edge_weight[kept]
    edges = edge_index.contiguous()
    return replace(
        graph, x=x, edge_index=edges, edge_weight=weight, y=graph.y[nodes], owner=owner, node_ids=ids,
        time=time,
    )  # fmt: skip


def _openfgl(graph: Graph, config: PartitionConfig, generator: np.random.Generator) -> Ints:
    """OpenFGL's subgraph_fl_louvain.

    Big Louvain communities are cut by node number. The pieces are dealt to clients with room.

    Choice: OpenFGL's Louvain does not see the isolated nodes after the last edge's end and so loses them;
    here each is a community dealt after all others of its size, so that every other node stays where OpenFGL
    puts it.
    Choice: OpenFGL fails where N // K <= delta; here a piece has at least one node.
    """
    share = graph.num_nodes // config.clients
    seen = int(graph.edge_index.max()) + 1 if graph.num_edges else 0
    community = first_seen(louvain(graph.edge_index, seen, config.resolution, _shuffle(config, generator)))
    piece, sizes = _cut(community, max(1, share - config.delta))
    lost = graph.num_nodes - seen
    piece = np.concatenate([piece, sizes.size + np.arange(lost)])
    owner_of_piece = _deal(
        np.concatenate([sizes, np.ones(lost, dtype=np.int64)]), config.clients, share, config.delta
    )
    return owner_of_piece[piece]


def _cut(community: Ints, limit: int) -> tuple[Ints, Ints]:
    """Cut communities after every ``limit`` nodes, in node order.

    Returns the piece of each node [n] and the sizes of the pieces. Pieces are numbered as OpenFGL lists them:
    all first pieces by community, then all second pieces, and so on.
    """
    count = int(community.max(initial=-1)) + 1
    by_community = np.argsort(community, kind="stable")
    starts = np.cumsum(np.bincount(community, minlength=count)) - np.bincount(community, minlength=count)
    level = np.empty_like(community)
    level[by_community] = (np.arange(community.size) - starts[community[by_community]]) // limit
    _, piece, sizes = np.unique(level * count + community, return_inverse=True, return_counts=True)
    return piece.astype(np.int64), sizes.astype(np.int64)


def _deal(sizes: Ints, clients: int, share: int, delta: int) -> Ints:
    """The client of each piece: [pieces]. The largest pieces are dealt first.

    A pointer stays on a client until the client is full or a piece does not fit.
    """
    held = [0] * clients
    open_clients = list(range(clients))
    pointer = 0
    owner = np.empty(sizes.size, dtype=np.int64)
    for piece in np.argsort(-sizes, kind="stable").tolist():
        size = int(sizes[piece])
        while len(open_clients) > 1 and held[open_clients[pointer]] >= share:
            del open_clients[pointer]
            pointer %= len(open_clients)
        pointer = _next_with_room(held, open_clients, pointer, share + delta - size)
        owner[piece] = open_clients[pointer]
        held[open_clients[pointer]] += size
    return owner


def _next_with_room(held: list[int], clients: list[int], pointer: int, room: int) -> int:
    """The first position from ``pointer`` on whose client holds less than ``room``, else OpenFGL's fallback.

    ``held``: nodes by client. ``clients``: those that are open.
    """
    count = len(clients)
    for step in range(min(count, GIVE_UP + 1)):
        if held[clients[(pointer + step) % count]] < room:
            return (pointer + step) % count
    # Choice: OpenFGL means the client with the fewest nodes here, but measures the client it chose last
    # instead of the one in turn; kept, because the published client sizes (coauthor CS 1072..2758, Email
    # 79..150) come from it.
    chosen, fewest = (pointer + GIVE_UP + 1) % count, float("inf")
    for turn in range(count):
        if held[clients[chosen]] < fewest:
            fewest, chosen = held[clients[chosen]], turn
    return chosen


def _balanced(graph: Graph, config: PartitionConfig, generator: np.random.Generator) -> Ints:
    """Whole communities, the largest first, each onto the client with the fewest nodes."""
    draws = _shuffle(config, generator)
    pieces = groups(first_seen(louvain(graph.edge_index, graph.num_nodes, config.resolution, draws)))
    heap = [(-nodes.size, i) for i, nodes in enumerate(pieces)]
    heapq.heapify(heap)
    while len(heap) < config.clients:
        largest = pieces[heapq.heappop(heap)[1]]
        for part in _divide(graph, largest, 2 * config.resolution, draws):
            heapq.heappush(heap, (-part.size, len(pieces)))
            pieces.append(part)
    owner = np.empty(graph.num_nodes, dtype=np.int64)
    clients = [(0, c) for c in range(config.clients)]
    for size, i in sorted(heap):
        held, client = clients[0]
        owner[pieces[i]] = client
        heapq.heapreplace(clients, (held - size, client))
    return owner


def _divide(graph: Graph, nodes: Ints, resolution: float, draws: np.random.Generator | None) -> list[Ints]:
    """Parts of one community, by Louvain.

    Where that finds one part, or only single nodes, the parts are breadth-first halves.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    edges, _ = _edges_among(graph, torch.from_numpy(nodes))
    labels = louvain(edges, nodes.size, resolution, draws)
    if not edges.numel() or 0 < labels.max() < nodes.size - 1:
        return [nodes[part] for part in groups(first_seen(labels))]
    order = reverse_cuthill_mckee(adjacency(edges, nodes.size), symmetric_mode=True)
    return [np.sort(nodes[half]) for half in np.array_split(order, 2)]


def _dirichlet(graph: Graph, config: PartitionConfig, generator: np.random.Generator) -> Ints:
    """Shuffle the nodes of each class and give the clients shares of them, drawn from Dirichlet(alpha).

    Unlabelled nodes are divided in the same way.
    """
    y = graph.y.numpy()
    owner = np.empty(graph.num_nodes, dtype=np.int64)
    for label in np.unique(y):
        nodes = generator.permutation(np.flatnonzero(y == label))
        ends = np.cumsum(generator.dirichlet(np.full(config.clients, config.dirichlet_alpha)))[:-1]  # [K - 1]
        owner[nodes] = np.searchsorted(ends, (np.arange(nodes.size) + 0.5) / nodes.size)
    return owner


def _owner(graph: Graph) -> Ints:
    """The owner column, renumbered 0..K-1; it alone says how many clients there are."""
    if graph.owner is None:
        raise BadData(
            f"graph '{graph.name}' has no owner column; "
            "give its file an 'owner' array or choose another partition"
        )
    return np.unique(graph.owner.numpy(), return_inverse=True)[1].astype(np.int64)


def _metis(graph: Graph, config: PartitionConfig, generator: np.random.Generator) -> Ints:
    """OpenFGL's subgraph_fl_metis: one part of METIS for each client."""
    return metis(graph, config.clients, _shuffle(config, generator))


def _metis_plus(graph: Graph, config: PartitionConfig, generator: np.random.Generator) -> Ints:
    """OpenFGL's subgraph_fl_metis_plus: many parts of METIS, joined by what labels they hold."""
    parts = min(graph.num_nodes, max(METIS_PARTS, config.clients))
    return _joined(graph, metis(graph, parts, _shuffle(config, generator)), config, generator)


def _louvain_plus(graph: Graph, config: PartitionConfig, generator: np.random.Generator) -> Ints:
    """OpenFGL's subgraph_fl_louvain_plus: whole Louvain communities, joined by what labels they hold.

    Choice: OpenFGL's Louvain does not see the isolated nodes after the last edge's end and so loses them;
    here each is a community.
    """
    draws = _shuffle(config, generator)
    community = louvain(graph.edge_index, graph.num_nodes, config.resolution, draws)
    return _joined(graph, community, config, generator)


def _joined(graph: Graph, community: Ints, config: PartitionConfig, generator: np.random.Generator) -> Ints:
    """Communities joined into clients by their labels.

    Choice: OpenFGL's k-means has no seed; here the run's seed varies it with ``shuffle_nodes``, and otherwise
    it is always the same.
    """
    community = first_seen(community)
    if (found := int(community.max()) + 1) < config.clients:
        cure = "lower --clients"
        if config.partition == "louvain+":
            cure += " or raise --resolution"
        raise BadConfig(
            f"{config.partition} finds {found} communities in graph '{graph.name}', "
            f"fewer than the {config.clients} clients; {cure}"
        )
    draws = _shuffle(config, generator) or seeded_numpy(0, "partition", config.partition)
    return joined_by_labels(graph, community, config.clients, draws)


def _shuffle(config: PartitionConfig, generator: np.random.Generator) -> np.random.Generator | None:
    """The run's random numbers, where the seed may vary the clients."""
    return generator if config.shuffle_nodes else None


def plugin_partition(name: str, function: object) -> Rule:
    """The rule of another package: a function of graph, clients and seed that gives each node its client.

    Its seed is a number drawn from this rule's own stream, so that it shares no random numbers with the rest.
    """
    if not callable(function):
        raise BadConfig(
            f"it is {shown(type(function).__name__)}, not a function of (graph, clients, seed); name one"
        )

    def rule(graph: Graph, config: PartitionConfig, generator: np.random.Generator) -> Ints:
        try:
            owner = function(graph, config.clients, int(generator.integers(2**31)))
        except FedEPDError:
            raise
        except Exception as cause:
            raise BadConfig(
                f"partition '{name}' failed ({type(cause).__name__}: {shown(cause, 200)}); repair its package"
            ) from cause
        return checked_owner(name, owner, graph.num_nodes, config.clients)

    return rule


def checked_owner(name: str, owner: object, nodes: int, clients: int) -> Ints:
    """What a rule returned, if it gives each of the nodes one of the clients 0..K-1."""
    found = owner.numpy() if isinstance(owner, Tensor) else owner
    if not isinstance(found, np.ndarray) or found.dtype != np.int64 or found.shape != (nodes,):
        what = f"{found.dtype} {list(found.shape)}" if isinstance(found, np.ndarray) else type(found).__name__
        raise BadConfig(
            f"partition '{name}' gave {shown(what)}; return int64 [{nodes}], a client for each node"
        )
    if nodes and not 0 <= int(found.min()) <= int(found.max()) < clients:
        raise BadConfig(
            f"partition '{name}' gave clients {found.min()} to {found.max()}; number them 0..{clients - 1}"
        )
    return found.copy()


_RULES: dict[str, Rule] = {
    "openfgl": _openfgl,
    "balanced": _balanced,
    "dirichlet": _dirichlet,
    "metis": _metis,
    "metis+": _metis_plus,
    "louvain+": _louvain_plus,
}
PARTITIONS: Registry[Rule] = Registry("fedepd.partitions", "partition", _RULES, plugin_partition)
"""Every rule by its name.

"owner" is not among them, because it reads the graph's owner column. "auto" stands for one of the others.
"""

_LOUVAIN = ("partition", "clients", "resolution", "shuffle_nodes")
READ_BY: dict[str, tuple[str, ...]] = {
    "auto": (*_LOUVAIN, "delta"),
    "openfgl": (*_LOUVAIN, "delta"),
    "balanced": _LOUVAIN,
    "louvain+": _LOUVAIN,
    "dirichlet": ("partition", "clients", "dirichlet_alpha"),
    "metis": ("partition", "clients", "shuffle_nodes"),
    "metis+": ("partition", "clients", "shuffle_nodes"),
    "owner": ("partition", "clients"),
}
"""The settings that each rule of ours reads.

The owner column says how many clients there are. ``clients`` may still be given, because a run stores the
true number.
"""
READ_BY_PLUGINS = ("partition", "clients")
"""A rule of another package is given the graph, the number of clients and a seed."""


def _fill_empty(owner: Ints, clients: int) -> Ints:
    """Give each empty client the later half of the largest one's nodes.

    Choice: OpenFGL's rule may fill the first clients above the mean until nothing is left, and a Dirichlet
    draw may round to nothing.
    """
    sizes = np.bincount(owner, minlength=clients)
    for empty in np.flatnonzero(sizes == 0):
        nodes = np.flatnonzero(owner == sizes.argmax())
        owner[nodes[(nodes.size + 1) // 2 :]] = empty
        sizes = np.bincount(owner, minlength=clients)
    return owner
