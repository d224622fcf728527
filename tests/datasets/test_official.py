from __future__ import annotations

import gzip
import os
import shutil
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

from bounded import bounded
from fedepd import memory
from fedepd.datasets import official
from fedepd.datasets.npz import read_npz
from fedepd.datasets.official import (
    RAW_FILES,
    read_gnn_benchmark,
    read_heterophilous,
    read_mat,
    read_numbers,
    read_official,
)
from fedepd.datasets.published import TABLE1, Table1, check_table1
from fedepd.errors import BadData
from fedepd.network.sparse import to_scipy
from fedepd.types import Graph, undirected


def same_edges(graph: Graph, both_directions: torch.Tensor) -> bool:
    """Whether the graph has exactly the edges of a PyG edge_index, which holds each in both directions."""
    one = both_directions[:, both_directions[0] < both_directions[1]]
    order = torch.argsort(one[0] * graph.num_nodes + one[1])
    return torch.equal(one[:, order], graph.edge_index)


@pytest.mark.parametrize(
    ("file", "nodes", "edges", "words"), [("cora", 2_708, 5_278, 1_433), ("citeseer", 3_312, 4_536, 3_703)]
)
def test_corafull_format_equals_torch_geometric(
    real_data: Path, file: str, nodes: int, edges: int, words: int
) -> None:
    pyg = pytest.importorskip("torch_geometric.io")
    path = real_data / "raw" / "gnn_benchmark" / f"{file}.npz"
    graph, other = read_gnn_benchmark(path, file), pyg.read_npz(str(path))
    assert (graph.num_nodes, graph.num_edges, graph.num_features) == (nodes, edges, words)
    assert graph.is_sparse
    assert torch.equal(graph.x.to_dense(), other.x)
    assert torch.equal(graph.y, other.y)
    assert same_edges(graph, other.edge_index)


def test_corafull_format_gives_the_ready_made_cora(real_data: Path) -> None:
    graph = read_gnn_benchmark(real_data / "raw" / "gnn_benchmark" / "cora.npz", "cora")
    ready = read_npz(real_data / "graphs" / "cora.npz")
    assert torch.equal(graph.edge_index, ready.edge_index)
    assert torch.equal(graph.y, ready.y)
    assert (to_scipy(graph.x) != to_scipy(ready.x)).nnz == 0


@pytest.mark.filterwarnings("ignore")
def test_roman_empire_format_equals_torch_geometric(real_data: Path, tmp_path: Path) -> None:
    pyg = pytest.importorskip("torch_geometric.datasets")
    path = real_data / "raw" / "heterophilous" / "minesweeper.npz"
    (tmp_path / "minesweeper" / "raw").mkdir(parents=True)
    shutil.copy(path, tmp_path / "minesweeper" / "raw")
    other = pyg.HeterophilousGraphDataset(str(tmp_path), "Minesweeper")[0]
    graph = read_heterophilous(path, "minesweeper")
    assert (graph.num_nodes, graph.num_edges, graph.num_features, graph.num_classes) == (10_000, 39_402, 7, 2)
    assert torch.equal(graph.x, other.x)
    assert torch.equal(graph.y, other.y)
    assert same_edges(graph, other.edge_index)


def test_roman_empire_format_gives_the_ready_made_actor(real_data: Path) -> None:
    graph = read_heterophilous(real_data / "raw" / "heterophilous" / "actor.npz", "actor")
    ready = read_npz(real_data / "graphs" / "actor.npz")
    assert torch.equal(graph.edge_index, ready.edge_index)
    assert torch.equal(graph.y, ready.y)
    assert torch.equal(graph.x, ready.x.to_dense())


@pytest.mark.parametrize("name", ["clothing", "electronics"])
def test_amazon_networks_have_the_edges_of_table_1(real_data: Path, name: str) -> None:
    """Both directions plus one self-loop per node.

    2 x 91,680 + 24,919 = 208,279 and 2 x 43,556 + 42,318 = 129,430.
    """
    edges = read_numbers(
        real_data / "raw" / "amazon_gpn" / f"{official.AMAZON[name]}_network", np.int64, columns=2
    )
    assert int(edges.max()) + 1 == TABLE1[name].nodes
    assert len(edges) == 2 * TABLE1[name].edges
    assert len(edges) + TABLE1[name].nodes == TABLE1[name].printed_edges


def test_amazon_mat_and_network_give_the_ready_made_subgraph(real_data: Path) -> None:
    """The 20 classes of test.mat with the edges between their nodes, in the file's order.

    They are graphs/amazon_clothing_20.npz.
    """
    folder, ready = (
        real_data / "raw" / "amazon_gpn",
        read_npz(real_data / "graphs" / "amazon_clothing_20.npz"),
    )
    index, label, attributes = read_mat(folder / "Amazon_clothing_test.mat")
    edges = read_numbers(folder / "Amazon_clothing_network", np.int64, columns=2)
    new_id = np.full(int(edges.max()) + 1, -1)
    new_id[index] = np.arange(index.size)
    inside = new_id[edges[(new_id[edges] >= 0).all(1)]]
    assert torch.equal(undirected(torch.from_numpy(inside.T), index.size), ready.edge_index)
    assert [str(value) for value in label] == [ready.label_names[c] for c in ready.y]
    assert (attributes != to_scipy(ready.x)).nnz == 0


def test_amazon_from_three_files(tmp_path: Path) -> None:
    """Five nodes on a path; train.mat has nodes 3 and 1, test.mat 0, 4 and 2.

    Word i belongs to node i. The labels are 7 and 30.
    """
    folder = tmp_path / "raw" / "amazon_gpn"
    folder.mkdir(parents=True)
    pairs = [(0, 1), (1, 2), (2, 3), (3, 4)]
    (folder / "Amazon_clothing_network").write_text("".join(f"{a}\t{b}\n{b}\t{a}\n" for a, b in pairs))
    for part, nodes, labels in (("train", [3, 1], [7, 7]), ("test", [0, 4, 2], [30, 30, 30])):
        table = {
            "Index": np.array([nodes]),
            "Label": np.array(labels, dtype=float)[:, None],
            "Attributes": sp.csc_matrix(np.eye(5)[nodes]),
        }
        scipy.io.savemat(folder / f"Amazon_clothing_{part}.mat", table)
    graph, printed = official.read_amazon(tmp_path / "raw", "clothing")
    assert graph.x.to_dense().tolist() == np.eye(5).tolist()
    assert graph.y.tolist() == [1, 0, 1, 0, 1]
    assert graph.label_names == ("7", "30")
    assert graph.edge_index.T.tolist() == [list(pair) for pair in pairs]
    assert printed == 2 * 4 + 5
    shutil.copy(folder / "Amazon_clothing_train.mat", folder / "Amazon_clothing_test.mat")
    with pytest.raises(BadData, match="each of the network's 5 nodes"):
        official.read_amazon(tmp_path / "raw", "clothing")


def test_email_from_its_files_is_the_ready_made_graph(real_data: Path) -> None:
    graph, ready = read_official("email", real_data), read_npz(real_data / "graphs" / "email.npz")
    assert torch.equal(graph.edge_index, ready.edge_index)
    assert torch.equal(graph.y, ready.y)
    assert torch.equal(graph.x, ready.x)
    assert graph.label_names == ready.label_names


def test_email_counts_edges_as_the_paper_does(tmp_path: Path) -> None:
    """Component {0, 1, 2} of lines 0-1, 1-0, 1-2, 2-2 and the lone 3-3.

    Lines mirrored: 2 x 4, less the loop's own mirror = 7.
    """
    folder = tmp_path / "raw" / "email"
    folder.mkdir(parents=True)
    (folder / "edges.txt").write_text("0 1\n1 0\n1 2\n2 2\n3 3\n")
    (folder / "labels.txt").write_text("0 5\n1 5\n2 9\n3 9\n")
    (folder / "graph.embeddings").write_text("4 2\n4 0.4 4\n1 0.1 1\n3 0.3 3\n2 0.2 2\n")
    graph, printed = official.read_email(tmp_path / "raw", "email")
    assert printed == 7
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.x[:, 1].tolist() == [1, 2, 3]
    assert (graph.y.tolist(), graph.label_names) == ([0, 0, 1], ("5", "9"))
    with pytest.raises(BadData, match="Email in Table 1 has 986"):
        read_official("email", tmp_path)
    (folder / "graph.embeddings").write_text("4 2\n1 0.1 1\n2 0.2 2\n3 0.3 3\n")
    with pytest.raises(BadData, match=r"1\.\.4"):
        official.read_email(tmp_path / "raw", "email")


def write_gz(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with gzip.open(folder / f"{name.replace('_', '-')}.csv.gz", "wt") as file:
            file.write(text)


def test_arxiv_layout(tmp_path: Path) -> None:
    """Three directed lines, two of them the same undirected edge.

    The paper's count is 3; the graph has 2 edges.
    """
    folder = tmp_path / "raw" / "ogbn_arxiv"
    counts = {"num_node_list": "3\n", "num_edge_list": "3\n"}
    write_gz(folder, edge="0,1\n1,0\n1,2\n", node_feat="0.5,-1\n0,2\n1,1\n", node_label="1\n0\n1\n", **counts)
    graph, printed = official.read_arxiv(tmp_path / "raw", "arxiv")
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.x.tolist() == [[0.5, -1], [0, 2], [1, 1]]
    assert graph.y.tolist() == [1, 0, 1]
    assert printed == 3
    write_gz(folder, num_edge_list="4\n")
    with pytest.raises(BadData, match="says 4 rows"):
        official.read_arxiv(tmp_path / "raw", "arxiv")
    write_gz(folder, num_edge_list="3\n", node_feat="")
    with pytest.raises(BadData, match=r"node-feat.csv.gz' has shape"):
        official.read_arxiv(tmp_path / "raw", "arxiv")


def test_arxiv_labels_splits_and_counts(real_data: Path) -> None:
    """40 classes, largest over smallest 27,321 / 29 = 942.1.

    The official time split covers every node once.
    """
    folder = real_data / "raw" / "ogbn_arxiv"
    row = TABLE1["arxiv"]
    sizes = np.bincount(read_numbers(folder / "node-label.csv.gz", np.int64, columns=1)[:, 0])
    assert (sizes.sum(), sizes.size, sizes.max(), sizes.min()) == (row.nodes, row.classes, 27_321, 29)
    splits = [
        read_numbers(folder / f"{part}.csv.gz", np.int64, columns=1)[:, 0]
        for part in ("train", "valid", "test")
    ]
    assert [part.size for part in splits] == [90_941, 29_799, 48_603]
    assert np.array_equal(np.sort(np.concatenate(splits)), np.arange(row.nodes))
    assert read_numbers(folder / "num-node-list.csv.gz", np.int64).tolist() == [[row.nodes]]
    assert read_numbers(folder / "num-edge-list.csv.gz", np.int64).tolist() == [[row.printed_edges]]


@pytest.mark.parametrize("name", ["corafull", "roman_empire"])
def test_real_labels_and_edges_of_the_proxies_agree_with_table_1(real_data: Path, name: str) -> None:
    """Graph and labels of the proxies are exact, only their features differ.

    The check must pass but for the features.
    """
    graph, row = read_npz(real_data / "graphs" / f"{name}_proxy.npz"), TABLE1[name]
    check_table1(
        graph,
        Table1(
            row.title,
            row.nodes,
            graph.num_features,
            row.printed_edges,
            row.classes,
            row.imbalance_ratio,
            row.edges,
        ),
    )
    with pytest.raises(BadData, match="features"):
        check_table1(graph, row)


def test_facts_are_those_of_the_paper() -> None:
    """Printed edges from undirected ones.

    Twice for CoraFull and Roman-Empire, twice plus a loop per node for the Amazon sets.
    """
    for name in ("corafull", "roman_empire"):
        assert TABLE1[name].printed_edges == 2 * TABLE1[name].edges
    for name in ("electronics", "clothing"):
        assert TABLE1[name].printed_edges == 2 * TABLE1[name].edges + TABLE1[name].nodes
    assert TABLE1.keys() == RAW_FILES.keys() == official.READERS.keys()


ROW = Table1("Toy", nodes=4, features=2, printed_edges=4, classes=2, imbalance_ratio=3.0, edges=2)


def toy(**change: int) -> Graph:
    sizes = {"nodes": 4, "features": 2, "edges": 2} | change
    edge_index = torch.tensor([[0, 1, 2], [1, 2, 3]])[:, : sizes["edges"]]
    y = torch.zeros(sizes["nodes"], dtype=torch.int64)
    y[: change.get("ones", 1)] = 1
    y[0] = change.get("top", 1)
    return Graph.make(torch.ones(sizes["nodes"], sizes["features"]), edge_index, y, name="toy")


def test_table_1_check_passes_the_right_graph() -> None:
    graph = toy()
    assert check_table1(graph, ROW) is graph
    assert check_table1(graph, ROW, printed_edges=4) is graph


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"nodes": 5}, "5 nodes"),
        ({"features": 3}, "3 features"),
        ({"edges": 3}, "3 undirected edges"),
        ({"top": 2}, "3 classes"),
        ({"ones": 2}, "ratio of 1.00"),
    ],
)
def test_table_1_check_names_what_differs(change: dict[str, int], word: str) -> None:
    with pytest.raises(BadData, match=word) as caught:
        check_table1(toy(**change), ROW)
    assert "Toy in Table 1" in str(caught.value)


def test_table_1_check_of_the_printed_edges() -> None:
    with pytest.raises(BadData, match="5 edges, counted as in the paper"):
        check_table1(toy(), ROW, printed_edges=5)


def test_files_that_are_absent_or_no_tables(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"edges.txt' does not exist; .*fedepd data fetch"):
        read_numbers(tmp_path / "edges.txt", np.int64)
    (tmp_path / "edges.txt").write_text("0 1\n1 b\n")
    with pytest.raises(BadData, match="not a table of numbers"):
        read_numbers(tmp_path / "edges.txt", np.int64)
    (tmp_path / "edges.txt").write_text("0 1 2\n")
    with pytest.raises(BadData, match=r"not rows of 2 numbers"):
        read_numbers(tmp_path / "edges.txt", np.int64, columns=2)
    (tmp_path / "edge.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(BadData, match="not a table of numbers"):
        read_numbers(tmp_path / "edge.csv.gz", np.int64)
    (tmp_path / "a.mat").write_bytes(b"no mat" * 100)
    with pytest.raises(BadData, match="not a MATLAB file"):
        read_mat(tmp_path / "a.mat")
    scipy.io.savemat(tmp_path / "b.mat", {"Index": np.arange(2)})
    with pytest.raises(BadData, match="'Label'"):
        read_mat(tmp_path / "b.mat")


def test_bad_npz_of_an_official_format(tmp_path: Path) -> None:
    np.savez(
        tmp_path / "roman_empire.npz",
        node_features=np.ones((2, 2)),
        node_labels=np.array([0, 1]),
        edges=np.array([[0, 5]]),
    )
    with pytest.raises(BadData, match=r"roman_empire.npz.*node 5"):
        read_heterophilous(tmp_path / "roman_empire.npz", "roman_empire")
    np.savez(tmp_path / "cora_full.npz", labels=np.array([0, 1]))
    with pytest.raises(BadData, match=r"cora_full.npz' has no array 'adj_data'"):
        read_gnn_benchmark(tmp_path / "cora_full.npz", "corafull")


# --- files made to do harm ----------------------------------------------------------------------------------


@pytest.mark.hostile
def test_packed_numbers_that_unfold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """16 MB of zeros in 16 kB.

    With what any file may hold lowered to 1 MB the reader stops after 4, its two hundredfold.
    """
    monkeypatch.setattr(memory, "FREE", 2**20)
    path = tmp_path / "edge.csv.gz"
    with gzip.open(path, "wb", compresslevel=6) as file:
        for _ in range(16):
            file.write(b"0,0\n" * 2**18)
    with bounded(5, 60), pytest.raises(BadData, match="claims"):
        read_numbers(path, np.int64)


HOSTILE_NUMBERS: dict[str, tuple[bytes, str]] = {
    "a line without end": (b"1 " * 2**20, "line 1 has more than"),
    "beyond int64": (b"1 99999999999999999999\n", "not a table"),
    "NUL": (b"1 \0\n", "not a table"),
    "no numbers": (b"\xff\xfe\x00", "not a table"),
    "comments": (b"# nothing\n", "not rows"),
    "rows of two lengths": (b"1 2\n3\n", "not a table"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", HOSTILE_NUMBERS)
def test_numbers_made_to_do_harm(case: str, tmp_path: Path) -> None:
    content, word = HOSTILE_NUMBERS[case]
    (tmp_path / "edges.txt").write_bytes(content)
    with bounded(), pytest.raises(BadData, match=word):
        read_numbers(tmp_path / "edges.txt", np.int64)


def test_older_numpy_reads_no_integer_by_way_of_a_float(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2.2 warns and casts. Where the warning is an error it cannot convert, just as 2.4."""

    def loadtxt(lines: Iterable[str], **settings: Any) -> NDArray[np.int64]:
        try:
            warnings.warn("loadtxt(): Parsing an integer via a float is deprecated.", DeprecationWarning, 2)
        except DeprecationWarning:
            raise ValueError("could not convert string '1.5' to int64 at row 0, column 2.") from None
        return np.array([[1, 1]])

    monkeypatch.setattr(np, "loadtxt", loadtxt)
    (tmp_path / "edges.txt").write_bytes(b"1 1.5\n")
    with pytest.raises(BadData, match="not a table"):
        read_numbers(tmp_path / "edges.txt", np.int64)


@pytest.mark.hostile
def test_a_mat_file_that_unfolds(tmp_path: Path) -> None:
    """96 MB of zeros in 95 kB; the reader stops after 64."""
    scipy.io.savemat(tmp_path / "a.mat", {"Index": np.zeros(12 * 2**20)}, do_compression=True)
    with bounded(megabytes=100), pytest.raises(BadData, match="claims"):
        read_mat(tmp_path / "a.mat")


@pytest.mark.hostile
def test_a_mat_file_whose_rows_leave_its_shape(tmp_path: Path) -> None:
    """scipy's conversion would write outside its arrays."""
    attributes = sp.csc_matrix(np.eye(3))
    attributes.indices = np.array([0, 1, 10**6], dtype=np.int32)
    scipy.io.savemat(
        tmp_path / "a.mat", {"Index": np.arange(3), "Label": np.arange(3), "Attributes": attributes}
    )
    with bounded(), pytest.raises(BadData, match="not a MATLAB file"):
        read_mat(tmp_path / "a.mat")


@pytest.mark.hostile
def test_an_amazon_network_that_names_a_node_beyond_memory(tmp_path: Path) -> None:
    folder = tmp_path / "amazon_gpn"
    folder.mkdir()
    (folder / "Amazon_clothing_network").write_text(f"0 {2**62}\n")
    for part in ("train", "test"):
        scipy.io.savemat(
            folder / f"Amazon_clothing_{part}.mat",
            {"Index": [0], "Label": [0], "Attributes": sp.csc_matrix(np.eye(1))},
        )
    with bounded(), pytest.raises(BadData, match="do not name each"):
        official.read_amazon(tmp_path, "clothing")


@pytest.mark.hostile
@pytest.mark.parametrize("part", ["node_features", "node_labels", "edges"])
def test_official_arrays_of_text(part: str, tmp_path: Path) -> None:
    arrays: dict[str, Any] = {
        "node_features": np.ones((2, 2)),
        "node_labels": np.array([0, 1]),
        "edges": np.array([[0, 1]]),
    }
    arrays[part] = np.array([["a", "b"], ["c", "d"]])
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(BadData, match="not numbers"):
        read_heterophilous(tmp_path / "a.npz", "a")


@pytest.mark.hostile
def test_a_pipe_is_no_official_file(tmp_path: Path) -> None:
    for name in ("edges.txt", "edge.csv.gz", "a.mat"):
        os.mkfifo(tmp_path / name)
        with bounded(), pytest.raises(BadData, match="regular file"):
            read_mat(tmp_path / name) if name == "a.mat" else read_numbers(tmp_path / name, np.int64)
