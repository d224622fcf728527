"""Matrices from MATLAB files of version 5. Each size is checked before it is used.

Choice: scipy.io.loadmat is not used, because a damaged file makes it read outside its memory. That ends the
process without a message.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import IO, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fedepd import memory
from fedepd.files import size_of

Matrix: TypeAlias = Any
"""A numpy array, or a ``scipy.sparse.csc_matrix``."""

NUMBERS = {
    1: "<i1",
    2: "<u1",
    3: "<i2",
    4: "<u2",
    5: "<i4",
    6: "<u4",
    7: "<f4",
    9: "<f8",
    12: "<i8",
    13: "<u8",
}
"""The types of numbers in the format."""
MATRIX, PACKED = 14, 15
SPARSE, DENSE = 5, range(6, 16)
"""The classes of numeric arrays in the format. Texts, cells, objects and functions are other classes."""
COMPLEX = 0x0800


class BadMatrix(ValueError):
    """A file that does not follow the format."""


def read_matrices(file: IO[bytes], name: str) -> dict[str, Matrix]:
    """Every numeric matrix of a file by its name. Other content is skipped."""
    head = file.read(128)
    if len(head) < 128 or head[126:128] != b"IM":
        raise BadMatrix("it has no header of version 5")
    found: dict[str, Matrix] = {}
    unfolded = 0
    while len(tag := file.read(8)) == 8:
        kind, length = (int.from_bytes(tag[at : at + 4], "little") for at in (0, 4))
        content = file.read(min(length, size_of(file)))
        if kind == PACKED:
            content = _unpacked(content, file, unfolded, name)
            unfolded += len(content)
            kind, content = int.from_bytes(content[:4], "little"), content[8:]
        if kind == MATRIX:
            found |= _matrix(content)
    return found


def _unpacked(content: bytes, file: IO[bytes], before: int, name: str) -> bytes:
    """Unpack zlib content. Refuses content that is out of proportion to the size of the file."""
    unpack, parts, size = zlib.decompressobj(), [], 0
    while content:
        part = unpack.decompress(content, 2**20)
        size += len(part)
        memory.check_growth(before + size, size_of(file), f"file '{name}'", "fetch it again")
        parts.append(part)
        content = unpack.unconsumed_tail
    return b"".join(parts)


def _elements(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The parts of a matrix as type and bytes.

    Up to 4 bytes are stored inside the tag itself. Longer content is padded to a multiple of 8 bytes.
    """
    at = 0
    while at + 8 <= len(content):
        kind, small = (int.from_bytes(content[at + shift : at + shift + 2], "little") for shift in (0, 2))
        if small:
            yield kind, content[at + 4 : at + 4 + min(small, 4)]
            at += 8
            continue
        kind, length = (int.from_bytes(content[at + shift : at + shift + 4], "little") for shift in (0, 4))
        if at + 8 + length > len(content):
            raise BadMatrix("a part of a matrix is longer than the matrix")
        yield kind, content[at + 8 : at + 8 + length]
        at += 8 + (length + 7) // 8 * 8


def _numbers(element: tuple[int, bytes]) -> NDArray[Any]:
    kind, content = element
    if kind not in NUMBERS or len(content) % np.dtype(NUMBERS[kind]).itemsize:
        raise BadMatrix("a part of a matrix holds no numbers")
    return np.frombuffer(content, dtype=NUMBERS[kind])


def _matrix(content: bytes) -> dict[str, Matrix]:
    parts = list(_elements(content))
    if len(parts) < 3 or len(parts[0][1]) < 4:
        raise BadMatrix("a matrix lacks its flags, sizes or name")
    flags = int.from_bytes(parts[0][1][:4], "little")
    shape, name = tuple(map(int, _numbers(parts[1]))), parts[2][1].decode("latin-1")
    if flags & COMPLEX or (flags & 0xFF != SPARSE and flags & 0xFF not in DENSE):
        return {}
    if len(shape) != 2 or min(shape) < 0:
        raise BadMatrix("a matrix does not have two sizes")
    arrays = [_numbers(part) for part in parts[3:]]
    if flags & 0xFF == SPARSE:
        return {name: _sparse(shape, arrays)}
    if len(arrays) != 1 or arrays[0].size != shape[0] * shape[1]:
        raise BadMatrix("the number of values in a matrix does not match its sizes")
    return {name: arrays[0].reshape(shape, order="F")}


def _sparse(shape: tuple[int, int], arrays: list[NDArray[Any]]) -> sp.csc_matrix:
    """A sparse matrix from row numbers, the start of each column, and values.

    The arrays of rows and values may be longer than the part in use.
    """
    if len(arrays) != 3 or arrays[1].size != shape[1] + 1:
        raise BadMatrix("a sparse matrix lacks a part, or does not have one start per column")
    rows, starts, values = arrays
    starts = starts.astype(np.int64)
    used = int(starts[-1])
    if starts[0] != 0 or (np.diff(starts) < 0).any() or used > min(rows.size, values.size):
        raise BadMatrix("the column starts of a sparse matrix are not in order")
    rows = rows[:used].astype(np.int64)
    if used and (rows.min() < 0 or rows.max() >= shape[0]):
        raise BadMatrix("a sparse matrix names rows that it does not have")
    return sp.csc_matrix((values[:used], rows, starts), shape=shape)
