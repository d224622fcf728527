"""Tables from CSV, Parquet, Arrow or plain lists, read strictly: every complaint names the file, the line and the cure."""

from __future__ import annotations

import csv
import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from types import ModuleType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedepd.datasets.npz import BOMB_BYTES, BOMB_RATIO, MAX_BYTES
from fedepd.errors import BadConfig, BadData

Floats = NDArray[np.float64]

MAX_LINE = 2**22
"""No line of a CSV file may be longer; 100,000 numbers fit."""
BLOCK = 4096
"""Rows that are held as Python strings at a time."""
MAX_WHOLE = 2**53
DELIMITERS = (",", ";", "\t")


@dataclass(frozen=True, eq=False)
class Column:
    """Either numbers (NaN where a cell is missing), or text in blocks of UTF-8 with NUL between cells: an eighth of Python strings."""

    data: Floats | list[bytes]

    @property
    def is_text(self) -> bool:
        return isinstance(self.data, list)

    def texts(self) -> list[str]:
        """Whole numbers without a decimal point; a missing cell is ''."""
        if isinstance(self.data, list):
            return [cell for block in self.data for cell in block.decode().split("\0")]
        return ["" if math.isnan(v) else str(int(v)) if v.is_integer() else repr(v) for v in self.data.tolist()]

    @cached_property
    def numbers(self) -> Floats | int:
        """float64 [rows], NaN where a cell is missing; or the row of the first cell that is no number."""
        if not isinstance(self.data, list):
            return self.data
        blocks: list[Floats] = []
        for number, block in enumerate(self.data):
            cells = [cell or "nan" for cell in block.decode().split("\0")]
            try:
                blocks.append(np.array(cells, dtype=np.float64))
            except ValueError:
                return number * BLOCK + next(row for row, cell in enumerate(cells) if not _is_number(cell))
        return np.concatenate(blocks)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length, and where each row stands in its file."""

    name: str
    columns: Mapping[str, Column]
    rows: int
    lines: Sequence[int] = ()
    """The line of each row, where the table is a text file."""

    def place(self, row: int) -> str:
        return f"{self.name} line {self.lines[row]}" if self.lines else f"{self.name} row {row + 1}"

    def column(self, name: str, cure: str) -> Column:
        if name not in self.columns:
            raise BadData(f"{self.name} has no column '{name}'; {cure} (columns: {', '.join(self.columns)})")
        return self.columns[name]


def read_table(path: str | Path) -> Table:
    """A CSV file (comma, semicolon or tab, UTF-8, with a header line), or a Parquet file by its suffix."""
    path = Path(path)
    if not path.is_file():
        raise BadData(f"file '{path}' does not exist; check the path")
    if path.stat().st_size == 0:
        raise BadData(f"file '{path}' is empty; write it again with a header line and one line per row")
    try:
        return _read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _read_csv(path)
    except OSError as error:
        raise BadData(f"file '{path}' cannot be read ({error.strerror or error}); check it and its permissions") from None


def _read_csv(path: Path) -> Table:
    with path.open("rb") as file:
        lines = _lines(file, path)
        header = next(lines, "")
        # Choice: quotes are read strictly, because a stray one swallows lines without a word.
        reader = csv.reader(chain([header], lines), delimiter=max(DELIMITERS, key=header.count), strict=True)
        try:
            return _collect(reader, path)
        except csv.Error as error:
            raise BadData(f"{path} line {reader.line_num}: {error}; check the quotes of this line and of those above it") from None


def _lines(file: IO[bytes], path: Path) -> Iterator[str]:
    """The lines of a text file, checked; memory never holds more than one."""
    for number in count(1):
        line = file.readline(MAX_LINE + 1)
        if not line:
            return
        if len(line) > MAX_LINE:
            raise BadData(f"{path} line {number} has more than {MAX_LINE:,} bytes; end rows with line breaks, or use --features-npz")
        if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise BadData(f"{path} line 1: the file is UTF-16; save it as CSV in UTF-8")
        if b"\0" in line:
            raise BadData(f"{path} line {number} holds a NUL character; remove it, or write the file again as CSV in UTF-8")
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError:
            raise BadData(f"{path} line {number} is not UTF-8 text; save the file as CSV in UTF-8") from None


def _collect(reader: Any, path: Path) -> Table:
    header = [cell.strip() for cell in next(reader)]
    if not header:
        raise BadData(f"{path} line 1 is empty; begin the file with a line of column names")
    for name in header:
        if not name or header.count(name) > 1:
            what = f"the column name '{name}' twice" if name else "a column without a name"
            raise BadData(f"{path} line 1 has {what}; give every column a name of its own")
    blocks: list[list[bytes]] = [[] for _ in header]
    lines = array("q")
    rows: list[list[str]] = []

    def pack() -> None:
        for column, cells in zip(blocks, zip(*rows, strict=True), strict=True):
            column.append("\0".join(map(str.strip, cells)).encode())
        rows.clear()

    for row in reader:
        if not row:  # an empty line
            continue
        if len(row) != len(header):
            raise BadData(f"{path} line {reader.line_num} has {len(row)} cells where the header has {len(header)}; correct this line")
        rows.append(row)
        lines.append(reader.line_num)
        if len(rows) == BLOCK:
            pack()
    if rows:
        pack()
    return Table(str(path), {name: Column(block) for name, block in zip(header, blocks, strict=True)}, len(lines), lines)


def needs(module: str) -> ModuleType:
    """An optional package, or a sentence that says how to get it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise BadConfig(f'{module.split(".")[0]} is not installed; run: pip install "fedepd[data]"') from None


def _read_parquet(path: Path) -> Table:
    arrow, parquet = needs("pyarrow"), needs("pyarrow.parquet")
    try:
        with parquet.ParquetFile(path) as file:
            facts = file.metadata
            claimed = 8 * facts.num_rows * max(facts.num_columns, 1)
            if claimed > MAX_BYTES or claimed > max(BOMB_BYTES, BOMB_RATIO * path.stat().st_size):
                raise BadData(f"file '{path}' claims {facts.num_rows:,} rows in {path.stat().st_size:,} bytes; write it again or use a CSV")
            return arrow_table(file.read(), str(path))
    except (arrow.ArrowException, OSError, ValueError, UnicodeDecodeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise BadData(f"file '{path}' is not a sound Parquet file ({reason}); write it again or use a CSV") from None


def arrow_table(table: Any, name: str) -> Table:
    """From a pyarrow table: numbers and truth values as numbers, text and dates as text."""
    types = needs("pyarrow").types
    numeric = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)
    textual = (types.is_string, types.is_large_string, types.is_temporal)
    columns: dict[str, Column] = {}
    for key, values in zip(table.column_names, table.columns, strict=True):
        if key in columns:
            raise BadData(f"{name} has the column '{key}' twice; give every column a name of its own")
        if types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if types.is_integer(values.type) and _exceeds_float(values):
            columns[key] = text_column(values.to_pylist())
        elif any(test(values.type) for test in numeric):
            columns[key] = Column(np.array(values.cast("float64", safe=False).to_numpy(), dtype=np.float64))
        elif any(test(values.type) for test in textual):
            columns[key] = text_column(values.to_pylist())
        else:
            raise BadData(f"{name}: column '{key}' has type {values.type}; keep one number or text per cell, or use --features-npz")
    return Table(name, columns, table.num_rows)


def _exceeds_float(values: Any) -> bool:
    """Whether float64 would confuse whole numbers, such as long account numbers; they stay text."""
    ends = needs("pyarrow.compute").min_max(values).as_py()
    return any(end is not None and abs(end) > MAX_WHOLE for end in ends.values())


def list_column(values: Sequence[Any]) -> Column:
    """From Python values: numbers where each is a number or None, else text."""
    if all(v is None or isinstance(v, (bool, float, np.number, np.bool_)) or (isinstance(v, int) and abs(v) <= MAX_WHOLE) for v in values):
        return Column(np.array([math.nan if v is None else float(v) for v in values], dtype=np.float64))
    return text_column(values)


def text_column(values: Sequence[Any]) -> Column:
    texts = ["" if v is None else str(v).strip().replace("\0", "") for v in values]
    return Column(["\0".join(texts[at : at + BLOCK]).encode(errors="replace") for at in range(0, len(texts), BLOCK)])
