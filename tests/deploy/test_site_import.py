"""A site's own tables by the plan: any order of columns, and one sentence for all that does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deploy.plans import GAPS, MADE, WEIGHTS, write_plan
from fedepd.clients.client_file import read_file
from fedepd.datasets.npz import write_npz
from fedepd.datasets.tables import Roles, import_files
from fedepd.deploy.plan import Plan, read_plan
from fedepd.deploy.site_import import Imported, import_file, import_tables
from fedepd.errors import BadConfig, BadData, FedEPDError
from fedepd.types import HIDDEN
from hostile_names import ESCAPES, check_lines

ROLES = Roles(id="account", label="fraud")
ROWS: list[dict[str, Any]] = [
    {"account": "a1", "fraud": "honest", "country": "AT", "balance": 100.5, "logins": 1, "business": 0},
    {"account": "a2", "fraud": "fraud", "country": "DE", "balance": -3, "logins": 2.5, "business": 1},
    {"account": "a3", "fraud": "mule", "country": "AT", "balance": 7e5, "logins": 0, "business": 0},
    {"account": "a4", "fraud": "", "country": "DE", "balance": 1 / 3, "logins": 9, "business": 1},
]
X = [[1, 0, 0, 1, 0], [0, 1, 0, 2.5, 1], [1, 0, 0, 0, 0], [0, 1, 0, 9, 1]]
"""country=AT, country=DE, balance (0, because it is yet to be scaled), logins, business."""


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return read_plan(write_plan(tmp_path / "task.toml"))


def write(folder: Path, rows: list[dict[str, Any]] = ROWS, columns: list[str] | None = None) -> Path:
    columns = columns or list(rows[0])
    lines = [",".join(columns), *(",".join(str(row[name]) for name in columns) for row in rows)]
    (folder / "nodes.csv").write_text("\n".join(lines) + "\n")
    (folder / "edges.csv").write_text("source,target\na1,a2\na3,a2\n")
    return folder / "nodes.csv"


def changed(row: int, **cells: Any) -> list[dict[str, Any]]:
    return [{**each, **(cells if number == row else {})} for number, each in enumerate(ROWS)]


def read(plan: Plan, folder: Path, *rows: Any, **more: Any) -> Imported:
    return import_tables(plan, write(folder, *rows), folder / "edges.csv", ROLES, **more)


def test_a_table_by_the_plan(plan: Plan, tmp_path: Path) -> None:
    found = read(plan, tmp_path)
    assert found.graph.x.tolist() == X
    assert found.graph.y.tolist() == [0, 2, 1, HIDDEN]
    assert found.graph.label_names == plan.classes
    assert found.graph.schema == plan.agreed.schema
    assert found.graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert found.graph.node_ids is not None
    assert found.graph.node_ids.tolist() == ["a1", "a2", "a3", "a4"]
    assert found.unscaled is not None
    assert found.unscaled.columns == (2,)
    assert found.unscaled.values.tolist() == [[100.5], [-3], [7e5], [1 / 3]]  # to the last bit of float64
    assert found.counts == {"honest": 1, "mule": 1, "fraud": 1}
    assert found.notes == [
        "1 of 4 rows have no class: they pass messages, but are not used for training, validation or testing"
    ]


def test_the_file_that_is_written_is_split_by_each_run(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "kit").mkdir()
    path = read(plan, tmp_path).write(tmp_path / "kit")
    back = read_file(path)
    assert path == tmp_path / "kit" / "data" / "site.npz"
    assert back.masks is None
    assert back.unscaled is not None
    assert back.unscaled.values.tolist() == [[100.5], [-3], [7e5], [1 / 3]]
    assert back.graph.x.tolist() == X
    assert [p.name for p in path.parent.iterdir()] == ["site.npz"]


ORDERS = [
    ["account", "fraud", "country", "balance", "logins", "business"],
    ["business", "logins", "balance", "country", "fraud", "account"],
    ["logins", "account", "balance", "fraud", "business", "country"],
]


def test_three_tables_of_other_order_are_the_same(plan: Plan, tmp_path: Path) -> None:
    found = [read(plan, tmp_path, ROWS, order) for order in ORDERS]
    assert {each.graph.schema for each in found} == {plan.agreed.schema}
    assert all(torch.equal(each.graph.x, found[0].graph.x) for each in found)
    assert all(torch.equal(each.graph.y, found[0].graph.y) for each in found)


def test_a_class_that_the_site_lacks_is_fine_and_said(plan: Plan, tmp_path: Path) -> None:
    found = read(plan, tmp_path, changed(2, fraud="honest"))
    assert found.counts == {"honest": 2, "mule": 0, "fraud": 1}
    assert "no row here has the class mule, which is fine: other sites may have it" in found.notes


def test_no_class_at_all_makes_an_evaluator(plan: Plan, tmp_path: Path) -> None:
    found = read(plan, tmp_path, [{**row, "fraud": ""} for row in ROWS])
    assert set(found.graph.y.tolist()) == {HIDDEN}
    assert found.notes == [
        "none of 4 rows has a class: this site only evaluates, so it trains nothing and gets the model at the"
        " end"
    ]


WRONG: dict[str, tuple[list[dict[str, Any]], str]] = {
    "a class that the plan lacks": (
        changed(1, fraud="takeover"),
        r"nodes.csv line 3: column 'fraud' has the class 'takeover', which the plan does not have; correct "
        r"it \(classes: honest, mule, fraud\)",
    ),
    "a class in another case": (changed(1, fraud="Fraud"), "line 3: .* has the class 'Fraud', which the"),
    "two unknown classes": (
        [{**row, "fraud": "x"} for row in ROWS],
        r"line 2: .* the class 'x', which the plan does not have \(4 such rows\)",
    ),
    "an unknown category": (
        changed(2, country="FR"),
        r"nodes.csv line 4: column 'country' has the value 'FR', which is not in the plan; correct it "
        r"\(values: AT, DE\), or add --unknown-category ignore",
    ),
    "a missing category": (changed(3, country=""), "line 5: column 'country' has no value; correct it"),
    "a text for a number": (
        changed(0, balance="much"),
        "nodes.csv line 2: column 'balance' holds the text 'much', but the plan has a number there; correct",
    ),
    "a number that is missing": (changed(3, logins=""), "line 5: column 'logins' has no value; fill it in"),
    "a number that is endless": (changed(3, balance="1e300"), r"line 5: column 'balance' is 1e\+300, too"),
    "a number that is infinite": (changed(3, balance="inf"), "line 5: column 'balance' is inf, too large"),
    "a flag of two": (changed(2, business=2), "line 4: column 'business' is 2, but the plan has a flag"),
    "a flag of words": (changed(2, business="yes"), "line 4: .* the text 'yes', but the plan has a flag"),
    "an id twice": (changed(2, account="a1"), "line 4: node 'a1' is already in line 2"),
    "a missing column": (
        [{name: cell for name, cell in row.items() if name != "logins"} for row in ROWS],
        "nodes.csv has no column 'logins'; add it, because the plan needs this number, or use --map",
    ),
    "no label column": (
        [{name: cell for name, cell in row.items() if name != "fraud"} for row in ROWS],
        "has no column 'fraud'; name the column of classes with --label, or add an empty one",
    ),
}  # fmt: skip


@pytest.mark.hostile
@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_named_with_line_and_cure(plan: Plan, tmp_path: Path, what: str) -> None:
    rows, says = WRONG[what]
    with pytest.raises(BadData, match=says) as told:
        read(plan, tmp_path, rows)
    assert "\n" not in str(told.value)


def test_unknown_categories_can_be_left_open(plan: Plan, tmp_path: Path) -> None:
    rows = [{**row, "country": cell} for row, cell in zip(ROWS, ("AT", "FR", "", "FR"), strict=True)]
    found = read(plan, tmp_path, rows, ignore_unknown=True)
    assert found.graph.x[:, :2].tolist() == [[1, 0], [0, 0], [0, 0], [0, 0]]
    assert (
        "3 of 4 rows have no known value in column 'country' (empty, FR): their features are 0" in found.notes
    )


def test_columns_can_be_renamed(plan: Plan, tmp_path: Path) -> None:
    rows = [{("saldo" if name == "balance" else name): cell for name, cell in row.items()} for row in ROWS]
    assert read(plan, tmp_path, rows, renamed={"saldo": "balance"}).graph.x.tolist() == X
    with pytest.raises(BadData, match="has no column 'sald'; correct --map sald=balance"):
        read(plan, tmp_path, rows, renamed={"sald": "balance"})
    with pytest.raises(
        BadConfig, match="--map names 'blance', which is not in the plan; choose from country"
    ):
        read(plan, tmp_path, rows, renamed={"saldo": "blance"})
    with pytest.raises(BadConfig, match="has the column 'logins' twice"):
        read(plan, tmp_path, rows, renamed={"saldo": "logins"})


def test_a_feature_is_neither_id_nor_class(plan: Plan, tmp_path: Path) -> None:
    """The class as a feature would give itself away."""
    for roles in (Roles(id="account", label="business"), Roles(id="logins", label="fraud")):
        with pytest.raises(BadConfig, match=r"is a feature of the plan and cannot be --(label|id)"):
            import_tables(plan, write(tmp_path), tmp_path / "edges.csv", roles)


@pytest.mark.hostile
@pytest.mark.parametrize("name", ESCAPES)
def test_hostile_cells_are_not_repeated(plan: Plan, tmp_path: Path, name: str) -> None:
    import csv
    import io

    cell = ESCAPES[name]
    for key in ("fraud", "country", "balance", "business", "account"):
        rows, file = changed(1, **{key: cell}), io.StringIO()
        made = csv.DictWriter(file, list(rows[0]), quoting=csv.QUOTE_ALL)
        made.writeheader()
        made.writerows(rows)
        write(tmp_path).write_bytes(file.getvalue().encode("utf-8", "surrogatepass"))
        with pytest.raises(FedEPDError) as told:
            import_tables(plan, tmp_path / "nodes.csv", tmp_path / "edges.csv", ROLES)
        check_lines(str(told.value))


# --- files of 'fedepd data import' --------------------------------------------------------------------------


def graph_file(folder: Path, rows: list[dict[str, Any]] = ROWS, **roles: Any) -> Path:
    made = Roles(id="account", label="fraud", **{"one_hot": True, **roles})
    write_npz(import_files(write(folder, rows, ORDERS[1]), folder / "edges.csv", made)[0], folder / "g.npz")
    return folder / "g.npz"


def test_a_graph_file_that_fits_gives_the_same_graph(plan: Plan, tmp_path: Path) -> None:
    """Only numbers lose digits, because such a file keeps float32."""
    found, tables = import_file(plan, graph_file(tmp_path)), read(plan, tmp_path)
    assert torch.equal(found.graph.x, tables.graph.x)
    assert torch.equal(found.graph.y, tables.graph.y)
    assert torch.equal(found.graph.edge_index, tables.graph.edge_index)
    assert found.graph.schema == tables.graph.schema
    assert found.unscaled is not None
    assert tables.unscaled is not None
    assert np.array_equal(found.unscaled.values, tables.unscaled.values.astype(np.float32).astype(np.float64))


def test_a_scaled_file_is_refused_with_the_cure(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"g\.npz'.*scaled already .* import the tables again without --scale"):
        import_file(plan, graph_file(tmp_path, scale=True))


def test_graph_files_that_do_not_fit(plan: Plan, tmp_path: Path) -> None:
    for rows, roles, says in (
        (changed(1, fraud="takeover"), {}, "1 nodes of the class 'takeover', which was not agreed on"),
        (
            changed(1, country="FR"),
            {},
            r"1 rows have no known value in column 'country' \(FR\), the first is row 2",
        ),
        (changed(1, business=2), {}, "row 2: column 'business' is 2, but the plan has a flag there; write 0"),
        (ROWS, {"features": ("balance", "logins", "business")}, "has no column 'country'; import the tables"),
        (ROWS, {"one_hot": ("country", "logins")}, "'logins' holds categories instead of numbers"),
    ):
        with pytest.raises(BadData, match=f"g.npz'.*{says}"):
            import_file(plan, graph_file(tmp_path, rows, **roles))


def test_a_file_by_a_plan_is_not_imported_again(plan: Plan, tmp_path: Path) -> None:
    path = read(plan, tmp_path).write(tmp_path)
    with pytest.raises(BadConfig, match="was made by a plan already; give it to 'join' with --data"):
        import_file(plan, path)


# --- gaps, dates and amounts of edges -----------------------------------------------------------------------


@pytest.fixture
def made(tmp_path: Path) -> Plan:
    return read_plan(write_plan(tmp_path / "made.toml", GAPS, ("[run]", f"{MADE}[run]")))


def read_made(plan: Plan, folder: Path, *amounts: object, **cells: Any) -> Imported:
    rows = [{**row, "opened": f"2025-05-{30 - number}"} for number, row in enumerate(changed(1, **cells))]
    nodes = write(folder, rows)
    lines = zip(("a1,a2", "a3,a2", "a1,a3"), amounts or (5, 1, 2), strict=True)
    (folder / "edges.csv").write_text("source,target,amount\n" + "".join(f"{a},{b}\n" for a, b in lines))
    return import_tables(plan, nodes, folder / "edges.csv", ROLES)


def test_dates_amounts_and_gaps_by_the_plan(made: Plan, tmp_path: Path) -> None:
    """2025-05-30 is two days before 2025-06-01. a1 sends 5 and 2; a2 gets 5 and 1."""
    found = read_made(made, tmp_path, balance="n/a")
    assert found.unscaled is not None
    raw = dict(zip(found.unscaled.columns, found.unscaled.values.T.tolist(), strict=True))
    names = list(made.schema.feature_names)
    assert raw[names.index("opened age")] == [2, 3, 4, 5]
    assert raw[names.index("out count")] == [2, 0, 1, 0]
    assert raw[names.index("out amount sum")] == [7, 0, 1, 0]
    assert raw[names.index("in amount mean")] == [0, 3, 2, 0]
    assert raw[names.index("in amount max")] == [0, 5, 2, 0]
    balance = names.index("balance")
    assert [np.isnan(each) for each in raw[balance]] == [False, True, False, False]
    assert found.graph.x[:, balance + 1].tolist() == [0, 1, 0, 0]
    assert any("1 of 4 rows have no value in column 'balance'" in note for note in found.notes)
    again = read_file(found.write(tmp_path)).unscaled
    assert again is not None
    np.testing.assert_array_equal(again.values, found.unscaled.values)


def test_what_does_not_fit_such_columns_is_refused_with_its_line(made: Plan, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"edges\.csv.* line 3: column 'amount' has no value"):
        read_made(made, tmp_path, 5, "", 2)
    with pytest.raises(
        BadData, match=r"nodes\.csv.* line 3: column 'balance' holds the text 'much', but the plan"
    ):
        read_made(made, tmp_path, balance="much")
    with pytest.raises(BadData, match=r"no column 'amount'; add it, because the plan makes a feature"):
        import_tables(made, write(tmp_path, [{**row, "opened": "2025-05-01"} for row in ROWS]),
                      tmp_path / "edges.csv", ROLES)  # fmt: skip
    gone = [{**row, "opened": "" if number == 2 else "2025-05-01"} for number, row in enumerate(ROWS)]
    with pytest.raises(BadData, match=r"nodes\.csv.* line 4: column 'opened' has no value"):
        read(made, tmp_path, gone)


def test_a_gap_that_is_not_marked_is_refused(made: Plan, tmp_path: Path) -> None:
    path = read_made(made, tmp_path, balance="").write(tmp_path)
    arrays = dict(np.load(path))
    arrays["x"][:, 3] = 0
    np.savez(path, **arrays)
    with pytest.raises(BadData, match="unscaled holds nan in row 1 of column 2"):
        read_file(path)


def test_a_graph_file_cannot_show_them(made: Plan, tmp_path: Path) -> None:
    write(tmp_path)
    graph, _ = import_files(
        tmp_path / "nodes.csv", tmp_path / "edges.csv", Roles("account", "fraud", one_hot=True)
    )
    write_npz(graph, tmp_path / "g.npz")
    with pytest.raises(
        BadConfig, match="'balance' has dates, gaps or amounts of edges, which only tables show"
    ):
        import_file(made, tmp_path / "g.npz")


# --- weights of edges ---------------------------------------------------------------------------------------


@pytest.fixture
def weighing(tmp_path: Path) -> Plan:
    return read_plan(write_plan(tmp_path / "task.toml", WEIGHTS))


def amounts(folder: Path, *rows: str, head: str = "source,target,amount") -> Path:
    (folder / "edges.csv").write_text("\n".join([head, *rows]) + "\n")
    return folder / "edges.csv"


def test_edges_count_by_the_plans_column(weighing: Plan, tmp_path: Path) -> None:
    """Rows of an edge are summed in both directions: log(1 + 3 + 4) = log 8, and log(1 + 1) = log 2.

    Edges with a sum of 0 are dropped. The edge of a node to itself is no edge, whatever its amount is.
    """
    nodes = write(tmp_path)
    edges = amounts(tmp_path, "a1,a2,3", "a2,a1,4", "a3,a2,1", "a3,a4,0", "a4,a4,-9")
    found = import_tables(weighing, nodes, edges, ROLES)
    assert found.graph.edge_index.tolist() == [[0, 1], [1, 2]]
    assert found.graph.edge_weight is not None
    assert found.graph.edge_weight.tolist() == pytest.approx([np.log(8), np.log(2)], rel=1e-6)
    assert found.graph.schema == weighing.agreed.schema
    assert "an edge counts by log(1 + amount), summed over its rows, as planned" in found.notes
    assert "1 edges have a 'amount' of 0 in sum and were dropped; 2 remain" in found.notes
    back = read_file(found.write(tmp_path)).graph
    assert back.edge_weight is not None
    assert torch.equal(back.edge_weight, found.graph.edge_weight)


HOSTILE: dict[str, tuple[str, str]] = {
    "missing": ("", "line 3: column 'amount' has no value, but the weight of an edge is a finite number"),
    "nan": ("nan", "line 3: column 'amount' has no value"),
    "negative": ("-1", "line 3: column 'amount' is -1, but the weight of an edge is a finite number, 0 or"),
    "infinite": ("inf", "line 3: column 'amount' is inf, but the weight of an edge is a finite number"),
    "endless": ("1e999", "line 3: column 'amount' is inf, but"),
    "text": ("much", "line 3: column 'amount' holds the text 'much', but weights of edges are numbers; corr"),
    "a comma": ('"1,5"', "line 3: column 'amount' holds the text '1,5', but .* numbers; correct it$"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("what", HOSTILE)
def test_weights_that_are_none_are_named_with_their_line(weighing: Plan, tmp_path: Path, what: str) -> None:
    cell, says = HOSTILE[what]
    nodes, edges = write(tmp_path), amounts(tmp_path, "a1,a2,3", f"a3,a2,{cell}")
    with pytest.raises(BadData, match=says) as told:
        import_tables(weighing, nodes, edges, ROLES)
    assert "\n" not in str(told.value)
    assert "--" not in str(told.value)  # 'federation import' has none of the options of 'data import'


@pytest.mark.hostile
def test_weights_too_large_for_a_sum(tmp_path: Path) -> None:
    way = ('weight = "amount"', 'weight = "amount"\nweight_as = "none"')
    plan = read_plan(write_plan(tmp_path / "task.toml", WEIGHTS, way))
    with pytest.raises(BadData, match="the sum of 'amount' is 3e\\+30 for an edge, more than"):
        import_tables(plan, write(tmp_path), amounts(tmp_path, "a1,a2,3e30"), ROLES)


def test_a_table_of_edges_without_the_column(weighing: Plan, tmp_path: Path) -> None:
    nodes = write(tmp_path)  # and edges without amounts
    with pytest.raises(BadData, match=r"edges.csv has no column 'amount'; add it, because the plan weighs"):
        import_tables(weighing, nodes, tmp_path / "edges.csv", ROLES)
    ends = amounts(tmp_path, "a1,a2", head="source,amount")
    with pytest.raises(
        BadData, match=r"column 'amount' of weights is an end of the edges of .*edges\.csv; name"
    ):
        import_tables(weighing, nodes, ends, ROLES)


@pytest.mark.hostile
@pytest.mark.parametrize("value", [float("nan"), -1.0, 0.0, float("inf"), 1e30, 1e-40])
def test_a_site_file_with_weights_that_are_none(weighing: Plan, tmp_path: Path, value: float) -> None:
    """Somebody wrote into the file after its import."""
    nodes, edges = write(tmp_path), amounts(tmp_path, "a1,a2,3", "a3,a2,1")
    path = import_tables(weighing, nodes, edges, ROLES).write(tmp_path)
    with np.load(path) as arrays:
        content = {name: arrays[name] for name in arrays}
    content["edge_weight"][1] = value
    np.savez(path, **content)
    with pytest.raises(BadData, match="edge_weight must give each of the 2 edges a number between") as told:
        read_file(path)
    assert "\n" not in str(told.value)


def test_a_graph_file_brings_the_weights_of_the_plan(weighing: Plan, plan: Plan, tmp_path: Path) -> None:
    nodes = write(tmp_path, ROWS, ["account", "fraud", "country", "balance", "logins", "business"])
    edges = amounts(tmp_path, "a1,a2,3", "a3,a2,1")

    def written(**more: Any) -> Path:
        roles = Roles(id="account", label="fraud", one_hot=("country",), **more)
        write_npz(import_files(nodes, edges, roles)[0], tmp_path / "g.npz")
        return tmp_path / "g.npz"

    found = import_file(weighing, written(edge_weight="amount"))
    assert found.graph.edge_weight is not None
    assert found.graph.edge_weight.tolist() == pytest.approx([np.log(4), np.log(2)], rel=1e-6)
    left = import_file(plan, written(edge_weight="amount"))
    assert left.graph.edge_weight is None
    assert "the file's weights of edges are not in the plan and are left out" in left.notes
    with pytest.raises(
        BadData, match=r"weighs edges by nothing, but the plan by log.1 . amount.; give --nod"
    ):
        import_file(weighing, written())
    with pytest.raises(BadData, match=r"weighs edges by amount, but the plan by log.1 . amount."):
        import_file(weighing, written(edge_weight="amount", edge_weight_as="none"))


@pytest.mark.hostile
def test_a_column_whose_name_reads_like_the_plans_way_is_another_column(
    weighing: Plan, tmp_path: Path
) -> None:
    """The plan takes log(1 + amount). The file has the plain sum of a column that is called so."""
    nodes = write(tmp_path, ROWS, ["account", "fraud", "country", "balance", "logins", "business"])
    edges = amounts(tmp_path, "a1,a2,3", "a3,a2,1", head="source,target,log(1 + amount)")
    roles = Roles(
        id="account", label="fraud", one_hot=("country",),
        edge_weight="log(1 + amount)", edge_weight_as="none",
    )  # fmt: skip
    write_npz(import_files(nodes, edges, roles)[0], tmp_path / "g.npz")
    with pytest.raises(BadData, match="weighs edges by"):
        import_file(weighing, tmp_path / "g.npz")
