"""How clients differ: their classes, edges and neighbourhoods, beside those of the whole graph."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fedepd.clients.partition import subgraphs
from fedepd.datasets.facts import class_sizes, clustering, homophily
from fedepd.longtail import label_divergence
from fedepd.types import Graph, Partition


@dataclass(frozen=True)
class ClientStatistics:
    """What is counted at one client."""

    client: int
    name: str
    nodes: int
    edges: int
    classes: int
    """Classes of which the client has a labelled node."""
    label_divergence: float | None
    """Jensen-Shannon divergence of its classes to those of all clients: 0 the same, 1 none in common."""
    homophily: float | None
    degree: float
    clustering: float | None

    def as_json(self) -> dict[str, Any]:
        """Names and values."""
        return asdict(self)


def client_statistics(
    graph: Graph, partition: Partition, names: tuple[str, ...] = ()
) -> list[ClientStatistics]:
    """What each client holds, from its part of the graph.

    Args:
        graph: The whole graph, with all labels.
        partition: Who owns which node.
        names: What the clients are called, if anything.

    Returns:
        One entry per client, in order.

    Examples:
        >>> from fedepd import load
        >>> from fedepd.clients.partition import PartitionConfig, partition
        >>> from fedepd.clients.statistics import client_statistics
        >>> graph = load("synthetic")
        >>> len(client_statistics(graph, partition(graph, PartitionConfig(clients=4), 0)))
        4
    """
    whole, found = class_sizes(graph), []
    for number, (own, _) in enumerate(subgraphs(graph, partition)):
        counts = class_sizes(own)
        found.append(
            ClientStatistics(
                client=number,
                name=names[number] if names else "",
                nodes=own.num_nodes,
                edges=own.num_edges,
                classes=int((counts > 0).sum()),
                label_divergence=label_divergence(counts, whole),
                homophily=homophily(own.edge_index, own.y),
                degree=2 * own.num_edges / own.num_nodes,
                clustering=clustering(own.edge_index, own.num_nodes),
            )
        )
    return found
