"""Tables from several files, from sheets and from databases."""

from __future__ import annotations

import builtins
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from fedepd.datasets.sources import read_source, read_sources
from fedepd.errors import BadConfig, BadData


def test_several_files_are_one_table_that_knows_its_lines(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,n\nx,1\ny,2\n")
    (tmp_path / "b.csv").write_text("n;id\n3;z\n")
    table = read_sources([tmp_path / "a.csv", tmp_path / "b.csv"])
    assert table.rows == 3
    assert table.columns["id"].texts() == ["x", "y", "z"]
    assert table.columns["n"].numbers.tolist() == [1, 2, 3]  # type: ignore[union-attr]
    assert table.place(1).endswith("a.csv line 3")
    assert table.place(2).endswith("b.csv line 2")
    (tmp_path / "b.csv").write_text("id,m\nz,3\n")
    with pytest.raises(BadData, match=r"b\.csv has no column 'n', but .*a\.csv has"):
        read_sources([tmp_path / "a.csv", tmp_path / "b.csv"])


def test_numbers_and_texts_of_two_files_become_texts(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "b.csv").write_text("id\nx\n")
    assert read_sources([tmp_path / "a.parquet", tmp_path / "b.csv"]).columns["id"].texts() == ["1", "2", "x"]


def test_decimal_commas(tmp_path: Path) -> None:
    """Points between thousands are left out. A column that is written with points alone keeps them."""
    (tmp_path / "a.csv").write_text("id;n;p;m\nx;1.234,5;0.25;1.234\ny;-2,;17.5;2\nz;;3;5.678\n")
    table = read_sources(tmp_path / "a.csv", ",")
    assert table.columns["n"].numbers.tolist()[:2] == [1234.5, -2]  # type: ignore[union-attr]
    assert table.columns["p"].numbers.tolist() == [0.25, 17.5, 3]  # type: ignore[union-attr]
    assert table.columns["m"].numbers.tolist() == [1234, 2, 5678]  # type: ignore[union-attr]
    assert table.columns["n"].texts()[0] == "1.234,5"
    (tmp_path / "a.csv").write_text("id;n\nx;1,5\ny;0.25\n")
    assert read_sources(tmp_path / "a.csv", ",").columns["n"].numbers == 1  # the row of 0.25
    with pytest.raises(BadConfig, match=r"give '\.' or ','"):
        read_sources(tmp_path / "a.csv", ";")


def database(folder: Path) -> str:
    with sqlite3.connect(folder / "bank.db") as connection:
        connection.execute("create table accounts (id text, balance real, opened date)")
        rows = [("a", 1.5, "2025-01-31"), ("b", None, None)]
        connection.executemany("insert into accounts values (?, ?, ?)", rows)
    connection.close()
    return f"sqlite:///{folder / 'bank.db'}"


def test_a_table_of_a_database(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    address = database(tmp_path)
    table = read_source(f"{address}#accounts")
    assert table.columns["id"].texts() == ["a", "b"]
    assert table.columns["balance"].texts() == ["1.5", ""]
    assert table.columns["opened"].texts() == ["2025-01-31", ""]
    assert table.place(1).endswith("row 2")
    some = read_source(f"{address}#SELECT id, 2 * balance AS twice FROM accounts WHERE id = 'a'")
    assert some.columns["twice"].numbers.tolist() == [3]  # type: ignore[union-attr]


def test_a_database_that_cannot_be_read_is_one_sentence_without_the_password(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    address = database(tmp_path)
    with pytest.raises(BadData, match="no such table") as caught:
        read_source(f"{address}#customers")
    assert "\n" not in str(caught.value)
    with pytest.raises(BadConfig, match="behind '#'"):
        read_source(address)
    with pytest.raises(BadData) as caught:
        read_source("nosuchdatabase://me:secret@host/bank#accounts")
    assert "secret" not in str(caught.value)
    assert "me:***@host" in str(caught.value)


@pytest.mark.parametrize(
    ("source", "package"), [("sqlite:///bank.db#t", "sqlalchemy"), ("book.xlsx#s", "openpyxl")]
)
def test_without_its_package_a_sentence_says_how_to_get_it(
    source: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zipfile

    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == package:
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile("book.xlsx", "w") as archive:
        archive.writestr("a", "b")
    monkeypatch.setattr("importlib.import_module", lambda name: without(name))
    with pytest.raises(BadConfig, match=f"needs {package}.*pip install .*{package}.*CSV"):
        read_source(source)


def test_a_file_that_is_no_workbook(tmp_path: Path) -> None:
    (tmp_path / "a.xlsx").write_bytes(b"not a zip file")
    with pytest.raises(BadData, match="not an Excel file"):
        read_source(tmp_path / "a.xlsx")
    with pytest.raises(BadData, match="old Excel file"):
        read_source(tmp_path / "a.xls")


def test_a_sheet_of_a_workbook(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    from datetime import datetime

    book = openpyxl.Workbook()
    book.active.append(["other"])
    sheet = book.create_sheet("accounts")
    for row in (["id", "n", "opened"], ["a", 1.5, datetime(2025, 1, 31)], ["b", None, None]):
        sheet.append(row)
    book.save(tmp_path / "a.xlsx")
    table = read_source(f"{tmp_path / 'a.xlsx'}#accounts")
    assert table.columns["id"].texts() == ["a", "b"]
    assert table.columns["n"].texts() == ["1.5", ""]
    assert table.columns["opened"].texts() == ["2025-01-31 00:00:00", ""]
    assert table.place(1).endswith("line 3")
    with pytest.raises(BadData, match="has no sheet 'account'; give one of its sheets: Sheet, accounts"):
        read_source(f"{tmp_path / 'a.xlsx'}#account")
