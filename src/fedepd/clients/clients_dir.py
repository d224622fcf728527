"""A folder of clients: one folder per data owner with ``NAME/graph.npz``, as each site would hold it.

A simulation can be run from exactly these files. ``manifest.json`` is written first and says that the folder
is not complete. It is written again at the end and then lists every file with its size and sha256. A folder
without a manifest was made by hand or by an older version, and is used as it is.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.clients.client_file import ClientFile, read_file, write_client_file
from fedepd.clients.imputing import filled_together
from fedepd.clients.scaling import scaled_together
from fedepd.clients.split import SplitConfig
from fedepd.clients.vault import vault
from fedepd.errors import BadData
from fedepd.files import read_json, regular_content, write_json
from fedepd.folders import check_new_folder, new_folder
from fedepd.network.sparse import csr_tensor, to_scipy
from fedepd.shapes import MANIFEST as MANIFEST_SHAPE
from fedepd.shapes import SPLIT_AGAIN, expect
from fedepd.shown import shown
from fedepd.types import ClientData, Graph

FILE, MANIFEST = "graph.npz", "manifest.json"
MAX_NAME_BYTES = 200
"""Longest name of a folder. File systems allow 255 bytes."""
MAX_BYTES = 64 * 2**30
"""Largest client file in bytes."""


def write_clients(clients: Sequence[ClientData], names: Sequence[str], folder: str | Path) -> list[Path]:
    """Write one file per client into a new folder.

    Sorted by folder name, they are in the order of ``clients``.
    """
    folder = Path(folder)
    check_new_folder(folder)
    owners = folder_names(names)
    paths, listed = [folder / name / FILE for name in owners], dict[str, Any]()
    with new_folder(folder, (MANIFEST, *owners)):
        write_json(folder / MANIFEST, {"complete": False, "files": {}})
        for client, path in zip(clients, paths, strict=True):
            try:
                path.parent.mkdir()
            except OSError as error:
                raise BadData(
                    f"cannot make the folder '{shown(path.parent, 300)}' ({error.strerror}); "
                    f"give another one with -o"
                ) from None
            # Without the owners' names, no site learns who the others are.
            alone = replace(client, graph=replace(client.graph, owner=None, owner_names=()))
            write_client_file(alone, path, client.unscaled)
            listed[f"{path.parent.name}/{FILE}"] = _facts(path)
        write_json(folder / MANIFEST, {"complete": True, "files": listed})
    return paths


def _facts(path: Path) -> dict[str, Any]:
    try:
        content = regular_content(path, MAX_BYTES)
    except OSError as cause:
        raise BadData(f"'{shown(path, 300)}' cannot be read ({cause.strerror}); {SPLIT_AGAIN}") from cause
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def _check_manifest(folder: Path, paths: Sequence[Path]) -> None:
    """Refuse the folder of a split that was interrupted, and files that the split did not write."""
    path = folder / MANIFEST
    if not os.path.lexists(path):
        return
    manifest = read_json(path, cure=SPLIT_AGAIN)
    expect(manifest, MANIFEST_SHAPE, f"'{shown(path, 300)}'", SPLIT_AGAIN)
    if not manifest["complete"]:
        raise BadData(
            f"the split in '{shown(folder, 300)}' was interrupted, so clients are missing; {SPLIT_AGAIN}"
        )
    found = {f"{each.parent.name}/{FILE}": each for each in paths}
    changed = f"{SPLIT_AGAIN}, or remove '{MANIFEST}' if you changed the folder on purpose"
    for name in sorted(found.keys() ^ manifest["files"].keys()):
        which = "is not listed in" if name in found else "is missing, but is listed in"
        raise BadData(f"'{shown(name)}' {which} '{shown(path, 300)}'; {changed}")
    for name, each in found.items():
        if _facts(each) != {key: manifest["files"][name][key] for key in ("bytes", "sha256")}:
            raise BadData(
                f"'{shown(each, 300)}' is not the file that the split wrote (its size or sha256 differs); "
                f"{changed}"
            )


def folder_names(names: Sequence[str]) -> list[str]:
    """Names that are safe as folder names.

    They get numbers in front if they would not be distinct, or would not sort into the given order.
    """
    safe = [_cut(re.sub(r"[^\w.-]", "_", name).strip(".")[:80]) or "client" for name in names]
    lower = [name.lower() for name in safe]
    if safe == sorted(safe) and len(set(lower)) == len(safe) and MANIFEST not in lower:
        return safe
    width = len(str(len(names) - 1))
    return [f"{number:0{width}d}-{name}" for number, name in enumerate(safe)]


def _cut(name: str) -> str:
    """Cut a name to ``MAX_NAME_BYTES`` bytes of UTF-8, never inside a character."""
    return name.encode()[:MAX_NAME_BYTES].decode(errors="ignore")


def read_clients(folder: str | Path, split: SplitConfig | None = None, seed: int = 0) -> list[ClientData]:
    """The clients in a folder, sorted by folder name.

    ``split`` and ``seed`` are for files without a split. Columns that are yet to be scaled are scaled by the
    sums over all clients, and missing numbers are filled by the training rows of all clients.
    """
    return filled_together(split_clients(scaled_together(read_files(folder)), split or SplitConfig(), seed))


def split_clients(
    clients: Sequence[ClientData | ClientFile], split: SplitConfig, seed: int
) -> list[ClientData]:
    """Clients with a split: their own, or one by ``split`` and ``seed``."""
    unsplit = any(isinstance(each, ClientFile) for each in clients)
    aside = vault(joined(clients), split.vault) if split.vault and unsplit else None
    return [
        each.client(number, split, seed, aside) if isinstance(each, ClientFile) else each
        for number, each in enumerate(clients)
    ]


def read_files(folder: str | Path) -> list[ClientFile]:
    """The content of the clients' files in a folder, sorted by folder name.

    All files have the same columns and classes.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise BadData(
            f"'{shown(folder, 300)}' is not a folder; "
            f"make one with 'fedepd data split FILE.npz --by owner -o NEW'"
        )
    # glob would silently skip a broken link, and with it a client.
    paths = sorted(
        (each / FILE for each in folder.iterdir() if os.path.lexists(each / FILE)),
        key=lambda path: path.parent.name,
    )
    if not paths and not os.path.lexists(folder / MANIFEST):
        raise BadData(
            f"folder '{shown(folder, 300)}' has no NAME/{FILE}; "
            f"make one with 'fedepd data split FILE.npz --by owner -o NEW'"
        )
    _check_manifest(folder, paths)
    return read_paths(paths, folder.resolve().name)


def read_paths(paths: Sequence[Path], name: str) -> list[ClientFile]:
    """The content of clients' files, which all have the same columns and classes.

    ``name`` is what reports call the whole.
    """
    clients = [read_file(path) for path in paths]
    first = clients[0].graph
    for client, path in zip(clients, paths, strict=True):
        for what in ("num_features", "num_classes", "label_names", "is_sparse", "schema", "time_name"):
            if getattr(client.graph, what) != getattr(first, what):
                raise BadData(
                    f"'{paths[0]}' and '{path}' differ in {what}, but all clients need the same columns and "
                    f"classes; import them with the same options"
                )
        if (client.graph.edge_weight is None) != (first.edge_weight is None):
            raise BadData(
                f"of '{paths[0]}' and '{path}', one has weights of edges and the other has none; "
                f"import both with the same --edge-weight"
            )
        if _scaled(client) != _scaled(clients[0]):
            raise BadData(
                f"'{paths[0]}' and '{path}' differ in the columns that are yet to be scaled; "
                f"import them by the same plan"
            )
    clients = [replace(client, graph=replace(client.graph, name=name)) for client in clients]
    return _numbered(clients)


def _scaled(client: ClientFile) -> tuple[int, ...]:
    return () if client.unscaled is None else client.unscaled.columns


def _numbered(clients: Sequence[ClientFile]) -> list[ClientFile]:
    """Give the clients global node numbers that are 0..n-1 together.

    The numbers of the files are kept if they are. If sites numbered their nodes on their own, new numbers are
    given.
    """
    ids = torch.cat([client.global_ids for client in clients])
    if torch.equal(ids.sort().values, torch.arange(ids.numel())):
        return list(clients)
    parts = torch.split(torch.arange(ids.numel()), [client.graph.num_nodes for client in clients])
    return [replace(client, global_ids=part) for client, part in zip(clients, parts, strict=True)]


def joined(clients: Sequence[ClientData | ClientFile]) -> Graph:
    """All clients' nodes and inner edges as one graph with an owner column.

    It is needed for the sizes of the whole, and by methods that merge clients.
    """
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
        time=torch.cat([_time(graph) for graph in graphs])[back] if graphs[0].time is not None else None,
        time_name=graphs[0].time_name,
        node_ids=np.concatenate(names)[back.numpy()] if len(names) == len(graphs) else None,
        schema=graphs[0].schema,
        roles=graphs[0].roles,
        edge_weight=joined_weights(graphs),
        proxy_features=any(graph.proxy_features for graph in graphs),
    )


def joined_weights(graphs: Sequence[Graph]) -> Tensor | None:
    """The weights of all graphs' edges, one graph after the other; None where edges have none."""
    weights = [graph.edge_weight for graph in graphs if graph.edge_weight is not None]
    return torch.cat(weights) if weights else None


def _time(graph: Graph) -> Tensor:
    return (
        torch.full((graph.num_nodes,), torch.nan, dtype=torch.float64) if graph.time is None else graph.time
    )
