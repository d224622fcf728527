"""Graphs from other programs' files: NetworkX and GraphML, torch_geometric, scipy and numpy. Nothing is unpickled or executed."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.lib.format import open_memmap
from numpy.typing import NDArray
from torch import Tensor

from fedepd.datasets.columns import Column, Table, list_column, needs
from fedepd.datasets.npz import CSR_PARTS, checked_csr, read_arrays
from fedepd.datasets.tables import Roles, import_tables
from fedepd.errors import BadData
from fedepd.sparse import csr_tensor
from fedepd.types import Graph

if TYPE_CHECKING:
    import networkx


# --- NetworkX and GraphML ----------------------------------------------------------------------------------------------------------------


def from_networkx(graph: networkx.Graph, name: str = "graph", **roles: Any) -> Graph:
    """Node attributes are the label, the owner and the features; one that is a list of numbers gives a feature per number."""
    return import_networkx(graph, Roles(**roles), name)[0]


def import_networkx(graph: networkx.Graph, roles: Roles, name: str) -> tuple[Graph, list[str]]:
    nodes = list(graph.nodes(data=True))
    attributes = {key: [data.get(key) for _, data in nodes] for key in dict.fromkeys(key for _, data in nodes for key in data)}
    columns: dict[str, Column] = {roles.id: list_column([str(node) for node, _ in nodes])}
    for key, values in attributes.items():
        if key != roles.id:  # Choice: a NetworkX node is its own id; an attribute of that name is no feature
            columns |= _attribute(str(key), values, name)
    table = Table(f"{name}: nodes", columns, len(nodes))
    ends = list(zip(*((str(a), str(b)) for a, b in graph.edges()), strict=True)) or [(), ()]
    edges = Table(f"{name}: edges", dict(zip(("source", "target"), map(list_column, ends), strict=True)), len(ends[0]))
    return import_tables(table, edges, roles, name=name)


def _attribute(key: str, values: Sequence[Any], name: str) -> dict[str, Column]:
    if not any(isinstance(v, (list, tuple, np.ndarray)) for v in values):
        return {key: list_column(values)}
    try:
        matrix = np.array(values, dtype=np.float64)
    except (ValueError, TypeError):
        matrix = np.empty(0)
    if matrix.ndim != 2:
        raise BadData(f"{name}: the node attribute '{key}' must be a list of equally many numbers at every node; correct or drop it")
    return {f"{key}{i}": Column(matrix[:, i]) for i in range(matrix.shape[1])}


def import_graphml(path: str | Path, roles: Roles) -> tuple[Graph, list[str]]:
    """A GraphML file as NetworkX reads it."""
    path, networkx = _existing(path), needs("networkx")
    content = path.read_bytes()
    # Choice: no GraphML program writes a document type; one can hide entities that unfold without end.
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content or content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise BadData(f"file '{path}' has a document type or is not UTF-8; write it again as plain GraphML")
    from xml.etree.ElementTree import ParseError

    try:
        graph = networkx.parse_graphml(content)
    except ParseError as error:
        raise BadData(f"{path} line {error.position[0]} is not sound XML ({error}); write the file again") from None
    except (networkx.NetworkXException, ValueError, KeyError, TypeError, AttributeError, IndexError, LookupError) as error:
        raise BadData(f"file '{path}' is not GraphML that NetworkX reads ({_reason(error)}); write it again") from None
    return import_networkx(graph, roles, path.name)


# --- torch_geometric ---------------------------------------------------------------------------------------------------------------------


def import_pyg(path: str | Path) -> Graph:
    """A file of ``torch.save``: a dict of tensors x, edge_index and y, or a torch_geometric ``Data``. Nothing else is ever loaded."""
    path = _existing(path)
    parts = _tensors(_load_tensors(path), path)
    x, y = parts["x"], parts["y"]
    try:
        if y.is_floating_point() or y.dtype == torch.bool or not (x.is_floating_point() or x.dtype in (torch.int64, torch.int32)):
            raise BadData(f"x is {x.dtype} and y is {y.dtype}; x must hold numbers and y whole numbers, one class per node")
        return Graph.make(x.to(torch.float32), parts["edge_index"], y.reshape(-1), name=path.stem)
    except BadData as error:
        raise BadData(f"file '{path}': {error}") from None


def _load_tensors(path: Path) -> Any:
    cure = "save a dict of tensors: torch.save({'x': data.x, 'edge_index': data.edge_index, 'y': data.y}, file)"
    try:
        with zipfile.ZipFile(path) as archive:
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise BadData(f"file '{path}' is compressed, which torch.save never does; {cure}")
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:
            with _allowing_data():
                return torch.load(path, map_location="cpu", weights_only=True)
    except (zipfile.BadZipFile, pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, TypeError, KeyError, AttributeError):
        raise BadData(f"file '{path}' holds more than tensors or is damaged, and is not loaded; {cure}") from None


def _allowing_data() -> Any:
    """Let torch's safe loader make torch_geometric's ``Data``, where that is installed; its classes hold tensors and do nothing."""
    try:
        from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import GlobalStorage
    except ImportError:
        return nullcontext()
    return torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage])


def _tensors(content: Any, path: Path) -> dict[str, Tensor]:
    out = {}
    for name in ("x", "edge_index", "y"):
        value = content.get(name) if isinstance(content, Mapping) else getattr(content, name, None)
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_complex():
            raise BadData(f"file '{path}' has no dense tensor '{name}'; save a dict of tensors x [n, d], edge_index [2, e] and y [n]")
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise BadData(f"file '{path}': tensor '{name}' claims more numbers than the file holds; save it with .contiguous()")
        out[name] = value
    return out


# --- scipy and numpy ---------------------------------------------------------------------------------------------------------------------


def import_matrices(adjacency: str | Path, x: str | Path, y: str | Path) -> Graph:
    """From an adjacency matrix (scipy.sparse.save_npz), features (npz or npy) and labels (npy)."""
    edges, features, labels = sp.coo_matrix(read_matrix(adjacency)), read_features(x), _read_npy(_existing(y))
    if edges.shape[0] != edges.shape[1] or edges.shape[0] != features.shape[0] or labels.shape != (edges.shape[0],):
        shapes = f"{list(edges.shape)}, features {list(features.shape)} and labels {list(labels.shape)}"
        raise BadData(f"file '{adjacency}': adjacency {shapes} do not fit together; they must be [n, n], [n, d] and [n]")
    if labels.dtype.kind not in "iuU":
        raise BadData(f"file '{y}' holds {labels.dtype}; labels must be whole numbers (-1: unknown) or text")
    present = edges.data != 0
    ends = torch.from_numpy(np.stack([edges.row[present], edges.col[present]]).astype(np.int64))
    # Choice: numbers are kept as they are, so that -1 is an unknown class and a class may be missing; text is sorted.
    names, numbers = np.unique(labels, return_inverse=True) if labels.dtype.kind == "U" else (np.empty(0), labels.astype(np.int64))
    return Graph.make(features, ends, torch.from_numpy(numbers), name=Path(adjacency).stem, label_names=tuple(map(str, names)))


def read_features(path: str | Path) -> Tensor:
    """Features [n, d], dense or CSR, from a npy file or an npz file with ``x``, ``x_data`` ... or scipy's parts."""
    matrix = read_matrix(path)
    return csr_tensor(matrix) if sp.issparse(matrix) else torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float32))


def read_matrix(path: str | Path) -> sp.csr_matrix | NDArray[Any]:
    """A matrix of numbers."""
    path = _existing(path)
    try:
        if path.suffix == ".npy":
            dense = _read_npy(path)
        else:
            parts = ("data", "indices", "indptr", "shape", "format", "row", "col")
            arrays = read_arrays(path, (), (*parts, "x", *CSR_PARTS))
            if "x" not in arrays:
                return checked_csr(arrays, "x_") if "x_data" in arrays else _scipy_parts(arrays)
            dense = arrays["x"]
        if dense.ndim != 2 or dense.dtype.kind not in "fiub":
            raise BadData(f"it holds {dense.dtype} {list(dense.shape)}; give a matrix of numbers, one row per node")
        return dense
    except BadData as error:
        raise error if str(path) in str(error) else BadData(f"file '{path}': {error}") from None


def _scipy_parts(arrays: Mapping[str, NDArray[Any]]) -> sp.csr_matrix:
    kind = arrays["format"].item() if "format" in arrays and arrays["format"].size == 1 else b"none"
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    wanted = {"coo": ("data", "row", "col", "shape")} | dict.fromkeys(("csr", "csc"), ("data", "indices", "indptr", "shape"))
    if kind not in wanted or any(part not in arrays for part in wanted[kind]):
        raise BadData(f"it holds {sorted(arrays)}; save a matrix with scipy.sparse.save_npz (csr, csc or coo), or an array x")
    if kind == "csr":
        return checked_csr(arrays, "")
    if arrays["shape"].shape != (2,) or int(arrays["shape"].max()) > 1000 * (arrays["data"].size + 1000):
        raise BadData(f"its shape {arrays['shape'].tolist()} is out of proportion to its {arrays['data'].size} numbers; save it as csr")
    if kind == "csc":
        return sp.csr_matrix(checked_csr({**arrays, "shape": arrays["shape"][::-1]}, "").T)
    row, column, shape = arrays["row"], arrays["col"], arrays["shape"]
    inside = row.shape == column.shape == arrays["data"].shape == (arrays["data"].size,)
    inside &= all(part.dtype.kind in "iu" for part in (row, column, shape)) and arrays["data"].dtype.kind in "fiub"
    if not inside or (row.size and (min(row.min(), column.min()) < 0 or row.max() >= shape[0] or column.max() >= shape[1])):
        raise BadData(f"its rows and columns leave the shape {shape.tolist()}; save the matrix again with scipy.sparse.save_npz")
    return sp.csr_matrix(sp.coo_matrix((arrays["data"], (row, column)), shape=tuple(shape.tolist())))


def _read_npy(path: Path) -> NDArray[Any]:
    try:
        return np.array(open_memmap(path, mode="r"))  # never unpickles, and a shape that the file cannot hold is refused
    except (ValueError, OSError, EOFError, TypeError, SyntaxError) as error:
        raise BadData(f"file '{path}' is not a sound npy file of numbers ({_reason(error)}); write it again with numpy.save") from None


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file():
        raise BadData(f"file '{path}' does not exist; check the path")
    if path.stat().st_size == 0:
        raise BadData(f"file '{path}' is empty; write or download it again")
    return path


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
