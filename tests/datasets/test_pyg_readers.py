"""Readers of torch_geometric's raw files, laid out as it leaves them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch
from numpy.typing import NDArray

import fedepd
from fedepd.errors import BadData
from fedepd.types import HIDDEN, Graph, undirected
from old_pickles import table
from pyg_files import EDGES, PUT, X, Y, lines, links, put_planetoid, raw


def checked(graph: Graph, x: NDArray[Any] = X, y: list[int] = Y) -> None:
    found = graph.x.to_dense() if graph.is_sparse else graph.x
    assert found.tolist() == x.tolist()
    assert graph.edge_index.t().tolist() == [list(pair) for pair in EDGES]
    assert graph.y.tolist() == y


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
    parts = {
        f"{kind}_{part}": np.asarray(getattr(of, part))
        for kind, of in (("adj", links()), ("attr", sp.csr_matrix(X)))
        for part in ("data", "indices", "indptr", "shape")
    }
    np.savez(raw(tmp_path, *place[:2]) / place[2], allow_pickle=False, labels=np.array(Y), **parts)
    checked(fedepd.load(name, tmp_path), (X > 0).astype(np.float32))


def test_reddit(tmp_path: Path) -> None:
    folder = raw(tmp_path, "Reddit")
    np.savez(folder / "reddit_data.npz", feature=X, label=np.array(Y), node_types=np.ones(6))
    sp.save_npz(folder / "reddit_graph.npz", links().tocoo())
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
    (folder / "out1_graph_edges.txt").write_text("node_id\tnode_id\n" + lines(EDGES, "\t"))
    checked(fedepd.load(name, tmp_path), (X > 0).astype(np.float32) if listed else X)
    (folder / "out1_graph_edges.txt").write_text("a\tb\n1\n")
    with pytest.raises(BadData, match="is not as Geom-GCN's files are"):
        fedepd.load(name, tmp_path)


def loaded(name: str, data: Path) -> Graph:
    folders, put = PUT[name]
    put(raw(data, *folders))
    return fedepd.load(name, data)


@pytest.mark.parametrize("name", ["pyg:Flickr", "pyg:Reddit2", "pyg:LINKXDataset/genius"])
def test_features_edges_and_classes(tmp_path: Path, name: str) -> None:
    checked(loaded(name, tmp_path))


def test_attributed_classes_are_counted_from_0(tmp_path: Path) -> None:
    checked(loaded("pyg:AttributedGraphDataset/Wiki", tmp_path))


@pytest.mark.parametrize("name", ["pyg:Airports/USA", "pyg:EmailEUCore", "pyg:PolBlogs"])
def test_without_features_a_node_is_its_number(tmp_path: Path, name: str) -> None:
    graph = loaded(name, tmp_path)
    checked(graph, np.eye(6, dtype=np.float32))
    assert graph.is_sparse


def test_facts_of_people_are_one_hot_without_their_gender(tmp_path: Path) -> None:
    """Status 1 or 2, then 5, 7 or 9: five columns. Gender 0 is unknown."""
    status, other = [0, 0, 1, 0, 1, 0], [0, 0, 1, 2, 0, 1]
    x = np.concatenate([np.eye(2)[status], np.eye(3)[other]], 1).astype(np.float32)
    checked(loaded("pyg:LINKXDataset/reed98", tmp_path), x, [0, 1, 0, HIDDEN, 0, 1])


def test_transactions_by_their_ids(tmp_path: Path) -> None:
    checked(loaded("pyg:EllipticBitcoinDataset", tmp_path), y=[0, 1, 0, HIDDEN, 0, 1])


def test_borrowers_and_the_background(tmp_path: Path) -> None:
    y = np.array([0, 1, 2, 3, 0, 1])
    np.savez(raw(tmp_path, "DGraphFin") / "dgraphfin.npz", x=X, y=y, edge_index=np.array(EDGES))
    checked(fedepd.load("pyg:DGraphFin", tmp_path), y=[0, 1, HIDDEN, HIDDEN, 0, 1])


def test_relations_have_a_column_each(tmp_path: Path) -> None:
    """Nodes 3 and 4 have no row. Their columns, 3 and 4, follow the three of the things."""
    x = np.zeros((6, 5), dtype=np.float32)
    x[[0, 1, 2, 5], :3] = X[[0, 1, 2, 5]]
    x[3, 3] = x[4, 4] = 1
    checked(loaded("pyg:NELL", tmp_path), x, [0, 1, 0, HIDDEN, HIDDEN, 1])


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
@pytest.mark.parametrize("name", [name for name in PUT if name != "pyg:NELL"])
def test_it_is_what_torch_geometric_reads(tmp_path: Path, name: str) -> None:
    """Its own class processes the same files. All that it asks for is there, so nothing is downloaded."""
    datasets = pytest.importorskip("torch_geometric.datasets")
    ours = loaded(name, tmp_path)
    kind, _, own = name.removeprefix("pyg:").partition("/")
    theirs = getattr(datasets, kind)(str(tmp_path / "pyg" / kind), *([own] if own else []))[0]
    x = torch.eye(6) if theirs.x is None else theirs.x.to_dense()
    assert torch.equal(x.float(), ours.x.to_dense() if ours.is_sparse else ours.x)
    assert torch.equal(undirected(theirs.edge_index, 6), ours.edge_index)
    of_unknown = 2 if name == "pyg:EllipticBitcoinDataset" else HIDDEN
    assert theirs.y.tolist() == torch.where(ours.y == HIDDEN, of_unknown, ours.y).tolist()


@pytest.mark.filterwarnings("ignore:Sparse invariant checks")
def test_nell_is_what_torch_geometric_reads(tmp_path: Path) -> None:
    """It has 520 nodes, as above. 510 and 511 are relations; torch_geometric gives them the first class."""
    pytest.importorskip("torch_geometric")
    from torch_geometric.io import read_planetoid_data

    draws = np.random.default_rng(0)
    x, y = draws.integers(3, size=(520, 4)).astype(np.float32), draws.integers(2, size=520).tolist()
    ring = [(node, (node + 1) % 520) for node in range(520)]
    folder = raw(tmp_path, "NELL")
    put_planetoid(folder, "nell.0.001", draws.permutation(np.arange(512, 520)).tolist(), x, y, ring, 510)
    theirs, ours = read_planetoid_data(str(folder), "nell.0.001"), fedepd.load("pyg:NELL", tmp_path)
    assert torch.equal(theirs.x.to_dense(), ours.x.to_dense())
    assert ours.x.shape == (520, 6)
    assert torch.equal(undirected(theirs.edge_index, 520), ours.edge_index)
    assert torch.equal(theirs.y, ours.y.clamp(min=0))
    assert (ours.y == HIDDEN).nonzero().flatten().tolist() == [510, 511]


def other_arrays(file: str, **arrays: Any) -> Callable[[Path], None]:
    return lambda folder: np.savez(folder / file, allow_pickle=False, **arrays)


def other_text(file: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_text(text)


def other_mat(**content: Any) -> Callable[[Path], None]:
    return lambda folder: scipy.io.savemat(folder / "data.mat", content)


PARTS = {"data": np.ones(1), "indices": np.array([9]), "indptr": np.array([0, 1, 1, 1, 1, 1, 1])}
FLICKR, AIRPORTS, WIKI = "pyg:Flickr", "pyg:Airports/USA", "pyg:AttributedGraphDataset/Wiki"
REED, GENIUS, ELLIPTIC = "pyg:LINKXDataset/reed98", "pyg:LINKXDataset/genius", "pyg:EllipticBitcoinDataset"
CLASSES = "elliptic_txs_classes.csv"
HOSTILE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "an edge to no node": (
        FLICKR,
        other_arrays("adj_full.npz", **PARTS, shape=np.array([6, 6])),
        "as GraphSAINT's",
    ),
    "nodes without end": (
        FLICKR,
        other_arrays("adj_full.npz", **PARTS, shape=np.array([2**60, 2**60])),
        "as GraphSAINT's",
    ),
    "a class of no node": (FLICKR, other_text("class_map.json", '{"9": 1}'), "as GraphSAINT's"),
    "a class from the end": (FLICKR, other_text("class_map.json", '{"-1": 1}'), "as GraphSAINT's"),
    "several classes": (FLICKR, other_text("class_map.json", '{"0": [1, 0]}'), "as GraphSAINT's"),
    "a list of classes": (FLICKR, other_text("class_map.json", "[1]"), "as GraphSAINT's"),
    "objects as features": (
        "pyg:Reddit2",
        lambda folder: np.save(folder / "feats.npy", X.astype(object)),
        "not a valid npy",
    ),
    "a node twice": (AIRPORTS, other_text("labels-usa-airports.txt", "h\n7 0\n7 1\n"), "twice"),
    "an end that is not listed": (AIRPORTS, other_text("usa-airports.edgelist", "1 2\n"), "not list"),
    "words": ("pyg:EmailEUCore", other_text("email-Eu-core.txt", "a b\n"), "not a table of numbers"),
    "an edge to a node that is not there": ("pyg:PolBlogs", other_text("adjacency.tsv", "0\t6\n"), "node 6"),
    "two classes": (WIKI, other_text("labels.txt", "0 1 2\n"), "several classes"),
    "a word as class": (WIKI, other_text("labels.txt", "0 x\n"), "list of classes"),
    "no facts": (REED, other_mat(A=links().astype(float)), "as LINKX's"),
    "one fact": (REED, other_mat(A=links().astype(float), local_info=np.ones((6, 1))), "as LINKX's"),
    "no matrices": (GENIUS, other_text("data.mat", "nothing"), "as LINKX's"),
    "no edges": (GENIUS, other_mat(node_feat=X, label=np.array([Y])), "as LINKX's"),
    "another class": (ELLIPTIC, other_text(CLASSES, "txId,class\n1,3\n"), "list of classes"),
    "other nodes": (
        ELLIPTIC,
        other_text(CLASSES, "txId,class\n1,1\n"),
        "does not list the nodes",
    ),
}


@pytest.mark.hostile
@pytest.mark.parametrize("what", HOSTILE)
def test_files_that_cannot_be_are_refused(tmp_path: Path, what: str) -> None:
    name, spoil, message = HOSTILE[what]
    folders, put = PUT[name]
    folder = raw(tmp_path, *folders)
    put(folder)
    spoil(folder)
    with pytest.raises(BadData, match=message):
        fedepd.load(name, tmp_path)


def test_a_node_that_no_edge_of_nell_names(tmp_path: Path) -> None:
    """Its graph says how many nodes there are, so a number beyond it is refused."""
    folder = raw(tmp_path, "NELL")
    put_planetoid(folder, "nell.0.001", [5])
    (folder / "ind.nell.0.001.test.index").write_text("5000\n")
    with pytest.raises(BadData, match="does not number the nodes of tx"):
        fedepd.load("pyg:NELL", tmp_path)
