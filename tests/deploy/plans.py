"""A small plan and tables that fit it, for tests of plans, kits and imports."""

from __future__ import annotations

from pathlib import Path

PLAN = """\
version = 1
task = "account-fraud"
purpose = "Find accounts that are used for fraud."
classes = ["honest", "mule", "fraud"]
min_sites = 3
site_gets = "model"

[[column]]
name = "country"
kind = "category"
values = ["AT", "DE"]
[[column]]
name = "balance"
kind = "number"
scaled = true
[[column]]
name = "logins"
kind = "number"
scaled = false
[[column]]
name = "business"
kind = "flag"

[run]
method = "fedavg"
rounds = 3
hidden = 8
evaluate_every = 1

[split]
train = 0.6
val = 0.2
test = 0.2

[privacy]
guard = true
min_count = 5
min_holders = 3
secure = true
"""


def write_plan(path: Path, *changes: tuple[str, str], text: str = PLAN) -> Path:
    """A plan with parts replaced; each must be there."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new, 1)
    path.write_text(text)
    return path


UNSCALED = (("scaled = true", "scaled = false"),)
ROWS = 40


def write_tables(folder: Path, site: int, order: int = 1, labels: bool = True) -> tuple[Path, Path]:
    """A site's tables by the plan, without a class of fewer than eight nodes: 16, 12 and 12.

    ``order`` -1 turns the order of columns around.
    """
    columns = ["account", "fraud", "country", "balance", "logins", "business"][::order]
    kinds = ["honest"] * 16 + ["mule"] * 12 + ["fraud"] * 12
    lines = [",".join(columns)]
    for row in range(ROWS):
        number = kinds[row]
        cells = {
            "account": f"s{site}-{row}",
            "fraud": number if labels else "",
            "country": "AT" if (row + site) % 3 else "DE",
            "balance": 1000 * (row % 7) + 31 * site + row / 8,
            "logins": (row * (site + 2)) % 5,
            "business": int(number != "honest" and row % 4 > 0),
        }
        lines.append(",".join(str(cells[name]) for name in columns))
    folder.mkdir(parents=True, exist_ok=True)
    nodes, edges = folder / "nodes.csv", folder / "edges.csv"
    nodes.write_text("\n".join(lines) + "\n")
    pairs = [(row, (row * step + 1) % ROWS) for row in range(ROWS) for step in (1, 3)]
    ends = "".join(f"s{site}-{a},s{site}-{b}\n" for a, b in pairs)
    edges.write_text("source,target\n" + ends)
    return nodes, edges


WEIGHTS = ("[run]", '[edges]\nweight = "amount"\n\n[run]')
"""Edges count by their amounts."""
MADE = """\
[[column]]
name = "opened"
kind = "date"
day = "2025-06-01"
scaled = true
""" + "".join(
    f'[[column]]\nname = "{side} {name}"\nkind = "edges"\nmade = "{made}"\nscaled = true\n{of}'
    for side in ("out", "in")
    for name, made, of in (
        ("count", f"{side} count", ""),
        *((f"amount {what}", f"{side} {what}", 'of = "amount"\n') for what in ("sum", "mean", "max")),
    )
)
"""A date, and what edges say, in the order of an import."""
GAPS = ("scaled = true", 'scaled = true\nmissing = "mean"')
"""Balances may be missing."""


def add_made(nodes: Path, edges: Path, gaps: bool = False) -> None:
    """Dates and amounts for the tables; with ``gaps``, every ninth balance is missing."""
    head, *lines = nodes.read_text().splitlines()
    at = head.split(",").index("balance")
    rows = [line.split(",") for line in lines]
    for number, row in enumerate(rows):
        row[at] = "" if gaps and number % 9 == 4 else row[at]
        row.append(f"2024-{1 + number % 12:02d}-{1 + number % 28:02d}")
    nodes.write_text("\n".join([f"{head},opened", *map(",".join, rows)]) + "\n")
    head, *lines = edges.read_text().splitlines()
    rest = [f"{line},{(7 * number) % 50 + 1}" for number, line in enumerate(lines)]
    edges.write_text("\n".join([f"{head},amount", *rest]) + "\n")
