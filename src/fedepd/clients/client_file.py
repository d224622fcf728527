"""The data of one owner as one npz file: a graph (see ``npz.py``) plus ``split`` and ``global_ids``.

``split`` is uint8 [n]: 0 train, 1 validation, 2 test, 3 none. ``global_ids`` is int64 [n]. Both are optional.
A file without ``split`` is split locally, with the same rule and random stream as in a simulation. A file
without ``global_ids`` has its nodes numbered from 0.
"""

from __future__ import annotations

import os
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import torch
from numpy.lib import format as npy
from torch import Tensor

from fedepd.clients.split import SplitConfig, split
from fedepd.datasets.npz import Arrays, read_arrays, read_npz, write_npz
from fedepd.errors import BadData
from fedepd.rng import seeded_numpy
from fedepd.shown import shown
from fedepd.types import ClientData

TRAIN, VAL, TEST, NONE = range(4)


def read_client_file(path: str | Path, client_id: int, split_config: SplitConfig, seed: int) -> ClientData:
    """The client in an npz file. Raises ``BadData`` if the file cannot be used."""
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
    if "split" in arrays:
        train, val, test = _masks(arrays, graph.y, path)
    else:
        train, val, test = split(graph, split_config, seeded_numpy(seed, "split", client_id))
    global_ids = torch.from_numpy(arrays.get("global_ids", np.arange(graph.num_nodes)).astype(np.int64))
    return ClientData(client_id, graph, train, val, test, global_ids)


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
    path = Path(path)
    codes = np.full(data.graph.num_nodes, NONE, dtype=np.uint8)
    for code, mask in enumerate((data.train_mask, data.val_mask, data.test_mask)):
        codes[mask.numpy()] = code
    own = path.parent / f".{os.getpid()}.graph.part"
    try:
        write_npz(data.graph, own)
        with zipfile.ZipFile(own, "a", zipfile.ZIP_DEFLATED) as archive:
            for name, array in {"split": codes, "global_ids": data.global_ids.numpy()}.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    npy.write_array(member, array, allow_pickle=False)
        os.replace(own, path)
    except OSError as error:
        where = shown(path, 300)
        raise BadData(
            f"cannot write '{where}' ({error.strerror}); "
            f"give a file in an existing folder that you may write to"
        ) from None
    finally:
        with suppress(OSError):
            own.unlink()
