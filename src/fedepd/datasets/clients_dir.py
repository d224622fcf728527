"""One folder per data owner, ``NAME/graph.npz`` each: what each site would hold, and a simulation from exactly those files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import scipy.sparse as sp
import torch

from fedepd.datasets.client_file import read_client_file, write_client_file
from fedepd.errors import BadData
from fedepd.record import check_new_folder
from fedepd.sparse import csr_tensor, to_scipy
from fedepd.split import SplitConfig
from fedepd.types import ClientData, Graph

FILE = "graph.npz"


def write_clients(clients: Sequence[ClientData], names: Sequence[str], folder: str | Path) -> list[Path]:
    """One file per client, in a new folder; sorted by folder name they are in the order of ``clients``."""
    folder = Path(folder)
    check_new_folder(folder)
    paths = [folder / name / FILE for name in folder_names(names)]
    for client, path in zip(clients, paths, strict=True):
        try:
            path.parent.mkdir(parents=True)
        except OSError as error:
            raise BadData(f"cannot make the folder '{path.parent}' ({error.strerror}); give another one with -o") from None
        # No site learns who the others are.
        write_client_file(replace(client, graph=replace(client.graph, owner=None, owner_names=())), path)
    return paths


def folder_names(names: Sequence[str]) -> list[str]:
    """Names that are safe as folders; numbered where they would not be distinct or not sort into the given order."""
    safe = [re.sub(r"[^\w.-]", "_", name).strip(".")[:80] or "client" for name in names]
    lower = [name.lower() for name in safe]
    if safe == sorted(safe) and len(set(lower)) == len(safe):
        return safe
    width = len(str(len(names) - 1))
    return [f"{number:0{width}d}-{name}" for number, name in enumerate(safe)]


def read_clients(folder: str | Path, split: SplitConfig | None = None, seed: int = 0) -> list[ClientData]:
    """The clients in a folder, by folder name. ``split`` and ``seed`` serve files without a split of their own."""
    folder = Path(folder)
    if not folder.is_dir():
        raise BadData(f"'{folder}' is no folder; make one with 'fedepd data split FILE.npz --by owner -o {folder}'")
    paths = sorted(folder.glob(f"*/{FILE}"), key=lambda path: path.parent.name)
    if not paths:
        raise BadData(f"folder '{folder}' has no NAME/{FILE}; make one with 'fedepd data split FILE.npz --by owner -o NEW'")
    clients = [read_client_file(path, number, split or SplitConfig(), seed) for number, path in enumerate(paths)]
    first = clients[0].graph
    for client, path in zip(clients, paths, strict=True):
        for what in ("num_features", "num_classes", "label_names", "is_sparse", "schema"):
            if getattr(client.graph, what) != getattr(first, what):
                both = f"'{paths[0]}' and '{path}'"
                raise BadData(f"{both} differ in {what}; all clients need the same columns and classes: import them with the same options")
    clients = [replace(client, graph=replace(client.graph, name=folder.resolve().name)) for client in clients]
    return _numbered(clients)


def _numbered(clients: Sequence[ClientData]) -> list[ClientData]:
    """Global numbers that are 0..n-1 together: those of the files, or consecutive ones where sites numbered on their own."""
    ids = torch.cat([client.global_ids for client in clients])
    if torch.equal(ids.sort().values, torch.arange(ids.numel())):
        return list(clients)
    parts = torch.split(torch.arange(ids.numel()), [client.graph.num_nodes for client in clients])
    return [replace(client, global_ids=part) for client, part in zip(clients, parts, strict=True)]


def joined(clients: Sequence[ClientData]) -> Graph:
    """All clients' nodes and inner edges as one graph with an owner column, for its sizes and for methods that merge clients."""
    graphs = [client.graph for client in clients]
    ids = torch.cat([client.global_ids for client in clients])  # [n]
    back = torch.argsort(ids)  # [n]: position in the concatenation of each node
    if graphs[0].is_sparse:
        x = csr_tensor(sp.vstack([to_scipy(graph.x) for graph in graphs], format="csr")[back.numpy()])
    else:
        x = torch.cat([graph.x for graph in graphs])[back]
    owner = torch.cat([torch.full((c.graph.num_nodes,), number) for number, c in enumerate(clients)])
    names = [graph.node_ids for graph in graphs if graph.node_ids is not None]
    return Graph.make(
        x=x,
        edge_index=torch.cat([client.global_ids[client.graph.edge_index] for client in clients], dim=1),
        y=torch.cat([graph.y for graph in graphs])[back],
        num_classes=graphs[0].num_classes,
        name=graphs[0].name,
        label_names=graphs[0].label_names,
        owner=owner[back],
        node_ids=np.concatenate(names)[back.numpy()] if len(names) == len(graphs) else None,
        schema=graphs[0].schema,
        proxy_features=any(graph.proxy_features for graph in graphs),
    )
