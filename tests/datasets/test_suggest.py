"""The command that an import suggests works."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from fedepd.datasets.roles import Roles
from fedepd.datasets.suggest import suggested


def tables(folder: Path, decimal: str = ".") -> tuple[Path, Path]:
    """Forty accounts as a bank has them: a date, a gap, an n/a, a unit, a free text, and an unknown end."""
    draw = np.random.default_rng(0)
    lines = ["account;fraud;opened;balance;logins;fee;segment;note"]
    for row in range(40):
        fraud = ("clean", "mule", "")[row % 3]
        balance = "" if row == 3 else f"{draw.normal(9, 2):.2f}".replace(".", decimal)
        logins, fee = "n/a" if row == 7 else str(row % 9), "5 EUR" if row == 9 else str(row % 4)
        lines.append(
            f"A{row};{fraud};2024-01-{row % 28 + 1:02d};{balance};{logins};{fee};r{row % 2};call {row}"
        )
    (folder / "n.csv").write_text("\n".join(lines) + "\n")
    (folder / "e.csv").write_text("from,to,amount\nA0,A1,3.5\nA2,A3,4\nA4,FR1,7\n")
    return folder / "n.csv", folder / "e.csv"


def test_the_options_that_tables_need(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    assert suggested(nodes, edges, Roles()) == {
        "id": "account", "label": "fraud", "one-hot": "", "dates": "opened", "impute": "median",
        "missing": "5 EUR", "leave-out": "note", "scale": "", "unknown-ends": "drop",
    }  # fmt: skip


def test_decimal_commas_are_seen_and_what_was_given_stays(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path, ",")
    roles = Roles(impute="mean", unknown_ends="external", split_by="opened", edge_features=True)
    roles = replace(roles, edge_weight="amount", edge_weight_as="none")
    found = suggested(nodes, edges, roles)
    assert found is not None
    assert found["decimal"] == ","
    kept = {"impute": "mean", "unknown-ends": "external", "split-by": "opened", "edge-features": ""}
    kept |= {"edge-weight": "amount", "edge-weight-as": "none"}
    assert found.items() >= kept.items()


def test_who_holds_the_rows_is_seen_by_the_columns_name(tmp_path: Path) -> None:
    """Only where every row has an owner, and the column was not asked for as a feature."""
    nodes, edges = tables(tmp_path)
    plain = nodes.read_text()
    nodes.write_text(plain.replace("segment", "Branch"))
    found = suggested(nodes, edges, Roles())
    assert found is not None
    assert found["owner"] == "Branch"
    assert "one-hot" not in found  # no other column holds categories
    for roles in (
        Roles(one_hot=("Branch",)),
        Roles(leave_out=("Branch",)),
        Roles(features=("Branch", "fee")),
    ):
        assert "owner" not in (suggested(nodes, edges, roles) or {"owner": ""})
    nodes.write_text(plain.replace("segment", "Branch").replace(";r1;", ";;"))
    assert "owner" not in (suggested(nodes, edges, Roles()) or {"owner": ""})


def test_nothing_is_suggested_where_nothing_is_known(tmp_path: Path) -> None:
    nodes, edges = tables(tmp_path)
    assert suggested(tmp_path / "none.csv", edges, Roles()) is None
    nodes.write_text("a,b\n1,2\n1,3\n")
    assert suggested(nodes, edges, Roles()) is None
