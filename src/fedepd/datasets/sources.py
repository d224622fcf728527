"""Where a table comes from: one or several files, a sheet of an Excel file, or a table of a database.

- ``accounts.csv``, ``accounts.parquet``: see ``columns``.
- ``accounts.xlsx``, or ``accounts.xlsx#Sheet2`` for another sheet than the first. This needs pandas and
  openpyxl.
- ``sqlite:///bank.db#accounts``: a table of a database, by its SQLAlchemy address. After ``#`` there may be a
  whole SELECT. This needs SQLAlchemy and the driver of the database.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedepd import memory
from fedepd.arrays import open_file, reason, spelled
from fedepd.datasets.columns import (
    BLOCK,
    CELL,
    MAX_COLUMNS,
    WITH_COMMA,
    Column,
    Table,
    list_column,
    listed,
    text_column,
)
from fedepd.datasets.table_files import read_table
from fedepd.errors import BadConfig, BadData, FedEPDError
from fedepd.files import DAMAGE, size_of
from fedepd.shown import shown

DATABASE = re.compile(r"[A-Za-z][A-Za-z0-9_+]*://")
"""How the address of a database begins."""
SELECT = re.compile(r"\s*(select|with)\s", re.IGNORECASE)
MAX_SOURCES = 10_000


def read_sources(sources: str | Path | Sequence[str | Path], decimal: str = ".") -> Table:
    """One table from one or several sources, one below the other.

    Args:
        sources: Files or addresses; see above.
        decimal: What stands before the decimals of numbers: a point or a comma.

    Returns:
        The table. It knows from which file and line each row came.

    Raises:
        BadData: A source cannot be read, or the sources have different columns.

    Examples:
        >>> from pathlib import Path
        >>> _ = Path("north.csv").write_text("id,balance\\na,1\\n")
        >>> _ = Path("south.csv").write_text("balance,id\\n2,b\\n")
        >>> table = read_sources(["north.csv", "south.csv"])
        >>> table.columns["balance"].numbers.tolist(), table.place(1)
        ([1.0, 2.0], 'south.csv line 2')
    """
    if decimal not in (".", ","):
        raise BadConfig(f"decimal is '{shown(decimal)}'; give '.' or ','")
    many = [sources] if isinstance(sources, (str, Path)) else list(sources)
    if not 0 < len(many) <= MAX_SOURCES:
        raise BadConfig(f"there are {len(many):,} tables to put together; give 1 to {MAX_SOURCES:,}")
    tables = [_with_decimal(read_source(each), decimal) for each in many]
    return tables[0] if len(tables) == 1 else stacked(tables)


def read_source(source: str | Path) -> Table:
    """One file, one sheet, or one table of a database."""
    text = str(source)
    if DATABASE.match(text):
        return _read_database(text)
    path, _, sheet = text.partition("#")
    if Path(path).suffix.lower() in (".xlsx", ".xlsm"):
        return _read_excel(path, sheet)
    if Path(text).suffix.lower() == ".xls":
        raise BadData(f"file '{spelled(text)}' is an old Excel file; save it as .xlsx or as CSV in UTF-8")
    return read_table(source)


def _with_decimal(table: Table, decimal: str) -> Table:
    if decimal == ".":
        return table
    columns = {
        name: replace(column, decimal=decimal) if column.is_text and _may_have_commas(column) else column
        for name, column in table.columns.items()
    }
    return replace(table, columns=columns)


def _may_have_commas(column: Column) -> bool:
    """Not so if no cell has a comma, and some cell has a point where no thousands end.

    Choice: a column that is written with points alone keeps them, because one table of two often comes from
    another program.
    """
    texts = column.texts()
    return any("," in text for text in texts) or all(
        WITH_COMMA.fullmatch(text) for text in texts if "." in text
    )


def stacked(tables: Sequence[Table]) -> Table:
    """Tables with the same columns, in any order, one below the other."""
    first = tables[0]
    for table in tables[1:]:
        for one, other in ((first, table), (table, first)):
            if missing := [name for name in one.columns if name not in other.columns]:
                raise BadData(
                    f"{other.name} has no column '{shown(missing[0])}', but {one.name} has; "
                    f"give all files the same columns (columns: {listed(other.columns)})"
                )
    columns = {name: _stacked([table.columns[name] for table in tables]) for name in first.columns}
    name = f"{first.name} and {len(tables) - 1} more"
    return Table(name, columns, sum(table.rows for table in tables), parts=tuple(tables))


def _stacked(columns: Sequence[Column]) -> Column:
    if not any(column.is_text for column in columns):
        return Column(np.concatenate([np.asarray(column.data) for column in columns]))
    blocks: list[bytes] = []
    for column in columns:
        blocks += column.data if isinstance(column.data, list) else _text_blocks(column)
    return Column(blocks, next(column.decimal for column in columns if column.is_text))


def _text_blocks(column: Column) -> list[bytes]:
    made = text_column(column.texts()).data
    assert isinstance(made, list)
    return made


def _needs(module: str, packages: str, what: str) -> Any:
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError:
        raise BadConfig(
            f"{what} needs {module}, which is not installed; run: pip install {packages}, or save it as CSV"
        ) from None


# --- Excel --------------------------------------------------------------------------------------------------


def _read_excel(path: str, sheet: str) -> Table:
    what, cure = f"file '{spelled(path)}'", "save the sheet as CSV in UTF-8"
    with open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                stated = sum(info.file_size for info in archive.infolist())
            memory.check_growth(stated, size_of(file), what, cure)
        except DAMAGE as error:
            raise BadData(f"{what} is not an Excel file ({reason(error)}); {cure}") from None
        pandas = _needs("pandas", "pandas openpyxl", what)
        _needs("openpyxl", "pandas openpyxl", what)
        file.seek(0)
        try:
            with pandas.ExcelFile(file, engine="openpyxl") as book:
                if sheet and sheet not in book.sheet_names:
                    there = listed(book.sheet_names)
                    raise BadData(f"{what} has no sheet '{shown(sheet)}'; give one of its sheets: {there}")
                frame = book.parse(sheet or 0, dtype=object, keep_default_na=False)
        except BadData:
            raise
        except Exception as error:  # openpyxl can raise anything on foreign bytes
            raise BadData(f"{what} cannot be read as Excel ({reason(error)}); {cure}") from None
    columns = [[_cell(value) for value in frame[name].tolist()] for name in frame.columns]
    return _table(spelled(path), [str(name).strip() for name in frame.columns], columns, len(frame), 2)


def _cell(value: Any) -> Any:
    """A cell of a sheet or a database: a number, a text, or None where it is empty."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return None if math.isnan(value) else value
    if type(value).__name__ == "NaTType":
        return None
    if type(value).__name__ == "Decimal":
        return float(value)
    return str(value) or None


def _table(name: str, header: list[str], columns: list[list[Any]], rows: int, first: int) -> Table:
    """``first``: the line of the first row; 0 if rows have no lines."""
    if not header or len(header) > MAX_COLUMNS:
        raise BadData(f"{name} has {len(header):,} columns; give 1 to {MAX_COLUMNS:,}")
    for number, column in enumerate(header):
        if not column or column in header[:number]:
            what = f"the column name '{shown(column)}' twice" if column else "a column without a name"
            raise BadData(f"{name} has {what}; give every column a name of its own")
    made = {column: list_column(cells) for column, cells in zip(header, columns, strict=True)}
    return Table(name, made, rows, range(first, first + rows) if first else ())


# --- databases ----------------------------------------------------------------------------------------------


def _read_database(source: str) -> Table:
    address, _, what = source.partition("#")
    alchemy = _needs("sqlalchemy", "sqlalchemy", f"the database '{_hidden(address)}'")
    if not what:
        raise BadConfig(
            f"'{_hidden(address)}' names no table; put its name, or a SELECT in quotes, behind '#'"
        )
    name = f"{_hidden(address)}#{shown(what, 60)}"
    try:
        engine = alchemy.create_engine(address)
        try:
            with engine.connect() as connection:
                return _rows(connection.execute(_query(alchemy, what)), name)
        finally:
            engine.dispose()
    except FedEPDError:
        raise
    except Exception as error:  # every driver has errors of its own
        said = reason(error).replace(address, _hidden(address))
        raise BadData(
            f"{name} cannot be read ({said}); check the address, the table and the driver"
        ) from None


def _hidden(address: str) -> str:
    """The address without its password."""
    return shown(re.sub(r"(://[^/@:]*):[^/]*@", r"\1:***@", address), 200)


def _query(alchemy: Any, what: str) -> Any:
    if SELECT.match(what):
        return alchemy.text(what)
    schema, _, table = what.rpartition(".")
    return alchemy.select(alchemy.text("*")).select_from(alchemy.table(table, schema=schema or None))


def _rows(result: Any, name: str) -> Table:
    header = [str(key).strip() for key in result.keys()]  # noqa: SIM118 - a result is no dict
    columns: list[list[Any]] = [[] for _ in header]
    rows = used = 0
    while some := result.fetchmany(BLOCK):
        rows += len(some)
        for column, cells in zip(columns, zip(*some, strict=True), strict=True):
            column += [_cell(value) for value in cells]
            used += sum(CELL + len(value) if isinstance(value, str) else 8 for value in column[-len(some) :])
        memory.check(memory.COPIES * used, name)
    return _table(name, header, columns, rows, 0)
