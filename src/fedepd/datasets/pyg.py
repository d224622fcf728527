"""Node datasets of torch_geometric by name, from its raw files: ``pyg:Planetoid/PubMed``, ``pyg:Reddit``.

The files lie in the data folder as torch_geometric leaves them: ``pyg/CLASS`` is the ``root`` that its class
was given, so a folder that it made can be put or linked there. Its processed files (``.pt``) are pickles and
are never opened. torch_geometric itself is not needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedepd.arrays import read_arrays, spelled
from fedepd.datasets.inert import read_inert
from fedepd.datasets.official import (
    graph_of,
    read_gnn_benchmark,
    read_heterophilous,
    read_numbers,
    text_lines,
)
from fedepd.errors import BadData, UnknownName
from fedepd.files import DAMAGE, read_json
from fedepd.shown import shown
from fedepd.types import HIDDEN, Graph

PREFIX = "pyg:"
AGAIN = "fetch it again"
GITHUB = "https://github.com"
GEOM = "https://raw.githubusercontent.com/graphdml-uiuc-jlu/geom-gcn/master/new_data"
MUSAE = "https://graphmining.ai/datasets/ptg"
NODES, EDGES = "out1_node_feature_label.txt", "out1_graph_edges.txt"
PLANETOID = ("x", "tx", "allx", "y", "ty", "ally", "graph", "test.index")
JSON_BYTES = 2**29


@dataclass(frozen=True)
class Source:
    """Where a dataset's raw files are, and who reads them."""

    folder: str
    """The folder of the raw files below the data folder."""
    urls: Mapping[str, str]
    """File -> where torch_geometric gets it. The files of a ``.zip`` have the same address."""
    read: Callable[[Path, str], Graph]
    """From the folder and the graph's name."""

    @property
    def files(self) -> tuple[str, ...]:
        """The files below the data folder."""
        return tuple(f"{self.folder}/{file}" for file in self.urls)


def read_pyg(name: str, data_dir: Path) -> Graph:
    """One of ``SOURCES`` from its raw files.

    Raises:
        UnknownName: There is no such name. Names are as torch_geometric spells them.
        BadData: A file is missing or cannot be used.
    """
    source = source_of(name)
    if missing := [file for file in source.files if not (data_dir / file).is_file()]:
        raise BadData(
            f"dataset '{name}' is not in '{data_dir}'; put {missing[0]} there, as torch_geometric leaves it, "
            f"or run 'fedepd data fetch {name}'"
        )
    return source.read(data_dir / source.folder, name)


def source_of(name: str) -> Source:
    """The source of a name that begins with ``pyg:``."""
    if name not in SOURCES:
        raise UnknownName("dataset of torch_geometric", shown(name), SOURCES)
    return SOURCES[name]


# --- readers ------------------------------------------------------------------------------------------------


def read_planetoid(raw: Path, name: str) -> Graph:
    """Cora, CiteSeer or PubMed as Planetoid published them.

    The nodes of ``allx`` come first. Those of ``tx`` have the numbers of ``test.index``. Choice: CiteSeer has
    numbers without a row. torch_geometric gives these nodes the first class. Here they have none.
    """
    prefix = f"ind.{name.rpartition('/')[2].lower()}"
    allx, tx, ally, ty, graph = (
        read_inert(raw / f"{prefix}.{part}") for part in ("allx", "tx", "ally", "ty", "graph")
    )
    at = read_numbers(raw / f"{prefix}.test.index", np.int64, columns=1)[:, 0]
    matrices, tables = (allx, tx), (ally, ty)
    fits = all(sp.issparse(each) for each in matrices) and isinstance(graph, dict)
    fits = fits and all(isinstance(each, np.ndarray) and each.ndim == 2 for each in tables)
    if not fits or not (len(at) == tx.shape[0] == len(ty) and allx.shape[0] == len(ally)):
        raise BadData(f"the files '{spelled(raw / prefix)}.*' do not fit each other; fetch them again")
    first, last = allx.shape[0], max(int(at.max()), allx.shape[0] - 1)
    if at.min() < first or len(np.unique(at)) != len(at) or last > 2 * (first + len(at)):
        raise BadData(f"'{spelled(raw / prefix)}.test.index' does not number the nodes of tx; {AGAIN}")
    place = sp.csr_matrix(
        (np.ones(len(at), dtype=np.float32), (at - first, np.arange(len(at)))),
        shape=(last + 1 - first, len(at)),
    )
    y = np.full(last + 1, HIDDEN)
    y[:first], y[at] = _classes(ally), _classes(ty)
    sources = np.repeat(list(graph), [len(ends) for ends in graph.values()])
    edges = np.stack([sources, np.array([end for ends in graph.values() for end in ends])]).astype(np.int64)
    return graph_of(sp.csr_matrix(sp.vstack([allx, place @ tx])), edges, y, name, raw)


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


# --- the table ----------------------------------------------------------------------------------------------


def _npz(file: str, url: str, read: Callable[[Path, str], Graph], *folder: str) -> Source:
    def of_file(raw: Path, name: str) -> Graph:
        return read(raw / file, name)

    return Source("/".join(("pyg", *folder, "raw")), {file: url}, of_file)


def _planetoid(name: str) -> Source:
    base = f"{GITHUB}/kimiyoung/planetoid/raw/master/data"
    files = [f"ind.{name.lower()}.{part}" for part in PLANETOID]
    return Source(f"pyg/Planetoid/{name}/raw", {file: f"{base}/{file}" for file in files}, read_planetoid)


def _shchur(kind: str, name: str, file: str) -> Source:
    return _npz(
        file, f"{GITHUB}/shchur/gnn-benchmark/raw/master/data/npz/{file}", read_gnn_benchmark, kind, name
    )


def _citation(kind: str, name: str) -> Source:
    url = f"{GITHUB}/abojchevski/graph2gauss/raw/master/data/{name}.npz"
    return _npz(f"{name}.npz", url, read_gnn_benchmark, kind, name)


def _heterophilous(name: str) -> Source:
    url = f"{GITHUB}/yandex-research/heterophilous-graphs/raw/main/data/{name}.npz"
    return _npz(f"{name}.npz", url, read_heterophilous, "HeterophilousGraphDataset", name)


def _geom(kind: str, name: str, *folder: str, listed: bool = False) -> Source:
    place = "/".join(("pyg", kind, *folder, "raw"))
    return Source(
        place, {file: f"{GEOM}/{name}/{file}" for file in (NODES, EDGES)}, partial(read_geom, listed)
    )


def _musae(kind: str, file: str, *folder: str) -> Source:
    url = f"{MUSAE}/{'twitch/' if folder else ''}{file}"
    return Source("/".join(("pyg", kind, *folder, "raw")), {file: url}, partial(read_musae, file))


REDDIT = "https://data.dgl.ai/dataset/reddit.zip"
WIKICS = f"{GITHUB}/pmernyei/wiki-cs-dataset/raw/master/dataset/data.json"
SOURCES: dict[str, Source] = {
    PREFIX + name: source
    for name, source in {
        **{f"Planetoid/{name}": _planetoid(name) for name in ("Cora", "CiteSeer", "PubMed")},
        "Coauthor/CS": _shchur("Coauthor", "CS", "ms_academic_cs.npz"),
        "Coauthor/Physics": _shchur("Coauthor", "Physics", "ms_academic_phy.npz"),
        "Amazon/Computers": _shchur("Amazon", "Computers", "amazon_electronics_computers.npz"),
        "Amazon/Photo": _shchur("Amazon", "Photo", "amazon_electronics_photo.npz"),
        **{
            f"CitationFull/{name}": _citation("CitationFull", name.lower())
            for name in ("Cora", "Cora_ML", "CiteSeer", "DBLP", "PubMed")
        },
        "CoraFull": _citation("CoraFull", "cora"),
        "Reddit": Source(
            "pyg/Reddit/raw", dict.fromkeys(("reddit_data.npz", "reddit_graph.npz"), REDDIT), read_reddit
        ),
        "WikiCS": Source("pyg/WikiCS/raw", {"data.json": WIKICS}, read_wikics),
        **{
            f"HeterophilousGraphDataset/{name}": _heterophilous(name.lower().replace("-", "_"))
            for name in ("Roman-empire", "Amazon-ratings", "Minesweeper", "Tolokers", "Questions")
        },
        "Actor": _geom("Actor", "film", listed=True),
        **{
            f"WebKB/{name}": _geom("WebKB", name.lower(), name.lower())
            for name in ("Cornell", "Texas", "Wisconsin")
        },
        **{
            f"WikipediaNetwork/{name}": _geom("WikipediaNetwork", name, name, "geom_gcn")
            for name in ("chameleon", "squirrel")
        },
        **{
            f"Twitch/{name}": _musae("Twitch", f"{name}.npz", name)
            for name in ("DE", "EN", "ES", "FR", "PT", "RU")
        },
        "LastFMAsia": _musae("LastFMAsia", "lastfm_asia.npz"),
        "FacebookPagePage": _musae("FacebookPagePage", "facebook.npz"),
        "GitHub": _musae("GitHub", "github.npz"),
        "DeezerEurope": _musae("DeezerEurope", "deezer_europe.npz"),
    }.items()
}
"""The datasets by name: the class of torch_geometric, and the name that it is given, if any."""
