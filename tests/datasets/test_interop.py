"""Other programs' files in, and files made to do harm kept out: nothing runs, nothing unfolds."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from bounded import bounded
from fedepd.datasets.interop import import_graphml, import_matrices, import_pyg, read_features, read_matrix
from fedepd.datasets.tables import Roles
from fedepd.errors import BadData
from fedepd.types import HIDDEN, Graph


def refused(act: Any, *words: str) -> None:
    with pytest.raises(BadData) as caught:
        act()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message


def path_graph() -> Any:
    """The path a-b-c with a vector, a number and a text at each node."""
    import networkx as nx

    graph = nx.DiGraph([("a", "b"), ("b", "a"), ("b", "c"), ("c", "c")])
    for number, node in enumerate("abc"):
        graph.nodes[node].update(
            label=["yes", "no", None][number], age=number, kind="xyx"[number], x=[number, 1.0]
        )
    return graph


def test_from_networkx() -> None:
    """Nodes keep their order; "no" is class 0.

    The number, the vector's two numbers and the categories x and y are the features.
    """
    graph = Graph.from_networkx(path_graph(), one_hot=True)
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert graph.y.tolist() == [1, 0, HIDDEN]
    assert graph.x.tolist() == [[0, 1, 0, 0, 1], [1, 0, 1, 1, 1], [2, 1, 0, 2, 1]]
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["a", "b", "c"]


def test_networkx_that_cannot_be_used() -> None:
    import networkx as nx

    ragged = path_graph()
    ragged.nodes["c"]["x"] = [1.0]
    refused(lambda: Graph.from_networkx(ragged, one_hot=True), "'x'", "equally long")
    refused(lambda: Graph.from_networkx(nx.path_graph(3)), "no column 'label'")
    refused(lambda: Graph.from_networkx(nx.Graph()), "no rows")


def test_graphml(tmp_path: Path) -> None:
    import networkx as nx

    graph = path_graph()
    for node in graph:
        del graph.nodes[node]["x"]
    del graph.nodes["c"]["label"]
    nx.write_graphml(graph, tmp_path / "g.graphml")
    read, notes = import_graphml(tmp_path / "g.graphml", Roles(features=("age",)))
    assert read.x.tolist() == [[0], [1], [2]]
    assert read.y.tolist() == [1, 0, HIDDEN]
    assert any("self-loops" in note for note in notes)


def test_graphml_that_cannot_be_used(tmp_path: Path) -> None:
    path = tmp_path / "g.graphml"
    path.write_text("<graphml>\n<graph>\n</graphml>")
    refused(lambda: import_graphml(path, Roles()), "g.graphml line 3")
    path.write_text("<other/>")
    refused(lambda: import_graphml(path, Roles()), "g.graphml", "write it again")


PARTS = {
    "x": torch.eye(4),
    "edge_index": torch.tensor([[0, 1, 1], [1, 0, 2]]),
    "y": torch.tensor([0, 1, -1, 1]),
}


def test_pyg_as_data_and_as_a_dict(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    for number, content in enumerate((PARTS, Data(**PARTS))):
        torch.save(content, tmp_path / f"{number}.pt")
        graph = import_pyg(tmp_path / f"{number}.pt")
        assert graph.edge_index.tolist() == [[0, 1], [1, 2]]
        assert graph.y.tolist() == [0, 1, HIDDEN, 1]
        assert torch.equal(graph.x, torch.eye(4))


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"x": None}, "'x'"),
        ({"y": torch.tensor([0.0, 1.0, 0.0, 1.0])}, "float32"),
        ({"edge_index": torch.tensor([[0], [9]])}, "node 9"),
        ({"x": torch.ones(3, 2)}, "4 nodes"),
        ({"x": torch.zeros(1).expand(10**6, 10**6)}, "more numbers than the file holds"),
    ],
)
def test_pyg_that_cannot_be_used(change: dict[str, Any], word: str, tmp_path: Path) -> None:
    torch.save({**PARTS, **change}, tmp_path / "g.pt")
    refused(lambda: import_pyg(tmp_path / "g.pt"), "g.pt", word)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo"])
def test_scipy_and_numpy(kind: str, tmp_path: Path) -> None:
    """An explicit zero is no edge; -1 is an unknown class; text labels are sorted."""
    adjacency = sp.coo_matrix(([1.0, 1.0, 0.0], ([0, 1, 2], [1, 2, 3])), shape=(4, 4))
    sp.save_npz(tmp_path / "a.npz", adjacency.asformat(kind))
    np.save(tmp_path / "x.npy", np.eye(4))
    sp.save_npz(tmp_path / "x.npz", sp.eye(4, format=kind))
    np.save(tmp_path / "y.npy", np.array([0, 1, -1, 1]))
    np.save(tmp_path / "t.npy", np.array(["q", "p", "q", "q"]))
    dense = import_matrices(tmp_path / "a.npz", tmp_path / "x.npy", tmp_path / "y.npy")
    sparse = import_matrices(tmp_path / "a.npz", tmp_path / "x.npz", tmp_path / "t.npy")
    assert dense.edge_index.tolist() == [[0, 1], [1, 2]]
    assert dense.y.tolist() == [0, 1, HIDDEN, 1]
    assert sparse.is_sparse
    assert torch.equal(sparse.x.to_dense(), dense.x)
    assert sparse.label_names == ("p", "q")
    assert sparse.y.tolist() == [1, 0, 1, 1]


def test_matrices_that_cannot_be_used(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.array([0, 1]))
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    sp.save_npz(tmp_path / "a.npz", sp.eye(3, format="csr"))
    refused(
        lambda: import_matrices(tmp_path / "a.npz", tmp_path / "x.npy", tmp_path / "y.npy"), "a.npz", "[3, 3]"
    )
    refused(lambda: read_features(tmp_path / "y.npy"), "y.npy", "matrix")
    np.savez(tmp_path / "b.npz", other=np.ones(3))
    refused(lambda: read_features(tmp_path / "b.npz"), "b.npz", "save_npz")
    for shape, row in (((10**12, 3), 0), ((3, 3), 7)):
        parts: dict[str, Any] = {
            "data": np.ones(1),
            "row": np.array([row]),
            "col": np.array([0]),
            "shape": np.array(shape),
            "format": np.array(b"coo"),
        }
        np.savez(tmp_path / "c.npz", **parts)
        refused(lambda: read_matrix(tmp_path / "c.npz"), "c.npz", str(shape[0]))
    (tmp_path / "d.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    refused(lambda: read_matrix(tmp_path / "d.npy"), "d.npy", "numpy.save")


# --- files made to do harm ----------------------------------------------------------------------------------


class Canary:
    """Unpickling it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


def make_hostile(folder: Path, canary: Canary) -> dict[str, Path]:
    """Files under names that every reader accepts."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    code, objects = pickle.dumps(canary), np.array([canary], dtype=object)
    for name in ("pickle.csv", "pickle.parquet", "pickle.npz", "pickle.npy", "pickle.graphml", "legacy.pt"):
        (folder / name).write_bytes(code)
    np.save(folder / "objects.npy", objects)
    np.savez(folder / "objects.npz", x=objects, y=objects, edge_index=objects)
    torch.save({**PARTS, "x": canary}, folder / "code.pt")
    torch.save(PARTS, folder / "plain.pt")
    with (
        zipfile.ZipFile(folder / "plain.pt") as plain,
        zipfile.ZipFile(folder / "packed.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for member in plain.infolist():
            packed.writestr(member.filename, plain.read(member), zipfile.ZIP_DEFLATED)
    (folder / "plain.pt").unlink()
    laughs = "".join(f'<!ENTITY l{i} "{f"&l{i - 1};" * 10}">' for i in range(1, 10))
    (folder / "laughs.graphml").write_text(f'<!DOCTYPE g [<!ENTITY l0 "ha">{laughs}]><graphml>&l9;</graphml>')
    (folder / "line.csv").write_bytes(b"id,label,f\n" + b"1" * 60_000_000)
    arrays: dict[str, Any] = {"y": np.array([0, 1]), "edge_index": np.array([[0], [1]])}
    np.savez(folder / "bomb.npz", **arrays)
    with (
        zipfile.ZipFile(folder / "bomb.npz", "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as large,
    ):
        np.lib.format.write_array_header_1_0(
            large, {"descr": "<f4", "fortran_order": False, "shape": (2, 135 * 2**20)}
        )
        for _ in range(135):
            large.write(bytes(2**23))
    empty = pa.table({"id": pa.nulls(2**24, pa.int8())})
    with pq.ParquetWriter(folder / "bomb.parquet", empty.schema) as writer:
        for _ in range(9):
            writer.write_table(empty)
    return {path.name: path for path in sorted(folder.iterdir())}


HARM = """
import sys, pyarrow.parquet, pyarrow.compute, networkx, numpy, scipy.sparse
sys.modules["torch_geometric"] = None  # slow to import; code beside its classes is tried in a test of its own
from pathlib import Path
from fedepd.datasets import load
from fedepd.datasets.table_files import read_table
from fedepd.datasets.interop import import_graphml, import_pyg, read_features
from fedepd.datasets.tables import Roles
from fedepd.errors import BadData
import pyarrow
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
pyarrow.array([1]).cast("float64"); list(numpy.ones(3))
readers = {".csv": [read_table], ".parquet": [read_table], ".npz": [load, read_features],
           ".npy": [read_features], ".pt": [import_pyg],
           ".graphml": [lambda path: import_graphml(path, Roles())]}
for path in sorted(Path(sys.argv[1]).iterdir()):
    for read in readers[path.suffix]:
        before = peak()
        try:
            read(path)
        except BadData as refusal:
            print(path.name, round(peak() - before), str(refusal).count("\\n"), str(path) in str(refusal))
        else:
            print(path.name, "was read")
"""


def test_allowing_pyg_classes_allows_nothing_else(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    for content in (Data(**PARTS, note=Canary(tmp_path / "ran")), [Canary(tmp_path / "ran")]):
        torch.save(content, tmp_path / "g.pt")
        refused(lambda: import_pyg(tmp_path / "g.pt"), "g.pt", "torch.save({")
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak memory from /proc")
def test_hostile_files_run_nothing_and_take_no_memory(tmp_path: Path) -> None:
    """Pickles under every name, packed or endless content.

    Each is refused by name, with a growth of the peak below 50 MB.
    """
    (tmp_path / "files").mkdir()
    files = make_hostile(tmp_path / "files", Canary(tmp_path / "ran"))
    command = [sys.executable, "-W", "ignore", "-c", HARM, str(tmp_path / "files")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert {line[0] for line in lines} == files.keys()
    for name, grown, breaks, named in lines:
        assert (breaks, named) == ("0", "True"), name
        assert int(grown) < 50, name
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Canary(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()  # the canary does sing


def graphml(nodes: str, keys: str = "", start: str = "") -> str:
    label = '<key id="l" for="node" attr.name="label" attr.type="string"/>'
    graph = f'{label}{keys}<graph edgedefault="undirected">{nodes}</graph>'
    return f'{start}<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{graph}</graphml>'


NODES = "".join(
    f'<node id="n{n}"><data key="l">{n % 2}</data><data key="a">1</data></node>' for n in range(4)
)
AGE = '<key id="a" for="node" attr.name="age" attr.type="double"/>'
MANY_KEYS = "".join(f'<key id="k{n}" for="node" attr.name="k{n}" attr.type="int"/>' for n in range(3000))
MANY_NODES = "".join(f'<node id="n{n}"><data key="k{n}">1</data></node>' for n in range(3000))
LONG_DEFAULT = (
    f'<key id="d" for="node" attr.name="d" attr.type="string"><default>{"x" * 100_000}</default></key>'
)
HIDDEN_TYPE = '<!DOCTYPE g [<!ENTITY e "x">]>' + graphml(NODES, AGE)

HOSTILE_GRAPHML: dict[str, tuple[bytes, str]] = {
    "UTF-16": (graphml(NODES, AGE, '<?xml version="1.0" encoding="UTF-16"?>').encode("utf-16"), "not UTF-8"),
    "UTF-16 without a mark": (graphml(NODES, AGE).encode("utf-16-le"), "not UTF-8"),
    "UTF-16 of the other order": (graphml(NODES, AGE).encode("utf-16-be"), "not UTF-8"),
    "UTF-16 that hides a document type": (HIDDEN_TYPE.encode("utf-16-le"), "document type"),
    "UTF-32": (graphml(NODES, AGE).encode("utf-32"), "not UTF-8"),
    "UTF-7": (b'<?xml version="1.0" encoding="utf-7"?>' + HIDDEN_TYPE.encode(), "document type"),
    "EBCDIC that hides a document type": (
        b'<?xml version="1.0" encoding="cp037"?>' + HIDDEN_TYPE.encode("cp037"),
        "not UTF-8",
    ),
    "UTF-16 by its declaration only": (
        b'<?xml version="1.0" encoding="UTF-16"?>' + graphml(NODES, AGE).encode(),
        "not UTF-8",
    ),
    "an encoding that nobody knows": (b'<?xml version="1.0" encoding="no-such"?><graphml/>', "not UTF-8"),
    "a document type after a blank": (b"<! DOCTYPE x><graphml/>", "line 1"),
    "an external entity": (b'<!DOCTYPE g SYSTEM "file:///etc/passwd"><graphml/>', "document type"),
    "an entity that is not there": (graphml(NODES + "&lol;", AGE).encode(), "line 1"),
    "nesting without end": (b"<a>" * 200_000, "levels deep"),
    "nesting inside a graph": (graphml("<graph>" * 100 + "</graph>" * 100).encode(), "levels deep"),
    "a value at one node, 3,000 times": (graphml(MANY_NODES, MANY_KEYS).encode(), "claims"),
    "a default at every node": (
        graphml("".join(f'<node id="n{n}"/>' for n in range(1000)), LONG_DEFAULT).encode(),
        "no column",
    ),
    "half a character": (graphml(NODES, AGE).encode() + b"\xed\xa0\x80", "line 1"),
    "no number": (graphml(NODES.replace(">1<", ">x<"), AGE).encode(), "NetworkX"),
    "a type that nobody knows": (graphml(NODES, AGE.replace("double", "os.system")).encode(), "NetworkX"),
    "a key that is not there": (graphml(NODES).encode(), "NetworkX"),
    "an edge without ends": (graphml(NODES + "<edge/>", AGE).encode(), "row 5"),
    "a hyperedge": (graphml(NODES + "<hyperedge/>", AGE).encode(), "NetworkX"),
    "not a number": (graphml(NODES.replace(">1<", ">nan<"), AGE).encode(), "has no value"),
    "no graph": (b"<graphml/>", "write it again"),
    "zeros": (bytes(100), "not UTF-8"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", HOSTILE_GRAPHML)
def test_graphml_made_to_do_harm(case: str, tmp_path: Path) -> None:
    content, word = HOSTILE_GRAPHML[case]
    (tmp_path / "g.graphml").write_bytes(content)
    import networkx  # noqa: F401 (its import is not what is measured)

    with bounded():
        refused(lambda: import_graphml(tmp_path / "g.graphml", Roles()), "g.graphml", word)


@pytest.mark.parametrize("encoding", ["UTF-8", "iso-8859-1", "us-ascii"])
def test_graphml_in_plain_encodings_is_read(encoding: str, tmp_path: Path) -> None:
    start = f'<?xml version="1.0" encoding="{encoding}"?>\n'
    (tmp_path / "g.graphml").write_bytes(graphml(NODES, AGE, start).encode(encoding))
    assert import_graphml(tmp_path / "g.graphml", Roles())[0].x.tolist() == [[1]] * 4


WHOLE = torch.ones(0, 2, dtype=torch.int64)
HOSTILE_TENSORS: dict[str, tuple[dict[str, Any], str]] = {
    "labels that name 2^62 classes": (
        {"y": torch.tensor([0, 1, 2**62, 1])},
        "num_classes is 4611686018427387905",
    ),
    "labels at the end of int64": ({"y": torch.tensor([0, 1, 2**63 - 1, 1])}, "num_classes is"),
    "labels at the other end": ({"y": torch.tensor([0, 1, -(2**63), 1])}, "y holds labels outside"),
    "labels beyond int64": ({"y": torch.tensor([0, 1, 0, 1]).to(torch.uint64)}, "y has type torch.uint64"),
    "edges at the end of int64": ({"edge_index": torch.tensor([[0], [2**63 - 1]])}, "names node"),
    "complex edges": ({"edge_index": torch.ones(2, 1, dtype=torch.complex64)}, "'edge_index'"),
    "another device": ({"x": torch.ones(4, 2, device="meta")}, "x is on the device 'meta'"),
    "sparse features": ({"x": torch.eye(4).to_sparse()}, "'x'"),
    "no nodes": (
        {
            "x": torch.ones(0, 2),
            "y": torch.ones(0, dtype=torch.int64),
            "edge_index": torch.ones(2, 0, dtype=torch.int64),
        },
        "no nodes",
    ),
    "a list": ({"x": [[1.0]] * 4}, "'x'"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", HOSTILE_TENSORS)
def test_tensors_made_to_do_harm(case: str, tmp_path: Path) -> None:
    change, word = HOSTILE_TENSORS[case]
    torch.save({**PARTS, **change}, tmp_path / "g.pt")
    with bounded():
        refused(lambda: import_pyg(tmp_path / "g.pt"), "g.pt", word)


def coo(**change: Any) -> dict[str, Any]:
    parts = {
        "data": np.ones(2),
        "row": np.array([0, 1]),
        "col": np.array([1, 2]),
        "shape": np.array([3, 3]),
        "format": np.array(b"coo"),
    }
    return parts | change


def csc(**change: Any) -> dict[str, Any]:
    parts = {
        "data": np.ones(2),
        "indices": np.array([0, 1]),
        "indptr": np.array([0, 1, 2, 2]),
        "shape": np.array([3, 3]),
    }
    return parts | {"format": np.array(b"csc")} | change


HOSTILE_MATRICES: dict[str, tuple[dict[str, Any], str]] = {
    "a shape of text": (coo(shape=np.array(["a", "b"])), "shape has type"),
    "a shape without end": (coo(shape=np.array([np.inf, 3.0])), "shape has type"),
    "a negative shape": (coo(shape=np.array([-1, 3])), "out of proportion"),
    "a shape of 2^63-1": (coo(shape=np.array([2**63 - 1, 3])), "out of proportion"),
    "one number for a shape": (coo(shape=np.array(3)), "out of proportion"),
    "a kind beyond Unicode": (coo(format=np.array([0x7FFFFFFF], np.uint32).view("<U1")), "save_npz"),
    "a kind that nobody knows": (coo(format=np.array(b"dok")), "save_npz"),
    "many kinds": (coo(format=np.array([b"coo"] * 2)), "save_npz"),
    "complex numbers": (coo(data=np.ones(2, complex)), "data has type"),
    "numbers in a table": (coo(data=np.ones((2, 1))), "do not fit the shape"),
    "rows beyond int64": (coo(row=np.array([0, 2**64 - 1], np.uint64)), "int64"),
    "negative rows": (coo(row=np.array([0, -1])), "do not fit the shape"),
    "rows of text": (coo(row=np.array(["0", "1"])), "row has type"),
    "CSR parts that are not all there": ({"x_data": np.ones(1)}, "no array 'x_indices'"),
    "nothing": ({"other": np.ones(1)}, "save_npz"),
    "columns beyond the rows of a csc": (csc(indices=np.array([0, 9])), "indices leave"),
    "starts of a csc that fall": (csc(indptr=np.array([0, 2, 1, 2])), "indptr must rise"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", HOSTILE_MATRICES)
def test_matrices_made_to_do_harm(case: str, tmp_path: Path) -> None:
    arrays, word = HOSTILE_MATRICES[case]
    np.savez(tmp_path / "a.npz", **arrays)
    with bounded():
        refused(lambda: read_matrix(tmp_path / "a.npz"), "a.npz", word)


HOSTILE_LABELS: dict[str, tuple[Any, str]] = {
    "the end of int64": (np.array([0, 1, 2**63 - 1, 1]), "num_classes is"),
    "the end of uint64": (np.array([0, 1, 2**64 - 1, 1], np.uint64), "int64"),
    "no characters": (np.array([65, 66, 0x7FFFFFFF, 65], np.uint32).view("<U1"), "code points"),
    "dates": (np.array([0, 1, 0, 1], "<M8[s]"), "y.npy"),
    "records": (np.zeros(4, [("a", "<i4")]), "y.npy"),
    "complex numbers": (np.zeros(4, complex), "whole numbers"),
    "one number": (np.array(1), "do not fit"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", HOSTILE_LABELS)
def test_labels_made_to_do_harm(case: str, tmp_path: Path) -> None:
    labels, word = HOSTILE_LABELS[case]
    sp.save_npz(tmp_path / "a.npz", sp.eye(4, format="csr"))
    np.save(tmp_path / "x.npy", np.eye(4))
    np.save(tmp_path / "y.npy", labels)
    with bounded():
        refused(lambda: import_matrices(tmp_path / "a.npz", tmp_path / "x.npy", tmp_path / "y.npy"), word)


@pytest.mark.hostile
@pytest.mark.parametrize("name", ["g.graphml", "g.pt", "a.npz", "x.npy"])
def test_a_pipe_is_no_graph(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    readers: dict[str, Callable[[Path], object]] = {
        "g.graphml": lambda path: import_graphml(path, Roles()),
        "g.pt": import_pyg,
    }
    read: Callable[[Path], object] = readers.get(name, read_matrix)
    with bounded():
        refused(lambda: read(tmp_path / name), name, "regular file")
