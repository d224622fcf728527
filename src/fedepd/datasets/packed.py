"""A graph as a folder of npy files, which are mapped into memory instead of being read.

``graph.json`` names every array with its type, shape and sha256. It is written last, so a folder without it
is not whole. A mapping is private: nothing that is written into an array reaches its file.

Nothing is unpickled. Links are not followed. An array is mapped only after its header, its size and its hash
have been checked.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Iterable, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fedepd import memory
from fedepd.arrays import MAX_MEMBERS, Arrays, Header, read_header, reason, spelled
from fedepd.errors import BadData
from fedepd.files import DAMAGE, open_regular, read_json, replacing, size_of, write_json
from fedepd.folders import check_new_folder, new_folder
from fedepd.shapes import EVERY, SHA256, TEXT, WHOLE, expect, whole
from fedepd.shown import shown

TABLE = "graph.json"
FORMAT = "fedepd graph folder"
SHAPE = {
    "format": TEXT,
    "version": whole(1, 1),
    "arrays": {EVERY: {"dtype": TEXT, "shape": [WHOLE], "sha256": SHA256}},
}
MAX_TABLE_BYTES = 2**20
AGAIN = "pack the graph again with 'fedepd data pack'"
MAPPED = ("x",)
"""Arrays that stay on disk. All others are small, or are brought into another form in memory."""


def is_packed(path: str | Path) -> bool:
    """Whether the path is a folder with a packed graph."""
    return os.path.isfile(os.path.join(path, TABLE))


def write_packed(arrays: Mapping[str, NDArray[Any]], folder: str | Path) -> None:
    """Write arrays into a new folder, so that ``read_packed`` gives them back.

    If writing fails, nothing is left.
    """
    folder = Path(folder)
    check_new_folder(folder)
    table: dict[str, Any] = {}
    with new_folder(folder, [TABLE, *(f"{key}.npy" for key in arrays)]):
        for key, array in arrays.items():
            array = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
            with replacing(folder / f"{key}.npy", array.nbytes) as file:
                npy.write_array(file, array, allow_pickle=False)
            with _opened(folder / f"{key}.npy", key) as file:
                digest = _sha256(file)
            table[key] = {"dtype": array.dtype.str, "shape": list(array.shape), "sha256": digest}
        write_json(folder / TABLE, {"format": FORMAT, "version": 1, "arrays": table})


def read_packed(folder: str | Path, required: Iterable[str], optional: Iterable[str] = ()) -> Arrays:
    """The named arrays of a folder. Other files are not opened. The array ``x`` is mapped from its file."""
    folder, where, required = Path(folder), f"folder '{spelled(folder)}'", tuple(required)
    content = read_json(folder / TABLE, MAX_TABLE_BYTES, AGAIN)
    expect(content, SHAPE, f"{where}: {TABLE}", AGAIN)
    if content["format"] != FORMAT or len(content["arrays"]) > MAX_MEMBERS:
        raise BadData(f"{where} is not a packed graph; {AGAIN}")
    table = content["arrays"]
    if missing := [key for key in required if key not in table]:
        raise BadData(f"{where} has no array '{missing[0]}', only {shown(sorted(table), 300)}; {AGAIN}")
    wanted = {key: table[key] for key in dict.fromkeys((*required, *optional)) if key in table}
    out, needed = {}, 0
    for key, row in wanted.items():
        what = f"{where}: array '{key}'"
        with _opened(folder / f"{key}.npy", what) as file:
            try:
                header = read_header(file, size_of(file), what, AGAIN)
            except DAMAGE as error:
                raise BadData(f"{what} cannot be read ({reason(error)}); {AGAIN}") from None
            _check_row(header, row, what)
            # A mapped array is copied once at most: into the clients.
            needed += size_of(file) * (1 if key in MAPPED else memory.COPIES)
            memory.check(needed, what)
            if _sha256(file) != row["sha256"]:
                raise BadData(f"{what} does not have the sha256 that {TABLE} gives; {AGAIN}")
            out[key] = _array(file, header, key in MAPPED)
    return out


def _check_row(header: Header, row: Mapping[str, Any], what: str) -> None:
    found = {"dtype": header.dtype.str, "shape": list(header.shape)}
    for name, value in found.items():
        if value != row[name]:
            raise BadData(
                f"{what} has the {name} {shown(value)}, but {TABLE} gives {shown(row[name])}; {AGAIN}"
            )
    if header.by_columns and len(header.shape) > 1:
        raise BadData(f"{what} is stored by columns; {AGAIN}")


def _opened(path: Path, what: str) -> BufferedReader:
    """A regular file that is no link."""
    try:
        return open_regular(path, follow=False)
    except OSError as cause:
        why = "it is a link" if cause.errno == errno.ELOOP else cause.strerror
        raise BadData(f"{what} cannot be read ({why}); {AGAIN}") from None


def _sha256(file: BufferedReader) -> str:
    file.seek(0)
    return hashlib.file_digest(file, "sha256").hexdigest()


def _array(file: BufferedReader, header: Header, mapped: bool) -> NDArray[Any]:
    if mapped and 0 not in header.shape:
        # Copy-on-write: torch has no tensors that cannot be written.
        found: NDArray[Any] = np.memmap(file, header.dtype, "c", header.begin, header.shape)
        return found.view(np.ndarray)
    file.seek(0)
    out: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return out
