"""MATLAB files as scipy writes them, and files that would make scipy's own reader read outside its memory."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from bounded import bounded
from fedepd.datasets.matlab import BadMatrix, read_matrices


def read(content: bytes, tmp_path: Any) -> Any:
    (tmp_path / "a.mat").write_bytes(content)
    with (tmp_path / "a.mat").open("rb") as file:
        return read_matrices(file, "a.mat")


def saved(arrays: dict[str, Any], packed: bool = False) -> bytes:
    buffer = io.BytesIO()
    scipy.io.savemat(buffer, arrays, do_compression=packed)
    return buffer.getvalue()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", ["f8", "f4", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"])
def test_dense_matrices_are_those_that_scipy_wrote(kind: str, packed: bool, tmp_path: Any) -> None:
    for shape in ((1, 1), (1, 3), (3, 1), (2, 5), (0, 0)):
        array = np.arange(np.prod(shape)).reshape(shape).astype(kind)
        found = read(saved({"a": array, "b": array + 1}, packed), tmp_path)
        assert found.keys() == {"a", "b"}
        assert np.array_equal(found["a"], array)
        assert found["a"].shape == shape


@pytest.mark.parametrize("packed", [False, True])
def test_sparse_matrices_are_those_that_scipy_wrote(packed: bool, tmp_path: Any) -> None:
    for seed, density in ((0, 0.3), (1, 0.0), (2, 1.0)):
        matrix = sp.random(5, 4, density, format="csc", random_state=seed)
        assert (read(saved({"a": matrix}, packed), tmp_path)["a"] != matrix).nnz == 0


def test_texts_cells_and_complex_numbers_are_passed_over(tmp_path: Any) -> None:
    cell = np.empty((1, 2), dtype=object)
    cell[0, 0], cell[0, 1] = 1, "x"
    found = read(
        saved({"t": "text", "c": cell, "s": {"field": 1}, "z": np.ones(2) * 1j, "ok": np.ones((1, 2))}),
        tmp_path,
    )
    assert found.keys() == {"ok"}


def element(kind: int, content: bytes) -> bytes:
    return struct.pack("<II", kind, len(content)) + content + bytes(-len(content) % 8)


def matrix(shape: tuple[int, ...], *parts: bytes, cls: int = 6, name: bytes = b"a") -> bytes:
    head = (
        element(6, struct.pack("<II", cls, 0))
        + element(5, struct.pack(f"<{len(shape)}i", *shape))
        + element(1, name)
    )
    return b" " * 124 + b"\x00\x01IM" + element(14, head + b"".join(parts))


def ints(*values: int) -> bytes:
    return element(5, struct.pack(f"<{len(values)}i", *values))


def doubles(*values: float) -> bytes:
    return element(9, struct.pack(f"<{len(values)}d", *values))


HOSTILE = {
    "no header": b"MATLAB 5.0",
    "another order of bytes": b" " * 124 + b"\x00\x01MI",
    "no parts": b" " * 124 + b"\x00\x01IM" + element(14, b""),
    "a part beyond the matrix": b" " * 124
    + b"\x00\x01IM"
    + element(14, struct.pack("<II", 6, 2**31) + bytes(32)),
    "more numbers than there are": matrix((2**30, 2**30), doubles(1.0)),
    "sizes whose product is one": matrix((-1, -1), doubles(1.0)),
    "three sizes": matrix((1, 1, 1), doubles(1.0)),
    "no sizes": matrix((), doubles(1.0)),
    "numbers of no type": matrix((1, 1), element(99, bytes(8))),
    "half a number": matrix((1, 1), element(9, bytes(7))),
    "no numbers": matrix((1, 1)),
    "rows outside": matrix((2, 2), ints(0, 10**6), ints(0, 1, 2), doubles(1, 1), cls=5),
    "negative rows": matrix((2, 2), ints(0, -1), ints(0, 1, 2), doubles(1, 1), cls=5),
    "starts that fall": matrix((2, 2), ints(0, 1), ints(0, 2, 1), doubles(1, 1), cls=5),
    "starts beyond the values": matrix((2, 2), ints(0, 1), ints(0, 1, 10**9), doubles(1, 1), cls=5),
    "too few starts": matrix((2, 2**30), ints(0, 1), ints(0, 1, 2), doubles(1, 1), cls=5),
    "a sparse matrix without values": matrix((2, 2), ints(0, 1), ints(0, 1, 2), cls=5),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", HOSTILE)
def test_files_made_to_do_harm(case: str, tmp_path: Any) -> None:
    with bounded(megabytes=50), pytest.raises(BadMatrix):
        read(HOSTILE[case], tmp_path)
