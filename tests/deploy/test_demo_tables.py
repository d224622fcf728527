"""The tables that the demo makes up."""

from __future__ import annotations

from pathlib import Path

from fedepd.datasets.example_bank import CLASSES
from fedepd.datasets.table_files import read_table
from fedepd.deploy.demo_tables import ACCOUNTS, BANKS, COLUMNS, NEW_ACCOUNTS, write_banks


def test_every_bank_differs_in_its_own_way(tmp_path: Path) -> None:
    banks = write_banks(tmp_path / "a")
    assert tuple(banks) == BANKS
    tables = {bank: read_table(files.nodes) for bank, files in banks.items()}
    assert all(table.rows == ACCOUNTS for table in tables.values())
    assert [*tables["north"].columns] == [*COLUMNS]
    assert [*tables["south"].columns] != [*COLUMNS]
    assert sorted(tables["south"].columns) == sorted(COLUMNS)
    labels = {bank: table.column("fraud", "").texts() for bank, table in tables.items()}
    assert set(labels["north"]) == set(labels["south"]) == set(CLASSES)
    assert set(labels["east"]) == {"clean", "mule"}
    assert labels["west"].count("") > 50
    assert "farmer" in tables["south"].column("segment", "").texts()
    assert "farmer" not in tables["north"].column("segment", "").texts()


def test_new_accounts_have_no_label_and_meet_each_other(tmp_path: Path) -> None:
    for files in write_banks(tmp_path / "a").values():
        new = read_table(files.new_nodes)
        assert new.rows == NEW_ACCOUNTS == len(files.truth)
        assert "fraud" not in new.columns
        names = set(new.column("account", "").texts())
        assert names == set(files.truth)
        edges = read_table(files.new_edges)
        assert set(edges.column("source", "").texts()) | set(edges.column("target", "").texts()) <= names


def test_the_same_seed_gives_the_same_tables(tmp_path: Path) -> None:
    first, again, other = (
        write_banks(tmp_path / name, seed) for name, seed in (("a", 0), ("b", 0), ("c", 1))
    )
    assert first["west"].nodes.read_bytes() == again["west"].nodes.read_bytes()
    assert first["west"].nodes.read_bytes() != other["west"].nodes.read_bytes()
