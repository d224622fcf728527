"""Old pickles are read without being run."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from fedepd.datasets.inert import read_inert
from fedepd.errors import BadData
from old_pickles import array, matrix, table


def put(folder: Path, content: bytes) -> Path:
    (folder / "ind.cora.x").write_bytes(content)
    return folder / "ind.cora.x"


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float32, np.float64, np.uint8, np.bool_])
def test_an_array_comes_back(tmp_path: Path, dtype: type[np.generic]) -> None:
    wanted = np.array([[1, 0, 3], [0, 5, 6]]).astype(dtype)
    found = read_inert(put(tmp_path, array(wanted)))
    assert isinstance(found, np.ndarray)
    assert found.dtype == wanted.dtype
    assert np.array_equal(found, wanted)


def test_an_array_by_columns_and_one_of_the_other_byte_order_come_back(tmp_path: Path) -> None:
    wanted = np.array([[1, 2, 3], [4, 5, 6]])
    assert np.array_equal(read_inert(put(tmp_path, array(np.asfortranarray(wanted)))), wanted)
    assert np.array_equal(read_inert(put(tmp_path, array(wanted.astype(">i4")))), wanted)


def test_a_matrix_comes_back(tmp_path: Path) -> None:
    wanted = sp.csr_matrix(np.array([[0, 1.5, 0], [2, 0, 0]], dtype=np.float32))
    found = read_inert(put(tmp_path, matrix(wanted)))
    assert sp.issparse(found)
    assert np.array_equal(found.toarray(), wanted.toarray())


def test_a_table_of_lists_comes_back(tmp_path: Path) -> None:
    wanted = {0: [1, 2], 1: [0], 300: [70000, 0], 5: []}
    assert read_inert(put(tmp_path, table(wanted))) == wanted


def test_python_itself_reads_what_the_tests_write() -> None:
    """So the files of these tests are what Python 2 would have left."""
    some = np.array([[1, 0], [0, 2]], dtype=np.int32)
    assert np.array_equal(pickle.loads(array(some), encoding="latin1"), some)
    assert pickle.loads(table({0: [1], 1: [0]}), encoding="latin1") == {0: [1], 1: [0]}


HARMFUL = {
    "a command": b"cos\nsystem\n(S'touch harmed'\ntR.",
    "a command by protocol 2": b"\x80\x02cposix\nsystem\nU\x0ctouch harmed\x85R.",
    "an attribute of an allowed name": b"\x80\x02cnumpy\nload\nU\x01a\x85R.",
    "a name that only begins alike": b"\x80\x02cnumpy.core.multiarray\n_reconstruct2\n.",
    "evaluation": b"\x80\x02c__builtin__\neval\nU\x011\x85R.",
    "protocol 4": pickle.dumps(np.arange(3), protocol=4),
    "objects": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    b"(K\x01K\x01\x85cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb\x89]tb.",
    "a number": b"\x80\x02K\x05.",
    "nothing": b"\x80\x02.",
    "an empty stack": b"\x80\x02R.",
    "no end": b"\x80\x02K\x05",
    "text": b"hello world",
    "a longer text than the file": b"\x80\x02T\xff\xff\xff\x7fabc.",
    "a memory that is not there": b"\x80\x02h\x07.",
    "a list that holds itself": b"\x80\x02]q\x01h\x01a.",
    "a build without an object": b"\x80\x02K\x01K\x02b.",
}


@pytest.mark.parametrize("content", HARMFUL.values(), ids=HARMFUL)
@pytest.mark.hostile
def test_everything_else_is_refused_and_nothing_runs(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = put(tmp_path, content)
    with pytest.raises(BadData, match="is no array as Planetoid's are") as caught:
        read_inert(path)
    assert "\n" not in str(caught.value)
    assert [each.name for each in tmp_path.iterdir()] == ["ind.cora.x"]


def test_a_shape_that_the_bytes_do_not_fill_is_refused(tmp_path: Path) -> None:
    good = array(np.arange(6, dtype=np.int32))
    assert good.count(b"K\x06\x85") == 1
    for shape in (b"K\x07\x85", b"J\xff\xff\xff\x7f\x85", b"J\xff\xff\xff\xff\x85"):
        with pytest.raises(BadData, match="is no array"):
            read_inert(put(tmp_path, good.replace(b"K\x06\x85", shape)))


def test_a_matrix_whose_parts_disagree_is_refused(tmp_path: Path) -> None:
    bad = sp.csr_matrix(np.eye(3, dtype=np.float32))
    bad.indices[:] = 7
    with pytest.raises(BadData, match="is no array"):
        read_inert(put(tmp_path, matrix(bad)))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadData, match="does not exist; fetch it again"):
        read_inert(tmp_path / "none")
