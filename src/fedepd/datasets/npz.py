"""A graph as one npz file: ``edge_index``, ``y`` and features, dense (``x``) or CSR (``x_data``, ``x_indices``, ``x_indptr``, ``x_shape``).

Optional: ``label_values`` (original label ids) or ``label_names``, ``num_classes``, ``owner`` with ``owner_names``, ``proxy_features``,
``node_ids`` (what the nodes are called) and ``schema`` (JSON text: how columns of a table become features).
Nothing is unpickled, and nothing is allocated before the declared sizes have been checked.
"""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from fedepd.errors import BadData
from fedepd.sparse import csr_tensor, to_scipy
from fedepd.types import HIDDEN, Graph

Arrays = dict[str, NDArray[Any]]

CSR_PARTS = ("x_data", "x_indices", "x_indptr", "x_shape")
OPTIONAL = ("x", *CSR_PARTS, "label_values", "label_names", "num_classes", "owner", "owner_names", "proxy_features", "node_ids", "schema")

MAX_BYTES = 64 * 2**30
"""No file may unpack to more than this."""
BOMB_BYTES, BOMB_RATIO = 2**30, 200
"""An array over BOMB_BYTES that claims to shrink more than BOMB_RATIO-fold is refused: real features shrink at most about 50-fold."""

MAX_CLASSES = 10_000
"""A graph may declare this many classes even if it has fewer nodes; confusion matrices are C x C."""

DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, TypeError, SyntaxError, TokenError, RuntimeError, OSError)
"""What zipfile and numpy raise on files that are cut, damaged, encrypted or unreadable."""


def read_npz(path: str | Path, part: bool = False) -> Graph:
    """The graph in an npz file, or the ``part`` of one that a client holds; a file that cannot be used is refused in one sentence."""
    path = Path(path)
    arrays = read_arrays(path, required=("edge_index", "y"), optional=OPTIONAL)
    try:
        return _graph(arrays, path.stem, part)
    except BadData as error:
        raise BadData(f"file '{path}': {error}") from None


def read_unlabelled(path: str | Path, num_classes: int) -> Graph:
    """The graph in an npz file whose nodes are to be classified: no labels are needed, and none are read."""
    path = Path(path)
    arrays = read_arrays(path, ("edge_index",), ("x", *CSR_PARTS, "node_ids", "schema"))
    try:
        y = np.full(_features(arrays).shape[0], HIDDEN)
        return _graph({**arrays, "y": y, "num_classes": np.array(num_classes)}, path.stem, part=True)
    except BadData as error:
        raise BadData(f"file '{path}': {error}") from None


def write_npz(graph: Graph, path: str | Path) -> None:
    """Write a graph so that ``read_npz`` gives it back; a half-written file is never seen under ``path``."""
    path = Path(path)
    arrays: Arrays = {
        "edge_index": graph.edge_index.numpy(),
        "y": graph.y.numpy(),
        "num_classes": np.array(graph.num_classes),
        "proxy_features": np.array(graph.proxy_features),
    }
    if graph.is_sparse:
        x = to_scipy(graph.x)
        arrays |= {"x_data": x.data, "x_indices": x.indices.astype(np.int32), "x_indptr": x.indptr.astype(np.int64)}
        arrays["x_shape"] = np.array(x.shape)
    else:
        arrays["x"] = graph.x.numpy()
    if graph.label_names:
        arrays["label_names"] = np.array(graph.label_names, dtype=np.str_)
    if graph.owner is not None:
        arrays["owner"] = graph.owner.numpy()
    if graph.owner_names:
        arrays["owner_names"] = np.array(graph.owner_names, dtype=np.str_)
    if graph.node_ids is not None:
        arrays["node_ids"] = graph.node_ids
    if graph.schema:
        arrays["schema"] = np.array([graph.schema], dtype=np.str_)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
        os.replace(temporary, path)
    except OSError as error:
        raise BadData(f"cannot write '{path}' ({error.strerror}); give a file in an existing folder that you may write to") from None
    finally:
        temporary.unlink(missing_ok=True)


def read_arrays(path: Path, required: Iterable[str], optional: Iterable[str] = ()) -> Arrays:
    """The named arrays of an npz file; other members are not even opened."""
    if not path.is_file():
        raise BadData(f"file '{path}' does not exist; check the path")
    if path.stat().st_size == 0:
        raise BadData(f"file '{path}' is empty; write or download it again")
    if not os.access(path, os.R_OK):
        raise BadData(f"file '{path}' may not be read; change its permissions")
    required = tuple(required)
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename.removesuffix(".npy"): info for info in archive.infolist() if info.filename.endswith(".npy")}
            if missing := [name for name in required if name not in members]:
                raise BadData(f"file '{path}' has no array '{missing[0]}'; it holds {sorted(members)}, add the missing one")
            wanted = {name: members[name] for name in (*required, *optional) if name in members}
            if sum(info.file_size for info in wanted.values()) > MAX_BYTES:
                raise BadData(f"file '{path}' would unpack to more than {MAX_BYTES // 2**30} GiB; use a smaller graph")
            for name, info in wanted.items():
                with archive.open(info) as member:
                    _check_declared(member, info, f"file '{path}': array '{name}'")
            return {name: _read_member(archive, info) for name, info in wanted.items()}
    except DAMAGE as error:
        with path.open("rb") as file:
            kind = "truncated or damaged" if file.read(2) == b"PK" else "not an npz file"
        reason = " ".join(str(error).split())
        raise BadData(f"file '{path}' is {kind} ({reason}); write it again with numpy.savez or fedepd.datasets.write_npz") from None


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
        member.read(1)  # reaching the end is what makes zipfile compare the checksum
    return array


def _check_declared(member: IO[bytes], info: zipfile.ZipInfo, what: str) -> None:
    """Refuse object arrays, and sizes that the header, the zip directory and the compressed bytes do not agree on."""
    version = npy.read_magic(member)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_header(member)
    if dtype.hasobject:
        raise BadData(f"{what} holds Python objects, which are never loaded; save it as a numeric or unicode array")
    if member.tell() + math.prod(shape) * dtype.itemsize != info.file_size:
        raise BadData(f"{what} declares shape {list(shape)} but holds {info.file_size} bytes; the file is damaged, write it again")
    if info.file_size > max(BOMB_BYTES, BOMB_RATIO * info.compress_size):
        raise BadData(f"{what} claims {info.file_size} bytes from {info.compress_size} compressed; save sparse features as CSR parts")


def _graph(arrays: Mapping[str, NDArray[Any]], name: str, part: bool) -> Graph:
    y = _integers(arrays, "y")
    if y.ndim != 1:
        raise BadData(f"y has shape {list(y.shape)}; it must be [nodes]")
    names = _names(arrays, "label_names") or tuple(str(value) for value in arrays.get("label_values", np.empty(0)).ravel())
    owner, owner_names = None, _names(arrays, "owner_names")
    if "owner" in arrays:
        owner = _integers(arrays, "owner")
        if owner_names and owner.max(initial=-1) >= len(owner_names):
            raise BadData(f"owner names client {owner.max()}, but owner_names has {len(owner_names)} entries; correct one of them")
    return Graph.make(
        x=_features(arrays),
        edge_index=torch.from_numpy(_integers(arrays, "edge_index")),
        y=torch.from_numpy(y),
        num_classes=_num_classes(arrays, y, names),
        part=part,
        name=name,
        label_names=names,
        owner=None if owner is None else torch.from_numpy(owner),
        owner_names=owner_names,
        node_ids=_unicode(arrays, "node_ids") if "node_ids" in arrays else None,
        schema="".join(_names(arrays, "schema")),
        proxy_features=name.endswith("_proxy") or ("proxy_features" in arrays and bool(_integers(arrays, "proxy_features", "b").any())),
    )


def _num_classes(arrays: Mapping[str, NDArray[Any]], y: NDArray[np.int64], names: tuple[str, ...]) -> int:
    if "num_classes" not in arrays:
        # Choice: without a list of classes, a label beyond the number of nodes is a mistake; C x C tables must stay small.
        return len(names) or min(int(y.max(initial=-1)) + 1, y.size)
    given = _integers(arrays, "num_classes")
    if given.size != 1 or (given.item() != len(names) if names else given.item() > max(y.size, MAX_CLASSES)):
        raise BadData(f"num_classes is {given.tolist()}; it must be the number of label names, or at most {MAX_CLASSES} without them")
    return int(given.item())


def _integers(arrays: Mapping[str, NDArray[Any]], name: str, also: str = "") -> NDArray[np.int64]:
    array = arrays[name]
    if array.dtype.kind not in f"iu{also}":
        raise BadData(f"{name} has type {array.dtype}; it must hold integers")
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise BadData(f"{name} holds {array.max()}, which does not fit int64; correct the numbers")
    return array.astype(np.int64)


def _names(arrays: Mapping[str, NDArray[Any]], name: str) -> tuple[str, ...]:
    return tuple(_unicode(arrays, name).tolist()) if name in arrays else ()


def _unicode(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.str_]:
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind != "U":
        raise BadData(f"{name} has type {array.dtype} and shape {list(array.shape)}; it must be a list of unicode strings")
    return array


def _features(arrays: Mapping[str, NDArray[Any]]) -> Tensor:
    present = [part for part in CSR_PARTS if part in arrays]
    if ("x" in arrays) == bool(present):
        raise BadData(f"it needs features either as 'x' or as CSR parts {list(CSR_PARTS)}, not both and not neither; save one of the two")
    if not present:
        return torch.from_numpy(_floats(arrays, "x"))
    if len(present) < len(CSR_PARTS):
        raise BadData(f"it has no array '{next(p for p in CSR_PARTS if p not in arrays)}'; sparse features need {list(CSR_PARTS)}")
    return csr_tensor(checked_csr(arrays, "x_"))


def _floats(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    if arrays[name].dtype.kind not in "fiub":
        raise BadData(f"{name} has type {arrays[name].dtype}; it must hold real numbers")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused as such
        return arrays[name].astype(np.float32)


def checked_csr(arrays: Mapping[str, NDArray[Any]], prefix: str) -> sp.csr_matrix:
    """The CSR matrix whose parts are called ``{prefix}data``, ``indices``, ``indptr`` and ``shape``; they must agree with each other."""
    data = _floats(arrays, f"{prefix}data")
    indices, indptr, shape = (_integers(arrays, f"{prefix}{part}") for part in ("indices", "indptr", "shape"))
    if shape.shape != (2,) or shape.min() < 0:
        raise BadData(f"{prefix}shape is {shape.tolist()}; it must hold two numbers, rows and columns")
    rows, columns = shape.tolist()
    if data.ndim != 1 or data.shape != indices.shape:
        raise BadData(f"{prefix}data {list(data.shape)} and {prefix}indices {list(indices.shape)} must be equally long; write them again")
    if indptr.shape != (rows + 1,):
        raise BadData(f"{prefix}indptr has shape {list(indptr.shape)} where {prefix}shape asks for [{rows + 1}]; write the CSR parts again")
    if indptr[0] != 0 or indptr[-1] != indices.size or (np.diff(indptr) < 0).any():
        raise BadData(f"{prefix}indptr must rise from 0 to {indices.size}, the length of {prefix}indices; write the CSR parts again")
    if indices.size and (indices.min() < 0 or indices.max() >= columns):
        raise BadData(f"{prefix}indices leave the range 0..{columns - 1} given by {prefix}shape; write the CSR parts again")
    matrix = sp.csr_matrix((data, indices, indptr), shape=(rows, columns))
    matrix.sum_duplicates()  # also sorts: torch relies on rows that are sorted and without repeats
    return matrix
