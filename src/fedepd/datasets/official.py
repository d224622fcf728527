"""Readers of the published files of the paper's six datasets, from ``DATA/raw/<source>/``.

Choice: torch_geometric's classes for CoraFull and Roman-Empire are not used. They need their own folder
layout, save pickled copies beside the files, and make CoraFull's features dense (690 MB, twice). The tests
check that the readers here give the same graphs.
"""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from fedepd import memory
from fedepd.arrays import open_file, read_arrays, reason, spelled
from fedepd.datasets.matlab import Matrix, read_matrices
from fedepd.datasets.npz import MAX_COLUMNS, checked_csr
from fedepd.datasets.published import TABLE1, check_table1
from fedepd.errors import BadData
from fedepd.files import DAMAGE, size_of
from fedepd.network.sparse import csr_tensor
from fedepd.types import Graph

AMAZON = {"clothing": "Amazon_clothing", "electronics": "Amazon_eletronics"}
"""The published file names. The second is misspelled by its authors."""
ARXIV_FILES = (
    "edge.csv.gz",
    "node-feat.csv.gz",
    "node-label.csv.gz",
    "num-node-list.csv.gz",
    "num-edge-list.csv.gz",
)

RAW_FILES: dict[str, tuple[str, ...]] = {
    "corafull": ("raw/gnn_benchmark/cora_full.npz",),
    "arxiv": tuple(f"raw/ogbn_arxiv/{file}" for file in ARXIV_FILES),
    **{
        name: tuple(f"raw/amazon_gpn/{stem}_{part}" for part in ("network", "train.mat", "test.mat"))
        for name, stem in AMAZON.items()
    },
    "roman_empire": ("raw/heterophilous/roman_empire.npz",),
    "email": ("raw/email/edges.txt", "raw/email/labels.txt", "raw/email/graph.embeddings"),
}
"""The files of each dataset inside the data folder."""


def read_official(name: str, data_dir: Path) -> Graph:
    """One of the six datasets from its raw files, checked against Table 1."""
    graph, printed_edges = READERS[name](data_dir / "raw", name)
    return check_table1(graph, TABLE1[name], printed_edges)


def read_corafull(raw: Path, name: str) -> tuple[Graph, int]:
    graph = read_gnn_benchmark(raw / "gnn_benchmark" / "cora_full.npz", name)
    return graph, 2 * graph.num_edges


def read_roman_empire(raw: Path, name: str) -> tuple[Graph, int]:
    graph = read_heterophilous(raw / "heterophilous" / "roman_empire.npz", name)
    return graph, 2 * graph.num_edges


def read_amazon(raw: Path, name: str) -> tuple[Graph, int]:
    stem = raw / "amazon_gpn" / AMAZON[name]
    edges = read_numbers(Path(f"{stem}_network"), np.int64, columns=2)
    parts = [read_mat(Path(f"{stem}_{part}.mat")) for part in ("train", "test")]
    index, labels = (np.concatenate([part[i] for part in parts]) for i in range(2))
    n = int(edges.max()) + 1
    if n != index.size or not np.array_equal(np.sort(index), np.arange(n)):
        raise BadData(
            f"'{stem}_train.mat' and '_test.mat' do not name each of the network's {n} nodes once; "
            f"fetch the three files again"
        )
    order = np.argsort(index)
    attributes = sp.vstack([part[2] for part in parts], format="csr")[order]
    values, y = np.unique(labels[order], return_inverse=True)
    graph = graph_of(attributes, edges.T, y, name, stem.parent, tuple(map(str, values)))
    return graph, 2 * graph.num_edges + n


def read_arxiv(raw: Path, name: str) -> tuple[Graph, int]:
    """Read the OGB layout.

    The official time split is not used, because the paper splits every client 60/20/20.
    """
    folder = raw / "ogbn_arxiv"
    edges = read_numbers(folder / "edge.csv.gz", np.int64, columns=2)
    labels = read_numbers(folder / "node-label.csv.gz", np.int64, columns=1)[:, 0]
    features = read_numbers(folder / "node-feat.csv.gz", np.float32)
    counts = {"num-node-list.csv.gz": (labels, features), "num-edge-list.csv.gz": (edges,)}
    for file, tables in counts.items():
        count = int(read_numbers(folder / file, np.int64, columns=1)[0, 0])
        if any(len(table) != count for table in tables):
            raise BadData(
                f"'{folder / file}' says {count} rows, but the files beside it hold "
                f"{[len(t) for t in tables]}; fetch them again"
            )
    return graph_of(features, edges.T, labels, name, folder), len(edges)


def read_email(raw: Path, name: str) -> tuple[Graph, int]:
    """Read the largest component of email-Eu-core. Its features are the embedding that Tail-GNN published."""
    folder = raw / "email"
    edges = read_numbers(folder / "edges.txt", np.int64, columns=2)
    labels = read_numbers(folder / "labels.txt", np.int64, columns=2)
    table = read_numbers(folder / "graph.embeddings", np.float32, skip=1)
    n = len(labels)
    order = np.argsort(table[:, 0])
    nodes = np.arange(n)
    if not (np.array_equal(table[order, 0], nodes + 1) and np.array_equal(np.sort(labels[:, 0]), nodes)):
        raise BadData(
            f"'{folder}': labels.txt must list the nodes as 0..{n - 1}, and graph.embeddings as 1..{n}; "
            f"fetch them again"
        )
    if edges.min() < 0 or edges.max() >= n:
        raise BadData(
            f"'{folder / 'edges.txt'}' names node {edges.max()}, but labels.txt has {n} nodes; "
            f"fetch both again"
        )
    y = labels[np.argsort(labels[:, 0]), 1]
    # Choice: only the largest component has the edges and the ratio of Table 1, see TABLE1["email"].
    _, component = sp.csgraph.connected_components(
        sp.coo_matrix((np.ones(len(edges)), edges.T), shape=(n, n)), directed=False
    )
    keep = component == np.bincount(component).argmax()
    new_id = np.cumsum(keep) - 1
    edges = new_id[edges[keep[edges].all(1)]]
    # The paper counts every line in both directions, and a self-loop once.
    printed = 2 * len(edges) - int((edges[:, 0] == edges[:, 1]).sum())
    values, y = np.unique(y[keep], return_inverse=True)
    return graph_of(table[order][keep, 1:], edges.T, y, name, folder, tuple(map(str, values))), printed


READERS: dict[str, Callable[[Path, str], tuple[Graph, int]]] = {
    "corafull": read_corafull,
    "arxiv": read_arxiv,
    "electronics": read_amazon,
    "clothing": read_amazon,
    "roman_empire": read_roman_empire,
    "email": read_email,
}


def read_gnn_benchmark(path: Path, name: str) -> Graph:
    """Read the npz format of CoraFull: adjacency and features as CSR parts."""
    parts = (f"{kind}_{part}" for kind in ("adj", "attr") for part in ("data", "indices", "indptr", "shape"))
    arrays = read_arrays(path, required=("labels", *parts))
    try:
        attributes, adj = checked_csr(arrays, "attr_"), checked_csr(arrays, "adj_").tocoo()
    except BadData as error:
        raise BadData(f"file '{path}': {error}") from None
    # Choice: words are 0/1, as in torch_geometric's reader. The paper's edge count is torch_geometric's too.
    attributes.data[attributes.data > 0] = 1
    return graph_of(attributes, np.stack([adj.row, adj.col]), arrays["labels"], name, path)


def read_heterophilous(path: Path, name: str) -> Graph:
    """Read the npz format of Roman-Empire.

    Its ten official splits are not used, because the paper splits every client 60/20/20.
    """
    arrays = read_arrays(path, required=("node_features", "node_labels", "edges"))
    return graph_of(arrays["node_features"], arrays["edges"].T, arrays["node_labels"], name, path)


def read_mat(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64], sp.csr_matrix]:
    """Node numbers [m], labels [m] and attributes [m, d] of one Amazon file."""
    where = spelled(path)
    with _opened(path) as file:
        try:
            table = read_matrices(file, where)
            index, label = (_whole(table[key]) for key in ("Index", "Label"))
            attributes = table["Attributes"]
            # Checked before the conversion, because rows that do not exist would take memory.
            fits = len(index) == len(label) == attributes.shape[0] and attributes.shape[1] <= MAX_COLUMNS
            rows = sp.csr_matrix(attributes, dtype=np.float32) if fits else None
        except (zlib.error, *DAMAGE) as error:
            raise BadData(
                f"'{where}' is not a MATLAB file with Index, Label and Attributes ({reason(error)}); "
                f"fetch it again"
            ) from None
    if rows is None:
        raise BadData(
            f"'{where}': Index, Label and Attributes differ in length, or have too many columns; "
            f"fetch it again"
        )
    return index, label, rows


def _whole(matrix: Matrix) -> NDArray[np.int64]:
    if sp.issparse(matrix) or matrix.size != max(matrix.shape) or not np.isfinite(matrix).all():
        raise ValueError("node numbers and labels must be lists of numbers")
    return np.asarray(matrix).ravel().astype(np.int64)


MAX_LINE = 2**20
"""Largest length of a line of numbers in bytes."""


def read_numbers(
    path: Path, dtype: type[np.generic], columns: int | None = None, skip: int = 0
) -> NDArray[Any]:
    """Read a text table, gzipped or not, separated by commas or blanks: [rows, columns]."""
    delimiter, where = "," if ".csv" in path.name else None, spelled(path)
    with _opened(path) as file:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # an empty table is refused below
                # Older versions of numpy would read 1.5 as 1, and 10^20 as some other integer.
                warnings.filterwarnings("error", r"loadtxt\(\): Parsing an integer via a float")
                lines = _lines(file, path.suffix == ".gz", where)
                table: NDArray[Any] = np.loadtxt(
                    lines, dtype=dtype, delimiter=delimiter, skiprows=skip, ndmin=2
                )
        except (zlib.error, *DAMAGE) as error:
            raise BadData(f"'{where}' is not a table of numbers ({reason(error)}); fetch it again") from None
    if table.size == 0 or (columns is not None and table.shape[1] != columns):
        raise BadData(
            f"'{where}' has shape {list(table.shape)}, not rows of {columns or 'several'} numbers; "
            f"fetch it again"
        )
    return table


def text_lines(path: Path) -> Iterator[str]:
    """The lines of a text file, with a limit on their length."""
    with _opened(path) as file:
        yield from _lines(file, False, spelled(path))


def _lines(file: IO[bytes], packed: bool, where: str) -> Iterator[str]:
    """The lines of a text file, one at a time.

    Refuses content that is out of proportion to the file's size.
    """
    text: Any = gzip.GzipFile(fileobj=file) if packed else file
    unfolded = 0
    for number in count(1):
        line: bytes = text.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE:
            raise BadData(f"'{where}' line {number} has more than {MAX_LINE:,} bytes; fetch it again")
        unfolded += len(line)
        if number % 1000 == 0:
            memory.check_growth(unfolded, size_of(file), f"file '{where}'", "fetch it again")
        yield line.decode("latin-1")


def _opened(path: Path) -> IO[bytes]:
    try:
        return open_file(path)
    except BadData as error:
        if path.exists():
            raise
        raise BadData(
            f"{str(error).partition(';')[0]}; put it there by hand or run 'fedepd data fetch'"
        ) from None


def graph_of(
    x: NDArray[Any] | sp.csr_matrix,
    edges: NDArray[Any],
    y: NDArray[Any],
    name: str,
    source: Path,
    label_names: tuple[str, ...] = (),
) -> Graph:
    """A graph from published numbers: features [n, d], ends of edges [2, e] and classes [n]."""
    if x.dtype.kind not in "fiub" or any(part.dtype.kind not in "iu" for part in (edges, y)):
        held = f"features {x.dtype}, edges {edges.dtype} and labels {y.dtype}"
        raise BadData(f"'{spelled(source)}' holds {held}, not numbers; fetch it again")
    features = csr_tensor(x) if sp.issparse(x) else torch.from_numpy(x.astype(np.float32))
    edge_index, labels = (torch.from_numpy(part.astype(np.int64)) for part in (edges, y))
    try:
        return Graph.make(features, edge_index, labels, name=name, label_names=label_names)
    except BadData as error:
        raise BadData(f"'{source}': {error}") from None
