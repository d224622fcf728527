"""Made-up tables of a bank, to try everything on: accounts of four branches, transfers, and a later month.

They have what real tables have: gaps, dates, a word among numbers, free text, transfers to accounts that
nobody knows, accounts without a label, a branch that has not seen a class and one with a segment of its own.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedepd.files import write_text
from fedepd.rng import seeded_numpy

CLASSES = ("clean", "mule", "takeover")
SEGMENTS = ("private", "retail", "student")
BRANCHES = ("north", "south", "east", "west")
ACCOUNTS, NEW_ACCOUNTS, TRANSFERS = 4000, 400, 4
"""Accounts, those of the later month, and transfers that each account makes."""
SHARES = (0.945, 0.04, 0.015)
SIZES = (0.4, 0.3, 0.2, 0.1)
"""Of the classes and of the branches."""
LABELLED = 0.85
"""The share of accounts that somebody has looked at."""
TO_OTHERS = 0.01
"""The share of transfers to accounts outside the bank."""
TO_MULES = 0.7
"""The share of a fraud's transfers that goes to a mule, who passes the money on."""
LAST = date(2025, 6, 30)
"""No account was opened later."""
NOTES = ("", "", "", "called about card", "address changed, see ticket 4711", "complaint; closed")
COLUMNS = (
    "account_id", "fraud", "branch", "age", "balance", "income", "night_share", "logins", "new_devices",
    "abroad", "opened", "segment", "note",
)  # fmt: skip
FILES: Mapping[str, str] = {
    "accounts.csv": "the accounts of four branches, most of them with a label",
    "transfers.csv": "transfers between them",
    "new_accounts.csv": "accounts that came a month later",
    "new_transfers.csv": "transfers of the new accounts",
    "new_labels.csv": "what the new accounts turned out to be",
}

Row = dict[str, Any]
Ints = NDArray[np.int64]


def write_bank(folder: Path, seed: int = 0) -> None:
    """The files of ``FILES``, in ``folder``. The same seed gives the same tables."""
    draw = seeded_numpy("example bank", seed)
    everyone = ACCOUNTS + NEW_ACCOUNTS
    kinds = draw.choice(len(CLASSES), everyone, p=SHARES)
    branches = draw.choice(len(BRANCHES), everyone, p=SIZES)
    kinds[(branches == BRANCHES.index("west")) & (kinds == CLASSES.index("takeover"))] = 0
    rows = [
        _row(draw, f"A{k:05d}", int(kind), BRANCHES[int(branch)])
        for k, (kind, branch) in enumerate(zip(kinds, branches, strict=True))
    ]
    old, new = rows[:ACCOUNTS], rows[ACCOUNTS:]
    labels = [{"account_id": row["account_id"], "fraud": row["fraud"]} for row in new]
    for row in new:
        row["income"] = round(1.4 * row["income"], 2)  # wages have risen
    _make_messy(draw, old, new)
    moved = [(a, b) for a, b in _transfers(draw, kinds, branches) if a >= ACCOUNTS or b < ACCOUNTS]
    months = [(a, b) for a, b in moved if a < ACCOUNTS], [(a, b) for a, b in moved if a >= ACCOUNTS]
    write_csv(folder / "accounts.csv", COLUMNS, old)
    write_csv(folder / "transfers.csv", ENDS, _booked(draw, rows, months[0], TO_OTHERS))
    write_csv(folder / "new_accounts.csv", [name for name in COLUMNS if name != "fraud"], new)
    write_csv(folder / "new_transfers.csv", ENDS, _booked(draw, rows, months[1], 0.0))
    write_csv(folder / "new_labels.csv", ("account_id", "fraud"), labels)


ENDS = ("from_account", "to_account", "amount", "booked_on")


def account(draw: np.random.Generator, name: str, kind: int) -> Row:
    """What every bank knows about an account of this kind."""
    mule, takeover = kind == 1, kind == 2
    return {
        "account": name,
        "fraud": CLASSES[kind],
        "age": int(np.clip(draw.normal(48 - 9 * mule, 14), 18, 95)),
        "balance": round(float(np.exp(draw.normal(7.5 - 0.7 * mule + 0.5 * takeover, 1.0))), 2),
        "night_share": round(float(np.clip(draw.beta(2, 8) + 0.08 * mule + 0.15 * takeover, 0, 1)), 3),
        "logins": int(draw.poisson(5 + 1 * mule + 3 * takeover)),
        "abroad": int(draw.random() < 0.1 + 0.2 * mule + 0.2 * takeover),
        "segment": str(draw.choice(SEGMENTS, p=(0.2, 0.5, 0.3))),
    }


def _row(draw: np.random.Generator, name: str, kind: int, branch: str) -> Row:
    """An account of this bank. Mules opened theirs in the last two years."""
    days = int(draw.integers(0, 700 if kind == 1 else 3650))
    return account(draw, name, kind) | {
        "account_id": name,
        "branch": branch,
        "income": round(float(np.exp(draw.normal(7.8, 0.5))), 2),
        "new_devices": int(draw.poisson(0.3 + 0.2 * (kind == 1) + 0.9 * (kind == 2))),
        "opened": (LAST - timedelta(days=days)).isoformat(),
        "note": NOTES[int(draw.integers(len(NOTES)))],
    }


def _make_messy(draw: np.random.Generator, old: list[Row], new: list[Row]) -> None:
    """Gaps, words among numbers, a segment of one branch, and accounts that nobody has looked at."""
    for row in [*old, *new]:
        for name, share in (("income", 0.08), ("age", 0.01), ("segment", 0.01)):
            row[name] = "" if draw.random() < share else row[name]
        if row["branch"] == "south" and draw.random() < 0.05:
            row["segment"] = "farmer"
    for row in old:
        row["fraud"] = row["fraud"] if draw.random() < LABELLED else ""
    for k in draw.choice(len(old), 3, replace=False):
        old[int(k)]["logins"] = "n/a"


def _transfers(draw: np.random.Generator, kinds: Ints, branches: Ints) -> list[tuple[int, int]]:
    """Pairs of accounts. Most are of one branch. What a fraud moves often goes to a mule."""
    everyone = np.arange(len(kinds))
    near = {branch: everyone[branches == branch] for branch in range(len(BRANCHES))}
    mules = everyone[kinds == CLASSES.index("mule")]
    out = []
    for source in everyone:
        for _ in range(TRANSFERS):
            pool = near[int(branches[source])] if draw.random() < 0.8 else everyone
            if kinds[source] and draw.random() < TO_MULES:
                pool = mules
            out.append((int(source), int(pool[draw.integers(len(pool))])))
    return [(a, b) for a, b in out if a != b]


def _booked(
    draw: np.random.Generator, rows: list[Row], pairs: Sequence[tuple[int, int]], outside: float
) -> list[Row]:
    """The transfers with an amount and a day. Some go to an account outside the bank."""
    out = []
    for a, b in pairs:
        other = f"X{int(draw.integers(10_000)):05d}" if draw.random() < outside else rows[b]["account_id"]
        day = LAST - timedelta(days=int(draw.integers(90)))
        amount = round(float(np.exp(draw.normal(5, 1.3))), 2)
        out.append(dict(zip(ENDS, (rows[a]["account_id"], other, amount, day.isoformat()), strict=True)))
    return out


def write_csv(path: Path, columns: Sequence[str], rows: Sequence[Row]) -> None:
    """Write the named columns of the rows, with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
