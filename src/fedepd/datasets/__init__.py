"""A name or a file comes in, a ``Graph`` goes out: npz files, tables, official datasets, synthetic graphs."""

from __future__ import annotations

import hashlib
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedepd.datasets.facts import class_sizes, weights_in_words
from fedepd.datasets.fetch import fetch
from fedepd.datasets.folder import data_folder
from fedepd.datasets.npz import read_npz, write_npz
from fedepd.datasets.official import RAW_FILES, read_official
from fedepd.datasets.packed import is_packed
from fedepd.datasets.published import SHAPES, TABLE1, Table1, check_table1
from fedepd.datasets.pyg import PREFIX, SOURCES, read_pyg
from fedepd.datasets.synthetic import synthetic, twin
from fedepd.errors import BadConfig, BadData, FedEPDError, UnknownName
from fedepd.longtail import imbalance_ratio, tiers
from fedepd.plugins import Registry
from fedepd.shown import shown
from fedepd.types import CHECKED, Graph, check_graph, undirected, widened

__all__ = [
    "DATASETS",
    "Dataset",
    "Listed",
    "available",
    "data_folder",
    "describe",
    "fetch",
    "graph_sha256",
    "load",
    "nodes_sha256",
]
__all__ += ["read_npz", "synthetic", "twin", "write_npz"]


@dataclass(frozen=True)
class Dataset:
    """A graph that has a name."""

    description: str
    table1: Table1 | None
    """Its row in the paper's Table 1; None for synthetic graphs."""
    read: Callable[[Path], Graph]
    """Reads the graph from the data folder."""
    files: tuple[str, ...] = ()
    """The files that ``read`` needs in the data folder."""


def _official(name: str, description: str) -> Dataset:
    return Dataset(description, TABLE1[name], partial(read_official, name), RAW_FILES[name])


def _synthetic(make: Callable[[], Graph], description: str) -> Dataset:
    return Dataset(description, None, lambda _: make())


def plugin_dataset(name: str, function: object) -> Dataset:
    """The dataset of another package: a function of nothing, or of the data folder, that returns a ``Graph``.

    Parameters with defaults keep them, unless one is called ``data_dir``.
    """
    if not callable(function):
        raise BadConfig(
            f"it is {shown(type(function).__name__)}, not a function that returns a Graph; name one"
        )
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as cause:
        raise BadConfig(
            "its parameters cannot be read; name a plain function that returns a Graph"
        ) from cause

    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in variable]
    if len(needed) > 1:
        raise BadConfig(
            f"it needs {shown(', '.join(needed))}; write a function of nothing, or of the data folder"
        )
    by_name = "data_dir" in [p.name for p in parameters]

    def read(folder: Path) -> Graph:
        try:
            graph = function(data_dir=folder) if by_name else function(folder) if needed else function()
        except FedEPDError:
            raise
        except Exception as cause:
            raise BadData(
                f"dataset '{name}' failed ({type(cause).__name__}: {shown(cause, 200)}); repair its package"
            ) from cause
        return checked(name, graph)

    first_line = (inspect.getdoc(function) or "no description").partition("\n")[0]
    return Dataset(shown(first_line, 100), None, read)


def checked(name: str, graph: object) -> Graph:
    """What a dataset's function returned, if it is a graph as ``Graph.make`` would make it."""
    if not isinstance(graph, Graph):
        raise BadData(
            f"dataset '{name}' gave {shown(type(graph).__name__)}, not a Graph; return Graph.make(...)"
        )
    form = f"dataset '{name}' gave a graph that is not in the form of Graph.make; return Graph.make(...)"
    sound = [isinstance(part, Tensor) and part.is_cpu for part in (graph.x, graph.edge_index, graph.y)]
    if not all(sound) or graph.x.dtype != torch.float32 or graph.y.dtype != torch.int64 or graph.y.ndim != 1:
        raise BadData(form)
    check_graph(graph)
    edges = undirected(graph.edge_index, graph.num_nodes)
    if graph.edge_index.dtype != torch.int64 or not torch.equal(graph.edge_index, edges):
        raise BadData(form)
    return graph


_OURS: dict[str, Dataset] = {
    "synthetic": _synthetic(
        synthetic, "small long-tailed graph for demonstrations: 1,500 nodes, 10 classes, ratio 50"
    ),
    "corafull": _official("corafull", "CoraFull: citations between papers of 70 fields"),
    "arxiv": _official("arxiv", "ogbn-arxiv: citations between computer-science papers of 40 areas"),
    "electronics": _official("electronics", "Amazon-Electronics: products bought together, 167 categories"),
    "clothing": _official("clothing", "Amazon-Clothing: products viewed together, 77 categories"),
    "roman_empire": _official(
        "roman_empire", "Roman-Empire: words of an article, 18 syntactic roles, heterophilic"
    ),
    "email": _official("email", "Email: messages between members of 42 departments"),
    **{
        f"twin:{name}": _synthetic(partial(twin, name), f"synthetic graph with the sizes of {row.title}")
        for name, row in SHAPES.items()
    },
}
DATASETS: Registry[Dataset] = Registry("fedepd.datasets", "dataset", _OURS, plugin_dataset)
"""Every graph that has a name. A value says what it is and which files it needs; ``fedepd.load`` reads it.

Examples:
    >>> import fedepd
    >>> fedepd.DATASETS["email"].description
    'Email: messages between members of 42 departments'
    >>> fedepd.DATASETS["synthetic"].files
    ()
"""


GRAPHS, DOWN_SAMPLED = "graphs", "longtail/graphs"
"""Folders of graph files in the data folder: graphs as they are, and graphs whose long tail was made."""


@dataclass(frozen=True)
class Listed:
    """One line of ``fedepd data list``."""

    name: str
    present: bool
    description: str
    down_sampled: bool = False
    """True for a graph whose long tail was made by dropping nodes. Studies use it only if they name it."""


def load(name_or_path: str | Path, data_dir: str | Path | None = None, compact: bool = False) -> Graph:
    """Read a graph by its name, from an npz file or from a packed folder.

    Args:
        name_or_path: An npz file, a folder of ``fedepd data pack``, a key of ``fedepd.DATASETS``, the NAME of
            a file ``graphs/NAME.npz`` or ``longtail/graphs/NAME.npz`` in the data folder, or a dataset of
            torch_geometric, as ``pyg:Planetoid/PubMed``.
        data_dir: The data folder, if it is not ``$FEDEPD_DATA``.
        compact: Whether features that a file or folder holds in float16 stay so. Runs can read them.

    Returns:
        The graph, checked.

    Raises:
        UnknownName: There is no such dataset.
        BadData: The dataset's files are missing, or a file cannot be used.

    Examples:
        >>> import fedepd
        >>> graph = fedepd.load("synthetic")
        >>> graph.num_nodes, graph.num_classes
        (1500, 10)
    """
    name, folder = str(name_or_path), data_folder(data_dir)
    if is_graph_file(name):
        return read_npz(name, compact=compact)
    if name.startswith(PREFIX):
        return read_pyg(name, folder)
    dataset = DATASETS.get(name)
    if dataset and not dataset.files:
        return dataset.read(folder)
    ready = [folder / place / f"{name}.npz" for place in (GRAPHS, DOWN_SAMPLED)]
    if found := next((path for path in ready if os.path.isfile(path)), None):
        graph = read_npz(found)
        return check_table1(graph, dataset.table1) if dataset and dataset.table1 else graph
    if dataset is None:
        raise UnknownName("dataset", shown(name), [listed.name for listed in available(folder)])
    if missing := [file for file in dataset.files if not os.path.isfile(folder / file)]:
        raise BadData(
            f"dataset '{name}' is not in '{folder}'; "
            f"put {', '.join(missing)} there or run 'fedepd data fetch {name}'"
        )
    return dataset.read(folder)


def is_graph_file(name: str) -> bool:
    """Whether it stands for an npz file or a packed folder, not for the name of a dataset."""
    # Path.is_file raises on some names, os.path.isfile does not.
    return name.endswith(".npz") or os.path.isfile(name) or is_packed(name)


def available(data_dir: str | Path | None = None) -> list[Listed]:
    """All named datasets, and whether their files are on this machine.

    Of those of torch_geometric only the ones that are.
    """
    folder = data_folder(data_dir)
    ready, made = ({path.stem for path in (folder / place).glob("*.npz")} for place in (GRAPHS, DOWN_SAMPLED))
    rows = [
        Listed(
            name,
            name in ready or all((folder / file).is_file() for file in dataset.files),
            dataset.description
            if name in DATASETS.built_in
            else f"{dataset.description} (from {DATASETS.origin(name)})",
        )
        for name, dataset in DATASETS.items()
    ]
    rows += [
        Listed(name, True, f"graph file {GRAPHS}/{name}.npz") for name in sorted(ready - DATASETS.keys())
    ]
    rows += [
        Listed(name, True, "dataset of torch_geometric, from its raw files")
        for name, source in SOURCES.items()
        if all((folder / file).is_file() for file in source.files)
    ]
    return rows + [
        Listed(name, True, f"graph file {DOWN_SAMPLED}/{name}.npz, long tail made by dropping nodes", True)
        for name in sorted(made - ready - DATASETS.keys())
    ]


def describe(graph: Graph) -> dict[str, Any]:
    """The numbers of ``fedepd data show``."""
    sizes = class_sizes(graph)
    ends = graph.y[graph.edge_index]  # [2, e]
    labelled = (ends >= 0).all(0)
    cut = tiers(sizes)
    weights = {} if graph.edge_weight is None else {"edge_weights": weights_in_words(graph.edge_weight)}
    return {
        "name": graph.name,
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        **weights,
        "features": graph.num_features,
        "feature_format": "sparse" if graph.is_sparse else "dense",
        "proxy_features": graph.proxy_features,
        "classes": graph.num_classes,
        "imbalance_ratio": imbalance_ratio(sizes),  # Eq. 17
        "same_class_edges": float((ends[0] == ends[1])[labelled].float().mean())
        if bool(labelled.any())
        else None,
        "isolated_nodes": graph.num_nodes - int(torch.unique(graph.edge_index).numel()),
        "unlabelled_nodes": int((graph.y < 0).sum()),
        "tiers": {
            tier: {"classes": len(ids), "nodes": int(sizes[list(ids)].sum())}
            for tier, ids in vars(cut).items()
        },
        "sha256": graph_sha256(graph),
    }


def graph_sha256(graph: Graph) -> str:
    """Hash of features, edges with their weights, and labels. Names are not part of it."""
    x = graph.x
    parts = {"edge_index": graph.edge_index, "y": graph.y}
    parts |= (
        {"crow": x.crow_indices(), "col": x.col_indices(), "values": x.values()}
        if graph.is_sparse
        else {"x": x}
    )
    if graph.time is not None:
        parts["time"] = graph.time  # it decides which nodes train
    if graph.edge_weight is not None:
        parts["edge_weight"] = graph.edge_weight
    return _parts_sha256(f"{list(x.shape)}", parts)


def nodes_sha256(graph: Graph) -> str:
    """Hash of edges and labels. It is the same whatever features are given to nodes, and weights to edges."""
    return _parts_sha256("nodes", {"edge_index": graph.edge_index, "y": graph.y})


def _parts_sha256(first: str, parts: dict[str, Tensor]) -> str:
    digest = hashlib.sha256(first.encode())
    for name, part in parts.items():
        half = part.dtype == torch.float16  # it has the hash of the same numbers in float32
        digest.update(f"{name} {torch.float32 if half else part.dtype} {list(part.shape)}".encode())
        for rows in torch.split(part, CHECKED) if half else [part]:
            digest.update((widened(rows) if half else rows).contiguous().numpy().data)
    return digest.hexdigest()
