"""What a model is to look at: a graph from a file or from tables, alone or attached to an older graph.

New nodes often have edges to old ones. The older graph is then the context: its nodes pass messages, and only
the new nodes are asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.datasets.columns import Table
from fedepd.datasets.edges import Ends, find_ends, joined
from fedepd.datasets.npz import read_unlabelled
from fedepd.datasets.schema import FeatureSchema, inside
from fedepd.datasets.sources import read_sources
from fedepd.datasets.tables import MAX_NAME, Roles, new_graph, node_ids
from fedepd.datasets.weights import weighed
from fedepd.errors import BadConfig, BadData
from fedepd.files import read_bytes
from fedepd.model.edge_made import kept, of_all_edges, of_own_edges
from fedepd.model.model import Model, ids_of, schema_of, table_notes
from fedepd.network.sparse import csr_tensor, to_scipy
from fedepd.shown import shown
from fedepd.types import HIDDEN, Graph, undirected

Sources = str | Sequence[str]
"""One file, or several whose rows are put together; see ``datasets.sources``."""
MAX_IDS = 2**28
"""Most bytes of a file of ids."""


@dataclass(frozen=True)
class Files:
    """Where the new graph is, and its context if it has one. Columns that are not named are the model's."""

    data: str | None = None
    """An npz file."""
    nodes: Sources | None = None
    """Instead of it: a table of nodes, from one or several files, with ``edges``."""
    edges: Sources | None = None
    context: str | None = None
    """An npz file with older nodes."""
    context_nodes: Sources | None = None
    """Instead of it: a table of older nodes, with ``context_edges``."""
    context_edges: Sources | None = None
    id: str | None = None
    source: str | None = None
    target: str | None = None

    def __post_init__(self) -> None:
        if (self.data is None) == (self.nodes is None) or (self.nodes is None) != (self.edges is None):
            raise BadConfig("give the new graph either with --data FILE.npz or with --nodes and --edges")
        pair = self.context_nodes is not None
        if pair != (self.context_edges is not None) or (pair and self.context is not None):
            raise BadConfig(
                "give the older nodes either with --context FILE.npz or with --context-nodes and "
                "--context-edges"
            )


@dataclass(frozen=True, eq=False)
class Subject:
    """A graph for a model, and which of its nodes are asked about."""

    graph: Graph
    asked: tuple[str, ...]
    """The ids of the nodes that are new. All nodes, where there is no context."""
    notes: tuple[str, ...] = ()
    """A sentence about everything that is not used or not known."""


def read_subject(model: Model, files: Files) -> Subject:
    """Read what a model is to look at.

    Args:
        model: It knows how columns become features, and which columns are the ids and the ends.
        files: Where everything is.

    Returns:
        The new nodes together with their context.

    Raises:
        BadConfig: The model needs an npz file, because its data did not come from tables.
        BadData: A file cannot be used, or has other features than the model.
    """
    context, older, notes = None, None, list[str]()
    if files.context is not None:
        context = model.check_features(read_unlabelled(files.context, model.info.num_classes))
    elif files.context_nodes is not None and files.context_edges is not None:
        table, edges = _tables(model, files.context_nodes, files.context_edges)
        roles = roles_for(model, files, table, edges)
        older = edges, roles
        context = new_graph(table, edges, schema_of(model), model.info.num_classes, roles)
        notes += table_notes(schema_of(model), table, roles)
    if files.data is not None:
        graph = model.check_features(read_unlabelled(files.data, model.info.num_classes))
        if context is None:
            return Subject(graph, _own(graph))
        return _of_file(model, graph, context, notes)
    assert files.nodes is not None
    assert files.edges is not None
    return _of_tables(model, files, *_tables(model, files.nodes, files.edges), context, older, notes)


def _tables(model: Model, nodes: Sources, edges: Sources) -> tuple[Table, Table]:
    """Both tables, read as those of the training were."""
    decimal = schema_of(model).reading(Roles()).decimal
    return read_sources(nodes, decimal), read_sources(edges, decimal)


def _own(graph: Graph) -> tuple[str, ...]:
    """The ids of the nodes that have a row of their own."""
    own = inside(graph)
    return ids_of(graph) if own is None else tuple(own)


def _of_file(model: Model, graph: Graph, context: Graph, notes: list[str]) -> Subject:
    if graph.node_ids is None:
        raise BadData(
            f"graph '{shown(graph.name)}' has no node ids, so nobody knows which of its nodes are in the "
            "context; import it from tables, or give no --context"
        )
    ids: list[str] = graph.node_ids.tolist()
    place = _places(_context_ids(context), ids)
    numbers = torch.tensor([place[node] for node in ids])
    ends = numbers[graph.edge_index], graph.edge_weight
    x = _with_old_edges(graph.x, model.schema, ids, context, place, notes)
    return _attached(x, ids, ends, context, place, notes)


def _with_old_edges(
    x: Tensor,
    schema: FeatureSchema | None,
    ids: Sequence[str],
    context: Graph,
    place: Mapping[str, int],
    notes: list[str],
) -> Tensor:
    """Features of the new rows beside a context of which only a file is left."""
    if schema is None or not schema.needs_edges:
        return x
    notes.append(
        "features made from edges stay as they are in the context for its nodes, without the new edges; "
        "--context-nodes and --context-edges would count all edges"
    )
    both = [row for row, node in enumerate(ids) if place[node] < context.num_nodes]
    return kept(x, context.x, schema, both, [place[ids[row]] for row in both])


def _of_tables(
    model: Model,
    files: Files,
    nodes: Table,
    edges: Table,
    context: Graph | None,
    older: tuple[Table, Roles] | None,
    notes: list[str],
) -> Subject:
    """``older``: the table of the context's edges, where it is one."""
    schema, roles = schema_of(model), roles_for(model, files, nodes, edges)
    notes += table_notes(schema, nodes, roles)
    ids = node_ids(nodes, roles.id)
    if context is None:
        found = find_ends(edges, ids, roles)
        graph = new_graph(nodes, edges, schema, model.info.num_classes, roles, found)
        about = found.notes if roles.unknown_ends == "external" else _lost(found, "not in the table of nodes")
        cured = [f"{note}; --context names a graph of older nodes" for note in about]
        return Subject(graph, _own(graph), (*notes, *cured))
    x = of_own_edges(schema, nodes, ids, edges, roles)
    place = _places(_context_ids(context), ids)
    # An end that neither the new nodes nor the context have is no node of the joint graph.
    known = replace(roles, unknown_ends="drop") if roles.unknown_ends == "external" else roles
    found = find_ends(edges, list(place), known)
    notes += _lost(found, "neither a new node nor in the context")
    ends, weight, _ = weighed(found, joined(found)[0], known)
    if older is None or not schema.needs_edges:
        x = _with_old_edges(x, schema, ids, context, place, notes)
        return _attached(x, ids, (ends, weight), context, place, notes)
    out = _attached(x, ids, (ends, weight), context, place, notes)
    whole = of_all_edges(out.graph.x, schema, list(place), [older, (edges, roles)])
    return replace(out, graph=replace(out.graph, x=whole))


def _lost(ends: Ends, what: str) -> list[str]:
    """A sentence about the edges that a model leaves out as the tables of its training did; none if none."""
    lost = (ends.nodes < 0).any(0)
    if not lost.any():
        return []
    return [
        f"{int(lost.sum()):,} of {lost.size:,} edges have an end that is {what} and are left out, the first "
        f"in {ends.table.place(int(lost.argmax()))}"
    ]


def _context_ids(context: Graph) -> list[str]:
    if context.node_ids is None:
        raise BadData(
            f"the context '{shown(context.name)}' has no node ids, so no edge can lead to its nodes; import "
            "it from tables"
        )
    names: list[str] = context.node_ids.tolist()
    if len(set(names)) < len(names):
        raise BadData(f"the context '{shown(context.name)}' has two nodes with the same id; import it again")
    return names


def _places(old: Sequence[str], new: Sequence[str]) -> dict[str, int]:
    """The number of every node in the joint graph: the context's first, then the others."""
    place = {node: number for number, node in enumerate(old)}
    for node in new:
        place.setdefault(node, len(place))
    return place


def _attached(
    x: Tensor,
    ids: Sequence[str],
    edges: tuple[Tensor, Tensor | None],
    context: Graph,
    place: Mapping[str, int],
    notes: list[str],
) -> Subject:
    """The joint graph. A node or edge that is in both has the features or the weight of the new table."""
    (ends, weight), n, old = edges, len(place), context.num_nodes
    fresh = [node for node in ids if place[node] >= old]
    if len(set(ids)) < len(ids):
        raise BadData("two new nodes have the same id; keep one row per node")
    if not fresh:
        raise BadData("every node is in the context already, so none is new; give --ids, or no --context")
    if again := len(ids) - len(fresh):
        notes.append(
            f"{again:,} of {len(ids):,} nodes are in the context already; their new rows are used, and only "
            "the others are asked about"
        )
    rows = torch.tensor([place[node] for node in ids])
    linked = int(((ends < old).any(0) & (ends >= old).any(0)).sum())
    if not linked:
        notes.append("no edge joins a new node with one of the context")
    both = undirected(torch.cat([context.edge_index, ends], dim=1), n)
    graph = replace(
        context,
        x=_replaced(context.x, x, rows, n),
        edge_index=both,
        edge_weight=None if weight is None else _weights(context, ends, weight, both),
        y=torch.full((n,), HIDDEN),
        owner=None,
        owner_names=(),
        node_ids=np.array(list(place), dtype=np.str_),
    )
    return Subject(graph, tuple(fresh), tuple(notes))


def _weights(context: Graph, ends: Tensor, weight: Tensor, both: Tensor) -> Tensor:
    """The weights of all edges of the joint graph."""
    n = int(both.max()) + 1 if both.numel() else 1
    out, keys = torch.zeros(both.shape[1]), both[0] * n + both[1]
    for edges, own in ((context.edge_index, context.edge_weight), (ends, weight)):
        assert own is not None  # the model has looked
        out[torch.searchsorted(keys, edges.min(0).values * n + edges.max(0).values)] = own
    return out


def _replaced(old: Tensor, new: Tensor, rows: Tensor, n: int) -> Tensor:
    """Rows of ``old`` with the rows of ``new`` put at ``rows``, [n, d]."""
    if old.layout == torch.sparse_csr or new.layout == torch.sparse_csr:
        first, second = (to_scipy(x) if x.layout == torch.sparse_csr else sp.csr_matrix(x.numpy())
                         for x in (old, new))  # fmt: skip
        kept = np.setdiff1d(np.arange(first.shape[0]), rows.numpy())
        joint = sp.vstack([first[kept], second], format="csr")
        back = np.argsort(np.concatenate([kept, rows.numpy()]), kind="stable")
        return csr_tensor(sp.csr_matrix(joint[back]))
    out = torch.zeros(n, old.shape[1])
    out[: old.shape[0]] = old
    out[rows] = new
    return out


def roles_for(model: Model, files: Files, nodes: Table, edges: Table) -> Roles:
    """Which column means what: as given, else as the model remembers, else by the usual names."""
    known = model.roles
    ends = [known.get(end) for end in ("source", "target")]
    if not all(end in edges.columns for end in ends):
        ends = [None, None]
    own = known.get("id", "id")
    given = Roles(
        id=files.id or (own if own in nodes.columns or "id" not in nodes.columns else "id"),
        label=known.get("label", "label"),
        owner=known.get("owner"),
        source=files.source or ends[0],
        target=files.target or ends[1],
    )
    return schema_of(model).reading(given)


def labelled_rows(
    model: Model, asked: Sequence[str], labels: Mapping[str, str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of some nodes have a label, and their classes: two of [m].

    Args:
        model: It knows the classes.
        asked: The nodes' ids.
        labels: Names of classes, by id.

    Raises:
        BadData: A label is no class of the model, or none is of these nodes.
    """
    number = {name: c for c, name in enumerate(model.label_names)}
    for node, label in labels.items():
        if label not in number:
            raise BadData(
                f"node '{shown(node)}' has the label '{shown(label)}', which the model does not know; it "
                f"knows {', '.join(shown(name) for name in model.label_names[:20])}"
            )
    place = {node: at for at, node in enumerate(asked)}
    known = [node for node in labels if node in place]
    if not known:
        raise BadData("none of the labels is of a new node; check the ids, or leave --labels out")
    rows = np.array([place[node] for node in known], dtype=np.int64)
    return rows, np.array([number[labels[node]] for node in known], dtype=np.int64)


def read_ids(text: str) -> list[str]:
    """Ids from ``A,B``, or from a file as ``@FILE`` with one id per line.

    >>> read_ids("n3, n7")
    ['n3', 'n7']
    """
    if not text.startswith("@"):
        return [node.strip() for node in text.split(",")]
    path = Path(text[1:])
    content = read_bytes(path, MAX_IDS, "give a text file with one id per line")
    try:
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise BadData(f"'{shown(path, 300)}' is not UTF-8; give a text file with one id per line") from None
    ids = [line.strip() for line in lines if line.strip()]
    if not ids:
        raise BadData(f"'{shown(path, 300)}' holds no id; give one per line")
    if long := next((number for number, node in enumerate(ids, 1) if len(node) > MAX_NAME), 0):
        raise BadData(f"'{shown(path, 300)}': id {long} has more than {MAX_NAME} characters; one id per line")
    return ids
