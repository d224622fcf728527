"""Datasets of torch_geometric from raw files laid out as it leaves them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

import fedepd
from fedepd.datasets import available
from fedepd.datasets.fetch import fetch, of_pyg
from fedepd.datasets.pyg import PREFIX, SOURCES, read_pyg, source_of
from fedepd.errors import BadData, UnknownName
from fedepd.types import HIDDEN, Graph
from old_pickles import array, matrix, table

EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
Y = [0, 1, 0, 1, 0, 1]
X = np.array([[1, 0, 2], [0, 1, 0], [3, 0, 0], [0, 0, 1], [1, 1, 1], [0, 2, 0]], dtype=np.float32)


def raw(data: Path, *folders: str) -> Path:
    folder = data.joinpath("pyg", *folders, "raw")
    folder.mkdir(parents=True)
    return folder


def checked(graph: Graph, x: NDArray[Any] = X, y: list[int] = Y) -> None:
    found = graph.x.to_dense() if graph.is_sparse else graph.x
    assert found.tolist() == x.tolist()
    assert graph.edge_index.t().tolist() == [list(pair) for pair in EDGES]
    assert graph.y.tolist() == y


def put_planetoid(
    folder: Path,
    prefix: str,
    test: list[int],
    x: NDArray[Any] = X,
    y: list[int] = Y,
    edges: list[tuple[int, int]] = EDGES,
    first: int = 3,
) -> None:
    """The ``first`` nodes are in ``allx``. Row i of ``tx`` is node ``test[i]``."""
    classes = np.eye(2, dtype=np.int32)[y]
    neighbours: dict[int, list[int]] = {node: [] for node in range(len(y))}
    for a, b in edges:
        neighbours[a].append(b)
        neighbours[b].append(a)
    parts = {
        "x": matrix(sp.csr_matrix(x[:2])),
        "y": array(classes[:2]),
        "allx": matrix(sp.csr_matrix(x[:first])),
        "ally": array(classes[:first]),
        "tx": matrix(sp.csr_matrix(x[test])),
        "ty": array(classes[test]),
        "graph": table(neighbours),
        "test.index": "".join(f"{number}\n" for number in test).encode(),
    }
    for part, content in parts.items():
        (folder / f"ind.{prefix}.{part}").write_bytes(content)


def test_planetoid(tmp_path: Path) -> None:
    put_planetoid(raw(tmp_path, "Planetoid", "PubMed"), "pubmed", [5, 3, 4])
    graph = fedepd.load("pyg:Planetoid/PubMed", tmp_path)
    checked(graph)
    assert (graph.is_sparse, graph.name) == (True, "pyg:Planetoid/PubMed")


def test_a_node_without_a_row_has_no_class(tmp_path: Path) -> None:
    """As in CiteSeer: number 4 is in no file but the graph."""
    put_planetoid(raw(tmp_path, "Planetoid", "CiteSeer"), "citeseer", [5, 3])
    x = X.copy()
    x[4] = 0
    checked(fedepd.load("pyg:Planetoid/CiteSeer", tmp_path), x, [0, 1, 0, 1, HIDDEN, 1])


def test_planetoid_is_what_torch_geometric_reads(tmp_path: Path) -> None:
    """It takes 500 nodes for validation, so the graph has 520, on a ring. The last ten are shuffled."""
    draws = np.random.default_rng(0)
    x, y = draws.integers(3, size=(520, 4)).astype(np.float32), draws.integers(2, size=520).tolist()
    ring = [(node, (node + 1) % 520) for node in range(520)]
    folder = raw(tmp_path, "Planetoid", "Cora")
    put_planetoid(folder, "cora", draws.permutation(np.arange(510, 520)).tolist(), x, y, ring, 510)
    pytest.importorskip("torch_geometric")
    from torch_geometric.io import read_planetoid_data

    theirs, ours = read_planetoid_data(str(folder), "Cora"), fedepd.load("pyg:Planetoid/Cora", tmp_path)
    assert torch.equal(theirs.x, ours.x.to_dense())
    assert torch.equal(theirs.y, ours.y)
    with pytest.warns(UserWarning, match="train_mask, val_mask, test_mask of"):
        assert torch.equal(Graph.from_pyg(theirs).edge_index, ours.edge_index)


@pytest.mark.parametrize("test", [[3, 3, 4], [2, 3, 4], [3, 4, 5000]], ids=["twice", "trained", "far"])
def test_a_test_index_that_cannot_be_is_refused(tmp_path: Path, test: list[int]) -> None:
    folder = raw(tmp_path, "Planetoid", "Cora")
    put_planetoid(folder, "cora", [5, 3, 4])
    (folder / "ind.cora.test.index").write_text("".join(f"{number}\n" for number in test))
    with pytest.raises(BadData, match="does not number the nodes of tx"):
        fedepd.load("pyg:Planetoid/Cora", tmp_path)


def test_files_that_do_not_fit_each_other_are_refused(tmp_path: Path) -> None:
    folder = raw(tmp_path, "Planetoid", "Cora")
    put_planetoid(folder, "cora", [5, 3, 4])
    (folder / "ind.cora.ty").write_bytes(table({0: [1]}))
    with pytest.raises(BadData, match="do not fit each other; fetch them again"):
        fedepd.load("pyg:Planetoid/Cora", tmp_path)


BENCHMARK = {
    "pyg:Coauthor/Physics": ("Coauthor", "Physics", "ms_academic_phy.npz"),
    "pyg:Amazon/Photo": ("Amazon", "Photo", "amazon_electronics_photo.npz"),
    "pyg:CitationFull/Cora_ML": ("CitationFull", "cora_ml", "cora_ml.npz"),
    "pyg:CoraFull": ("CoraFull", "cora", "cora.npz"),
}


@pytest.mark.parametrize(("name", "place"), BENCHMARK.items(), ids=BENCHMARK)
def test_the_benchmark_files(tmp_path: Path, name: str, place: tuple[str, str, str]) -> None:
    """Words become 0 and 1, as torch_geometric makes them."""
    adj = sp.csr_matrix((np.ones(5), tuple(np.array(EDGES).T)), shape=(6, 6))
    parts = {
        f"{kind}_{part}": np.asarray(getattr(of, part))
        for kind, of in (("adj", adj), ("attr", sp.csr_matrix(X)))
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(raw(tmp_path, *place[:2]) / place[2], allow_pickle=False, labels=np.array(Y), **parts)
    checked(fedepd.load(name, tmp_path), (X > 0).astype(np.float32))


def test_reddit(tmp_path: Path) -> None:
    folder = raw(tmp_path, "Reddit")
    np.savez(folder / "reddit_data.npz", feature=X, label=np.array(Y), node_types=np.ones(6))
    links = sp.coo_matrix((np.ones(5), tuple(np.array(EDGES).T)), shape=(6, 6))
    sp.save_npz(folder / "reddit_graph.npz", links)
    checked(fedepd.load("pyg:Reddit", tmp_path))


def test_wikics(tmp_path: Path) -> None:
    content = {
        "features": X.tolist(),
        "labels": Y,
        "links": [[b for a, b in EDGES if a == n] for n in range(6)],
    }
    folder = raw(tmp_path, "WikiCS")
    (folder / "data.json").write_text(json.dumps(content))
    checked(fedepd.load("pyg:WikiCS", tmp_path))
    (folder / "data.json").write_text('{"features": [], "labels": 3}')
    with pytest.raises(BadData, match="has no lists features, labels and links"):
        fedepd.load("pyg:WikiCS", tmp_path)


def test_the_heterophilous_files(tmp_path: Path) -> None:
    folder = raw(tmp_path, "HeterophilousGraphDataset", "amazon_ratings")
    np.savez(folder / "amazon_ratings.npz", node_features=X, node_labels=np.array(Y), edges=np.array(EDGES))
    checked(fedepd.load("pyg:HeterophilousGraphDataset/Amazon-ratings", tmp_path))


@pytest.mark.parametrize(
    ("name", "place"),
    [("pyg:Twitch/DE", ("Twitch", "DE", "DE.npz")), ("pyg:GitHub", ("GitHub", "github.npz"))],
)
def test_the_musae_files(tmp_path: Path, name: str, place: tuple[str, ...]) -> None:
    file = raw(tmp_path, *place[:-1]) / place[-1]
    np.savez(file, features=X, target=np.array(Y), edges=np.array(EDGES))
    checked(fedepd.load(name, tmp_path))
    np.savez(file, features=X.astype(object), target=np.array(Y), edges=np.array(EDGES))
    with pytest.raises(BadData):  # objects are pickles
        fedepd.load(name, tmp_path)


@pytest.mark.parametrize(
    ("name", "folders"),
    [
        ("pyg:WebKB/Texas", ("WebKB", "texas")),
        ("pyg:WikipediaNetwork/squirrel", ("WikipediaNetwork", "squirrel", "geom_gcn")),
        ("pyg:Actor", ("Actor",)),
    ],
)
def test_the_text_files_of_geom_gcn(tmp_path: Path, name: str, folders: tuple[str, ...]) -> None:
    """Features are numbers, and of Actor the columns that are 1."""
    listed, folder = name == "pyg:Actor", raw(tmp_path, *folders)
    columns = [",".join(map(str, np.flatnonzero(row) if listed else row.astype(int))) for row in X]
    nodes = [f"{n}\t{columns[n]}\t{Y[n]}" for n in (2, 1, 0, 3, 4, 5)]
    (folder / "out1_node_feature_label.txt").write_text("\n".join(["node_id\tfeature\tlabel", *nodes, ""]))
    links = [f"{a}\t{b}" for a, b in EDGES]
    (folder / "out1_graph_edges.txt").write_text("\n".join(["node_id\tnode_id", *links, ""]))
    checked(fedepd.load(name, tmp_path), (X > 0).astype(np.float32) if listed else X)
    (folder / "out1_graph_edges.txt").write_text("a\tb\n1\n")
    with pytest.raises(BadData, match="is not as Geom-GCN's files are"):
        fedepd.load(name, tmp_path)


@pytest.mark.parametrize(
    "name", ["pyg:planetoid/PubMed", "pyg:Planetoid/pubmed", "pyg:", "pyg:Planetoid/../Cora", "pyg:\x1b[2J"]
)
def test_names_are_exact(tmp_path: Path, name: str) -> None:
    for call in (fedepd.load, fetch):
        with pytest.raises(UnknownName, match="unknown dataset of torch_geometric") as caught:
            call(name, tmp_path)
        assert "\x1b" not in str(caught.value)


def test_what_is_missing_is_named_with_the_cure(tmp_path: Path) -> None:
    with pytest.raises(
        BadData, match=r"put pyg/Reddit/raw/reddit_data\.npz there.*run 'fedepd data fetch pyg:Reddit'"
    ):
        read_pyg("pyg:Reddit", tmp_path)


def test_what_is_there_is_listed(tmp_path: Path) -> None:
    put_planetoid(raw(tmp_path, "Planetoid", "Cora"), "cora", [5, 3, 4])
    listed = [row.name for row in available(tmp_path) if row.name.startswith(PREFIX)]
    assert listed == ["pyg:Planetoid/Cora"]


def test_a_download_lies_where_it_is_read(tmp_path: Path) -> None:
    for name, source in SOURCES.items():
        targets = [path for download in of_pyg(name) for path in download.files.values()]
        assert sorted(targets) == sorted(source.files)
        assert all(download.url.startswith("https://") for download in of_pyg(name))
    assert [each.files for each in of_pyg("pyg:Reddit")] == [
        {file: f"pyg/Reddit/raw/{file}" for file in ("reddit_data.npz", "reddit_graph.npz")}
    ]
    assert fetch_is_quiet(tmp_path)


def fetch_is_quiet(folder: Path) -> bool:
    """Nothing is downloaded where everything is there."""
    put_planetoid(raw(folder, "Planetoid", "Cora"), "cora", [5, 3, 4])
    return "all files are already in" in fetch("pyg:Planetoid/Cora", folder)


def test_files_lie_as_torch_geometric_lays_them(tmp_path: Path) -> None:
    """Its own classes say where their raw files are. None of them is made, so nothing is downloaded."""
    datasets = pytest.importorskip("torch_geometric.datasets")
    for name, source in SOURCES.items():
        kind, _, own = name.removeprefix(PREFIX).partition("/")
        cls = getattr(datasets, kind)
        made = cls.__new__(cls)
        made.root, made.split, made.geom_gcn_preprocess = str(tmp_path / "pyg" / kind), "public", True
        made.name = {"HeterophilousGraphDataset": own.lower().replace("-", "_")}.get(kind, own)
        made.name = own.lower() if kind in ("CitationFull", "WebKB", "Amazon") else made.name
        made.name = "cora" if kind == "CoraFull" else made.name
        names = [made.raw_file_names] if isinstance(made.raw_file_names, str) else made.raw_file_names
        assert Path(made.raw_dir) == tmp_path / source.folder, name
        assert set(source.urls) <= set(names), name
        assert source_of(name) is source
