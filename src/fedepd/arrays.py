"""Read the arrays of an npz file that somebody else may have written.

Nothing is unpickled. Memory is allocated only after the declared sizes have been checked.
"""

from __future__ import annotations

import errno
import io
import math
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedepd.errors import BadData
from fedepd.files import DAMAGE, open_regular, size_of
from fedepd.memory import check_growth
from fedepd.shown import shown

Arrays = dict[str, NDArray[Any]]

MAX_MEMBERS = 1000
HEADER = 10_100
"""Bytes that are searched for an array's header. numpy accepts headers of at most 10,000 characters."""
READERS = {
    (1, 0): npy.read_array_header_1_0,
    **dict.fromkeys(((2, 0), (3, 0)), npy.read_array_header_2_0),  # 3.0 differs in the names of records only
}
"""Readers of a header by its format. numpy knows no other format."""
PIECE = 2**18
"""Bytes of an array that are unpacked at a time."""
PLAIN = "biufcSU"
"""The numpy kinds of numbers and text. Records, dates and objects are not plain."""

OURS = 2**30
"""Most bytes that the arrays of a run folder may unpack to.

An honest confusion matrix is nearly all zeros, so its ratio of compression says nothing.
"""
WRITE_AGAIN = "write it again with numpy.savez or fedepd.datasets.write_npz"


def spelled(path: str | Path) -> str:
    """A file's name for a message."""
    return shown(path, 300)


def reason(error: BaseException) -> str:
    """A library's error message as one short line."""
    return shown(" ".join(str(error).split()), 200)


def open_file(path: str | Path, name: str = "", cure: str = "check the path") -> IO[bytes]:
    """Open a regular file that is not empty.

    A pipe, a folder or a device is refused at once, without waiting.
    """
    name = f"file '{name or spelled(path)}'"
    try:
        file = open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise BadData(f"{name} does not exist; {cure}") from None
    except PermissionError:
        raise BadData(f"{name} cannot be read (permission denied); change its permissions") from None
    except OSError as error:
        what = "does not exist as a regular file" if error.errno == errno.EINVAL else "cannot be read"
        raise BadData(f"{name} {what} ({error.strerror}); {cure}") from None
    if size_of(file) == 0:
        file.close()
        raise BadData(f"{name} is empty; {cure}")
    return file


def read_arrays(
    path: str | Path,
    required: Iterable[str],
    optional: Iterable[str] = (),
    limit: int | None = None,
    cure: str = WRITE_AGAIN,
    name: str = "",
) -> Arrays:
    """The named arrays of an npz file. Other members are not opened.

    ``limit``: most bytes that the arrays may unpack to. Without it, the file's size and the machine's memory
    decide. ``name``: the name of the file in an error, if not its path.
    """
    required = tuple(required)
    with open_file(path, name, "check the path" if cure == WRITE_AGAIN else cure) as file:
        name, size = f"file '{name or spelled(path)}'", size_of(file)
        try:
            with zipfile.ZipFile(file) as archive:
                members = _members(archive, size, name, cure)
                if missing := [key for key in required if key not in members]:
                    raise BadData(
                        f"{name} has no array '{missing[0]}', only {shown(sorted(members), 300)}; {cure}"
                    )
                wanted = {
                    key: members[key] for key in dict.fromkeys((*required, *optional)) if key in members
                }
                with ExitStack() as stack:
                    begun = _begin(archive, stack, wanted, size, limit, name, cure)
                    return {key: member.whole() for key, member in begun.items()}
        except DAMAGE as error:
            file.seek(0)
            kind = "truncated or damaged" if file.read(2) == b"PK" else "not an npz file"
            raise BadData(f"{name} is {kind} ({reason(error)}); {cure}") from None


def _members(archive: zipfile.ZipFile, size: int, name: str, cure: str) -> dict[str, zipfile.ZipInfo]:
    """The arrays by name.

    An archive with repeated or overlapping members is refused, because no program writes one.
    """
    infos = [info for info in archive.infolist() if info.filename.endswith(".npy")]
    members = {info.filename.removesuffix(".npy"): info for info in infos}
    if len(archive.infolist()) > MAX_MEMBERS or len(members) < len(infos):
        what = "has an array twice" if len(members) < len(infos) else f"has more than {MAX_MEMBERS:,} members"
        raise BadData(f"{name} {what}; {cure}")
    ends = 0
    for info in sorted(archive.infolist(), key=lambda info: info.header_offset):
        if info.header_offset < ends or info.compress_size > size:
            raise BadData(f"{name} has members that overlap; {cure}")
        ends = info.header_offset + info.compress_size
    return members


class Header(NamedTuple):
    """What an array's file says about the array."""

    shape: tuple[int, ...]
    by_columns: bool
    """Whether the first index changes fastest, as in Fortran."""
    dtype: np.dtype[Any]
    begin: int
    """Bytes before the first number."""


@dataclass(frozen=True)
class _Begun:
    """An array of which the header was read."""

    file: IO[bytes]
    start: bytes
    """What was read with the header."""
    header: Header

    def whole(self) -> NDArray[Any]:
        """The array. The rest of its file is unpacked to its place, a piece at a time."""
        shape, by_columns, dtype, begin = self.header
        array: NDArray[Any] = np.ndarray(shape, dtype, order="F" if by_columns else "C")
        content = array.reshape(-1, order="A").view(np.uint8)
        content[: len(self.start) - begin] = np.frombuffer(self.start, np.uint8, offset=begin)
        filled = len(self.start) - begin
        # zipfile compares the checksum only when the end is reached, so one piece more is read.
        while piece := self.file.read(PIECE):
            content[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)
        if filled != content.size:
            raise ValueError("an array ends too early")
        return array


def _begin(
    archive: zipfile.ZipFile,
    stack: ExitStack,
    wanted: Mapping[str, zipfile.ZipInfo],
    size: int,
    limit: int | None,
    name: str,
    cure: str,
) -> dict[str, _Begun]:
    """Check sizes, first those in the zip directory, then those in the arrays' own headers.

    zipfile never returns more bytes than the directory says.
    """
    _check_growth(sum(info.file_size for info in wanted.values()), size, limit, name, cure)
    unfolded, begun = 0, {}
    for key, info in wanted.items():
        what = f"{name}: array '{key}'"
        # Choice: only the two compressions that numpy writes are accepted. zipfile unpacks others without a
        # limit.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise BadData(f"{what} has a compression that numpy never uses; {cure}")
        file = stack.enter_context(archive.open(info))
        start = file.read(HEADER)
        header = read_header(io.BytesIO(start), info.file_size, what, cure)
        unfolded += _in_memory(header)
        _check_growth(unfolded, size, limit, what, cure)
        begun[key] = _Begun(file, start, header)
    return begun


def _check_growth(unfolded: int, size: int, limit: int | None, what: str, cure: str) -> None:
    if limit is None:
        check_growth(unfolded, size, what, "save it again with numpy.savez, or sparse features as CSR parts")
    elif unfolded > limit:
        raise BadData(f"{what} would unpack to more than {limit:,} bytes; {cure}")


def check_header(file: IO[bytes], size: int, what: str, cure: str) -> int:
    """The bytes that an array will take in memory, in the type it is kept in.

    ``size`` is the size of its file in bytes. Header and size must agree.
    """
    return _in_memory(read_header(file, size, what, cure))


def _in_memory(header: Header) -> int:
    return math.prod(header.shape) * max(header.dtype.itemsize, 8 if header.dtype.kind in "iu" else 4)


def read_header(file: IO[bytes], size: int, what: str, cure: str) -> Header:
    """The header of an array of numbers or text in a file of ``size`` bytes. Header and size must agree."""
    start = io.BytesIO(file.read(HEADER))
    shape, by_columns, dtype = READERS[npy.read_magic(start)](start)
    if dtype.hasobject:
        raise BadData(
            f"{what} holds Python objects, which are never loaded; save it as a numeric or unicode array"
        )
    items = math.prod(shape)
    if dtype.kind not in PLAIN or dtype.subdtype is not None or (items and not dtype.itemsize):
        raise BadData(f"{what} holds {shown(dtype)}; save it as a numeric or unicode array")
    if min(shape, default=0) < 0 or start.tell() + items * dtype.itemsize != size:
        raise BadData(
            f"{what} declares shape {shown(list(shape))} but holds {size} bytes; the file is damaged, {cure}"
        )
    return Header(shape, by_columns, dtype, start.tell())


def check_text(array: NDArray[np.str_], name: str) -> None:
    """Refuse code points that are not characters.

    numpy stores any 32-bit number as a character, and Python fails on some of them much later.
    """
    if array.size == 0:
        return
    codes = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=")).view(np.uint32)
    if bool(((codes > 0x10FFFF) | ((codes >= 0xD800) & (codes < 0xE000))).any()):
        raise BadData(
            f"{name} holds code points that are not characters; write the names again as unicode text"
        )
