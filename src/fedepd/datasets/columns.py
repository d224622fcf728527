"""Tables and their columns, from Parquet, Arrow or plain lists. Every error names the file and the cure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from types import ModuleType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedepd import memory
from fedepd.arrays import reason
from fedepd.errors import BadConfig, BadData, FedEPDError
from fedepd.files import size_of
from fedepd.shown import shown

Floats = NDArray[np.float64]

MAX_COLUMNS = 2**17
"""Most columns of a table. Each column costs time and memory of its own."""
BLOCK = 4096
"""Most rows that are held as Python strings at the same time."""
CELL = 64
"""Bytes that a Python string takes in addition to its characters. A number takes 8 bytes."""
MAX_WHOLE = 2**53
WITH_COMMA = re.compile(r"[+-]?(\d{1,3}(\.\d{3})+|\d*)(,\d*)?([eE][+-]?\d+)?")
"""A number whose decimal point is a comma. Points may stand between its thousands."""


@dataclass(frozen=True, eq=False)
class Column:
    """Numbers (NaN where a cell is missing), or text.

    Text is kept in blocks of UTF-8 with NUL between cells. That takes an eighth of the memory of Python
    strings.
    """

    data: Floats | list[bytes]
    decimal: str = "."
    """What stands before the decimals of a number in a cell of text: a point or a comma."""

    @property
    def is_text(self) -> bool:
        return isinstance(self.data, list)

    def texts(self) -> list[str]:
        """Every cell as text. A whole number has no decimal point, and a missing cell is ''."""
        if isinstance(self.data, list):
            return [cell for block in self.data for cell in block.decode().split("\0")]
        return [_as_text(value) for value in self.data.tolist()]

    @property
    def numbers(self) -> Floats | int:
        """float64 [rows], NaN where a cell is missing; or the row of the first cell that is not a number."""
        return self.numbers_but(frozenset())

    def numbers_but(self, missing: frozenset[str]) -> Floats | int:
        """The same where the words ``missing`` stand for missing cells, too."""
        if not isinstance(self.data, list):
            return self._without(missing)
        if missing not in self._read:  # it is asked for several times, and reading takes seconds
            self._read.clear()
            self._read[missing] = self._numbers(self.data, missing)
        return self._read[missing]

    @cached_property
    def _read(self) -> dict[frozenset[str], Floats | int]:
        return {}

    def _numbers(self, data: list[bytes], missing: frozenset[str]) -> Floats | int:
        blocks: list[Floats] = [np.empty(0)]
        nothing = missing | {""}
        for number, block in enumerate(data):
            cells = block.decode().split("\0")
            if self.decimal == ".":
                cells = ["nan" if cell in nothing else cell for cell in cells]
            else:
                cells = [self._spelled(cell, missing) for cell in cells]
            try:
                blocks.append(np.array(cells, dtype=np.float64))
            except ValueError:
                above = sum(earlier.count(b"\0") + 1 for earlier in data[:number])
                return above + next(row for row, cell in enumerate(cells) if not _is_number(cell))
        found = np.concatenate(blocks)
        found.flags.writeable = False
        return found

    def _without(self, missing: frozenset[str]) -> Floats:
        """Numbers as they are, but NaN where one of them is spelled as a missing cell, such as -999."""
        assert not isinstance(self.data, list)
        spelled = [float(word) for word in missing if _is_number(word)]
        return np.where(np.isin(self.data, spelled), math.nan, self.data) if spelled else self.data

    def _spelled(self, cell: str, missing: frozenset[str]) -> str:
        """A cell as Python writes numbers."""
        if not cell or cell in missing:
            return "nan"
        if self.decimal == "," and ("," in cell or "." in cell):
            return cell.replace(".", "").replace(",", ".") if WITH_COMMA.fullmatch(cell) else f"'{cell}'"
        return cell

    def is_number(self, text: str) -> bool:
        """Whether a cell is a number, or missing."""
        return _is_number(self._spelled(text, frozenset()))

    def odd(self, missing: frozenset[str]) -> list[tuple[int, str]]:
        """The rows and texts of all cells that are neither missing nor numbers."""
        if not isinstance(self.data, list):
            return []
        spelled = ((row, text, self._spelled(text, missing)) for row, text in enumerate(self.texts()))
        return [(row, text) for row, text, number in spelled if not _is_number(number)]


def _as_text(value: float) -> str:
    if math.isnan(value):
        return ""
    return str(int(value)) if value.is_integer() else repr(value)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class Table:
    """Named columns of equal length, and the line of each row in its file."""

    name: str
    columns: Mapping[str, Column]
    rows: int
    lines: Sequence[int] = ()
    """The line of each row if the table is a text file, else empty."""
    parts: tuple[Table, ...] = ()
    """The tables of which this one is made, one below the other; empty if it is a single one."""

    def place(self, row: int) -> str:
        for part in self.parts:
            if row < part.rows:
                return part.place(row)
            row -= part.rows
        return f"{self.name} line {self.lines[row]}" if self.lines else f"{self.name} row {row + 1}"

    def column(self, name: str, cure: str) -> Column:
        if name not in self.columns:
            raise BadData(
                f"{self.name} has no column '{shown(name)}'; {cure} (columns: {listed(self.columns)})"
            )
        return self.columns[name]


def listed(names: Collection[str], most: int = 20) -> str:
    """Names of columns or classes for a message.

    Long names are cut, and of many only the first are listed.
    """
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(shown(name) for name in islice(names, most)) + more


def needs(module: str) -> ModuleType:
    """An optional package. If it is missing, the error says how to install it."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise BadConfig(f'{module.split(".")[0]} is not installed; run: pip install "fedepd[data]"') from None


def read_parquet(file: IO[bytes], name: str) -> Table:
    """A Parquet file. ``name`` is what errors call it."""
    arrow, parquet = needs("pyarrow"), needs("pyarrow.parquet")
    cure = "write it again or use a CSV"
    try:
        with parquet.ParquetFile(file) as first:
            facts, schema = first.metadata, first.schema_arrow
            _check_types(schema, name)
            memory.check_growth(8 * facts.num_rows * facts.num_columns, size_of(file), f"file '{name}'", cure)
            stated = sum(facts.row_group(group).total_byte_size for group in range(facts.num_row_groups))
            memory.check_growth(stated, size_of(file), f"file '{name}'", cure)
        # A text that is in a million cells is stored once. It stays so until the size of all copies is known.
        texts = [field.name for field in schema if _is_text(field.type)]
        with parquet.ParquetFile(file, read_dictionary=texts) as again:
            batches, cells = [], 0
            for batch in again.iter_batches(batch_size=BLOCK, use_threads=False):
                cells += sum(map(_cell_bytes, batch.columns))
                memory.check_growth(cells, size_of(file), f"file '{name}'", cure)
                batches.append(batch)
            return arrow_table(
                arrow.Table.from_batches(batches, batches[0].schema if batches else schema), name
            )
    except FedEPDError:
        raise
    except Exception as error:  # Arrow can raise anything on foreign bytes
        raise BadData(f"file '{name}' is not a valid Parquet file ({reason(error)}); {cure}") from None


def _is_text(kind: Any) -> bool:
    types = needs("pyarrow").types
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _cell_bytes(values: Any) -> int:
    """The bytes that a column's cells take once each has its own text."""
    types, compute = needs("pyarrow").types, needs("pyarrow.compute")
    if not types.is_dictionary(values.type):
        return 8 * len(values)
    if not _is_text(values.type.value_type):
        return CELL * len(values)
    lengths = compute.take(compute.binary_length(values.dictionary), values.indices)
    return CELL * len(values) + int(compute.sum(lengths).as_py() or 0)


def _check_types(schema: Any, name: str) -> None:
    """Refuse a column whose cells are not single numbers or texts, before any column is read."""
    if len(schema.names) > MAX_COLUMNS:
        raise BadData(
            f"{name} has {len(schema.names):,} columns, more than {MAX_COLUMNS:,}; "
            f"give features with --features-npz"
        )
    types = needs("pyarrow").types
    seen: set[str] = set()
    for field in schema:
        if field.name in seen:
            raise BadData(
                f"{name} has the column '{shown(field.name)}' twice; give every column a name of its own"
            )
        seen.add(field.name)
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        if not any(test(kind) for test in (*_numeric(types), *_textual(types))):
            what = f"column '{shown(field.name)}' has type {shown(field.type)}"
            raise BadData(f"{name}: {what}; keep one number or text per cell, or use --features-npz")


def _numeric(types: Any) -> tuple[Callable[[Any], bool], ...]:
    return (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal, types.is_null)


def _textual(types: Any) -> tuple[Callable[[Any], bool], ...]:
    return (types.is_string, types.is_large_string, types.is_temporal)


def arrow_table(table: Any, name: str) -> Table:
    """A table from a pyarrow table. Numbers and truth values become numbers, text and dates become text."""
    types = needs("pyarrow").types
    _check_types(table.schema, name)
    columns: dict[str, Column] = {}
    for key, values in zip(table.column_names, table.columns, strict=True):
        if types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if any(test(values.type) for test in _textual(types)) or (
            types.is_integer(values.type) and _exceeds_float(values)
        ):
            columns[key] = text_column(values.to_pylist())
        else:
            columns[key] = Column(np.array(values.cast("float64", safe=False).to_numpy(), dtype=np.float64))
    return Table(name, columns, table.num_rows)


def _exceeds_float(values: Any) -> bool:
    """Whether float64 would round whole numbers, such as long account numbers. Those stay text."""
    ends = needs("pyarrow.compute").min_max(values).as_py()
    return any(end is not None and abs(end) > MAX_WHOLE for end in ends.values())


def list_column(values: Sequence[Any]) -> Column:
    """A column from Python values: numbers if each value is a number or None, else text."""
    if all(
        v is None
        or isinstance(v, (bool, float, np.number, np.bool_))
        or (isinstance(v, int) and abs(v) <= MAX_WHOLE)
        for v in values
    ):
        return Column(np.array([math.nan if v is None else float(v) for v in values], dtype=np.float64))
    return text_column(values)


def text_column(values: Sequence[Any]) -> Column:
    texts = ["" if v is None else str(v).strip().replace("\0", "") for v in values]
    return Column(
        ["\0".join(texts[at : at + BLOCK]).encode(errors="replace") for at in range(0, len(texts), BLOCK)]
    )
