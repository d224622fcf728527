"""Writes what Python 2 left when it pickled arrays, matrices and tables of lists by protocol 2."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import scipy.sparse as sp
from numpy.typing import NDArray


def text(content: bytes) -> bytes:
    if len(content) < 256:
        return b"U" + struct.pack("<B", len(content)) + content
    return b"T" + struct.pack("<i", len(content)) + content


def number(value: int) -> bytes:
    if 0 <= value < 256:
        return b"K" + struct.pack("<B", value)
    return b"M" + struct.pack("<H", value) if 0 <= value < 65536 else b"J" + struct.pack("<i", value)


def sizes(values: Sequence[int]) -> bytes:
    return b"".join(map(number, values)) + {1: b"\x85", 2: b"\x86"}[len(values)]


def inner(values: NDArray[Any]) -> bytes:
    """An array without the beginning and the end of a file."""
    by_column = values.ndim > 1 and not values.flags.c_contiguous
    kind = values.dtype.str  # "<f4"
    dtype = b"cnumpy\ndtype\n" + text(kind[1:].encode()) + b"K\x00K\x01\x87R"
    dtype += b"(K\x03" + text(kind[:1].encode()) + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    flag = b"\x88" if by_column else b"\x89"
    content = values.tobytes(order="F" if by_column else "C")
    return made + b"(K\x01" + sizes(values.shape) + dtype + flag + text(content) + b"tb"


def array(values: NDArray[Any]) -> bytes:
    return b"\x80\x02" + inner(values) + b"."


def matrix(values: sp.csr_matrix) -> bytes:
    parts = b"".join(
        text(name.encode()) + inner(getattr(values, name)) for name in ("indptr", "indices", "data")
    )
    state = b"}(" + text(b"_shape") + sizes(values.shape) + parts + b"u"
    return b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81" + state + b"b."


def table(lists: Mapping[int, Sequence[int]]) -> bytes:
    made = b"\x80\x02ccollections\ndefaultdict\nc__builtin__\nlist\n\x85R("
    for key, values in lists.items():
        many = b"(" + b"".join(map(number, values)) + b"e"
        made += number(key) + b"]" + (number(values[0]) + b"a" if len(values) == 1 else many)
    return made + b"u."
