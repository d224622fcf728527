from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bounded import bounded
from fedepd.datasets import graph_sha256, load
from fedepd.datasets.npz import pack, read_npz, read_unlabelled
from fedepd.datasets.packed import TABLE, is_packed, read_packed, write_packed
from fedepd.errors import BadConfig, BadData
from fedepd.types import Graph


def graph(sparse: bool = False) -> Graph:
    """Four nodes on the path 0-1-2-3, two features, two classes, with everything that a graph may have."""
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [0.0, 0.0]])
    return Graph.make(
        x.to_sparse_csr() if sparse else x,
        torch.tensor([[0, 1, 2], [1, 2, 3]]),
        torch.tensor([0, 1, 0, -1]),
        num_classes=2,
        name="path",
        label_names=("rare", "common"),
        owner=torch.tensor([0, 0, 1, 1]),
        owner_names=("north", "south"),
        node_ids=np.array(["a", "b", "c", "d"]),
        time=torch.tensor([1.0, 2.0, 3.0, float("nan")], dtype=torch.float64),
        time_name="opened",
        edge_weight=torch.tensor([1.0, 2.0, 0.5]),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pack(graph(), tmp_path / "path")
    return tmp_path / "path"


@pytest.mark.parametrize("sparse", [False, True])
def test_a_packed_graph_is_the_graph(tmp_path: Path, sparse: bool) -> None:
    one = graph(sparse)
    pack(one, tmp_path / "path")
    other = load(tmp_path / "path")
    assert graph_sha256(other) == graph_sha256(one)
    for field in ("num_classes", "name", "label_names", "owner_names", "time_name", "proxy_features"):
        assert getattr(other, field) == getattr(one, field)
    assert other.owner is not None
    assert other.owner.tolist() == [0, 0, 1, 1]
    assert other.node_ids is not None
    assert other.node_ids.tolist() == ["a", "b", "c", "d"]


def test_dense_features_are_mapped_and_writing_into_them_reaches_no_file(folder: Path) -> None:
    before = (folder / "x.npy").read_bytes()
    read = read_npz(folder)
    assert isinstance(read_packed(folder, ("x",))["x"].base, np.memmap)
    read.x.zero_()
    assert (folder / "x.npy").read_bytes() == before
    assert read_npz(folder).x.tolist() == graph().x.tolist()


def test_nodes_without_classes_come_from_a_folder_too(folder: Path) -> None:
    (folder / "y.npy").unlink()
    assert read_unlabelled(folder, 2).y.tolist() == [-1] * 4


def test_no_array_and_an_array_of_nothing(tmp_path: Path) -> None:
    write_packed({"x": np.empty((0, 3), np.float32), "number": np.array(7)}, tmp_path / "a")
    read = read_packed(tmp_path / "a", ("x",), ("number", "other"))
    assert read["x"].shape == (0, 3)
    assert read["number"].item() == 7
    assert "other" not in read


def test_a_folder_that_holds_something_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(BadConfig, match="is not empty"):
        pack(graph(), tmp_path)
    assert os.listdir(tmp_path) == ["mine"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second array is an object, which is never written."""
    with pytest.raises(BadConfig, match="cannot write"):
        write_packed({"x": np.eye(2), "y": np.array([None])}, tmp_path / "a")
    assert not (tmp_path / "a").exists()


def rewritten(**changed: Any) -> Callable[[Path], None]:
    """Change the row of x in the table."""

    def change(folder: Path) -> None:
        table = json.loads((folder / TABLE).read_text())
        table["arrays"]["x"].update(changed)
        (folder / TABLE).write_text(json.dumps(table))

    return change


def other_x(array: Any) -> Callable[[Path], object]:
    return lambda folder: np.save(folder / "x.npy", array)


def in_x(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / "x.npy").write_bytes(change((folder / "x.npy").read_bytes()))


def linked(folder: Path) -> None:
    (folder / "x.npy").rename(folder.parent / "elsewhere.npy")
    (folder / "x.npy").symlink_to(folder.parent / "elsewhere.npy")


def piped(folder: Path) -> None:
    (folder / "x.npy").unlink()
    os.mkfifo(folder / "x.npy")


def objects(folder: Path) -> None:
    np.save(folder / "x.npy", np.array([[None]]), allow_pickle=True)


def huge_file(folder: Path) -> None:
    """A sound header of 9.6 TB in a file of that size that takes no room."""
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (4, 600000000000), }"
    start = b"\x93NUMPY\x01\x00" + (len(header) + 1).to_bytes(2, "little") + header.encode() + b"\n"
    with (folder / "x.npy").open("wb") as file:
        file.write(start)
        file.truncate(len(start) + 4 * 4 * 600_000_000_000)
    rewritten(shape=[4, 600_000_000_000])(folder)


HARM: dict[str, tuple[Callable[[Path], object], str]] = {
    "wrong type": (other_x(np.eye(4, 2)), "has the dtype <f8, but graph.json gives <f4"),
    "wrong shape": (other_x(np.eye(3, 2, dtype=np.float32)), r"has the shape \[3, 2\], but"),
    "by columns": (other_x(np.asfortranarray(np.eye(4, 2, dtype=np.float32))), "stored by columns"),
    "other numbers": (other_x(np.ones((4, 2), np.float32)), "does not have the sha256"),
    "short": (in_x(lambda content: content[:-1]), "the file is damaged"),
    "long": (in_x(lambda content: content + b"\0"), "the file is damaged"),
    "empty": (in_x(lambda content: b""), "cannot be read"),
    "no header": (in_x(lambda content: b"x" * 200), "cannot be read"),
    "huge header": (in_x(lambda content: content[:8] + b"\xff\xff" + b"(" * 70_000), "cannot be read"),
    "huge file": (huge_file, "more memory than any machine has|GB of memory"),
    "objects": (objects, "holds Python objects"),
    "link": (linked, "it is a link"),
    "pipe": (piped, "it is not a regular file"),
    "missing": (lambda folder: (folder / "x.npy").unlink(), "cannot be read"),
    "table of text": (lambda folder: (folder / TABLE).write_text("no"), "not valid JSON"),
    "table of another kind": (lambda folder: (folder / TABLE).write_text("[]"), "not a table"),
    "no sha256": (rewritten(sha256="12"), "not a sha256"),
    "negative shape": (rewritten(shape=[-1, 2]), "not a whole number"),
    "type of no array": (rewritten(dtype=7), "not a text"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", HARM)
def test_a_folder_made_to_do_harm_is_refused_in_one_sentence(folder: Path, case: str) -> None:
    harm, says = HARM[case]
    harm(folder)
    with bounded(5, 400), pytest.raises(BadData, match=says) as caught:
        load(folder)
    assert "\n" not in str(caught.value)
    assert "'fedepd data pack'" in str(caught.value) or case in ("objects", "huge file")


@pytest.mark.hostile
def test_numbers_out_of_range_are_refused_as_in_a_file(tmp_path: Path) -> None:
    """The arrays are whole, but edge 0-9 leaves the four nodes."""
    arrays = {"x": np.eye(4, 2, dtype=np.float32), "edge_index": np.array([[0], [9]]), "y": np.arange(4) % 2}
    write_packed(arrays, tmp_path / "a")
    with pytest.raises(BadData, match=r"file '.*a': edge_index names node 9"):
        load(tmp_path / "a")


def test_a_folder_of_anything_else_is_none(tmp_path: Path) -> None:
    assert not is_packed(tmp_path)
    assert not is_packed("a\0b")
    write_packed({"x": np.eye(2)}, tmp_path / "a")
    with pytest.raises(BadData, match="has no array 'edge_index', only"):
        load(tmp_path / "a")
