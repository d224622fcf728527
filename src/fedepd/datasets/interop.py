"""Graphs from files of other programs: NetworkX and GraphML, torch_geometric, scipy and numpy.

Nothing is unpickled or executed.
"""

from __future__ import annotations

import re
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

from fedepd import memory
from fedepd.arrays import PLAIN, check_text, open_file, read_arrays, reason, spelled
from fedepd.datasets.columns import CELL, MAX_COLUMNS, Column, Table, list_column, needs
from fedepd.datasets.npz import CSR_PARTS, checked_csr, floats, integers
from fedepd.datasets.tables import Roles, import_tables
from fedepd.errors import BadConfig, BadData, FedEPDError
from fedepd.files import DAMAGE, size_of
from fedepd.network.sparse import csr_tensor
from fedepd.shown import shown
from fedepd.types import Graph

if TYPE_CHECKING:
    import networkx


# --- NetworkX and GraphML -----------------------------------------------------------------------------------


def from_networkx(graph: networkx.Graph, name: str = "graph", **roles: Any) -> Graph:
    """A graph from a NetworkX graph. Node attributes are the label, the owner and the features.

    An attribute that is a list of numbers gives one feature per number.
    """
    return import_networkx(graph, Roles(**roles), name)[0]


def import_networkx(graph: networkx.Graph, roles: Roles, name: str) -> tuple[Graph, list[str]]:
    if roles.edge_weight is not None:
        raise BadConfig("edge_weight needs tables; write the edges as a table, or leave it out")
    nodes = list(graph.nodes(data=True))
    keys = dict.fromkeys(key for _, data in nodes for key in data)
    memory.check(CELL * len(keys) * len(nodes), f"{name}: {len(nodes):,} nodes with {len(keys):,} attributes")
    if len(keys) > MAX_COLUMNS:
        raise BadData(
            f"{name}: the nodes have {len(keys):,} attributes, more than {MAX_COLUMNS:,}; drop some"
        )
    columns: dict[str, Column] = {roles.id: list_column([str(node) for node, _ in nodes])}
    for key in keys:
        # Choice: a NetworkX node is its own id, so an attribute with the name of the id is not a feature.
        if key != roles.id:
            columns |= _attribute(str(key), [data.get(key) for _, data in nodes], name)
    table = Table(f"{name}: nodes", columns, len(nodes))
    ends = list(zip(*((str(a), str(b)) for a, b in graph.edges()), strict=True)) or [(), ()]
    edges = Table(
        f"{name}: edges", dict(zip(("source", "target"), map(list_column, ends), strict=True)), len(ends[0])
    )
    return import_tables(table, edges, roles, name=name)


def _attribute(key: str, values: Sequence[Any], name: str) -> dict[str, Column]:
    if not any(isinstance(v, (list, tuple, np.ndarray)) for v in values):
        return {key: list_column(values)}
    try:
        matrix = np.array(values, dtype=np.float64)
    except (ValueError, TypeError):
        matrix = np.empty(0)
    if matrix.ndim != 2:
        raise BadData(
            f"{name}: the node attribute '{shown(key)}' must be a list of numbers, "
            f"equally long at every node; correct or drop it"
        )
    return {f"{key}{i}": Column(matrix[:, i]) for i in range(matrix.shape[1])}


MAX_DEPTH = 64
"""Most levels of nested XML. GraphML has four."""
PLAIN_XML = re.compile(
    rb"""\s*<\?xml[^>]*encoding\s*=\s*["'](utf-8|us-ascii|ascii|iso-8859-1|latin-1|windows-1252)["']""",
    re.IGNORECASE,
)


def import_graphml(path: str | Path, roles: Roles) -> tuple[Graph, list[str]]:
    """A graph from a GraphML file, as NetworkX reads it, and notes about what was changed."""
    networkx, where = needs("networkx"), spelled(path)
    with open_file(path) as file:
        size = size_of(file)
        memory.check(10 * memory.COPIES * size, f"file '{where}'")  # it becomes a tree of Python objects
        content = file.read()
    from xml.parsers.expat import ExpatError

    try:
        _check_xml(content, where)
        graph = networkx.parse_graphml(content)
        cells = _graphml_cells(graph)
    except FedEPDError:
        raise
    except (ExpatError, SyntaxError) as error:
        line = getattr(error, "lineno", None) or getattr(error, "position", (1, 0))[0]
        raise BadData(
            f"{where} line {line} is not valid XML ({reason(error)}); write the file again"
        ) from None
    except Exception as error:  # NetworkX can raise anything on foreign text
        raise BadData(
            f"file '{where}' is not GraphML that NetworkX can read ({reason(error)}); write it again"
        ) from None
    memory.check_growth(
        cells, size, f"file '{where}'", "give every attribute to every node, without long defaults"
    )
    return import_networkx(graph, roles, shown(Path(path).name, 300))


def _check_xml(content: bytes, where: str) -> None:
    """Refuse unusual encodings, document types and endless nesting, in which harmful content can hide."""
    from xml.parsers.expat import ParserCreate

    refusal = BadData(f"file '{where}' has a document type or is not UTF-8; write it again as plain GraphML")
    start = content.removeprefix(b"\xef\xbb\xbf")
    other = b"encoding" in start[:200].partition(b"?>")[0] and not PLAIN_XML.match(start)
    # Choice: only encodings that spell a document type as ASCII does are allowed. One search then finds it.
    if other or b"\0" in content or content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise refusal
    # Choice: a document type is refused. No GraphML program writes one, and it can define entities that
    # expand without end.
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise refusal
    parser, depth = ParserCreate(), 0

    def enter(*_: Any) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise BadData(
                f"file '{where}' is nested more than {MAX_DEPTH} levels deep; write it again as plain GraphML"
            )

    def leave(_: str) -> None:
        nonlocal depth
        depth -= 1

    def refuse(*_: Any) -> None:
        raise refusal

    parser.StartElementHandler = enter
    parser.EndElementHandler = leave
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(content, True)


def _graphml_cells(graph: networkx.Graph) -> int:
    """Bytes that the table of nodes would take.

    A value at one node, or a default, becomes a cell at every node.
    """
    keys = {key for _, data in graph.nodes(data=True) for key in data}
    texts = sum(
        len(value) for _, data in graph.nodes(data=True) for value in data.values() if isinstance(value, str)
    )
    return 8 * len(keys) * len(graph) + texts


# --- torch_geometric ----------------------------------------------------------------------------------------


def import_pyg(path: str | Path) -> Graph:
    """A graph from a file of ``torch.save``.

    The file must hold a dict of the tensors x, edge_index and y, or a torch_geometric ``Data``. Nothing else
    is loaded.
    """
    path = Path(path)
    parts = _tensors(_load_tensors(path), spelled(path))
    x, y = parts["x"], parts["y"]
    try:
        if (
            y.is_floating_point()
            or y.dtype == torch.bool
            or not (x.is_floating_point() or x.dtype in (torch.int64, torch.int32))
        ):
            raise BadData(
                f"x is {x.dtype} and y is {y.dtype}; x must hold numbers, and y one whole number per node"
            )
        return Graph.make(x.to(torch.float32), parts["edge_index"], y.reshape(-1), name=shown(path.stem, 300))
    except BadData as error:
        raise BadData(f"file '{spelled(path)}': {error}") from None


def _load_tensors(path: Path) -> Any:
    cure = (
        "save a dict of tensors: torch.save({'x': data.x, 'edge_index': data.edge_index, 'y': data.y}, file)"
    )
    where = f"file '{spelled(path)}'"
    with open_file(path) as file:
        memory.check(memory.COPIES * size_of(file), where)
        try:
            with zipfile.ZipFile(file) as archive:
                if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                    raise BadData(f"{where} is compressed, which torch.save never does; {cure}")
                if sum(member.file_size for member in archive.infolist()) > size_of(file):
                    raise BadData(f"{where} claims more bytes than it has; {cure}")
                pickles = [
                    archive.read(member)
                    for member in archive.infolist()
                    if member.filename.endswith("data.pkl")
                ]
            file.seek(0)
            with (
                _allowing_data()
                if any(b"torch_geometric" in content for content in pickles)
                else nullcontext()
            ):
                return torch.load(file, map_location="cpu", weights_only=True)
        except FedEPDError:
            raise
        except Exception:  # torch can raise anything on foreign bytes
            raise BadData(
                f"{where} is damaged or holds more than tensors, so it is not loaded; {cure}"
            ) from None


def _allowing_data() -> Any:
    """Let torch's safe loader build torch_geometric's ``Data``, if that package is installed.

    These classes only hold tensors. Building one runs no code of the file.
    """
    try:
        from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import GlobalStorage
    except ImportError:
        return nullcontext()
    return torch.serialization.safe_globals([Data, DataEdgeAttr, DataTensorAttr, GlobalStorage])


def _tensors(content: Any, path: str) -> dict[str, Tensor]:
    out = {}
    for name in ("x", "edge_index", "y"):
        value = content.get(name) if isinstance(content, Mapping) else getattr(content, name, None)
        if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_complex():
            raise BadData(
                f"file '{path}' has no dense tensor '{name}'; "
                f"save a dict of tensors x [n, d], edge_index [2, e] and y [n]"
            )
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise BadData(
                f"file '{path}': tensor '{name}' claims more numbers than the file holds; "
                f"save it with .contiguous()"
            )
        out[name] = value
    return out


# --- scipy and numpy ----------------------------------------------------------------------------------------


def import_matrices(adjacency: str | Path, x: str | Path, y: str | Path) -> Graph:
    """A graph from an adjacency matrix (scipy.sparse.save_npz), features (npz or npy) and labels (npy)."""
    edges, features, labels = sp.coo_matrix(read_matrix(adjacency)), read_features(x), _read_npy(Path(y))
    if (
        edges.shape[0] != edges.shape[1]
        or edges.shape[0] != features.shape[0]
        or labels.shape != (edges.shape[0],)
    ):
        shapes = f"{list(edges.shape)}, features {list(features.shape)} and labels {list(labels.shape)}"
        raise BadData(
            f"file '{spelled(adjacency)}': adjacency {shapes} do not fit together; "
            f"they must be [n, n], [n, d] and [n]"
        )
    if labels.dtype.kind not in "iuU":
        raise BadData(
            f"file '{spelled(y)}' holds {labels.dtype}; labels must be whole numbers (-1: unknown) or text"
        )
    if labels.size and labels.dtype.kind == "u" and int(labels.max()) > np.iinfo(np.int64).max:
        raise BadData(
            f"file '{spelled(y)}' holds {labels.max()}, which does not fit int64; correct the numbers"
        )
    present = edges.data != 0
    ends = torch.from_numpy(np.stack([edges.row[present], edges.col[present]]).astype(np.int64))
    # Choice: numbers are kept as they are. So -1 is an unknown class, and a class may be missing. Text is
    # sorted.
    if labels.dtype.kind == "U":
        names, numbers = np.unique(labels, return_inverse=True)
    else:
        names, numbers = np.empty(0), labels.astype(np.int64)
    label_names = tuple(map(str, names))
    return Graph.make(
        features,
        ends,
        torch.from_numpy(numbers),
        name=shown(Path(adjacency).stem, 300),
        label_names=label_names,
    )


def read_features(path: str | Path) -> Tensor:
    """Features [n, d], dense or CSR, from an npy file or an npz file.

    The npz file holds ``x``, or ``x_data`` and the other CSR parts, or what ``scipy.sparse.save_npz`` writes.
    """
    matrix = read_matrix(path)
    if sp.issparse(matrix):
        return csr_tensor(matrix)
    with np.errstate(over="ignore"):  # a number too large for float32 becomes infinite and is refused later
        return torch.from_numpy(np.ascontiguousarray(matrix, dtype=np.float32))


def read_matrix(path: str | Path) -> sp.csr_matrix | NDArray[Any]:
    """A matrix of numbers from an npy or npz file."""
    path = Path(path)
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
            raise BadData(
                f"it holds {dense.dtype} {list(dense.shape)}; give a matrix of numbers, one row per node"
            )
        return dense
    except BadData as error:
        raise error if spelled(path) in str(error) else BadData(f"file '{spelled(path)}': {error}") from None


def _scipy_parts(arrays: Mapping[str, NDArray[Any]]) -> sp.csr_matrix:
    written = arrays["format"] if "format" in arrays and arrays["format"].size == 1 else np.array(b"none")
    kind = str(written.astype("S8").item(), "ascii", "replace") if written.dtype.kind == "S" else "none"
    wanted = {"coo": ("data", "row", "col", "shape")} | dict.fromkeys(
        ("csr", "csc"), ("data", "indices", "indptr", "shape")
    )
    if kind not in wanted or any(part not in arrays for part in wanted[kind]):
        raise BadData(
            f"it holds {sorted(arrays)}; "
            f"save a matrix with scipy.sparse.save_npz (csr, csc or coo), or an array x"
        )
    if kind == "csr":
        return checked_csr(arrays, "")
    shape, size = integers(arrays, "shape"), arrays["data"].size
    if shape.shape != (2,) or shape.min() < 0 or int(shape.max()) > 1000 * (size + 1000):
        raise BadData(
            f"its shape {shown(shape.tolist())} is out of proportion to its {size} numbers; save it as csr"
        )
    if kind == "csc":
        return sp.csr_matrix(checked_csr({**arrays, "shape": shape[::-1]}, "").T)
    row, column, data = integers(arrays, "row"), integers(arrays, "col"), floats(arrays, "data")
    inside = row.shape == column.shape == data.shape == (size,)
    if not inside or (
        size and (min(row.min(), column.min()) < 0 or row.max() >= shape[0] or column.max() >= shape[1])
    ):
        raise BadData(
            f"its row and column numbers do not fit the shape {shape.tolist()}; "
            f"save the matrix again with scipy.sparse.save_npz"
        )
    return sp.csr_matrix(sp.coo_matrix((data, (row, column)), shape=tuple(shape.tolist())))


def _read_npy(path: Path) -> NDArray[Any]:
    where = spelled(path)
    with open_file(path) as file:
        memory.check(memory.COPIES * size_of(file), f"file '{where}'")
    try:
        # open_memmap never unpickles, and it refuses a shape that the file cannot hold.
        mapped = open_memmap(path, mode="r")
        if mapped.dtype.kind not in PLAIN or (mapped.size and not mapped.dtype.itemsize):
            raise ValueError(f"it holds {mapped.dtype}")
        array = np.array(mapped)
    except DAMAGE as error:
        raise BadData(
            f"file '{where}' is not a valid npy file of numbers ({reason(error)}); "
            f"write it again with numpy.save"
        ) from None
    if array.dtype.kind == "U":
        check_text(array, f"file '{where}'")
    return array
