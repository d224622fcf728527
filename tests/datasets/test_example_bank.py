"""The tables of a bank that ``fedepd examples`` writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.datasets.columns import Table
from fedepd.datasets.example_bank import (
    ACCOUNTS,
    BRANCHES,
    CLASSES,
    COLUMNS,
    FILES,
    NEW_ACCOUNTS,
    account,
    write_bank,
    write_csv,
)
from fedepd.datasets.table_files import read_table
from fedepd.rng import seeded_numpy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bank")
    write_bank(made)
    return made


def texts(table: Table, column: str) -> list[str]:
    return list(table.column(column, "").texts())


def test_the_files_are_those_that_are_listed(folder: Path) -> None:
    assert {path.name for path in folder.iterdir()} == set(FILES)


def test_the_accounts_are_as_messy_as_real_ones(folder: Path) -> None:
    """Shares of 4,000 rows: 15 % without label, 8 % without income. Five deviations are 2.9 and 2.2 %."""
    table = read_table(folder / "accounts.csv")
    assert (table.rows, [*table.columns]) == (ACCOUNTS, [*COLUMNS])
    labels, branches = texts(table, "fraud"), texts(table, "branch")
    assert set(labels) == {*CLASSES, ""}
    assert set(branches) == set(BRANCHES)
    assert abs(labels.count("") / ACCOUNTS - 0.15) < 0.029
    assert abs(texts(table, "income").count("") / ACCOUNTS - 0.08) < 0.022
    assert texts(table, "logins").count("n/a") == 3
    in_west = {label for label, branch in zip(labels, branches, strict=True) if branch == "west"}
    assert in_west == {"clean", "mule", ""}
    farmers = [b for s, b in zip(texts(table, "segment"), branches, strict=True) if s == "farmer"]
    assert set(farmers) == {"south"}
    assert labels.count("clean") > 20 * labels.count("mule") > 20 * labels.count("takeover") > 20 * 20


def test_transfers_lead_to_old_accounts_and_to_nobody_known(folder: Path) -> None:
    known = set(texts(read_table(folder / "accounts.csv"), "account_id"))
    table = read_table(folder / "transfers.csv")
    assert set(texts(table, "from_account")) <= known
    outside = [name for name in texts(table, "to_account") if name not in known]
    assert all(name.startswith("X") for name in outside)
    assert 0 < len(outside) < 0.02 * table.rows


def test_the_later_month_has_no_labels_but_in_a_file_of_their_own(folder: Path) -> None:
    known = set(texts(read_table(folder / "accounts.csv"), "account_id"))
    new = read_table(folder / "new_accounts.csv")
    names = texts(new, "account_id")
    assert (new.rows, known & set(names)) == (NEW_ACCOUNTS, set())
    assert "fraud" not in new.columns
    labels = read_table(folder / "new_labels.csv")
    assert texts(labels, "account_id") == names
    assert set(texts(labels, "fraud")) == set(CLASSES)
    moved = read_table(folder / "new_transfers.csv")
    assert set(texts(moved, "from_account")) <= set(names)
    assert set(texts(moved, "to_account")) <= known | set(names)
    assert known & set(texts(moved, "to_account"))


def test_the_same_seed_gives_the_same_row(tmp_path: Path) -> None:
    rows = [account(seeded_numpy("test", seed), "a", 1) for seed in (0, 0, 1)]
    assert rows[0] == rows[1] != rows[2]
    write_csv(tmp_path / "t.csv", ("account", "fraud"), rows[:1])
    assert (tmp_path / "t.csv").read_text() == "account,fraud\na,mule\n"
