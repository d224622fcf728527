"""Tables from files: CSV, read here, or Parquet. Every error names the file, the line and the cure."""

from __future__ import annotations

import csv
import gc
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

from fedepd import memory
from fedepd.arrays import open_file, reason, spelled
from fedepd.datasets.columns import BLOCK, MAX_COLUMNS, Column, Table, read_parquet
from fedepd.errors import BadData
from fedepd.files import size_of
from fedepd.shown import shown

MAX_LINE = 2**22
"""Largest length of a line of a CSV file in bytes. 100,000 numbers fit."""
SOME = 2**20
"""Bytes of a text file that are read at a time."""
BLOCK_CELLS = 2**20
"""Most cells that are held as Python strings at the same time."""
DELIMITERS = (",", ";", "\t")


def read_table(path: str | Path) -> Table:
    """A CSV file (comma, semicolon or tab, UTF-8, with a header line), or a Parquet file by its suffix.

    ``sources.read_source`` reads Excel files and databases, too.
    """
    read = read_parquet if Path(path).suffix.lower() in (".parquet", ".pq") else _read_csv
    with open_file(path) as file:
        try:
            with _without_garbage_collection():
                return read(file, spelled(path))
        except OSError as error:
            raise BadData(
                f"file '{spelled(path)}' cannot be read ({reason(error)}); check it and its permissions"
            ) from None


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Rows are lists, and Python would look at all of them again and again for cycles that are not there.

    That is more than half of the time of a table of a million rows.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _read_csv(file: IO[bytes], name: str) -> Table:
    memory.check(memory.COPIES * size_of(file), f"file '{name}'")
    lines = _lines(file, name)
    header = next(lines, "")
    # Choice: quotes are read strictly, because a stray quote would silently swallow lines.
    reader = csv.reader(chain([header], lines), delimiter=max(DELIMITERS, key=header.count), strict=True)
    try:
        return _collect(reader, name)
    except csv.Error as error:
        raise BadData(
            f"{name} line {reader.line_num}: {error}; check the quotes of this line and of the lines above it"
        ) from None


def _lines(file: IO[bytes], path: str) -> Iterator[str]:
    """The checked lines of a text file. Only some are in memory at a time."""
    number = 1
    for lines in _some_lines(file):
        if number > 1 and (decoded := _decoded(lines)) is not None:
            yield from decoded
        else:
            yield from _checked(lines, number, path)
        number += len(lines)


def _some_lines(file: IO[bytes]) -> Iterator[list[bytes]]:
    """All lines, some at a time. One that is too long is given as soon as that is known, as the last."""
    rest = b""
    while len(rest) <= MAX_LINE and (block := file.read(SOME)):
        *whole, rest = (rest + block).split(b"\n")
        if whole:
            yield [line + b"\n" for line in whole]
    if rest:
        yield [rest]


def _decoded(lines: list[bytes]) -> list[str] | None:
    """The lines as text; None if something is wrong with one of them."""
    if max(map(len, lines)) > MAX_LINE or b"\0" in b"".join(lines):
        return None
    try:
        return [line.decode() for line in lines]
    except UnicodeDecodeError:
        return None


def _checked(lines: list[bytes], first: int, path: str) -> Iterator[str]:
    """The lines from the ``first`` on, one by one, until something is wrong."""
    for number, line in enumerate(lines, start=first):
        if len(line) > MAX_LINE:
            raise BadData(
                f"{path} line {number} has more than {MAX_LINE:,} bytes; "
                f"end rows with line breaks, or use --features-npz"
            )
        if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise BadData(f"{path} line 1: the file is UTF-16; save it as CSV in UTF-8")
        if b"\0" in line:
            raise BadData(
                f"{path} line {number} holds a NUL character; "
                f"remove it, or write the file again as CSV in UTF-8"
            )
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise BadData(f"{path} line {number} is not UTF-8 text; save the file as CSV in UTF-8") from None


def _header(cells: list[str], path: str) -> list[str]:
    header = [cell.strip() for cell in cells]
    if not header:
        raise BadData(f"{path} line 1 is empty; start the file with a line of column names")
    if len(header) > MAX_COLUMNS:
        raise BadData(
            f"{path} line 1 has {len(header):,} columns, more than {MAX_COLUMNS:,}; "
            f"give features with --features-npz"
        )
    seen: set[str] = set()
    for name in header:
        if not name or name in seen:
            what = f"the column name '{shown(name)}' twice" if name else "a column without a name"
            raise BadData(f"{path} line 1 has {what}; give every column a name of its own")
        seen.add(name)
    return header


def _collect(reader: Any, path: str) -> Table:
    header = _header(next(reader, []), path)
    most = max(1, min(BLOCK, BLOCK_CELLS // len(header)))
    blocks: list[list[bytes]] = [[] for _ in header]
    lines = array("q")
    last, more = reader.line_num, True
    while more:
        rows: list[list[str]] = []
        try:
            rows.extend(islice(reader, most))
        except csv.Error:
            _numbered(rows, (last, 0), header, path)  # a mistake above this one is told first
            raise
        lines.extend(_numbered(rows, (last, reader.line_num), header, path))
        last, more = reader.line_num, len(rows) == most
        if filled := [row for row in rows if row]:
            for column, cells in zip(blocks, zip(*filled, strict=True), strict=True):
                column.append("\0".join(map(str.strip, cells)).encode())
    return Table(
        path, {name: Column(block) for name, block in zip(header, blocks, strict=True)}, len(lines), lines
    )


def _numbered(rows: list[list[str]], between: tuple[int, int], header: list[str], path: str) -> Iterable[int]:
    """The last line of each row that is not empty. ``between``: the last line above all rows, and theirs."""
    above, last = between
    if last - above == len(rows) and set(map(len, rows)) == {len(header)}:
        return range(above + 1, last + 1)
    numbers = []
    for row in rows:
        above += 1 + sum(cell.count("\n") for cell in row)  # a cell in quotes may have several lines
        if not row:  # an empty line
            continue
        if len(row) != len(header):
            raise BadData(
                f"{path} line {above} has {len(row)} cells, but the header has {len(header)}; "
                f"correct this line"
            )
        numbers.append(above)
    return numbers
