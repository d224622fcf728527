"""Files that somebody else may have written are read in one place.

Ours are written whole or not at all.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd import files
from fedepd.arrays import OURS, read_arrays
from fedepd.errors import BadConfig, BadData
from fedepd.files import (
    append_line,
    parse_json,
    parse_shown,
    parse_tensors,
    read_bytes,
    read_json,
    read_lines,
    read_tensors,
    read_toml,
    write_bytes,
    write_json,
    write_text,
)
from hostile import ANY_FILE, ANY_JSON, with_bytes

hostile = pytest.mark.hostile


@hostile
@pytest.mark.parametrize("case", ANY_FILE)
def test_no_reader_waits_or_fills_the_memory(tmp_path: Path, case: str) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"{}")
    ANY_FILE[case](path)
    for read in (read_json, lambda path: read_arrays(path, ["a"], limit=OURS), read_tensors):
        with pytest.raises(BadData, match="a'"):
            read(path)
    if case not in ("empty", "noise"):
        with pytest.raises(BadData, match="a'"):
            read_bytes(path, 2**20)
        with pytest.raises(BadConfig, match=r"the settings: .*; "):
            read_toml(path, "the settings")


@hostile
@pytest.mark.parametrize(
    "case", [case for case in ANY_JSON if "deep" in case or case in ("not JSON", "latin-1", "500 levels")]
)
def test_json_that_is_none(tmp_path: Path, case: str) -> None:
    path = tmp_path / "a"
    ANY_JSON[case](path)
    with pytest.raises(BadData, match=r"a' (cannot be read|is nested)"):
        read_json(path)
    with pytest.raises(BadData, match=r"a' (cannot be read|is nested)"):
        read_lines(path)


def test_lines_are_read_and_a_wrong_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b'{"a": 1}\n\n[2]\n')
    assert read_lines(path) == [{"a": 1}, [2]]
    path.write_bytes(b'{"a": 1}\n{"a\n')
    with pytest.raises(BadData, match=r"line 2 of .*a' cannot be read"):
        read_lines(path)


def test_the_limit_of_depth_is_as_said() -> None:
    assert parse_json("[" * 64 + "]" * 64, "it")
    with pytest.raises(BadData, match="it is nested more than 64 levels deep"):
        parse_json("[" * 65 + "]" * 65, "it")
    with pytest.raises(BadData, match="it is nested more than 64 levels deep"):
        parse_json("[" * 64 + "1" + "]" * 63 + ", []]", "it")
    assert parse_json("[" * 62 + '{"a": []}' + "]" * 61 + ", []]", "it")


TOML: dict[str, bytes] = {
    "deep list": b"a = " + b"[" * 100_000,
    "deep table": b".".join([b"a"] * 5_000) + b" = 1",
    "deep header": b"[" + b".".join([b"a"] * 5_000) + b"]",
    "number of 5000 digits": b"rounds = " + b"9" * 5000,
    "latin-1": "a = 'ä'".encode("latin-1"),
    "null byte": b"a = '\0'",
    "twice": b"a = 1\na = 2",
    "too large": b"#" * (2**20 + 1),
}


@hostile
@pytest.mark.parametrize("case", TOML)
def test_settings_that_are_none(tmp_path: Path, case: str) -> None:
    (tmp_path / "a.toml").write_bytes(TOML[case])
    with pytest.raises(BadConfig, match="the settings"):
        read_toml(tmp_path / "a.toml", "the settings")


# --- arrays and tensors -------------------------------------------------------------------------------------


def npy_bytes(array: np.ndarray[Any, Any]) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array, allow_pickle=True)
    return file.getvalue()


def npz(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


def header(shape: str, descr: str = "<i8") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


ARRAY_FILES: dict[str, bytes] = {
    "too large a shape": npz(a=header("(10**12,)".replace("10**12", str(10**12)))),
    "negative shape": npz(a=header("(-5,)") + bytes(8)),
    "shape of text": npz(a=header("'abc'") + bytes(8)),
    "more than declared": npz(a=npy_bytes(np.zeros(3)) + b"more"),
    "objects": npz(a=npy_bytes(np.array([{}], dtype=object))),
    "no header": npz(a=b"nothing"),
    "header of nothing": npz(a=header("(")),
    "unknown type": npz(a=header("(1,)", "<q9") + bytes(9)),
    "other version": npz(a=b"\x93NUMPY\x09\x00" + bytes(200)),
    "cut": npz(a=npy_bytes(np.arange(1000)))[:-40],
    "flipped": npz(a=npy_bytes(np.arange(1000))).replace(b"\x00\x00\x00", b"\x01\x01\x01", 40),
    "no zip": b"PK\x03\x04" + bytes(50),
    "without the array": npz(b=npy_bytes(np.zeros(1))),
}


@hostile
@pytest.mark.parametrize("case", ARRAY_FILES)
def test_arrays_that_are_none(tmp_path: Path, case: str) -> None:
    (tmp_path / "a.npz").write_bytes(ARRAY_FILES[case])
    with pytest.raises(BadData, match=r"a\.npz'"):
        read_arrays(tmp_path / "a.npz", ["a"])


@hostile
def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """64 MB of zeros in 64 kB; the limit of the test is 1 MB, and no member may be opened."""
    (tmp_path / "a.npz").write_bytes(npz(a=npy_bytes(np.zeros(8 * 2**20))))
    monkeypatch.setattr(zipfile.ZipFile, "open", lambda *_: pytest.fail("it was opened"))
    with pytest.raises(BadData, match="would unpack to more than 1,048,576 bytes"):
        read_arrays(tmp_path / "a.npz", ["a"], limit=2**20)


def test_only_the_named_arrays_are_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.arange(3), b=np.zeros(2), c=np.array([None], dtype=object))
    assert {
        name: value.tolist() for name, value in read_arrays(tmp_path / "a.npz", ["a"], ["b", "d"]).items()
    } == {
        "a": [0, 1, 2],
        "b": [0, 0],
    }


def safetensors_bytes(about: Any, data: bytes = b"") -> bytes:
    text = json.dumps(about).encode() if not isinstance(about, bytes) else about
    return struct.pack("<Q", len(text)) + text + data


TENSOR_FILES: dict[str, bytes] = {
    "long header": struct.pack("<Q", 2**60),
    "deep header": safetensors_bytes(b"[" * 100_000),
    "no table": safetensors_bytes([]),
    "beyond the end": safetensors_bytes(
        {"a": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}, bytes(8)
    ),
    "overlap": safetensors_bytes(
        {n: {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} for n in "ab"}, bytes(8)
    ),
    "negative": safetensors_bytes({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}}, bytes(8)),
    "too many": safetensors_bytes(
        {"a": {"dtype": "F32", "shape": [2**40, 2**40], "data_offsets": [0, 8]}}, bytes(8)
    ),
    "unknown type": safetensors_bytes(
        {"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 8]}}, bytes(8)
    ),
    "bfloat16": safetensors_bytes({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [0, 8]}}, bytes(8)),
    "float8": safetensors_bytes({"a": {"dtype": "F8_E4M3", "shape": [8], "data_offsets": [0, 8]}}, bytes(8)),
}


@hostile
@pytest.mark.parametrize("case", TENSOR_FILES)
def test_tensors_that_are_none(case: str) -> None:
    with pytest.raises(BadData, match="it"):
        parse_tensors(TENSOR_FILES[case], "it")


# --- writing ------------------------------------------------------------------------------------------------


@pytest.fixture
def read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a file system that is mounted so: nothing can be made, renamed or removed."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    opened = os.open

    def only_reading(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
            refuse()
        return opened(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", only_reading)
    for name in ("replace", "rename", "unlink", "mkdir", "rmdir"):
        monkeypatch.setattr(os, name, refuse)


@hostile
@pytest.mark.usefixtures("read_only")
def test_a_read_only_file_system_is_said(tmp_path: Path) -> None:
    """Removing the temporary file fails there too, and must not hide the sentence."""
    ways: tuple[Callable[[Path], object], ...] = (
        lambda path: write_bytes(path, b"1"),
        lambda path: write_json(path, {}),
        lambda path: append_line(path, {}),
    )
    for write in ways:
        with pytest.raises(
            BadConfig, match=r"cannot write '.*a' \(Read-only file system\); give another place"
        ):
            write(tmp_path / "a")


@hostile
def test_a_link_that_lies_where_the_temporary_file_goes_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / f".a.{os.getpid()}.part").symlink_to("victim")
    write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "victim").read_text() == "mine"
    assert (tmp_path / "a").read_bytes() == b"new"
    assert not (tmp_path / "a").is_symlink()


@hostile
@pytest.mark.parametrize("name", ["\0", "x" * 300, "a/b", "x" * 255, "ä" * 127])
def test_names_that_cannot_be_written(tmp_path: Path, name: str) -> None:
    if name in ("x" * 255, "ä" * 127):
        write_bytes(tmp_path / name, b"1")
        return
    with pytest.raises(BadConfig, match="cannot write"):
        write_bytes(tmp_path / name, b"1")
    assert list(tmp_path.iterdir()) == []


@hostile
def test_a_line_is_not_written_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a")
    with pytest.raises(BadConfig, match="cannot write"):
        append_line(tmp_path / "a", {"round": 1})


@hostile
def test_text_without_utf8_is_written_with_a_sign(tmp_path: Path) -> None:
    write_text(tmp_path / "a", "a\ud800b\udcffä")
    assert (tmp_path / "a").read_text(encoding="utf-8") == "a?b?ä"


# --- one place ----------------------------------------------------------------------------------------------

OWN = {
    "files.py", "arrays.py",  # the one place, and its npz files
    "memory.py",  # the kernel's word on this container
    # formats
    "datasets/interop.py", "datasets/npz.py", "datasets/columns.py", "datasets/tables.py",
    "datasets/official.py",
    "datasets/fetch.py",  # downloads, checked by their hash
    "clients/client_file.py",  # adds to the archive that it has just written
    "report/document.py", "reproduction/judging/paper.py",  # files of the package
    "reproduction/pages/page.py",  # figures that were just drawn
    "bench/suite.py", "bench/measure.py",  # the output of our own process
    "model/writing.py",  # text of a schema that was read before
    "board/tables.py",  # text that the board made of settings that were read before
    "bench/history.py",  # the kernel's word on this machine
    "board/app.py",  # files of the package
    "board/settings.py", "rounds/records.py",  # what our own processes say
    "cli/board.py",  # opens a browser
    "trackers/tensorboard.py", "trackers/wandb.py",  # figures that were just drawn
    "cli/federation_demo.py",  # predictions that 'fedepd predict' has just written
}  # fmt: skip
READS = re.compile(
    r"json\.loads?\(|np\.load\(|load_file\(|safe_open|tomllib\.load|\.read_text\(|\.read_bytes\(|\.open\(|(?<![\w.])open\(|flock"
)


@hostile
def test_foreign_files_are_read_nowhere_else() -> None:
    root = Path(fedepd.__file__).parent
    found = {
        str(path.relative_to(root)): line.strip()
        for path in sorted(root.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if READS.search(line)
        and path.relative_to(root).parts[0] != "deploy"
        and str(path.relative_to(root)) not in OWN
    }
    assert {name: line for name, line in found.items() if "os.open(" not in line} == {}


@hostile
def test_files_are_replaced_nowhere_else() -> None:
    root = Path(fedepd.__file__).parent
    found = [
        str(path.relative_to(root))
        for path in sorted(root.rglob("*.py"))
        if "os.replace(" in path.read_text(encoding="utf-8")
    ]
    assert found == ["files.py"]


def test_the_reader_takes_what_we_write(tmp_path: Path) -> None:
    from fedepd.runs.record import write_arrays, write_tensors

    write_arrays(tmp_path / "a.npz", {"a": np.eye(2, dtype=np.int64)})
    write_tensors(tmp_path / "a.safetensors", {"a": torch.ones(2)})
    write_json(tmp_path / "a.json", {"a": float("nan")})
    assert read_arrays(tmp_path / "a.npz", ["a"])["a"].tolist() == [[1, 0], [0, 1]]
    assert read_tensors(tmp_path / "a.safetensors")["a"].tolist() == [1, 1]
    assert read_json(tmp_path / "a.json") == {"a": None}
    assert files.MAX_DEPTH == 64
    with_bytes(b"[1]")(tmp_path / "a.json")
    assert read_json(tmp_path / "a.json") == [1]


@hostile
@pytest.mark.parametrize(
    "content",
    [
        b'{"a": "x\\ud800"}',
        b'{"a": "x\\uDFFF"}',
        b'{"a": "x\xed\xa0\x80"}',
        '{"a": "x\ud800"}'.encode("utf-16-le", "surrogatepass"),
        '{"a": "x\\ud800"}'.encode("utf-16-le"),
        '{"a": "x\\ud800"}'.encode("utf-32"),
    ],
)
def test_half_of_a_pair_is_never_shown(content: bytes) -> None:
    found = parse_shown(content, "it")["a"]
    assert found.startswith("x?")
    assert found.encode()


def test_whole_pairs_and_other_text_are_shown_as_they_are() -> None:
    assert parse_shown(b'["\\ud83d\\ude00", "\\u00e9"]', "it") == ["\U0001f600", "é"]
    assert parse_shown('["é", "\\\\ud800"]'.encode(), "it") == ["é", "\\ud800"]
