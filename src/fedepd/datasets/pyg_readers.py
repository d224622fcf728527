"""Readers of torch_geometric's raw files. Which dataset has which files is in ``pyg``.

The graphs are those of torch_geometric, with undirected edges. Where a file says that a class is not known,
the node has none here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedepd.arrays import open_file, read_arrays, reason, spelled
from fedepd.datasets.inert import read_inert
from fedepd.datasets.interop import read_matrix
from fedepd.datasets.matlab import read_matrices
from fedepd.datasets.npz import checked_csr
from fedepd.datasets.official import graph_of, read_numbers, text_lines
from fedepd.errors import BadData
from fedepd.files import DAMAGE, read_json
from fedepd.shown import shown
from fedepd.types import HIDDEN, Graph

AGAIN = "fetch it again"
NODES, EDGES = "out1_node_feature_label.txt", "out1_graph_edges.txt"
JSON_BYTES = 2**29


def read_planetoid(raw: Path, name: str) -> Graph:
    """Cora, CiteSeer or PubMed as Planetoid published them.

    The nodes of ``allx`` come first. Those of ``tx`` have the numbers of ``test.index``. Choice: CiteSeer has
    numbers without a row. torch_geometric gives these nodes the first class. Here they have none.
    """
    return _planetoid(raw, name, f"ind.{name.rpartition('/')[2].lower()}")


def read_nell(raw: Path, name: str) -> Graph:
    """Things and relations, in the same files. A relation has no row: a column of its own, and no class."""
    return _planetoid(raw, name, "ind.nell.0.001", relations=True)


def _planetoid(raw: Path, name: str, prefix: str, relations: bool = False) -> Graph:
    allx, tx, ally, ty, graph = (
        read_inert(raw / f"{prefix}.{part}") for part in ("allx", "tx", "ally", "ty", "graph")
    )
    at = read_numbers(raw / f"{prefix}.test.index", np.int64, columns=1)[:, 0]
    matrices, tables = (allx, tx), (ally, ty)
    fits = all(sp.issparse(each) for each in matrices) and isinstance(graph, dict)
    fits = fits and all(isinstance(each, np.ndarray) and each.ndim == 2 for each in tables)
    if not fits or not (len(at) == tx.shape[0] == len(ty) and allx.shape[0] == len(ally)):
        raise BadData(f"the files '{spelled(raw / prefix)}.*' do not fit each other; fetch them again")
    first = allx.shape[0]
    last = max(int(at.max()), first - 1, len(graph) - 1 if relations else 0)
    most = len(graph) if relations else 2 * (first + len(at))
    if at.min() < first or len(np.unique(at)) != len(at) or last > most:
        raise BadData(f"'{spelled(raw / prefix)}.test.index' does not number the nodes of tx; {AGAIN}")
    place = sp.csr_matrix(
        (np.ones(len(at), dtype=np.float32), (at - first, np.arange(len(at)))),
        shape=(last + 1 - first, len(at)),
    )
    y = np.full(last + 1, HIDDEN)
    y[:first], y[at] = _classes(ally), _classes(ty)
    sources = np.repeat(list(graph), [len(ends) for ends in graph.values()])
    edges = np.stack([sources, np.array([end for ends in graph.values() for end in ends])]).astype(np.int64)
    x = sp.csr_matrix(sp.vstack([allx, place @ tx]))
    if relations:
        rest = np.setdiff1d(np.arange(first, last + 1), at)
        ones = np.ones(len(rest), dtype=np.float32)
        x = sp.hstack([x, sp.csr_matrix((ones, (rest, np.arange(len(rest)))), shape=(last + 1, len(rest)))])
    return graph_of(sp.csr_matrix(x), edges, y, name, raw)


def _classes(table: NDArray[Any]) -> NDArray[np.int64]:
    """The class of each row; a row of zeros has none."""
    return np.where(table.any(1), table.argmax(1), HIDDEN)


def read_reddit(raw: Path, name: str) -> Graph:
    """Posts of Reddit, as GraphSAGE published them."""
    data = read_arrays(raw / "reddit_data.npz", required=("feature", "label"), cure=AGAIN)
    links = read_arrays(raw / "reddit_graph.npz", required=("row", "col"), cure=AGAIN)
    if links["row"].shape != links["col"].shape or links["row"].ndim != 1:
        raise BadData(f"'{spelled(raw / 'reddit_graph.npz')}': row and col differ in length; {AGAIN}")
    return graph_of(data["feature"], np.stack([links["row"], links["col"]]), data["label"], name, raw)


def read_musae(file: str, raw: Path, name: str) -> Graph:
    """The npz format of Twitch, GitHub, LastFMAsia, FacebookPagePage and DeezerEurope."""
    arrays = read_arrays(raw / file, required=("features", "edges", "target"), cure=AGAIN)
    return graph_of(arrays["features"], arrays["edges"].T, arrays["target"], name, raw / file)


def read_wikics(raw: Path, name: str) -> Graph:
    """Articles about computer science, a JSON file."""
    content = read_json(raw / "data.json", JSON_BYTES, AGAIN)
    try:
        x = np.array(content["features"], dtype=np.float32)
        y = np.array(content["labels"])
        links = content["links"]
        ends = np.array([end for each in links for end in each])
        edges = np.stack([np.repeat(np.arange(len(links)), [len(each) for each in links]), ends])
    except (KeyError, TypeError, *DAMAGE):
        raise BadData(
            f"'{spelled(raw / 'data.json')}' has no lists features, labels and links; {AGAIN}"
        ) from None
    return graph_of(x, edges, y, name, raw)


def read_geom(listed: bool, raw: Path, name: str) -> Graph:
    """Two text files of Geom-GCN. ``listed``: a node's features are the numbers of its columns."""
    numbers, labels = list[int](), list[int]()
    rows: list[NDArray[Any]] = []
    try:
        for number, line in enumerate(text_lines(raw / NODES)):
            if number:
                node, features, label = line.rstrip("\r\n").split("\t")
                numbers.append(int(node))
                rows.append(np.array(features.split(","), dtype=np.int64 if listed else np.float32))
                labels.append(int(label))
        x = _columns(rows) if listed else np.stack(rows)
        edges = np.array([line.split("\t") for line in list(text_lines(raw / EDGES))[1:]], dtype=np.int64)
        order = np.argsort(numbers)
        if not np.array_equal(np.array(numbers)[order], np.arange(len(numbers))) or edges.shape[1:] != (2,):
            raise ValueError("nodes are not numbered from 0, or an edge has not two ends")
    except DAMAGE as error:
        raise BadData(
            f"'{spelled(raw)}' is not as Geom-GCN's files are ({shown(error, 200)}); {AGAIN}"
        ) from None
    return graph_of(x[order], edges.T, np.array(labels)[order], name, raw)


def _columns(rows: list[NDArray[Any]]) -> sp.csr_matrix:
    """1 in every column that a row names."""
    columns = np.concatenate(rows)
    if columns.min() < 0 or columns.max() > 2**17:
        raise ValueError("a column is out of range")
    at = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    found = sp.csr_matrix((np.ones(len(at), dtype=np.float32), (at, columns)))
    found.data[:] = 1  # a column that is named twice was added up
    return found


def read_saint(raw: Path, name: str) -> Graph:
    """Flickr and the sparser Reddit, as GraphSAINT published them."""
    parts = read_arrays(raw / "adj_full.npz", required=("indices", "indptr", "shape"), cure=AGAIN)
    x = read_matrix(raw / "feats.npy")
    classes = read_json(raw / "class_map.json", JSON_BYTES, AGAIN)
    y = np.full(len(x), HIDDEN)
    try:
        ones = np.ones(len(parts["indices"]), dtype=np.float32)
        adj = checked_csr({**parts, "data": ones}, "").tocoo()
        nodes, found = np.array(list(classes), dtype=np.int64), np.array(list(classes.values()))
        if found.dtype.kind not in "iu" or found.ndim != 1 or nodes.min() < 0:
            raise ValueError("a class is no whole number")
        y[nodes] = found
    except (BadData, *DAMAGE) as error:
        raise BadData(
            f"'{spelled(raw)}' is not as GraphSAINT's files are ({reason(error)}); {AGAIN}"
        ) from None
    return graph_of(x, np.stack([adj.row, adj.col]), y, name, raw)


def read_airports(raw: Path, name: str) -> Graph:
    """Airports with flights between them, and how busy each is. A feature is a node's number, one-hot."""
    place = name.rpartition("/")[2].lower()
    labels = read_numbers(raw / f"labels-{place}-airports.txt", np.int64, columns=2, skip=1)
    links = read_numbers(raw / f"{place}-airports.edgelist", np.int64, columns=2)
    return graph_of(_alone(labels), _places(labels[:, 0], links, raw), labels[:, 1], name, raw)


def read_email_eu(raw: Path, name: str) -> Graph:
    """Mails between members of departments. Its files have no features: a node's number, one-hot."""
    labels = read_numbers(raw / "email-Eu-core-department-labels.txt", np.int64, columns=2)
    links = read_numbers(raw / "email-Eu-core.txt", np.int64, columns=2)
    return graph_of(_alone(labels), _places(labels[:, 0], links, raw), labels[:, 1], name, raw)


def read_polblogs(raw: Path, name: str) -> Graph:
    """Political blogs with links between them. Its files have no features: a node's number, one-hot."""
    labels = read_numbers(raw / "labels.tsv", np.int64, columns=1)
    links = read_numbers(raw / "adjacency.tsv", np.int64)[:, :2]  # a third column would be weights
    return graph_of(_alone(labels), links.T, labels[:, 0], name, raw)


def _alone(nodes: NDArray[Any]) -> sp.csr_matrix:
    """A column for each node."""
    return sp.identity(len(nodes), dtype=np.float32, format="csr")


def _places(ids: NDArray[Any], ends: NDArray[Any], raw: Path) -> NDArray[np.int64]:
    """Ends of edges [m, 2], given as ids, as places [2, m] in the list of ids."""
    order = np.argsort(ids, kind="stable")
    at = np.minimum(np.searchsorted(ids[order], ends), len(ids) - 1)
    if len(np.unique(ids)) != len(ids) or not np.array_equal(ids[order][at], ends):
        raise BadData(
            f"'{spelled(raw)}' lists a node twice, or an edge to a node that it does not list; {AGAIN}"
        )
    return np.asarray(order[at].T)


def read_attributed(raw: Path, name: str) -> Graph:
    """Graphs of the PANE paper. A node with several classes is refused."""
    x = read_matrix(raw / "attrs.npz")
    links = read_numbers(raw / "edgelist.txt", np.int64, columns=2)
    where = spelled(raw / "labels.txt")
    rows = [line.split() for line in text_lines(raw / "labels.txt") if line.strip()]
    if any(len(row) != 2 for row in rows):
        raise BadData(f"'{where}' gives a node several classes or none; fedepd needs one class for each node")
    try:
        y = np.array([int(row[1]) for row in rows]) - 1
    except DAMAGE as error:
        raise BadData(f"'{where}' is not a list of classes ({reason(error)}); {AGAIN}") from None
    return graph_of(x, links.T, y, name, raw)


def read_facebook100(raw: Path, name: str) -> Graph:
    """Friends at a college, and their gender; 0 is unknown. The other six facts are features, one-hot."""
    table = _mat(raw / "data.mat")
    try:
        adj, facts = sp.coo_matrix(table["A"]), np.asarray(table["local_info"]).astype(np.int64)
        codes = [
            np.unique(facts[:, column], return_inverse=True)[1] for column in (0, *range(2, facts.shape[1]))
        ]
        x = sp.hstack([_one_hot(each) for each in codes], format="csr", dtype=np.float32)
        y = facts[:, 1] - 1
    except DAMAGE as error:
        raise _no_mat(raw, error) from None
    return graph_of(x, np.stack([adj.row, adj.col]), y, name, raw)


def read_genius(raw: Path, name: str) -> Graph:
    """Users of a site of lyrics; which of them are marked."""
    table = _mat(raw / "data.mat")
    try:
        edges, y = (np.asarray(table[key]).astype(np.int64) for key in ("edge_index", "label"))
        return graph_of(np.asarray(table["node_feat"]), edges, y.ravel(), name, raw)
    except DAMAGE as error:
        raise _no_mat(raw, error) from None


def _mat(path: Path) -> dict[str, Any]:
    with open_file(path, cure=AGAIN) as file:
        try:
            return read_matrices(file, spelled(path))
        except DAMAGE as error:
            raise _no_mat(path.parent, error) from None


def _no_mat(raw: Path, error: BaseException) -> BadData:
    return BadData(f"'{spelled(raw / 'data.mat')}' is not as LINKX's files are ({reason(error)}); {AGAIN}")


def _one_hot(codes: NDArray[np.int64]) -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(len(codes), dtype=np.float32), (np.arange(len(codes)), codes)))


ELLIPTIC = tuple(f"elliptic_txs_{part}.csv" for part in ("features", "edgelist", "classes"))
ILLICIT = {"1": 1, "2": 0, "unknown": HIDDEN}


def read_elliptic(raw: Path, name: str) -> Graph:
    """Bitcoin transactions, licit (0) or illicit (1). The other three quarters have no class."""
    features, edges, classes = (raw / file for file in ELLIPTIC)
    table = read_numbers(features, np.float64)
    links = read_numbers(edges, np.int64, columns=2, skip=1)
    try:
        rows = [line.strip().split(",") for line in text_lines(classes) if line.strip()][1:]
        nodes, y = np.array([int(node) for node, _ in rows]), np.array([ILLICIT[each] for _, each in rows])
    except DAMAGE as error:
        raise BadData(f"'{spelled(classes)}' is not a list of classes ({reason(error)}); {AGAIN}") from None
    if not np.array_equal(nodes, table[:, 0]):
        raise BadData(f"'{spelled(classes)}' does not list the nodes of {ELLIPTIC[0]}; {AGAIN}")
    return graph_of(table[:, 2:], _places(nodes, links, raw), y, name, raw)


def read_dgraph(raw: Path, name: str) -> Graph:
    """Borrowers, and who defaults (1). Choice: people of the background (2 and 3) have no class."""
    arrays = read_arrays(raw / "dgraphfin.npz", required=("x", "y", "edge_index"), cure=AGAIN)
    y = arrays["y"].ravel()
    return graph_of(arrays["x"], arrays["edge_index"].T, np.where(y > 1, HIDDEN, y), name, raw)
