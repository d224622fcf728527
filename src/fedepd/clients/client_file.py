"""The data of one owner as one npz file: a graph (see ``npz.py``) plus ``split`` and ``global_ids``.

``split`` is uint8 [n]: 0 train, 1 validation, 2 test, 3 none. ``global_ids`` is int64 [n]. Both are optional.
A file without ``split`` is split locally, with the same rule and random stream as in a simulation. A file
without ``global_ids`` has its nodes numbered from 0.

A file whose numbers are yet to be scaled has two more arrays. ``scaled`` is int64 [s]: the positions of these
columns in x, ascending. ``unscaled`` is float64 [n, s]: their numbers as they are in the owner's table. x
holds 0 in these columns. The owners scale them together, before the first round. A missing number is NaN, if
the schema allows it and the next feature marks it. The mean takes its place.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.clients.imputing import open_rules
from fedepd.clients.split import SplitConfig, split_client
from fedepd.datasets.npz import Arrays, arrays_of, read_npz, write_npz
from fedepd.errors import BadConfig, BadData
from fedepd.shown import shown
from fedepd.types import ClientData, Graph, Unscaled

__all__ = ["NONE", "TEST", "TRAIN", "VAL", "ClientFile", "Unscaled", "check_scaled", "check_unscaled"]
__all__ += ["read_client_file", "read_file", "write_client_file", "write_unsplit_file"]

TRAIN, VAL, TEST, NONE = range(4)
LARGEST = float(np.finfo(np.float32).max)
"""The largest number that may be scaled. Features are float32."""
CLIENT_ARRAYS = ("split", "global_ids", "unscaled", "scaled")
"""What a client's file may hold beside its graph."""


@dataclass(frozen=True, eq=False)
class ClientFile:
    """The content of a client's file."""

    graph: Graph
    masks: tuple[Tensor, Tensor, Tensor] | None
    """Training, validation and test nodes, bool [n] each; None where the file has no split of its own."""
    global_ids: Tensor
    unscaled: Unscaled | None = None
    """Columns that are yet to be scaled; None where x is complete."""

    def client(
        self, client_id: int, config: SplitConfig, seed: int, aside: Tensor | None = None
    ) -> ClientData:
        """``config`` and ``seed`` serve a file without a split of its own.

        ``aside``: the vault of all clients, bool by global number. A vault is refused where it is not known,
        and where the file has a split already.
        """
        if config.vault and (self.masks is not None or aside is None):
            why = (
                "the client's file has a split of its own"
                if self.masks
                else "one client alone cannot tell it"
            )
            raise BadConfig(
                f"vault is {config.vault:g}, but {why}; "
                "leave vault out here, and give it to 'fedepd data split' when the files are made"
            )
        if self.masks is None:
            return split_client(client_id, self.graph, self.global_ids, config, seed, aside, self.unscaled)
        return ClientData(client_id, self.graph, *self.masks, self.global_ids, self.unscaled)


def read_client_file(path: str | Path, client_id: int, split_config: SplitConfig, seed: int) -> ClientData:
    """The client in an npz file, with a split and with all features.

    Raises ``BadData`` if the file cannot be used, or if columns are yet to be scaled.
    """
    data = read_file(path).client(client_id, split_config, seed)
    check_scaled(data, f"file '{shown(path, 300)}'")
    return data


def check_scaled(data: ClientData, where: str) -> None:
    """Refuse a client whose features are not complete. ``where`` names it."""
    if data.unscaled is not None:
        raise BadData(
            f"{where} has {len(data.unscaled.columns)} columns that are not scaled yet, because the sites of "
            f"a federation scale them together; use it in a federation, or in a folder of clients"
        )


def read_file(path: str | Path) -> ClientFile:
    """The content of a client's npz file. Raises ``BadData`` if the file cannot be used."""
    path = Path(path)
    graph = read_npz(path, part=True)
    arrays = arrays_of(path, (), CLIENT_ARRAYS)
    for name in ("split", "global_ids"):
        if name not in arrays:
            continue
        if arrays[name].shape != (graph.num_nodes,) or arrays[name].dtype.kind not in "iu":
            kind = f"{arrays[name].dtype} {list(arrays[name].shape)}"
            raise BadData(
                f"file '{path}': {name} is {kind}; "
                f"it must hold one integer for each of the {graph.num_nodes} nodes"
            )
    masks = _masks(arrays, graph.y, path) if "split" in arrays else None
    global_ids = torch.from_numpy(arrays.get("global_ids", np.arange(graph.num_nodes)).astype(np.int64))
    return ClientFile(graph, masks, global_ids, _unscaled(arrays, graph, path))


def _unscaled(arrays: Arrays, graph: Graph, path: Path) -> Unscaled | None:
    found = [name for name in ("unscaled", "scaled") if name in arrays]
    if not found:
        return None
    where = f"file '{shown(path, 300)}'"
    if len(found) == 1:
        raise BadData(f"{where} has only one of the arrays 'unscaled' and 'scaled'; write both or none")
    values, columns = arrays["unscaled"], arrays["scaled"]
    for name, array, kind, axes in (("unscaled", values, np.float64, 2), ("scaled", columns, np.int64, 1)):
        if array.dtype != kind or array.ndim != axes:
            kinds = f"{array.dtype} {list(array.shape)}"
            raise BadData(
                f"{where}: {name} is {kinds}; it must be {np.dtype(kind)} with {axes} axes; import it again"
            )
    unscaled = Unscaled(tuple(columns.tolist()), values)
    check_unscaled(unscaled, graph, where)
    return unscaled


def check_unscaled(unscaled: Unscaled, graph: Graph, where: str) -> None:
    """Refuse unscaled columns that do not fit the graph. ``where`` names its file."""
    columns, values, d = unscaled.columns, unscaled.values, graph.num_features
    if graph.is_sparse:
        raise BadData(f"{where} has sparse features, which cannot be scaled; store x densely")
    if values.shape != (graph.num_nodes, len(columns)) or not columns:
        raise BadData(
            f"{where}: unscaled has shape {list(values.shape)} for {graph.num_nodes} nodes "
            f"and {len(columns)} scaled columns; it must hold one number for each, and at least one column"
        )
    if not 0 <= columns[0] <= columns[-1] < d or any(b <= a for a, b in itertools.pairwise(columns)):
        raise BadData(
            f"{where}: scaled is {shown(list(columns), 100)}; it must hold positions in 0..{d - 1}, ascending"
        )
    bad = np.argwhere(~(np.abs(values) <= LARGEST) & ~_gaps(unscaled, graph))
    if bad.size:
        row, at = bad[0].tolist()
        raise BadData(
            f"{where}: unscaled holds {values[row, at]:g} in row {row} of column {columns[at]}; "
            f"give a number of at most {LARGEST:.3g}"
        )
    if bool(graph.x[:, list(columns)].any()):
        raise BadData(f"{where}: x is not 0 in the columns that 'scaled' names; import it again")


def _gaps(unscaled: Unscaled, graph: Graph) -> NDArray[np.bool_]:
    """Where a number is missing, and the schema and the feature behind it say so: bool [n, s]."""
    out = np.zeros(unscaled.values.shape, dtype=bool)
    marked = open_rules(graph)
    for at, column in enumerate(unscaled.columns):
        if column in marked and marked[column].marked:
            out[:, at] = np.isnan(unscaled.values[:, at]) & (graph.x[:, column + 1].numpy() == 1)
    return out


def _masks(arrays: Arrays, y: Tensor, path: Path) -> tuple[Tensor, Tensor, Tensor]:
    codes = torch.from_numpy(arrays["split"].astype(np.int64))
    if int(codes.min()) < TRAIN or int(codes.max()) > NONE:
        raise BadData(
            f"file '{path}': split holds {int(codes.max())}; use 0 train, 1 validation, 2 test, 3 none"
        )
    if bool(((codes != NONE) & (y < 0)).any()):
        raise BadData(f"file '{path}': split uses nodes without a label; mark them 3 (none)")
    return codes == TRAIN, codes == VAL, codes == TEST


def write_client_file(data: ClientData, path: str | Path, unscaled: Unscaled | None = None) -> None:
    """Write a client so that ``read_client_file`` gives it back, or ``read_file`` with columns to scale.

    x of the file is 0 in the columns of ``unscaled``. The file appears at ``path`` only when complete.
    """
    graph, more = _without_scaled(data.graph, unscaled, f"file '{shown(path, 300)}'")
    codes = np.full(data.graph.num_nodes, NONE, dtype=np.uint8)
    for code, mask in enumerate((data.train_mask, data.val_mask, data.test_mask)):
        codes[mask.numpy()] = code
    write_npz(graph, path, {"split": codes, "global_ids": data.global_ids.numpy(), **more})


def _without_scaled(graph: Graph, unscaled: Unscaled | None, where: str) -> tuple[Graph, Arrays]:
    """The graph with 0 in the columns that are yet to be scaled, and the arrays that hold their numbers."""
    if unscaled is None:
        return graph, {}
    if not graph.is_sparse:
        x = graph.x.clone()
        x[:, [column for column in unscaled.columns if 0 <= column < x.shape[1]]] = 0
        graph = replace(graph, x=x)
    check_unscaled(unscaled, graph, where)
    return graph, {
        "unscaled": np.asarray(unscaled.values, dtype=np.float64),
        "scaled": np.array(unscaled.columns, dtype=np.int64),
    }


def write_unsplit_file(graph: Graph, path: str | Path, unscaled: Unscaled | None = None) -> None:
    """Write what an owner has, without a split: each run splits it by its own rule and seed.

    The file appears at ``path`` only when complete.
    """
    graph, more = _without_scaled(graph, unscaled, f"file '{shown(path, 300)}'")
    write_npz(graph, path, more)
