"""Raw files of torch_geometric's datasets, laid out as it leaves them, for one small graph."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from numpy.typing import NDArray

from old_pickles import array, matrix, table

EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]
Y = [0, 1, 0, 1, 0, 1]
X = np.array([[1, 0, 2], [0, 1, 0], [3, 0, 0], [0, 0, 1], [1, 1, 1], [0, 2, 0]], dtype=np.float32)


def raw(data: Path, *folders: str) -> Path:
    folder = data.joinpath("pyg", *folders, "raw")
    folder.mkdir(parents=True)
    return folder


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


def lines(rows: Any, separator: str = " ") -> str:
    return "".join(separator.join(map(str, row)) + "\n" for row in rows)


def links() -> sp.csr_matrix:
    return sp.csr_matrix((np.ones(5), tuple(np.array(EDGES).T)), shape=(6, 6))


def put_saint(folder: Path) -> None:
    """The nodes 0 to 3 are for training. Reading does not need this."""
    parts = {part: np.asarray(getattr(links(), part)) for part in ("data", "indices", "indptr", "shape")}
    np.savez(folder / "adj_full.npz", allow_pickle=False, **parts)
    np.save(folder / "feats.npy", X.astype(np.float64))
    (folder / "class_map.json").write_text(json.dumps({str(node): y for node, y in enumerate(Y)}))
    (folder / "role.json").write_text(json.dumps({"tr": [0, 1, 2, 3], "va": [4], "te": [5]}))


def put_airports(folder: Path) -> None:
    """Airports have numbers of their own: node n has 100 - n."""
    (folder / "labels-usa-airports.txt").write_text("node label\n" + lines((100 - n, Y[n]) for n in range(6)))
    (folder / "usa-airports.edgelist").write_text(lines((100 - a, 100 - b) for a, b in EDGES))


def put_email_eu(folder: Path) -> None:
    (folder / "email-Eu-core-department-labels.txt").write_text(lines(enumerate(Y)))
    (folder / "email-Eu-core.txt").write_text(lines(EDGES))


def put_polblogs(folder: Path) -> None:
    (folder / "labels.tsv").write_text(lines([y] for y in Y))
    (folder / "adjacency.tsv").write_text(lines(((a, b, 1) for a, b in EDGES), "\t"))


def put_attributed(folder: Path) -> None:
    """Classes are counted from 1."""
    sp.save_npz(folder / "attrs.npz", sp.csr_matrix(X))
    (folder / "edgelist.txt").write_text(lines(EDGES, "\t"))
    (folder / "labels.txt").write_text(lines((n, y + 1) for n, y in enumerate(Y)))


FACTS = [[1, 1, 5], [1, 2, 5], [2, 1, 7], [1, 0, 9], [2, 1, 5], [1, 2, 7]]
"""Status, gender (0 is unknown), and one more fact of each person."""


def put_facebook100(folder: Path) -> None:
    facts = np.array(FACTS, dtype=np.uint16)
    scipy.io.savemat(folder / "data.mat", {"A": links().astype(float), "local_info": facts})


def put_genius(folder: Path) -> None:
    content = {"edge_index": np.array(EDGES).T, "node_feat": X.astype(float), "label": np.array([Y])}
    scipy.io.savemat(folder / "data.mat", content)


def put_elliptic(folder: Path) -> None:
    """Ids are as large as theirs. Column 1 is the step of time; node 3 has no class."""
    ids = [230_000_000 + 7 * n for n in (5, 3, 1, 0, 2, 4)]
    kinds = ["2", "1", "2", "unknown", "2", "1"]
    table = [[ids[n], 1 + n // 3, *X[n]] for n in range(6)]
    (folder / "elliptic_txs_features.csv").write_text(lines(table, ","))
    (folder / "elliptic_txs_edgelist.csv").write_text(
        "txId1,txId2\n" + lines(((ids[a], ids[b]) for a, b in EDGES), ",")
    )
    (folder / "elliptic_txs_classes.csv").write_text(
        "txId,class\n" + lines(zip(ids, kinds, strict=True), ",")
    )


def put_nell(folder: Path) -> None:
    """Things 0 to 2 are in ``allx``, thing 5 is tested, and 3 and 4 are relations without a row."""
    put_planetoid(folder, "nell.0.001", [5])


Put = Callable[[Path], None]
PUT: dict[str, tuple[tuple[str, ...], Put]] = {
    "pyg:Flickr": (("Flickr",), put_saint),
    "pyg:Reddit2": (("Reddit2",), put_saint),
    "pyg:Airports/USA": (("Airports", "usa"), put_airports),
    "pyg:EmailEUCore": (("EmailEUCore",), put_email_eu),
    "pyg:PolBlogs": (("PolBlogs",), put_polblogs),
    "pyg:AttributedGraphDataset/Wiki": (("AttributedGraphDataset", "wiki"), put_attributed),
    "pyg:LINKXDataset/reed98": (("LINKXDataset", "reed98"), put_facebook100),
    "pyg:LINKXDataset/genius": (("LINKXDataset", "genius"), put_genius),
    "pyg:EllipticBitcoinDataset": (("EllipticBitcoinDataset",), put_elliptic),
    "pyg:NELL": (("NELL",), put_nell),
}
"""One dataset of each kind: its folders, and who writes its files."""
