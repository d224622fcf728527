"""The data of one owner as one npz file: a graph (see ``npz.py``) plus ``split`` and ``global_ids``.

``split`` is uint8 [n]: 0 train, 1 validation, 2 test, 3 none. ``global_ids`` is int64 [n]. Both are optional.
A file without ``split`` is split locally, with the same rule and random stream as in a simulation. A file
without ``global_ids`` has its nodes numbered from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedepd.clients.split import SplitConfig, split
from fedepd.datasets.npz import Arrays, read_arrays, read_npz, write_npz
from fedepd.errors import BadData
from fedepd.rng import seeded_numpy
from fedepd.types import ClientData, Graph

TRAIN, VAL, TEST, NONE = range(4)


@dataclass(frozen=True, eq=False)
class ClientFile:
    """The content of a client's file."""

    graph: Graph
    masks: tuple[Tensor, Tensor, Tensor] | None
    """Training, validation and test nodes, bool [n] each; None where the file has no split of its own."""
    global_ids: Tensor

    def client(self, client_id: int, config: SplitConfig, seed: int) -> ClientData:
        """``config`` and ``seed`` serve a file without a split of its own."""
        masks = self.masks or split(self.graph, config, seeded_numpy(seed, "split", client_id))
        return ClientData(client_id, self.graph, *masks, self.global_ids)


def read_client_file(path: str | Path, client_id: int, split_config: SplitConfig, seed: int) -> ClientData:
    """The client in an npz file, with a split. Raises ``BadData`` if the file cannot be used."""
    return read_file(path).client(client_id, split_config, seed)


def read_file(path: str | Path) -> ClientFile:
    """The content of a client's npz file. Raises ``BadData`` if the file cannot be used."""
    path = Path(path)
    graph = read_npz(path, part=True)
    arrays = read_arrays(path, (), ("split", "global_ids"))
    for name in arrays:
        if arrays[name].shape != (graph.num_nodes,) or arrays[name].dtype.kind not in "iu":
            kind = f"{arrays[name].dtype} {list(arrays[name].shape)}"
            raise BadData(
                f"file '{path}': {name} is {kind}; "
                f"it must hold one integer for each of the {graph.num_nodes} nodes"
            )
    masks = _masks(arrays, graph.y, path) if "split" in arrays else None
    global_ids = torch.from_numpy(arrays.get("global_ids", np.arange(graph.num_nodes)).astype(np.int64))
    return ClientFile(graph, masks, global_ids)


def _masks(arrays: Arrays, y: Tensor, path: Path) -> tuple[Tensor, Tensor, Tensor]:
    codes = torch.from_numpy(arrays["split"].astype(np.int64))
    if int(codes.min()) < TRAIN or int(codes.max()) > NONE:
        raise BadData(
            f"file '{path}': split holds {int(codes.max())}; use 0 train, 1 validation, 2 test, 3 none"
        )
    if bool(((codes != NONE) & (y < 0)).any()):
        raise BadData(f"file '{path}': split uses nodes without a label; mark them 3 (none)")
    return codes == TRAIN, codes == VAL, codes == TEST


def write_client_file(data: ClientData, path: str | Path) -> None:
    """Write a client so that ``read_client_file`` gives it back.

    The file appears at ``path`` only when complete.
    """
    codes = np.full(data.graph.num_nodes, NONE, dtype=np.uint8)
    for code, mask in enumerate((data.train_mask, data.val_mask, data.test_mask)):
        codes[mask.numpy()] = code
    write_npz(data.graph, path, {"split": codes, "global_ids": data.global_ids.numpy()})
