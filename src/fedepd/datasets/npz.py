"""A graph as one npz file, or as a folder of the same arrays.

Required arrays: ``edge_index``, ``y`` and the features. Features are dense (``x``) or CSR (``x_data``,
``x_indices``, ``x_indptr``, ``x_shape``).

Optional arrays: ``label_values`` (original label ids) or ``label_names``, ``num_classes``, ``owner`` with
``owner_names``, ``proxy_features``, ``node_ids`` (names of the nodes), ``schema`` (JSON text that says how
columns of a table become features), ``roles`` (JSON text that says which columns were ids and classes), and
``time`` (when each node appeared, if it is split by time) with ``time_name``, and ``edge_weight`` (how much
each edge counts).

Nothing is unpickled. Memory is allocated only after the declared sizes have been checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd import memory
from fedepd.arrays import Arrays, check_text, read_arrays, spelled
from fedepd.datasets.packed import is_packed, read_packed, write_packed
from fedepd.errors import BadData
from fedepd.files import swapped_in
from fedepd.memory import FREE, RATIO
from fedepd.network.sparse import csr_tensor, to_scipy
from fedepd.shown import shown
from fedepd.types import HIDDEN, Graph, widened

__all__ = ["CSR_PARTS", "MAX_CLASSES", "OPTIONAL", "Arrays", "checked_csr", "floats", "integers"]
__all__ += ["arrays_of", "pack", "read_arrays", "read_npz", "read_unlabelled", "write_npz"]

CSR_PARTS = ("x_data", "x_indices", "x_indptr", "x_shape")
OPTIONAL = (
    "x",
    *CSR_PARTS,
    "label_values",
    "label_names",
    "num_classes",
    "owner",
    "owner_names",
    "proxy_features",
    "node_ids",
    "schema",
    "time",
    "time_name",
    "roles",
    "edge_weight",
)

MAX_CLASSES = 10_000
"""Most distinct names of classes or owners in a table."""

MAX_COLUMNS, COLUMNS_PER_VALUE = 2**17, 100
"""CSR features may have this many columns, or this many per stored number if that is more.

A model has a row of weights for each column.
"""


def arrays_of(path: str | Path, required: Iterable[str], optional: Iterable[str] = ()) -> Arrays:
    """The named arrays of an npz file, or of a folder that ``pack`` made."""
    return read_packed(path, required, optional) if is_packed(path) else read_arrays(path, required, optional)


def read_npz(path: str | Path, part: bool = False, compact: bool = False) -> Graph:
    """The graph in an npz file or a packed folder.

    With ``part``, the file holds what one client has of a larger graph. With ``compact``, features that are
    stored in float16 stay so.
    """
    path = Path(path)
    arrays = arrays_of(path, ("edge_index", "y"), OPTIONAL)
    try:
        graph = _graph(arrays, shown(path.resolve().name if is_packed(path) else path.stem, 300), part)
        return graph if compact else _in_float32(graph)
    except BadData as error:
        raise BadData(f"file '{spelled(path)}': {error}") from None


def read_unlabelled(path: str | Path, num_classes: int) -> Graph:
    """The graph in a file or folder whose nodes are to be classified. Labels are not needed and not read."""
    path = Path(path)
    arrays = arrays_of(path, ("edge_index",), ("x", *CSR_PARTS, "node_ids", "schema", "roles", "edge_weight"))
    try:
        y = np.full(_features(arrays).shape[0], HIDDEN)
        graph = _graph(
            {**arrays, "y": y, "num_classes": np.array(num_classes)}, shown(path.stem, 300), part=True
        )
        return _in_float32(graph)
    except BadData as error:
        raise BadData(f"file '{spelled(path)}': {error}") from None


def _in_float32(graph: Graph) -> Graph:
    if graph.x.dtype == torch.float16:
        memory.check(4 * graph.x.numel(), "x in float32")
    return replace(graph, x=widened(graph.x))


def write_npz(graph: Graph, path: str | Path, more: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Write a graph so that ``read_npz`` gives it back.

    The file appears at ``path`` only when it is complete. ``more`` holds further arrays, by name, that are
    stored beside the graph.
    """
    path = Path(path)
    arrays = {**graph_arrays(graph), **(more or {})}
    try:
        with swapped_in(path) as file:
            np.savez_compressed(file, allow_pickle=False, **arrays)
            if 2 * sum(array.nbytes for array in arrays.values()) > max(FREE, RATIO * file.tell()):
                # Choice: an honest graph that compresses like a zip bomb is stored uncompressed. Otherwise
                # readers would refuse it.
                file.seek(0)
                file.truncate()
                np.savez(file, allow_pickle=False, **arrays)
    except OSError as error:
        cure = "give a file in an existing folder that you may write to"
        raise BadData(f"cannot write '{spelled(path)}' ({error.strerror}); {cure}") from None


def pack(graph: Graph, folder: str | Path, more: Mapping[str, NDArray[Any]] | None = None) -> None:
    """Write a graph as a new folder, which ``read_npz`` reads too. Dense features then stay on disk.

    Args:
        graph: The graph.
        folder: A folder that does not exist or is empty.
        more: Further arrays, by name, that are stored beside the graph.

    Raises:
        BadConfig: The folder holds something, or cannot be written.

    Examples:
        >>> import tempfile, fedepd
        >>> from fedepd.datasets.npz import pack
        >>> graph = fedepd.load("synthetic")
        >>> with tempfile.TemporaryDirectory() as place:
        ...     pack(graph, f"{place}/graph")
        ...     fedepd.load(f"{place}/graph").num_nodes
        1500
    """
    write_packed({**graph_arrays(graph), **(more or {})}, folder)


def graph_arrays(graph: Graph) -> Arrays:
    """The arrays of a graph, by the names that files give them."""
    arrays: Arrays = {
        "edge_index": graph.edge_index.numpy(),
        "y": graph.y.numpy(),
        "num_classes": np.array(graph.num_classes),
        "proxy_features": np.array(graph.proxy_features),
    }
    if graph.is_sparse:
        x = to_scipy(graph.x)
        arrays |= {
            "x_data": x.data,
            "x_indices": x.indices.astype(np.int32),
            "x_indptr": x.indptr.astype(np.int64),
        }
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
    if graph.time is not None:
        arrays |= {"time": graph.time.numpy(), "time_name": np.array([graph.time_name], dtype=np.str_)}
    if graph.roles:
        arrays["roles"] = np.array([graph.roles], dtype=np.str_)
    if graph.edge_weight is not None:
        arrays["edge_weight"] = graph.edge_weight.numpy()
    return arrays


def _graph(arrays: Mapping[str, NDArray[Any]], name: str, part: bool) -> Graph:
    y = integers(arrays, "y")
    if y.ndim != 1:
        raise BadData(f"y has shape {list(y.shape)}; it must be [nodes]")
    names = _names(arrays, "label_names") or _label_values(arrays)
    owner, owner_names = None, _names(arrays, "owner_names")
    if "owner" in arrays:
        owner = integers(arrays, "owner")
        if owner_names and owner.max(initial=-1) >= len(owner_names):
            raise BadData(
                f"owner names client {owner.max()}, but owner_names has {len(owner_names)} entries; "
                f"correct one of them"
            )
    return Graph.make(
        x=_features(arrays),
        edge_index=torch.from_numpy(integers(arrays, "edge_index")),
        y=torch.from_numpy(y),
        num_classes=_num_classes(arrays, y, names),
        part=part,
        name=name,
        label_names=names,
        owner=None if owner is None else torch.from_numpy(owner),
        owner_names=owner_names,
        node_ids=_unicode(arrays, "node_ids") if "node_ids" in arrays else None,
        schema="".join(_names(arrays, "schema")),
        time=_time(arrays),
        time_name="".join(_names(arrays, "time_name")),
        roles="".join(_names(arrays, "roles")),
        edge_weight=torch.from_numpy(floats(arrays, "edge_weight")) if "edge_weight" in arrays else None,
        proxy_features=name.endswith("_proxy")
        or ("proxy_features" in arrays and bool(integers(arrays, "proxy_features", "b").any())),
    )


def _time(arrays: Mapping[str, NDArray[Any]]) -> Tensor | None:
    if "time" not in arrays:
        return None
    if arrays["time"].dtype.kind not in "fiu":
        raise BadData(f"time has type {arrays['time'].dtype}; it must hold real numbers")
    return torch.from_numpy(arrays["time"].astype(np.float64))


def _label_values(arrays: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    values = arrays.get("label_values", np.empty(0))
    if values.dtype.kind == "U":
        check_text(values, "label_values")
    elif values.dtype.kind not in "iufb":
        raise BadData(f"label_values has type {values.dtype}; it must hold numbers or unicode strings")
    return tuple(str(value) for value in values.ravel())


def _num_classes(arrays: Mapping[str, NDArray[Any]], y: NDArray[np.int64], names: tuple[str, ...]) -> int:
    if "num_classes" not in arrays:
        # Choice: without a list of classes, a label larger than the number of nodes is a mistake, because C x
        # C tables must stay small.
        return len(names) or min(int(y.max(initial=-1)) + 1, y.size)
    given = integers(arrays, "num_classes")
    if given.size != 1 or (names and given.item() != len(names)):
        raise BadData(
            f"num_classes is {shown(given.tolist())}; "
            f"it must be one number, and equal to the number of label names if there are any"
        )
    return int(given.item())


def integers(arrays: Mapping[str, NDArray[Any]], name: str, also: str = "") -> NDArray[np.int64]:
    """An array of whole numbers. ``also`` names another numpy kind that is accepted."""
    array = arrays[name]
    if array.dtype.kind not in f"iu{also}":
        raise BadData(f"{name} has type {array.dtype}; it must hold integers")
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise BadData(f"{name} holds {array.max()}, which does not fit int64; correct the numbers")
    return array.astype(np.int64, copy=False)


def _names(arrays: Mapping[str, NDArray[Any]], name: str) -> tuple[str, ...]:
    return tuple(_unicode(arrays, name).tolist()) if name in arrays else ()


def _unicode(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.str_]:
    array = arrays[name]
    if array.ndim != 1 or array.dtype.kind != "U":
        raise BadData(
            f"{name} has type {array.dtype} and shape {list(array.shape)}; "
            f"it must be a list of unicode strings"
        )
    check_text(array, name)
    return array


def _features(arrays: Mapping[str, NDArray[Any]]) -> Tensor:
    present = [part for part in CSR_PARTS if part in arrays]
    if ("x" in arrays) == bool(present):
        raise BadData(
            f"it must hold features either as 'x' or as CSR parts {list(CSR_PARTS)}; "
            f"save exactly one of the two"
        )
    if not present:
        if arrays["x"].ndim != 2:
            raise BadData(f"x has shape {list(arrays['x'].shape)}; it must be [nodes, features]")
        if arrays["x"].dtype == np.float16:
            return torch.from_numpy(arrays["x"])
        return torch.from_numpy(floats(arrays, "x"))
    if len(present) < len(CSR_PARTS):
        raise BadData(
            f"it has no array '{next(p for p in CSR_PARTS if p not in arrays)}'; "
            f"sparse features need {list(CSR_PARTS)}"
        )
    return csr_tensor(checked_csr(arrays, "x_"))


def floats(arrays: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.float32]:
    """An array of real numbers."""
    if arrays[name].dtype.kind not in "fiub":
        raise BadData(f"{name} has type {arrays[name].dtype}; it must hold real numbers")
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite and is refused later
        return arrays[name].astype(np.float32, copy=False)


def checked_csr(arrays: Mapping[str, NDArray[Any]], prefix: str) -> sp.csr_matrix:
    """The CSR matrix with the parts ``{prefix}data``, ``indices``, ``indptr`` and ``shape``.

    They must agree.
    """
    if missing := [
        part for part in ("data", "indices", "indptr", "shape") if f"{prefix}{part}" not in arrays
    ]:
        raise BadData(
            f"it has no array '{prefix}{missing[0]}'; sparse features need data, indices, indptr and shape"
        )
    data = floats(arrays, f"{prefix}data")
    indices, indptr, shape = (integers(arrays, f"{prefix}{part}") for part in ("indices", "indptr", "shape"))
    if shape.shape != (2,) or shape.min() < 0:
        raise BadData(f"{prefix}shape is {shown(shape.tolist())}; it must hold two numbers, rows and columns")
    rows, columns = shape.tolist()
    if columns > max(MAX_COLUMNS, COLUMNS_PER_VALUE * data.size):
        raise BadData(
            f"{prefix}shape asks for {columns:,} columns for {data.size:,} numbers; leave out empty columns"
        )
    if data.ndim != 1 or data.shape != indices.shape:
        raise BadData(
            f"{prefix}data {list(data.shape)} and {prefix}indices {list(indices.shape)} "
            f"must be equally long; write them again"
        )
    if indptr.shape != (rows + 1,):
        raise BadData(
            f"{prefix}indptr has shape {list(indptr.shape)}, but {prefix}shape asks for [{rows + 1}]; "
            f"write the CSR parts again"
        )
    if indptr[0] != 0 or indptr[-1] != indices.size or (np.diff(indptr) < 0).any():
        raise BadData(
            f"{prefix}indptr must rise from 0 to {indices.size}, the length of {prefix}indices; "
            f"write the CSR parts again"
        )
    if indices.size and (indices.min() < 0 or indices.max() >= columns):
        raise BadData(
            f"{prefix}indices leave the range 0..{columns - 1} given by {prefix}shape; "
            f"write the CSR parts again"
        )
    matrix = sp.csr_matrix((data, indices, indptr), shape=(rows, columns))
    matrix.sum_duplicates()  # it also sorts; torch relies on rows that are sorted and without repeats
    return matrix
