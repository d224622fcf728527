from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bounded import bounded
from fedepd import arrays, memory
from fedepd.datasets import npz
from fedepd.datasets.npz import read_npz, read_unlabelled, write_npz
from fedepd.errors import BadData
from fedepd.network.sparse import to_scipy
from fedepd.types import Graph

Arrays = dict[str, Any]


def dense() -> Arrays:
    """Four nodes on the path 0-1-2-3, two features, two classes."""
    return {
        "edge_index": np.array([[0, 1, 2], [1, 2, 3]]),
        "y": np.array([0, 1, 0, 1]),
        "x": np.array([[1, 0], [0, 1], [1, 1], [0, 0]], dtype=np.float32),
    }


def sparse() -> Arrays:
    """The same graph with the features as CSR parts."""
    arrays = dense()
    del arrays["x"]
    return arrays | {
        "x_data": np.ones(4, dtype=np.float32),
        "x_indices": np.array([0, 1, 0, 1], dtype=np.int32),
        "x_indptr": np.array([0, 1, 2, 4, 4]),
        "x_shape": np.array([4, 2]),
    }


def save(path: Path, arrays: Arrays) -> Path:
    np.savez_compressed(path, **arrays)
    return path


def refused(path: Path, *words: str) -> None:
    """One sentence without a line break that names the file and every word."""
    with pytest.raises(BadData) as caught:
        read_npz(path)
    message = str(caught.value)
    assert "\n" not in message
    for word in (path.name, *words):
        assert word in message


def same(a: Graph, b: Graph) -> None:
    assert torch.equal(a.edge_index, b.edge_index)
    assert torch.equal(a.y, b.y)
    assert a.is_sparse == b.is_sparse
    assert torch.equal(a.x.to_dense(), b.x.to_dense())
    for field in ("num_classes", "label_names", "owner_names", "proxy_features"):
        assert getattr(a, field) == getattr(b, field)
    assert (a.owner is None) == (b.owner is None)
    if a.owner is not None and b.owner is not None:
        assert torch.equal(a.owner, b.owner)


def test_dense_and_sparse_files_hold_the_same_graph(tmp_path: Path) -> None:
    one, other = read_npz(save(tmp_path / "a.npz", dense())), read_npz(save(tmp_path / "b.npz", sparse()))
    assert other.is_sparse
    assert not one.is_sparse
    assert one.name == "a"
    assert torch.equal(one.x, other.x.to_dense())
    assert one.edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]


def test_label_values_become_names_and_set_the_number_of_classes(tmp_path: Path) -> None:
    graph = read_npz(save(tmp_path / "a.npz", dense() | {"label_values": np.array([3, 8, 9])}))
    assert graph.label_names == ("3", "8", "9")
    assert graph.num_classes == 3


def test_optional_arrays(tmp_path: Path) -> None:
    more: Arrays = {"owner": np.array([0, 0, 1, 1]), "owner_names": np.array(["x", "y"])}
    more |= {"label_names": np.array(["p", "q"]), "proxy_features": np.array(True)}
    graph = read_npz(save(tmp_path / "a.npz", dense() | more))
    assert graph.owner is not None
    assert graph.owner.tolist() == [0, 0, 1, 1]
    assert (graph.owner_names, graph.label_names, graph.proxy_features) == (("x", "y"), ("p", "q"), True)


def test_file_named_proxy_has_proxy_features(tmp_path: Path) -> None:
    assert read_npz(save(tmp_path / "a_proxy.npz", dense())).proxy_features
    assert not read_npz(save(tmp_path / "proxy_a.npz", dense())).proxy_features


def test_unlabelled_nodes_directed_edges_and_unsorted_rows_are_fine(tmp_path: Path) -> None:
    """Edge 1->0 doubles 0->1, and 2->2 is a loop.

    A row that lists column 1 before column 0 twice holds [1, 1 + 1].
    """
    arrays = sparse() | {"y": np.array([0, 1, -1, 1]), "edge_index": np.array([[0, 1, 2], [1, 0, 2]])}
    arrays |= {"x_indices": np.array([1, 0, 1, 0]), "x_indptr": np.array([0, 4, 4, 4, 4])}
    graph = read_npz(save(tmp_path / "a.npz", arrays))
    assert graph.edge_index.tolist() == [[0], [1]]
    assert graph.x.to_dense()[0].tolist() == [2, 2]


def test_graph_without_edges(tmp_path: Path) -> None:
    assert (
        read_npz(
            save(tmp_path / "a.npz", dense() | {"edge_index": np.empty((2, 0), dtype=np.int64)})
        ).num_edges
        == 0
    )


@settings(max_examples=25)
@given(data=st.data())
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 8))
    x = torch.tensor(
        data.draw(
            st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=n, max_size=n)
        )
    )
    y = torch.tensor([0, 1, *data.draw(st.lists(st.integers(-1, 3), min_size=n - 2, max_size=n - 2))])
    edges = torch.tensor(
        data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), min_size=1, max_size=9))
    ).T
    owner = (
        torch.tensor(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
        if data.draw(st.booleans())
        else None
    )
    names = ("a", "ü", "c", "d") if data.draw(st.booleans()) else ()
    more: Arrays = {
        "owner": owner,
        "owner_names": ("k", "l", "m") if owner is not None else (),
        "label_names": names,
    }
    graph = Graph.make(x, edges, y, num_classes=4, proxy_features=data.draw(st.booleans()), **more)
    path = tmp_path_factory.mktemp("npz") / "g.npz"
    write_npz(graph, path)
    same(read_npz(path), graph)


def test_sparse_graph_is_written_and_read_back(tmp_path: Path) -> None:
    graph = read_npz(save(tmp_path / "a.npz", sparse()))
    write_npz(graph, tmp_path / "b.npz")
    same(read_npz(tmp_path / "b.npz"), graph)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.npz", "b.npz"]


def test_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = read_npz(save(tmp_path / "a.npz", dense()))
    before = (tmp_path / "a.npz").read_bytes()

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(BadData, match="No space left"):
        write_npz(graph, tmp_path / "a.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]
    assert (tmp_path / "a.npz").read_bytes() == before


def test_write_into_a_missing_folder_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="existing folder"):
        write_npz(read_npz(save(tmp_path / "a.npz", dense())), tmp_path / "no" / "a.npz")


def test_missing_file(tmp_path: Path) -> None:
    refused(tmp_path / "a.npz", "does not exist")


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.npz").touch()
    refused(tmp_path / "a.npz", "is empty")


def test_file_that_is_no_npz(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_text("0 1\n1 2\n")
    refused(tmp_path / "a.npz", "not an npz file", "numpy.savez")


def test_zip_without_arrays(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    refused(tmp_path / "a.npz", "no array 'edge_index'")


@pytest.mark.parametrize("share", [0.3, 0.6, 0.95])
def test_truncated_file(tmp_path: Path, share: float) -> None:
    path = save(tmp_path / "a.npz", dense())
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    refused(path, "truncated or damaged")


def test_flipped_byte(tmp_path: Path) -> None:
    """A stored (uncompressed) array with one changed number fails its checksum."""
    path = tmp_path / "a.npz"
    np.savez(path, **dense())
    content = bytearray(path.read_bytes())
    at = content.index(np.float32(1).tobytes())
    content[at] ^= 1
    path.write_bytes(content)
    refused(path, "truncated or damaged")


def test_garbage_in_place_of_an_array(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", {name: array for name, array in dense().items() if name != "x"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", b"this is not an array")
    refused(path, "truncated or damaged")


def without(name: str) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {key: array for key, array in arrays.items() if key != name}


def put(name: str, array: Any) -> Callable[[Arrays], Arrays]:
    return lambda arrays: arrays | {name: np.asarray(array)}


BAD: dict[str, tuple[Callable[[], Arrays], Callable[[Arrays], Arrays], tuple[str, ...]]] = {
    "object labels": (dense, put("y", np.array([0, 1, 0, "b"], dtype=object)), ("'y'", "Python objects")),
    "object features": (dense, put("x", np.array([[None]] * 4, dtype=object)), ("'x'", "Python objects")),
    "no edges array": (dense, without("edge_index"), ("no array 'edge_index'",)),
    "no labels": (dense, without("y"), ("no array 'y'",)),
    "no features": (dense, without("x"), ("'x'", "x_indptr")),
    "both kinds of features": (sparse, put("x", np.ones((4, 2))), ("'x'", "exactly one of the two")),
    "edges of the wrong shape": (
        dense,
        put("edge_index", np.zeros((3, 2), dtype=int)),
        ("edge_index", "[3, 2]"),
    ),
    "edges not integer": (dense, put("edge_index", [[0.0], [1.0]]), ("edge_index", "float64")),
    "edge beyond the nodes": (dense, put("edge_index", [[0], [4]]), ("edge_index", "node 4", "0..3")),
    "negative edge": (dense, put("edge_index", [[-1], [2]]), ("edge_index", "node -1")),
    "edge beyond int64": (
        dense,
        put("edge_index", np.array([[0], [2**63]], dtype=np.uint64)),
        ("edge_index", "int64"),
    ),
    "labels in columns": (dense, put("y", [[0, 1, 0, 1]]), ("y has shape [1, 4]",)),
    "labels not integer": (dense, put("y", [0.0, 1.0, 0.5, 1.0]), ("y has type float64",)),
    "label below -1": (dense, put("y", [0, 1, -2, 1]), ("y holds labels outside",)),
    "label beyond the nodes": (dense, put("y", [0, 1, 0, 99]), ("y holds labels outside",)),
    "label beyond the names": (
        dense,
        lambda a: a | {"y": np.array([0, 1, 2, 1]), "label_names": np.array(["a", "b"])},
        ("outside 0..1",),
    ),
    "single class": (dense, put("y", [0, 0, 0, 0]), ("single class",)),
    "no labelled node": (dense, put("y", [-1, -1, -1, -1]), ("single class",)),
    "no nodes": (
        dense,
        lambda a: a | {"y": np.empty(0, int), "x": np.empty((0, 2)), "edge_index": np.empty((2, 0), int)},
        ("no nodes",),
    ),
    "features of the wrong length": (dense, put("x", np.ones((3, 2))), ("x has shape [3, 2]", "4 nodes")),
    "one-dimensional features": (dense, put("x", np.ones(4)), ("x has shape [4]",)),
    "no feature columns": (dense, put("x", np.ones((4, 0))), ("x has no columns",)),
    "NaN": (dense, put("x", [[np.nan, 0]] * 4), ("x holds NaN",)),
    "Inf": (dense, put("x", [[np.inf, 0]] * 4), ("x holds NaN or infinite",)),
    "beyond float32": (dense, put("x", [[1e300, 0]] * 4), ("x holds NaN or infinite",)),
    "complex features": (dense, put("x", np.ones((4, 2), dtype=complex)), ("x has type complex128",)),
    "text features": (dense, put("x", [["a", "b"]] * 4), ("x has type",)),
    "sparse NaN": (sparse, put("x_data", [1, np.nan, 1, 1]), ("x holds NaN",)),
    "CSR part missing": (sparse, without("x_indptr"), ("no array 'x_indptr'",)),
    "indptr too short": (sparse, put("x_indptr", [0, 1, 2, 4]), ("x_indptr has shape [4]", "[5]")),
    "indptr falls": (sparse, put("x_indptr", [0, 3, 2, 4, 4]), ("x_indptr must rise",)),
    "indptr ends early": (sparse, put("x_indptr", [0, 1, 2, 3, 3]), ("x_indptr must rise from 0 to 4",)),
    "indptr starts late": (sparse, put("x_indptr", [1, 1, 2, 4, 4]), ("x_indptr must rise",)),
    "column beyond the shape": (sparse, put("x_indices", [0, 1, 0, 2]), ("x_indices leave the range 0..1",)),
    "negative column": (sparse, put("x_indices", [0, 1, 0, -1]), ("x_indices leave the range",)),
    "data and indices differ": (sparse, put("x_data", np.ones(3)), ("x_data [3]", "x_indices [4]")),
    "shape of three numbers": (sparse, put("x_shape", [4, 2, 1]), ("x_shape",)),
    "shape against labels": (
        sparse,
        lambda a: a | {"x_shape": np.array([3, 2]), "x_indptr": np.array([0, 1, 2, 4])},
        ("x has shape",),
    ),
    "owner too short": (dense, put("owner", [0, 1]), ("owner", "4 nodes")),
    "owner negative": (dense, put("owner", [0, 1, -1, 0]), ("owner",)),
    "owner not integer": (dense, put("owner", [0.0, 1, 1, 0]), ("owner has type float64",)),
    "owner beyond its names": (
        dense,
        lambda a: a | {"owner": np.array([0, 1, 2, 0]), "owner_names": np.array(["a", "b"])},
        ("client 2",),
    ),
    "flag of text": (dense, put("proxy_features", "yes"), ("proxy_features has type",)),
    "no number of classes": (dense, put("num_classes", np.empty(0, int)), ("num_classes is []",)),
    "absurdly many classes": (dense, put("num_classes", 10**9), ("num_classes is 1000000000",)),
    "classes against names": (
        dense,
        lambda a: a | {"num_classes": np.array(3), "label_names": np.array(["a", "b"])},
        ("num_classes",),
    ),
    "names of bytes": (dense, put("label_names", np.array([b"a", b"b"])), ("label_names", "unicode")),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_content_is_refused_in_one_sentence(tmp_path: Path, case: str) -> None:
    base, change, words = BAD[case]
    refused(save(tmp_path / "a.npz", change(base())), *words)


@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header parsing")
@settings(max_examples=150)
@given(name=st.sampled_from(sorted(sparse())), at=st.integers(0, 200), byte=st.integers(0, 255))
def test_a_changed_byte_never_crashes(
    tmp_path_factory: pytest.TempPathFactory, name: str, at: int, byte: int
) -> None:
    """The zip is whole, so only the array's own header and numbers are wrong."""
    path = tmp_path_factory.mktemp("fuzz") / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for key, array in sparse().items():
            buffer = io.BytesIO()
            np.save(buffer, array)
            content = bytearray(buffer.getvalue())
            if key == name:
                content[at % len(content)] = byte
            archive.writestr(f"{key}.npy", bytes(content))
    try:
        read_npz(path)
    except BadData:
        refused(path)


def test_pickled_object_is_never_run(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    refused(
        save(tmp_path / "a.npz", dense() | {"x": np.array([[Bomb()]] * 4, dtype=object)}), "Python objects"
    )
    save(tmp_path / "b.npz", dense() | {"extra": np.array([Bomb()], dtype=object)})
    assert read_npz(tmp_path / "b.npz").num_nodes == 4  # an unknown array is not opened
    assert not (tmp_path / "ran").exists()


def header_only(shape: tuple[int, ...]) -> bytes:
    """An .npy file that declares ``shape`` float32 numbers and holds none."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f4", "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def test_header_that_promises_more_than_the_file_holds(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", {name: array for name, array in dense().items() if name != "x"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("x.npy", header_only((4, 10**15)))
    refused(path, "'x'", "declares shape [4, 1000000000000000]")


def test_zip_bomb_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 MB of zeros shrink about 1000-fold.

    With what any file may hold lowered to 1 MB they must be refused before being read.
    """
    path = save(tmp_path / "a.npz", dense() | {"x": np.zeros((4, 2**17), dtype=np.float32)})
    assert read_npz(path).num_features == 2**17

    def unread(*_: Any, **__: Any) -> None:
        raise AssertionError("an array was read")

    monkeypatch.setattr(arrays._Begun, "whole", unread)
    monkeypatch.setenv("FEDEPD_MAX_GB", "0.001")
    refused(path, "the limit is 0.001 GB", "FEDEPD_MAX_GB=1")
    monkeypatch.setattr(memory, "FREE", 2**20)
    refused(path, "claims", "numpy.savez")


def test_real_graphs_have_the_published_shapes(real_data: Path) -> None:
    """Nodes, undirected edges, features, classes as the README beside the files lists them."""
    expected = {
        "actor": (7_600, 26_659, 932, 5, True),
        "amazon_clothing_20": (9_360, 29_077, 9_034, 20, True),
        "cora": (2_708, 5_278, 1_433, 7, True),
        "email": (986, 16_064, 128, 42, False),
        "roman_empire_proxy": (22_662, 32_927, 126, 18, True),
    }
    for name, shape in expected.items():
        graph = read_npz(real_data / "graphs" / f"{name}.npz")
        assert (
            graph.num_nodes,
            graph.num_edges,
            graph.num_features,
            graph.num_classes,
            graph.is_sparse,
        ) == shape
        assert graph.proxy_features == name.endswith("_proxy")
        assert len(graph.label_names) == graph.num_classes


def test_sparse_real_graph_survives_a_round_trip(real_data: Path, tmp_path: Path) -> None:
    graph = read_npz(real_data / "graphs" / "cora.npz")
    write_npz(graph, tmp_path / "cora.npz")
    again = read_npz(tmp_path / "cora.npz")
    assert (to_scipy(again.x) != to_scipy(graph.x)).nnz == 0
    assert torch.equal(again.edge_index, graph.edge_index)


# --- files made to do harm ----------------------------------------------------------------------------------


def text_of(*codes: int) -> np.ndarray[Any, Any]:
    return np.array(codes, dtype=np.uint32).view(f"<U{len(codes)}")


HOSTILE: dict[str, tuple[Callable[[], Arrays], Callable[[Arrays], Arrays], tuple[str, ...]]] = {
    "classes that nothing bears out": (
        dense,
        put("num_classes", 10_000),
        ("num_classes is 10000", "4 labelled nodes"),
    ),
    "classes at the end of int64": (
        dense,
        put("num_classes", 2**63 - 1),
        ("num_classes is 9223372036854775807",),
    ),
    "classes beyond int64": (dense, put("num_classes", np.uint64(2**64 - 1)), ("num_classes", "int64")),
    "no classes": (dense, put("num_classes", 0), ("y holds labels outside",)),
    "fewer than no classes": (dense, put("num_classes", -(2**63)), ("y holds labels outside",)),
    "a fraction of classes": (dense, put("num_classes", 2.5), ("num_classes has type float64",)),
    "names of classes without end": (
        dense,
        put("label_names", [str(n) for n in range(5000)]),
        ("num_classes is 5000",),
    ),
    "values of classes without end": (dense, put("label_values", np.arange(5000)), ("num_classes is 5000",)),
    "values of classes that are complex": (
        dense,
        put("label_values", np.ones(2, complex)),
        ("label_values has type",),
    ),
    "values of classes in bytes": (
        dense,
        put("label_values", np.array([b"a", b"b"])),
        ("label_values has type",),
    ),
    "labels at the ends of int64": (
        dense,
        put("y", [0, 1, 2**63 - 1, -(2**63)]),
        ("y holds labels outside",),
    ),
    "labels beyond int64": (
        dense,
        put("y", np.array([0, 1, 0, 2**64 - 1], dtype=np.uint64)),
        ("y holds", "int64"),
    ),
    "one label without a list": (dense, put("y", 1), ("y has shape []",)),
    "one number for edges": (dense, put("edge_index", 1), ("edge_index has shape []",)),
    "one number for features": (dense, put("x", 1.0), ("x has shape []",)),
    "features in a cube": (dense, put("x", np.ones((4, 2, 2))), ("x has shape [4, 2, 2]",)),
    "one owner without a list": (dense, put("owner", 0), ("owner must give",)),
    "owner beyond int64": (
        dense,
        put("owner", np.array([0, 0, 0, 2**63], dtype=np.uint64)),
        ("owner holds", "int64"),
    ),
    "2^40 columns": (sparse, put("x_shape", [4, 2**40]), ("1,099,511,627,776 columns",)),
    "2^63-1 columns": (sparse, put("x_shape", [4, 2**63 - 1]), ("columns for 4 numbers",)),
    "2^40 rows": (sparse, put("x_shape", [2**40, 2]), ("x_indptr has shape [5]",)),
    "2^63-1 rows": (sparse, put("x_shape", [2**63 - 1, 2]), ("x_indptr has shape [5]",)),
    "negative rows": (sparse, put("x_shape", [-1, 2]), ("x_shape is [-1, 2]",)),
    "a fractional shape": (sparse, put("x_shape", [4.0, 2.0]), ("x_shape has type float64",)),
    "starts at the ends of int64": (
        sparse,
        put("x_indptr", [0, 2**63 - 1, -(2**63), 4, 4]),
        ("x_indptr must rise",),
    ),
    "starts beyond the numbers and back": (
        sparse,
        put("x_indptr", [0, 10**9, 2, 4, 4]),
        ("x_indptr must rise",),
    ),
    "columns at the end of int64": (sparse, put("x_indices", [0, 1, 0, 2**63 - 1]), ("x_indices leave",)),
    "columns beyond int64": (
        sparse,
        put("x_indices", np.array([0, 1, 0, 2**64 - 1], dtype=np.uint64)),
        ("x_indices holds", "int64"),
    ),
    "sparse features in a table": (sparse, put("x_data", np.ones((2, 2))), ("x_data [2, 2]",)),
    "a label name beyond Unicode": (
        dense,
        lambda a: a | {"label_names": text_of(0x7FFFFFFF, 65)},
        ("label_names holds code points",),
    ),
    "a label name of half a character": (
        dense,
        lambda a: a | {"label_names": text_of(0xD800, 65)},
        ("label_names holds code points",),
    ),
    "a label value beyond Unicode": (
        dense,
        lambda a: a | {"label_values": text_of(0x7FFFFFFF, 65)},
        ("label_values holds code points",),
    ),
    "an owner's name beyond Unicode": (
        dense,
        lambda a: a | {"owner_names": text_of(0x110000)},
        ("owner_names holds code points",),
    ),
    "a node's name beyond Unicode": (
        dense,
        lambda a: a | {"node_ids": text_of(0xFFFFFFFF)},
        ("node_ids holds code points",),
    ),
    "a schema beyond Unicode": (
        dense,
        lambda a: a | {"schema": text_of(0xDFFF)},
        ("schema holds code points",),
    ),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", HOSTILE)
def test_content_made_to_do_harm(tmp_path: Path, case: str) -> None:
    base, change, words = HOSTILE[case]
    with bounded():
        refused(save(tmp_path / "a.npz", change(base())), *words)


@pytest.mark.hostile
@pytest.mark.parametrize(
    "case", ["one number for features", "features in a cube", "2^40 columns", "a node's name beyond Unicode"]
)
def test_a_graph_to_classify_is_read_as_strictly(tmp_path: Path, case: str) -> None:
    base, change, words = HOSTILE[case]
    with pytest.raises(BadData) as caught:
        read_unlabelled(save(tmp_path / "a.npz", change(base())), 2)
    assert all(word in str(caught.value) for word in words)


@pytest.mark.hostile
def test_a_part_with_more_classes_than_any_machine_can_count(tmp_path: Path) -> None:
    """A part may name the classes of the whole, but tables [C, C] of 10^6 classes are 320 terabytes."""
    path = save(tmp_path / "a.npz", dense() | {"num_classes": np.array(10**6)})
    with bounded(), pytest.raises(BadData, match=r"num_classes is 1000000, .* would need"):
        read_npz(path, part=True)
    assert read_npz(save(path, dense() | {"num_classes": np.array(1000)}), part=True).num_classes == 1000


@pytest.mark.hostile
def test_what_shrinks_like_a_bomb_is_written_so_that_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense one-hot features shrink 300-fold.

    With what any file may hold lowered to 1 MB they would be refused.
    """
    monkeypatch.setattr(npz, "FREE", 2**20)
    monkeypatch.setattr(memory, "FREE", 2**20)
    graph = Graph.make(torch.zeros(4, 2**17), torch.tensor([[0], [1]]), torch.tensor([0, 1, 0, 1]))
    write_npz(graph, tmp_path / "a.npz")
    same(read_npz(tmp_path / "a.npz"), graph)


@pytest.mark.hostile
def test_a_graph_takes_a_name_that_can_be_shown(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff\x1b[31m.npz")
    save(tmp_path / "a.npz", dense()).rename(path)
    assert read_npz(path).name == "??[31m"
