"""Tables from CSV files: the line of every complaint, at any size of the blocks they are read in."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fedepd.datasets import table_files
from fedepd.datasets.table_files import read_table
from fedepd.errors import BadData


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_csv_file_is_read_by_its_own_separator(tmp_path: Path, separator: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"id{separator}size\na{separator}1.5\n\nb{separator}\n", encoding="utf-8")
    table = read_table(file)
    assert (table.rows, list(table.columns)) == (2, ["id", "size"])
    assert table.columns["id"].texts() == ["a", "b"]
    numbers = table.columns["size"].numbers
    assert isinstance(numbers, np.ndarray)
    assert numbers[0] == 1.5
    assert math.isnan(numbers[1])
    assert table.place(1).endswith("t.csv line 4")  # the empty line counts


def test_blocks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rows in blocks of two; the row that is no number is counted over all blocks."""
    monkeypatch.setattr(table_files, "BLOCK", 2)
    file = tmp_path / "t.csv"
    file.write_text("v\n" + "\n".join(["1", "2", "3", "4", "x", "6", "7"]) + "\n", encoding="utf-8")
    column = read_table(file).columns["v"]
    assert isinstance(column.data, list)
    assert len(column.data) == 4
    assert column.texts() == ["1", "2", "3", "4", "x", "6", "7"]
    assert column.numbers == 4


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a,a\n1,2\n", "line 1 has the column name 'a' twice"),
        ("a,\n1,2\n", "line 1 has a column without a name"),
        ("\n1\n", "line 1 is empty"),
        ("a,b\n1\n", "line 2 has 1 cells, but the header has 2"),
        ('a,b\n"1,2\n', "check the quotes"),
        ("a\n\0\n", "line 2 holds a NUL character"),
    ],
)
def test_a_bad_file_is_refused_by_its_line(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(BadData, match=says):
        read_table(tmp_path / "t.csv")


def test_lines_are_those_of_the_file_with_cells_of_several_lines_and_empty_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line 1 is the header. b ends in line 4, line 5 is empty, c ends in line 8. Then blocks are plain."""
    monkeypatch.setattr(table_files, "BLOCK", 3)
    rows = ["a,1", '"b\nb",2', "", '"c\n\nc",3', *(f"d{n},4" for n in range(5))]
    (tmp_path / "a.csv").write_text("id,n\n" + "\n".join(rows))
    table = read_table(tmp_path / "a.csv")
    assert list(table.lines) == [2, 4, 8, 9, 10, 11, 12, 13]
    assert table.columns["id"].texts()[:3] == ["a", "b\nb", "c\n\nc"]


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("last", "says"),
    [
        (b"x\0,1", "line 9 holds a NUL"),
        (b"\xff,1", "line 9 is not UTF-8"),
        (b"x", "line 9 has 1 cells"),
        (b'"x,1', "line 9: unexpected end of data"),
        (b"x" * 99, "line 9 has more than 64 bytes"),
    ],
)
def test_a_bad_line_far_down_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: bytes, says: str
) -> None:
    monkeypatch.setattr(table_files, "SOME", 8)  # two lines at a time
    monkeypatch.setattr(table_files, "MAX_LINE", 64)
    monkeypatch.setattr(table_files, "BLOCK", 2)
    (tmp_path / "a.csv").write_bytes(b"i,n\n" + b"a,1\n" * 7 + last)
    with pytest.raises(BadData, match=says):
        read_table(tmp_path / "a.csv")


def test_a_mistake_above_a_stray_quote_is_told_first(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('i,n\na\nb"c,"d"e\n')
    with pytest.raises(BadData, match="line 2 has 1 cells"):
        read_table(tmp_path / "a.csv")
