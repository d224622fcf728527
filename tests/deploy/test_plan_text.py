"""The commented template of a plan, and what is guessed from an example table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.plans import write_plan
from fedepd.datasets.columns import list_column
from fedepd.datasets.table_files import read_table
from fedepd.datasets.tables import Roles
from fedepd.deploy.plan import Plan, PlanColumn, read_plan
from fedepd.deploy.plan_task import check_runs
from fedepd.deploy.plan_text import EXAMPLE, Draft, drafted, guessed, plan_text
from fedepd.errors import BadData
from hostile_names import PAYLOADS, cases, check_lines


def back(tmp_path: Path, plan: Plan, left_out: list[str] | None = None) -> Plan:
    text = plan_text(plan, "task.toml", left_out or [], ["x"])
    check_lines(text)
    (tmp_path / "task.toml").write_text(text)
    return read_plan(tmp_path / "task.toml")


def test_the_template_parses_as_it_stands_and_can_be_run(tmp_path: Path) -> None:
    assert back(tmp_path, EXAMPLE) == EXAMPLE
    check_runs(EXAMPLE, "it")


def test_every_line_of_the_template_is_explained() -> None:
    """A comment stands above every key, or above the list of columns, which explains theirs."""
    lines = plan_text(EXAMPLE, "task.toml").splitlines()
    above = {line.split(" = ")[0]: lines[n - 1] for n, line in enumerate(lines) if " = " in line}
    keys = {key for key in above if not key.startswith("#")}
    explained = {key for key in keys if above[key].startswith("#")}
    assert keys - explained == {"name", "kind", "scaled", "values", "val", "test"}
    told = "\n".join(line for line in lines if line.startswith("#"))
    assert all(word in told for word in ('kind = "number"', "scaled = true", "listed values", "is tested"))
    assert max(map(len, lines)) <= 110


@pytest.mark.parametrize(
    "change",
    [
        ("scaled = true", "scaled = false"),
        ("rounds = 3", 'rounds = 3\nlr = 0.02\noptimizer = "adam"'),
        ("guard = true", "guard = false"),
        ("train = 0.6\nval = 0.2\ntest = 0.2", 'rule = "keep_one"\ntrain = 0.1\nval = 0.2\ntest = 0.7'),
        ('"mule"', '"m\\"u\\\\le 👩\u200d👧\u200d👦"'),
    ],
)
def test_any_plan_comes_back(tmp_path: Path, change: tuple[str, str]) -> None:
    plan = read_plan(write_plan(tmp_path / "a.toml", change))
    assert back(tmp_path, plan) == plan


@pytest.mark.parametrize("way", ["log1p", "none"])
def test_a_plan_with_weights_comes_back(tmp_path: Path, way: Any) -> None:
    plan = replace(EXAMPLE, edges=Roles(edge_weight='amount in "€"', edge_weight_as=way))
    assert back(tmp_path, plan) == plan


def test_a_plan_with_noise_comes_back(tmp_path: Path) -> None:
    changes = ("scaled = true", "scaled = false"), ("guard = true", "guard = false\ndp_epsilon = 8.0")
    plan = read_plan(write_plan(tmp_path / "a.toml", *changes))
    assert back(tmp_path, plan) == plan


# --- from an example table ----------------------------------------------------------------------------------

ROWS = 12
COLUMNS = {
    "account": [f"a{k}" for k in range(ROWS)],
    "fraud": ["yes", "no", "no", ""] * 3,
    "balance": [k * k / 8 for k in range(ROWS)],
    "customers": [k % 5 for k in range(ROWS)],
    "country": ["AT", "DE", "AT"] * 4,
    "business": [0, 1, 1] * 4,
    "note": [f"call number {k} back" for k in range(ROWS)],
    "row": list(range(ROWS)),
    "branch_id": [7 * k for k in range(ROWS)],
    "spelled": ["AT", "at", "AT"] * 4,
    "nothing": [""] * ROWS,
    "age": ["", *range(30, 30 + 2 * (ROWS - 1), 2)],
}


def table(tmp_path: Path, columns: dict[str, list[object]] | None = None) -> Path:
    columns = dict(columns or COLUMNS)  # type: ignore[arg-type]
    lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    (tmp_path / "nodes.csv").write_text("\n".join(lines) + "\n")
    return tmp_path / "nodes.csv"


def draft(tmp_path: Path, **columns: list[object]) -> Draft:
    path = table(tmp_path, {**COLUMNS, **columns} if columns else None)  # type: ignore[dict-item]
    return drafted(read_table(path), "account", "fraud")


def test_kinds_are_guessed_from_a_table(tmp_path: Path) -> None:
    """Text and ids are left out; branch_id has another whole number in every row, and so has row."""
    found = draft(tmp_path)
    assert found.plan.columns == (
        PlanColumn("balance", "number", scaled=True),
        PlanColumn("customers", "number", scaled=True),
        PlanColumn("country", "category", values=("AT", "DE")),
        PlanColumn("business", "flag"),
        PlanColumn("age", "number", scaled=True, missing="mean"),
    )
    assert found.plan.classes == ("no", "yes")
    assert [line.split("'")[1] for line in found.left_out] == [
        "note",
        "row",
        "branch_id",
        "spelled",
        "nothing",
    ]
    assert "12 different texts" in found.left_out[0]
    assert "looks like an identifier" in found.left_out[1]
    assert "'AT' and 'at' differ only" in found.left_out[3]
    assert "'age' has empty cells here; the mean of all sites takes their place" in found.doubts
    assert "the values of 'country' are those of one table; other sites may have more" in found.doubts


def test_the_draft_is_a_plan_with_its_reasons(tmp_path: Path) -> None:
    found = draft(tmp_path)
    text = plan_text(found.plan, "task.toml", found.left_out, found.doubts)
    (tmp_path / "task.toml").write_text(text)
    assert read_plan(tmp_path / "task.toml") == found.plan
    assert "# Left out: column 'note' has 12 different texts and looks like text or an identifier" in text
    assert "# Check: the classes are those of one table; other sites may have more" in text
    assert "Check their order and that none is missing." in text


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"fraud": ["yes"] * ROWS}, "gives no plan: classes names 1 classes"),
        ({"fraud": [""] * ROWS}, "gives no plan: classes names 0 classes"),
        ({"fraud": ["no", "No"] * 6}, "gives no plan: class '(No|no)' and '(No|no)' differ only"),
    ],
)
def test_a_table_that_gives_no_plan(tmp_path: Path, columns: dict[str, list[object]], says: str) -> None:
    with pytest.raises(BadData, match=says):
        draft(tmp_path, **columns)


def test_a_table_without_rows_columns_or_features(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    for text, says in (
        ("account,fraud,x\n", "has no rows"),
        ("account,x\na,1\n", "has no column 'fraud'; name the column of classes with --label"),
        ("fraud,x\na,1\n", "has no column 'account'; name the column of node ids with --id"),
        ("account,fraud\na,1\nb,2\n", "no column that can be a feature"),
    ):
        path.write_text(text)
        with pytest.raises(BadData, match=says):
            drafted(read_table(path), "account", "fraud")


@pytest.mark.hostile
@pytest.mark.parametrize("name", cases(PAYLOADS))
def test_hostile_names_of_columns_and_cells_stay_comments_and_texts(tmp_path: Path, name: str) -> None:
    """A line end in a name would end a comment, and what follows would be read as TOML."""
    from fedepd.datasets.columns import Table, list_column

    columns: dict[str, list[Any]] = {"account": ["a", "b", "c", "d"], "fraud": ["x", "y", "x", "y"]}
    columns |= {"z": [1, 2, 3, 5], f"q{name}": [1.5, 2.5, 3.5, 7.5], "w": [name, "ok", name, "ok"]}
    made = Table("nodes.csv", {key: list_column(cells) for key, cells in columns.items()}, 4)
    found = drafted(made, "account", "fraud")
    assert back(tmp_path, found.plan, found.left_out) == found.plan


def test_dates_are_guessed_with_the_latest_day() -> None:
    column = list_column(["2025-03-31", "01.04.2025", "n/a"])
    found = PlanColumn("opened", "date", scaled=True, missing="mean", day="2025-04-01")
    assert guessed("opened", column) == found
