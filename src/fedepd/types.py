"""The types of the package. In shapes, n is nodes, e undirected edges, d features, C classes, K clients."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd import memory
from fedepd.errors import BadData
from fedepd.shown import shown

if TYPE_CHECKING:
    import networkx
    import pandas
    import torch_geometric.data

Tensors = dict[str, Tensor]
"""Dense tensors by flat dotted names. Everything that is sent, counted in bytes or saved has this form."""

HIDDEN = -1
"""The label of a node whose class is unknown, or hidden from training code."""

FEW_CLASSES, CLASSES_PER_NODE = 100, 10
"""A graph may have ``FEW_CLASSES`` classes, or ``CLASSES_PER_NODE`` per labelled node if that is more.

A part of a graph may have all the classes of the whole.
"""
LEAST_WEIGHT, MOST_WEIGHT = 1e-18, 1e18
"""Between these is the weight of an edge, so that sums and quotients of weights stay in float32."""
CLASSES_SHOWN = 12
"""A notebook shows this many classes of a graph."""
CHECKED = 2**16
"""Rows, or numbers of a sparse matrix, that are checked at a time. So a check needs little memory."""
MOST_NODES = 2**31 - 1
"""Most nodes, and most features. Sparse matrices count them with 32 bits."""
CONFUSIONS = 40
"""Number of matrices [C, C] that a run of ten clients has in memory at once."""


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """An attributed, undirected graph with one class per node.

    ``edge_index`` holds each undirected edge once, with source < target and without self-loops or duplicates.
    ``Graph.make`` brings any edge list into this form.

    Examples:
        >>> import torch
        >>> from fedepd import Graph
        >>> edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 2]])  # one edge twice, and a self-loop
        >>> graph = Graph.make(torch.eye(3), edges, torch.tensor([0, 1, 1]))
        >>> graph.edge_index.tolist()
        [[0, 1], [1, 2]]
        >>> graph
        Graph('graph', 3 nodes, 2 edges, 3 features, 2 classes)

        From two tables of pandas:

        >>> import pandas
        >>> nodes = pandas.DataFrame(
        ...     {"id": ["a", "b", "c"], "label": ["rare", "common", "common"], "age": [31, 5, 7]}
        ... )
        >>> transfers = pandas.DataFrame({"source": ["a", "b"], "target": ["b", "c"]})
        >>> Graph.from_pandas(nodes, transfers).label_names
        ('common', 'rare')
    """

    x: Tensor
    """Features, float32 [n, d], dense or ``torch.sparse_csr``. Inside a run dense ones may be float16."""
    edge_index: Tensor
    """Edges, int64 [2, e]."""
    y: Tensor
    """Classes, int64 [n] in 0..C-1, or ``HIDDEN``."""
    num_classes: int
    """C. A class may have no node."""
    name: str = "graph"
    """What reports call the graph."""
    label_names: tuple[str, ...] = ()
    """The names of the classes, in order; empty if they have only numbers."""
    owner: Tensor | None = None
    """int64 [n]: the client that owns each node, if the data says so."""
    owner_names: tuple[str, ...] = ()
    """What the clients are called, in order; empty: their numbers."""
    proxy_features: bool = False
    """True if the features replace the official ones. Every printed result then says so."""
    node_ids: NDArray[np.str_] | None = None
    """[n]: the ids of the nodes in the tables that they came from."""
    schema: str = ""
    """How columns of these tables become features, as JSON of ``datasets.tables.FeatureSchema``."""
    time: Tensor | None = None
    """float64 [n]: when each node appeared, if it is split by time; NaN where unknown."""
    time_name: str = ""
    """The column that says so."""
    roles: str = ""
    """Which columns of these tables were ids, classes, owners and ends, as ``datasets.remembered`` has it."""
    edge_weight: Tensor | None = None
    """float32 [e], above 0: how much each edge counts beside the others of its nodes. None: all alike."""

    def __repr__(self) -> str:
        return f"Graph('{shown(self.name)}', {self._sizes})"

    def _repr_html_(self) -> str:
        """For notebooks: the sizes, and how many nodes each class has, the largest first."""
        known = self.y[self.y >= 0].bincount(minlength=self.num_classes)
        order = known.argsort(descending=True, stable=True).tolist()
        names = self.label_names or tuple(str(c) for c in range(self.num_classes))
        rows = "".join(
            f"<tr><td>{escape(shown(names[c]))}</td><td>{int(known[c]):,}</td></tr>"
            for c in order[:CLASSES_SHOWN]
        )
        more = (
            ""
            if len(order) <= CLASSES_SHOWN
            else f"<tr><td colspan=2>and {len(order) - CLASSES_SHOWN} more</td></tr>"
        )
        head = "<tr><th>class</th><th>nodes</th></tr>"
        return f"<b>{escape(shown(self.name))}</b>: {self._sizes}<table>{head}{rows}{more}</table>"

    @property
    def _sizes(self) -> str:
        weighted = "weighted " if self.edge_weight is not None else ""
        return (
            f"{self.num_nodes:,} nodes, {self.num_edges:,} {weighted}edges, {self.num_features:,} features, "
            f"{self.num_classes:,} classes"
        )

    @property
    def num_nodes(self) -> int:
        """n."""
        return self.y.shape[0]

    @property
    def num_edges(self) -> int:
        """Undirected edges, each counted once."""
        return self.edge_index.shape[1]

    @property
    def num_features(self) -> int:
        """d."""
        return self.x.shape[1]

    @property
    def is_sparse(self) -> bool:
        """Whether the features are ``torch.sparse_csr``."""
        return self.x.layout == torch.sparse_csr

    @classmethod
    def make(
        cls,
        x: Tensor,
        edge_index: Tensor,
        y: Tensor,
        num_classes: int | None = None,
        part: bool = False,
        **more: Any,
    ) -> Graph:
        """A checked graph from any edge list. Directions are merged, self-loops and duplicates dropped.

        Args:
            x: Features, float32 [n, d].
            edge_index: Whole numbers [2, edges].
            y: Classes, whole numbers [n]; -1 where unknown.
            num_classes: C; without it, the largest class and one.
            part: Whether the graph is what one client holds of a larger one. It may then hold nodes of a
                single class.
            **more: Other fields of ``Graph`` by name. ``edge_weight`` has a number for each given edge. Those
                of an edge that is given several times are summed.

        Returns:
            The graph.

        Raises:
            BadData: No method could train on it. The message names the array.
        """
        for part_name, tensor in (("x", x), ("edge_index", edge_index), ("y", y)):
            if not tensor.is_cpu:
                raise BadData(
                    f"{part_name} is on the device '{tensor.device}', but fedepd computes on the CPU; "
                    f"give it as .cpu()"
                )
        if y.ndim != 1 or y.is_floating_point() or y.is_complex() or y.dtype == torch.uint64:
            raise BadData(
                f"y has type {y.dtype} and shape {list(y.shape)}; it must hold one whole number per node"
            )
        y = y.to(torch.int64)
        classes = int(y.max()) + 1 if num_classes is None and y.numel() else (num_classes or 0)
        edges = undirected(edge_index, y.shape[0])
        if more.get("edge_weight") is not None:
            total = summed_weights(edge_index, more["edge_weight"], edges, y.shape[0])
            more["edge_weight"] = total.to(torch.float32)
        graph = cls(x=x, edge_index=edges, y=y, num_classes=classes, **more)
        check_graph(graph, part)
        return graph

    @classmethod
    def from_pyg(cls, data: torch_geometric.data.Data, name: str = "graph") -> Graph:
        """A graph from torch_geometric.

        Args:
            data: With ``x``, ``edge_index`` and ``y``. ``edge_weight`` is used where there is one. Masks are
                not used, and a warning says so.
            name: What reports call the graph.

        Returns:
            The graph, checked.

        Raises:
            BadData: One of the three is missing or cannot be used.
        """
        for part in ("x", "edge_index", "y"):
            if getattr(data, part, None) is None:
                raise BadData(
                    f"the torch_geometric Data of '{name}' has no '{part}'; "
                    f"set data.{part} before Graph.from_pyg"
                )
        masks = [
            each for each in ("train_mask", "val_mask", "test_mask") if getattr(data, each, None) is not None
        ]
        if masks:
            warnings.warn(
                f"{', '.join(masks)} of '{shown(name)}' will not be used: every client draws its own split; "
                "'train_share' and 'val_share' set its sizes, 'seed' the draw",
                stacklevel=2,
            )
        x = data.x
        if x.layout != torch.sparse_csr and x.is_sparse:
            x = x.to_dense()
        weight = getattr(data, "edge_weight", None)
        return cls.make(
            x.to(torch.float32), data.edge_index, data.y.reshape(-1), name=name, edge_weight=weight
        )

    @classmethod
    def from_networkx(cls, graph: networkx.Graph, name: str = "graph", **roles: Any) -> Graph:
        """A graph from NetworkX, whose node attributes are the label and the features.

        Args:
            graph: Directions, weights and keys of edges are not used.
            name: What reports call the graph.
            **roles: Which attribute means what: the fields of ``fedepd.datasets.tables.Roles``.

        Returns:
            The graph, checked.

        Raises:
            BadData: An attribute is missing or cannot be used.
        """
        from fedepd.datasets.interop import from_networkx

        return from_networkx(graph, name, **roles)

    @classmethod
    def from_pandas(
        cls, nodes: pandas.DataFrame, edges: pandas.DataFrame, name: str = "graph", **roles: Any
    ) -> Graph:
        """A graph from two data frames.

        Args:
            nodes: One row per node.
            edges: One row per edge, with the ids of its two ends.
            name: What reports call the graph.
            **roles: Which column means what (``id``, ``label``, ``owner``, ...): the fields of
                ``fedepd.datasets.tables.Roles``.

        Returns:
            The graph, checked. It remembers ids, names of classes, and how columns became features.

        Raises:
            BadData: A column is missing, or a cell cannot be used.
        """
        from fedepd.datasets.tables import from_pandas

        return from_pandas(nodes, edges, name, **roles)

    def to_pyg(self) -> torch_geometric.data.Data:
        """The graph for torch_geometric.

        Returns:
            ``Data`` with dense features and both directions of every edge.
        """
        from torch_geometric.data import Data

        both = torch.cat([self.edge_index, self.edge_index.flip(0)], dim=1)
        weight = {} if self.edge_weight is None else {"edge_weight": self.edge_weight.repeat(2)}
        return Data(x=self.x.to_dense() if self.is_sparse else self.x, edge_index=both, y=self.y, **weight)

    def weights_of(self, edges: Tensor) -> Tensor | None:
        """The weights of some of the graph's edges.

        Args:
            edges: Edges of the graph, as ``edge_index`` holds them: [2, some].

        Returns:
            [some]; None where all edges of the graph count alike.

        Raises:
            BadData: One of them is no edge of the graph.
        """
        if self.edge_weight is None:
            return None
        own, asked = (each[0] * self.num_nodes + each[1] for each in (self.edge_index, edges))
        at = torch.searchsorted(own, asked).clamp(max=max(own.numel() - 1, 0))
        if asked.numel() and (not own.numel() or not torch.equal(own[at], asked)):
            raise BadData(
                f"graph '{shown(self.name)}' has no weight for some of the edges; give edges of the graph"
            )
        return self.edge_weight[at]

    def with_edges(self, edges: Tensor) -> Graph:
        """The graph with some of its edges.

        Args:
            edges: Those that stay, as ``edge_index`` holds them: [2, some].

        Returns:
            The same nodes with these edges and their weights.
        """
        return replace(self, edge_index=edges, edge_weight=self.weights_of(edges))


def widened(x: Tensor) -> Tensor:
    """Features in float32, which every product is computed in. A float16 X is copied."""
    return x.to(torch.float32)


def undirected(edge_index: Tensor, num_nodes: int) -> Tensor:
    """Each undirected edge once, with source < target, sorted, without self-loops or duplicates: [2, e]."""
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise BadData(f"edge_index has shape {list(edge_index.shape)}; it must be [2, number of edges]")
    if edge_index.dtype.is_floating_point or edge_index.dtype.is_complex or edge_index.dtype == torch.bool:
        raise BadData(f"edge_index has type {edge_index.dtype}; node numbers must be integers")
    if num_nodes > MOST_NODES:
        raise BadData(f"{num_nodes:,} nodes are more than {MOST_NODES:,}; give a part of the graph")
    edge_index = edge_index.to(torch.int64)
    if edge_index.numel() and (int(edge_index.min()) < 0 or int(edge_index.max()) >= num_nodes):
        bad = int(edge_index.max()) if int(edge_index.max()) >= num_nodes else int(edge_index.min())
        raise BadData(
            f"edge_index names node {bad}, but nodes are numbered 0..{num_nodes - 1}; correct the edge list"
        )
    low, high = edge_index.amin(0), edge_index.amax(0)
    keys = (low * num_nodes + high)[low != high]
    del low, high
    if not bool((keys[1:] > keys[:-1]).all()):
        keys = torch.unique(keys)
    return torch.stack([keys // max(num_nodes, 1), keys % max(num_nodes, 1)])


def summed_weights(edge_index: Tensor, weight: Tensor, edges: Tensor, num_nodes: int) -> Tensor:
    """The weight of each of ``edges``, which ``undirected`` made of ``edge_index``: float64 [e]."""
    if weight.shape != edge_index.shape[1:] or not weight.is_cpu or weight.is_complex():
        raise BadData(
            f"edge_weight has type {weight.dtype} and shape {list(weight.shape)}; "
            f"it must hold one real number for each of the {edge_index.shape[1]} edges"
        )
    low, high = edge_index.to(torch.int64).min(0).values, edge_index.to(torch.int64).max(0).values
    real = low != high
    at = torch.searchsorted(edges[0] * num_nodes + edges[1], (low * num_nodes + high)[real])
    total = np.bincount(at.numpy(), weights=weight[real].to(torch.float64).numpy(), minlength=edges.shape[1])
    return torch.from_numpy(total)


def check_graph(graph: Graph, part: bool = False) -> None:
    """Refuse a graph that no method can train on. The error names the array."""
    where, n = f"graph '{shown(graph.name)}'", graph.num_nodes
    if n == 0:
        raise BadData(f"{where} has no nodes; give at least one node per client")
    if graph.x.ndim != 2 or graph.x.shape[0] != n:
        raise BadData(
            f"{where}: x has shape {list(graph.x.shape)} but y has {n} nodes; x must be [{n}, features]"
        )
    if graph.x.shape[1] == 0:
        raise BadData(f"{where}: x has no columns; give at least one feature")
    if graph.x.shape[1] > MOST_NODES:
        raise BadData(
            f"{where}: {graph.x.shape[1]:,} features are more than {MOST_NODES:,}; leave out empty columns"
        )
    values = graph.x.values() if graph.is_sparse else graph.x
    if not all(bool(torch.isfinite(part).all()) for part in torch.split(values, CHECKED)):
        raise BadData(f"{where}: x holds NaN or infinite values; replace or drop them first")
    if n and (int(graph.y.min()) < HIDDEN or int(graph.y.max()) >= graph.num_classes):
        raise BadData(
            f"{where}: y holds labels outside 0..{graph.num_classes - 1}; renumber the classes from 0"
        )
    if graph.num_classes < 2 or (not part and int(torch.unique(graph.y[graph.y >= 0]).numel()) < 2):
        raise BadData(f"{where} has a single class; classification needs at least two")
    _check_classes(graph, part, where)
    if graph.owner is not None and (graph.owner.shape != (n,) or int(graph.owner.min()) < 0):
        raise BadData(f"{where}: owner must give each of the {n} nodes a client number >= 0")
    if graph.edge_weight is not None and (
        graph.edge_weight.shape != (graph.num_edges,)
        or not bool(((graph.edge_weight >= LEAST_WEIGHT) & (graph.edge_weight <= MOST_WEIGHT)).all())
    ):
        raise BadData(
            f"{where}: edge_weight must give each of the {graph.num_edges} edges a number between "
            f"{LEAST_WEIGHT:g} and {MOST_WEIGHT:g}; correct it, or leave such edges out"
        )
    if graph.time is not None and (
        graph.time.shape != (n,) or bool(torch.isnan(graph.time[graph.y >= 0]).any())
    ):
        raise BadData(
            f"{where}: time must give each of the {n} nodes a number, and each labelled one a known one"
        )
    if graph.node_ids is not None and graph.node_ids.shape != (n,):
        raise BadData(
            f"{where}: node_ids has shape {list(graph.node_ids.shape)}; it must name each of the {n} nodes"
        )


def _check_classes(graph: Graph, part: bool, where: str) -> None:
    """Refuse a number of classes that the labels do not support.

    A table [C, C] is kept for every client, so a wrong number could fill the memory.
    """
    classes, labelled = graph.num_classes, int((graph.y >= 0).sum())
    most = max(FEW_CLASSES, CLASSES_PER_NODE * labelled)
    if not part and classes > most:
        raise BadData(
            f"{where}: num_classes is {classes} for {labelled:,} labelled nodes, but at most {most:,} "
            f"is allowed; leave out unused classes"
        )
    memory.check(
        CONFUSIONS * 8 * classes**2, f"{where}: num_classes is {classes}, and a run with so many classes"
    )


@dataclass(frozen=True, eq=False)
class Partition:
    """Which client owns which node."""

    owner: Tensor
    """int64 [n]: 0..K-1."""
    num_clients: int
    rule: str


@dataclass(frozen=True, eq=False)
class Unscaled:
    """Raw numbers of the columns that a federation scales together, before its first round."""

    columns: tuple[int, ...]
    """Their positions in x, ascending. x holds 0 there until the scaling is known."""
    values: NDArray[np.float64]
    """The numbers as they are in the owner's table, [n, s]."""


@dataclass(frozen=True, eq=False)
class ClientData:
    """What one client holds. Labels outside the training mask are ``HIDDEN``, except inside evaluation."""

    client_id: int
    graph: Graph
    train_mask: Tensor
    """bool [n], like the other masks. No two masks overlap."""
    val_mask: Tensor
    test_mask: Tensor
    global_ids: Tensor
    """int64 [n]: the nodes' numbers in the whole graph."""
    unscaled: Unscaled | None = None
    """Columns that are yet to be scaled; None where the features are complete."""

    def hidden(self) -> ClientData:
        """The same client with every label outside the training mask hidden. Training code sees only this."""
        return replace(self, graph=replace(self.graph, y=torch.where(self.train_mask, self.graph.y, HIDDEN)))


@dataclass(frozen=True)
class TaskInfo:
    """Everything that the server may know before the run."""

    num_features: int
    num_classes: int
    num_clients: int
    weighting: Literal["nodes", "train"] = "nodes"


@dataclass(frozen=True, eq=False)
class Sizes:
    """What a client declares about its data before its first reply.

    Its later replies are checked against it.
    """

    num_nodes: int
    num_train: int
    train: Tensor
    """Training nodes of each class, int64 [C].

    Their sum may be less than ``num_train``, because an owner can hide small classes.
    """
    val: Tensor
    """Labelled validation nodes of each class, int64 [C]."""
    test: Tensor
    """Labelled test nodes of each class, int64 [C]."""
    own_holders: Tensor | None = None
    """How many clients hold training nodes of each class, int64 [C], where several clients are summed."""
    clients: int = 1
    """How many clients were summed."""

    @property
    def holders(self) -> Tensor:
        """How many clients hold training nodes of each class, int64 [C]."""
        return (self.train > 0).to(torch.int64) if self.own_holders is None else self.own_holders


@dataclass(frozen=True, eq=False)
class Reply:
    """What a client sends back."""

    tensors: Tensors
    num_nodes: int
    num_train: int
    scalars: Mapping[str, float] = field(default_factory=dict)
    round: int = 0
    clients: int = 1
    """How many clients that trained it stands for: more than one where the server sees sums of replies only.
    """
    members: tuple[int, ...] = ()
    """The clients that it stands for, where they are several."""
    sent: Mapping[str, int] = field(default_factory=dict)
    """Bytes by field that they sent, where they are several; likewise ``received``."""
    received: Mapping[str, int] = field(default_factory=dict)


FieldKind = Literal["real", "count", "presence", "votes", "weight", "sum", "mean", "rows"]


@dataclass(frozen=True)
class Field:
    """What a reply must carry under one name."""

    shape: tuple[int, ...]
    """The shape, with -1 where any size is allowed."""
    kind: FieldKind = "real"
    """The meaning of the numbers, which decides how they are checked:

    real: any numbers with a bounded norm.
    count: training nodes of each class, at most as many as the client declared for that class.
    presence: 1 for a class that the client has, else 0.
    votes: at most one per training node each.
    weight: the client's weight in an average, 0 or more.
    sum: class rows [C, ...], each the sum over the nodes that ``of`` counts.
    mean: class rows [C, ...], each the mean over the nodes that ``of`` counts.
    rows: one row for each class that ``of`` names, in order.
    """
    of: str | None = None
    """The field that says to which classes the rows of this one belong."""
    classes: int | None = None
    """Of a real field: the axis along which each class has its own numbers, if there is one.

    The guard puts back what was received, or zeros, where it hides a class.
    """
    factors: tuple[float, ...] | None = None
    """Of a real field with ``classes``: a factor for each class, where ``Method.weights`` weighs by class."""


Fields = Mapping[str, Field]


CLASSIFIER = ("classifier.weight", "classifier.bias")
"""The last layer of every backbone: one column for each class."""


def same_fields(tensors: Mapping[str, Tensor]) -> dict[str, Field]:
    """The fields of a reply with the same names and shapes as ``tensors``."""
    return {
        name: Field(tuple(value.shape), classes=value.ndim - 1 if name in CLASSIFIER else None)
        for name, value in tensors.items()
    }
