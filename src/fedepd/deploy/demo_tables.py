"""Made-up tables of banks for the demo, each bank's as it happens to keep them.

The banks agree on nothing but the names of columns and classes. One has its columns in another order. One has
never seen a class. One uses a category that the others do not know. One has accounts that nobody has looked
at yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedepd.datasets.example_bank import CLASSES, Row, account, write_csv
from fedepd.rng import seeded_numpy

BANKS = ("north", "south", "east", "west")
SHARES = (0.85, 0.11, 0.04)
ACCOUNTS, NEW_ACCOUNTS, TRANSFERS = 400, 100, 3
"""Accounts of a bank, those of the next month, and transfers that each account makes."""
COLUMNS = ("account", "fraud", "age", "balance", "night_share", "logins", "abroad", "segment")


@dataclass(frozen=True)
class BankFiles:
    """One bank's tables: what it trains on, and what it wants to know about."""

    nodes: Path
    edges: Path
    new_nodes: Path
    new_edges: Path
    truth: dict[str, str]
    """The class of each new account, which the bank does not know yet."""


def write_banks(folder: Path, seed: int = 0) -> dict[str, BankFiles]:
    """The tables of all banks, in ``folder``. The same seed gives the same tables."""
    folder.mkdir(parents=True)
    return {bank: _bank(folder, bank, seed) for bank in BANKS}


def _bank(folder: Path, bank: str, seed: int) -> BankFiles:
    draw = seeded_numpy("demo bank", bank, seed)
    kinds = draw.choice(3, ACCOUNTS + NEW_ACCOUNTS, p=SHARES)
    if bank == "east":
        kinds[:ACCOUNTS][kinds[:ACCOUNTS] == 2] = 0  # this bank has not had a takeover yet
    rows = [account(draw, f"{bank}-{k:04d}", int(kind)) for k, kind in enumerate(kinds)]
    links = _transfers(draw, kinds)
    _change(draw, bank, rows)
    old, new = rows[:ACCOUNTS], rows[ACCOUNTS:]
    columns = COLUMNS if bank != "south" else (*COLUMNS[:1], *reversed(COLUMNS[1:]))
    files = [folder / f"{bank}-{what}.csv" for what in ("accounts", "transfers", "new", "new-transfers")]
    write_csv(files[0], columns, old)
    write_csv(files[2], [name for name in columns if name != "fraud"], new)
    names = [row["account"] for row in rows]
    within = [(a, b) for a, b in links if max(a, b) < ACCOUNTS]
    among_new = [(a, b) for a, b in links if min(a, b) >= ACCOUNTS]
    for path, pairs in ((files[1], within), (files[3], among_new)):
        write_csv(path, ("source", "target"), [{"source": names[a], "target": names[b]} for a, b in pairs])
    truth = {row["account"]: CLASSES[int(kind)] for row, kind in zip(new, kinds[ACCOUNTS:], strict=True)}
    return BankFiles(files[0], files[1], files[2], files[3], truth)


def _transfers(draw: np.random.Generator, kinds: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Pairs of accounts. Accounts of one kind meet each other more often than by chance.

    Old accounts meet old ones, and new accounts meet new ones.
    """
    months = (np.arange(ACCOUNTS), np.arange(ACCOUNTS, ACCOUNTS + NEW_ACCOUNTS))
    out = []
    for everyone in months:
        alike = {kind: everyone[kinds[everyone] == kind] for kind in range(3)}
        for source in everyone:
            for _ in range(TRANSFERS):
                near = alike[int(kinds[source])] if draw.random() < 0.3 else everyone
                target = int(draw.choice(near))
                if target != source:
                    out.append((int(source), target))
    return out


def _change(draw: np.random.Generator, bank: str, rows: list[Row]) -> None:
    """What makes this bank's tables different from the others'."""
    if bank == "south":
        for row in rows[:12]:
            row["segment"] = "farmer"
    if bank == "west":
        for row in rows[:ACCOUNTS]:
            row["fraud"] = "" if draw.random() < 0.3 else row["fraud"]
