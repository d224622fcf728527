"""The arrays of an npz file that somebody else may have written.

Nothing is unpickled, and nothing is allocated before the declared sizes have been checked.
"""

from __future__ import annotations

import io
import math
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedepd.errors import BadData
from fedepd.memory import check_growth
from fedepd.shown import shown

Arrays = dict[str, NDArray[Any]]

MAX_MEMBERS = 1000
HEADER = 10_100
"""Bytes that are looked at for an array's header; numpy takes at most 10,000 characters."""
PLAIN = "biufcSU"
"""Kinds of numbers and text; records, dates and objects are not plain."""

DAMAGE = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, TypeError, SyntaxError, TokenError, RuntimeError, OSError,
    OverflowError, LookupError, AttributeError, AssertionError, MemoryError,
)  # fmt: skip
"""What zipfile, numpy and other readers raise on files that are cut, damaged, encrypted or unreadable."""


def spelled(path: str | Path) -> str:
    """A file's name as a message shows it."""
    return shown(path, 300)


def reason(error: BaseException) -> str:
    """What a library says of a file, as one short line."""
    return shown(" ".join(str(error).split()), 200)


def open_file(path: str | Path) -> IO[bytes]:
    """A regular file that has content; a pipe, a folder or a device is refused and never waited for."""
    name = spelled(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise BadData(f"file '{name}' may not be read; change its permissions") from None
    except (OSError, ValueError) as error:
        missing = isinstance(error, (FileNotFoundError, NotADirectoryError, ValueError))
        what = "does not exist" if missing else f"cannot be opened ({getattr(error, 'strerror', '')})"
        raise BadData(f"file '{name}' {what}; check the path") from None
    file = os.fdopen(handle, "rb") if stat.S_ISREG(os.fstat(handle).st_mode) else None
    if file is None:
        os.close(handle)
        raise BadData(f"'{name}' does not exist as a regular file: it is a folder, a pipe or a device; check the path")
    if size_of(file) == 0:
        file.close()
        raise BadData(f"file '{name}' is empty; write or download it again")
    return file


def size_of(file: IO[bytes]) -> int:
    return os.fstat(file.fileno()).st_size


def read_arrays(path: str | Path, required: Iterable[str], optional: Iterable[str] = ()) -> Arrays:
    """The named arrays of an npz file; other members are not even opened."""
    name, required = f"file '{spelled(path)}'", tuple(required)
    with open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = _members(archive, size_of(file), name)
                if missing := [key for key in required if key not in members]:
                    held = shown(sorted(members), 300)
                    raise BadData(f"{name} has no array '{missing[0]}'; it holds {held}, add the missing one")
                wanted = {key: members[key] for key in (*required, *optional) if key in members}
                _check_sizes(archive, wanted, size_of(file), name)
                return {key: _read_member(archive, info) for key, info in wanted.items()}
        except DAMAGE as error:
            file.seek(0)
            kind = "truncated or damaged" if file.read(2) == b"PK" else "not an npz file"
            raise BadData(f"{name} is {kind} ({reason(error)}); write it again with numpy.savez or fedepd.datasets.write_npz") from None


def _members(archive: zipfile.ZipFile, size: int, name: str) -> dict[str, zipfile.ZipInfo]:
    """The arrays by name; an archive that no program writes, with members twice or one over another, is refused."""
    infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    members = {info.filename.removesuffix(".npy"): info for info in infos}
    if len(archive.infolist()) > MAX_MEMBERS or len(members) < len(infos):
        what = "has an array twice" if len(members) < len(infos) else f"has more than {MAX_MEMBERS:,} members"
        raise BadData(f"{name} {what}; write it again with numpy.savez")
    ends = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        if info.header_offset < ends or info.compress_size > size:
            raise BadData(f"{name} has members that lie over each other; write it again with numpy.savez")
        ends = info.header_offset + info.compress_size
    return members


def _check_sizes(archive: zipfile.ZipFile, wanted: Mapping[str, zipfile.ZipInfo], size: int, name: str) -> None:
    """From the directory first, then from the arrays' own headers; zipfile never gives more than the directory says."""
    cure = "save it again with numpy.savez, or sparse features as CSR parts"
    check_growth(sum(info.file_size for info in wanted.values()), size, name, cure)
    unfolded = 0
    for key, info in wanted.items():
        what = f"{name}: array '{key}'"
        # Choice: numpy writes these two; zipfile unpacks others without a bound.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadData(f"{what} is packed in a way that numpy never does; {cure}")
        with archive.open(info) as member:
            unfolded += _declared(member, info, what)
        check_growth(unfolded, size, what, cure)


def _declared(member: IO[bytes], info: zipfile.ZipInfo, what: str) -> int:
    """The bytes that an array takes in the type it is kept in; its header and the directory must agree."""
    start = io.BytesIO(member.read(HEADER))
    version = npy.read_magic(start)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read_header(start)
    if dtype.hasobject:
        raise BadData(f"{what} holds Python objects, which are never loaded; save it as a numeric or unicode array")
    items = math.prod(shape)
    if dtype.kind not in PLAIN or dtype.subdtype is not None or (items and not dtype.itemsize):
        raise BadData(f"{what} holds {shown(dtype)}; save it as a numeric or unicode array")
    if min(shape, default=0) < 0 or start.tell() + items * dtype.itemsize != info.file_size:
        declared = shown(list(shape))
        raise BadData(f"{what} declares shape {declared} but holds {info.file_size} bytes; the file is damaged, write it again")
    return items * max(dtype.itemsize, 8 if dtype.kind in "iu" else 4)


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(info) as member:
        array: NDArray[Any] = npy.read_array(member, allow_pickle=False)
        member.read(1)  # reaching the end is what makes zipfile compare the checksum
    return array


def check_text(array: NDArray[np.str_], name: str) -> None:
    """Refuse code points that are no characters: numpy keeps any 32-bit number, and Python fails on some of them much later."""
    codes = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).view(np.uint32) if array.size else np.empty(0, np.uint32)
    if bool(((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()):
        raise BadData(f"{name} holds code points that are no characters; write the names again as unicode text")
