"""npz files made to do harm.

Each gets a sentence before memory or time is spent, and nothing is written anywhere.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bounded import bounded
from fedepd.arrays import check_text, open_file, read_arrays
from fedepd.errors import BadData

pytestmark = pytest.mark.hostile

Change = Callable[[zipfile.ZipInfo], None]


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def npy_with(header: str | bytes, content: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """An npy file with any header at all."""
    header = header.encode() if isinstance(header, str) else header
    return (
        b"\x93NUMPY"
        + bytes(version)
        + struct.pack("<H" if version == (1, 0) else "<I", len(header))
        + header
        + content
    )


def described(descr: str, shape: str, order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


def archive(
    path: Path,
    members: list[tuple[str, bytes]],
    change: Change | None = None,
    method: int = zipfile.ZIP_DEFLATED,
) -> Path:
    """``change`` is made to what the directory says of each member, not to the member."""
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members:
            file.writestr(name, content)
        if change is not None:
            for info in file.filelist:
                change(info)
    return path


def refused(path: Path, *words: str) -> None:
    with bounded(), pytest.raises(BadData) as caught:
        read_arrays(path, ("x",))
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 900
    for word in (path.name, *words):
        assert word in message


HEADERS = {
    "negative length": (described("'<f4'", "(-1,)"), "declares shape"),
    "two negative lengths that give a positive size": (described("'<f4'", "(-1, -1)"), "declares shape"),
    "longer than the member": (described("'<f4'", "(4, 10)"), "declares shape"),
    "more numbers than atoms": (described("'<f4'", f"({10**18}, {10**18}, {10**18})"), "declares shape"),
    "a length of 5000 digits": (described("'<f4'", f"({'9' * 5000},)"), "damaged"),
    "a length that is an expression": (described("'<f4'", "(2**31,)"), "damaged"),
    "a length that is a call": (described("'<f4'", "(__import__('os').getpid(),)"), "damaged"),
    "a length that is no whole number": (described("'<f4'", "(1.0,)"), "damaged"),
    "a list for a shape": (described("'<f4'", "[1]"), "damaged"),
    "objects": (described("'|O'", "(1,)"), "Python objects"),
    "records": (described("[('a', '<f4')]", "(1,)"), "save it as a numeric"),
    "arrays in cells": (described("('<f4', (1,))", "(1,)"), "save it as a numeric"),
    "bytes without a kind": (described("'|V4'", "(1,)"), "save it as a numeric"),
    "dates": (described("'<M8[s]'", "(0,)"), "save it as a numeric"),
    "empty texts without end": (described("'<U0'", f"({10**12},)"), "save it as a numeric"),
    "an unknown type": (described("'<q99'", "(1,)"), "damaged"),
    "an empty type": (described("''", "(1,)"), "damaged"),
    "nested brackets": ("(" * 5000, "damaged"),
    "nested signs": (described("'<f4'", "(" + "-" * 5000 + "1,)"), "damaged"),
    "another key": ("{'descr': '<f4', 'shape': (1,), 'more': 1}\n", "damaged"),
    "no dict": ("7\n", "damaged"),
    "not closed": ("{'descr': '<f4'", "damaged"),
    "NUL": ("\0" * 50, "damaged"),
}


@pytest.mark.parametrize("case", HEADERS)
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.filterwarnings("ignore:Reading `.npy` or `.npz` file required additional header parsing")
def test_header(case: str, version: tuple[int, int], tmp_path: Path) -> None:
    header, word = HEADERS[case]
    refused(archive(tmp_path / "a.npz", [("x.npy", npy_with(header, b"\0" * 4, version))]), word)


RAW = {
    "no magic": b"hello" * 9,
    "empty member": b"",
    "magic alone": b"\x93NUMPY",
    "unknown version": b"\x93NUMPY\x09\x00" + b"\0" * 60,
    "a header of 4 GB": b"\x93NUMPY\x02\x00" + b"\xff" * 4 + b" " * 100,
    "a pickle": b"\x80\x04\x95\x1d\x00\x00\x00cos\nsystem\n.",
}


@pytest.mark.parametrize("case", RAW)
def test_member_that_is_no_array(case: str, tmp_path: Path) -> None:
    refused(archive(tmp_path / "a.npz", [("x.npy", RAW[case])]), "damaged")


def put(**values: int) -> Change:
    def change(info: zipfile.ZipInfo) -> None:
        for name, value in values.items():
            setattr(info, name, value)

    return change


DIRECTORY = {
    "encrypted": (put(flag_bits=1), "damaged"),
    "strongly encrypted": (put(flag_bits=0x41), "damaged"),
    "patched data": (put(flag_bits=0x20), "damaged"),
    "an unknown packing": (put(compress_type=97), "compression that numpy never uses"),
    "a size that is too small": (put(file_size=130), "damaged"),
    "a size that is too large": (put(file_size=10**6), "declares shape"),
    "a size beyond 32 bits": (put(file_size=2**40), "claims"),
    "a size beyond 63 bits": (put(file_size=2**64 - 1), "claims"),
    "packed bytes beyond the file": (put(compress_size=2**40), "members that overlap"),
    "a place beyond the file": (put(header_offset=2**20), "damaged"),
    "a place beyond 63 bits": (put(header_offset=2**63), "a.npz"),
    "another checksum": (put(CRC=1), "damaged"),
}


@pytest.mark.parametrize("case", DIRECTORY)
def test_directory_that_lies(case: str, tmp_path: Path) -> None:
    change, word = DIRECTORY[case]
    refused(archive(tmp_path / "a.npz", [("x.npy", npy(np.arange(9.0)))], change), word)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_packing_that_numpy_never_writes(method: int, tmp_path: Path) -> None:
    """zipfile unpacks these two without a bound, whatever the directory says."""
    refused(
        archive(tmp_path / "a.npz", [("x.npy", npy(np.zeros(10**6)))], method=method),
        "compression that numpy never uses",
    )


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_array_twice(tmp_path: Path) -> None:
    refused(archive(tmp_path / "a.npz", [("x.npy", npy(np.ones(1))), ("x.npy", npy(np.zeros(1)))]), "twice")


def test_members_over_each_other(tmp_path: Path) -> None:
    """The trick of bombs of 46 MB to 4.5 PB: many members share one packed kernel."""
    members = [(f"{name}.npy", npy(np.zeros(10**5))) for name in "xyz"]
    refused(archive(tmp_path / "a.npz", members, put(header_offset=0)), "members that overlap")


def test_members_without_end(tmp_path: Path) -> None:
    refused(archive(tmp_path / "a.npz", [(f"{number}.npy", b"") for number in range(1001)]), "1,000 members")


@pytest.mark.parametrize(
    "name",
    [
        "/etc/x.npy",
        "../../x.npy",
        "C:\\x.npy",
        "a/../x.npy",
        "\x1b[31m.npy",
        "\udcff.npy".encode("utf-8", "replace").decode(),
    ],
)
def test_names_that_lead_elsewhere_are_names_and_no_more(name: str, tmp_path: Path) -> None:
    path = archive(tmp_path / "a.npz", [(name, npy(np.ones(1)))])
    refused(path, "no array 'x'")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npz"]
    archive(path, [(name, npy(np.ones(1))), ("x.npy", npy(np.ones(2)))])
    assert read_arrays(path, ("x",))["x"].tolist() == [1, 1]


BOMBS = {
    "one array of 128 megabytes": [("x", (2**25,), "<f4")],
    "sixty arrays of 16 megabytes": [
        (name, (2**22,), "<f4") for name in ("x", *(f"x{n}" for n in range(59)))
    ],
    "a byte that is kept as eight": [("x", (2**26,), "|i1")],
    "truth values": [("x", (2**26,), "|b1")],
    "one text of 128 megabytes": [("x", (1,), f"<U{2**25}")],
}


def zeros(shape: tuple[int, ...], descr: str) -> tuple[bytes, int]:
    """An npy file of zeros packed by zlib without ever being whole in memory, and its size."""
    import zlib

    header = npy_with(described(f"'{descr}'", str(shape)))
    size = int(np.prod(shape)) * np.dtype(descr).itemsize
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    block, crc = bytes(2**20), zlib.crc32(header)
    packed = packer.compress(header)
    for _ in range(size // len(block)):
        packed += packer.compress(block)
        crc = zlib.crc32(block, crc)
    return packed + packer.flush(), len(header) + size


@pytest.mark.parametrize("case", BOMBS)
def test_small_files_that_unfold(case: str, tmp_path: Path) -> None:
    """Zeros shrink a thousandfold.

    The members are written packed, so that the test itself needs no memory for them.
    """
    path, made = tmp_path / "a.npz", {}
    with zipfile.ZipFile(path, "w") as file:
        for name, shape, descr in BOMBS[case]:
            if (shape, descr) not in made:
                made[shape, descr] = zeros(shape, descr)
            packed, size = made[shape, descr]
            info = zipfile.ZipInfo(f"{name}.npy")
            file.writestr(info, packed)
            info.compress_type, info.file_size = zipfile.ZIP_DEFLATED, size
    names = [name for name, *_ in BOMBS[case]]
    _patch_local_headers(path)
    assert path.stat().st_size < 2 * 2**20
    with bounded(), pytest.raises(BadData, match="claims"):
        read_arrays(path, names)


def _patch_local_headers(path: Path) -> None:
    """zipfile compares names only, but the packing in front of each member should be as in the directory."""
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            struct.pack_into("<H", content, info.header_offset + 8, zipfile.ZIP_DEFLATED)
    path.write_bytes(content)


def test_a_member_gives_no_more_than_the_directory_says(tmp_path: Path) -> None:
    """16 MB are packed, the directory and the array's header agree on 36 bytes.

    Only those are unpacked, and the checksum fails.
    """
    array = npy_with(described("'<f4'", "(9,)"), bytes(2**24))
    path = archive(tmp_path / "a.npz", [("x.npy", array)], put(file_size=len(array) - 2**24 + 36))
    with bounded(megabytes=4):
        refused(path, "damaged")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f2", ">f8", ">i4", "<u8", "|b1", "<c16", ">U3"])
def test_unusual_arrays_that_are_sound(order: Any, kind: str, tmp_path: Path) -> None:
    array = np.array([[0, 1, 0], [1, 1, 1]]).astype(kind, order=order)
    read = read_arrays(archive(tmp_path / "a.npz", [("x.npy", npy(array))]), ("x",))["x"]
    assert np.array_equal(read, array)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (0, 10**15)])
def test_arrays_of_one_number_or_none(shape: tuple[int, ...], tmp_path: Path) -> None:
    content = npy_with(described("'<f4'", str(shape)), b"\0" * (4 if shape == () else 0))
    assert read_arrays(archive(tmp_path / "a.npz", [("x.npy", content)]), ("x",))["x"].shape == shape


# --- what is no file ----------------------------------------------------------------------------------------


def test_pipe_folder_and_device_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    for path in (tmp_path / "pipe.npz", tmp_path, Path("/dev/zero"), Path("/dev/stdin")):
        with bounded(), pytest.raises(BadData, match=r"regular file|does not exist"):
            open_file(path)


@pytest.mark.parametrize(
    "name", ["x" * 300, "a\0b", "\ud800", "no/such/file", "loop", os.fsdecode(b"\xff\xfe")]
)
def test_names_of_no_file(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(BadData, match="check the path") as caught:
        open_file(tmp_path / name)
    str(caught.value).encode()  # it can be shown


def test_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"\xff.npz")
    archive(tmp_path / "a.npz", [("x.npy", b"")]).rename(path)
    with pytest.raises(BadData, match=r"\?\.npz"):
        read_arrays(path, ("x",))


@pytest.mark.parametrize("code", [0x7FFFFFFF, 0xFFFFFFFF, 0x110000, 0xD800, 0xDFFF])
@pytest.mark.parametrize("order", ["<", ">"])
def test_code_points_that_are_no_characters(code: int, order: str) -> None:
    array = np.array([[65, code], [66, 67]], dtype=f"{order}u4").view(f"{order}U2").reshape(-1)
    with pytest.raises(BadData, match="label_names holds code points"):
        check_text(array, "label_names")


def test_every_character_is_allowed() -> None:
    check_text(np.array(["", "a", "\0b", "ü", "\uffff", "\U0010ffff"]), "names")
    check_text(np.empty(0, dtype="<U3"), "names")
    check_text(np.array("one"), "names")
