"""Tables in: what each cell becomes.

Each cell that cannot become anything gets one sentence with file, line and cure.
"""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bounded import bounded
from fedepd.clients.partition import subgraph
from fedepd.datasets import read_npz, table_files, write_npz
from fedepd.datasets.columns import BLOCK, Table, list_column
from fedepd.datasets.fitting import fitted
from fedepd.datasets.table_files import read_table
from fedepd.datasets.tables import FeatureRule, FeatureSchema, Roles, import_files, import_tables, new_graph
from fedepd.errors import BadConfig, BadData
from fedepd.types import HIDDEN, Graph

NODES = "id,label,site,age,kind\na,good,N,1,x\nb,bad,S,2,y\nc,,N,3,x\nd,good,S,6,\n"
EDGES = "source,target\na,b\nb,c\nc,d\n"
ROLES = Roles(owner="site", features=("age",))


def written(folder: Path, nodes: str | bytes = NODES, edges: str | bytes = EDGES) -> tuple[Path, Path]:
    paths = folder / "nodes.csv", folder / "edges.csv"
    for path, content in zip(paths, (nodes, edges), strict=True):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return paths


def imported(
    folder: Path, nodes: str | bytes = NODES, edges: str | bytes = EDGES, roles: Roles = ROLES
) -> tuple[Graph, list[str]]:
    return import_files(*written(folder, nodes, edges), roles)


def refused(folder: Path, nodes: str | bytes, edges: str | bytes, roles: Roles, *words: str) -> None:
    with pytest.raises(BadData) as caught:
        imported(folder, nodes, edges, roles)
    message = str(caught.value)
    assert "\n" not in message
    assert ";" in message  # the cure
    for word in words:
        assert word in message


def test_names_become_numbers_and_are_kept(tmp_path: Path) -> None:
    """Classes and owners are sorted: bad 0, good 1; N 0, S 1. The empty label of c is hidden."""
    graph, notes = imported(tmp_path)
    assert graph.y.tolist() == [1, 0, HIDDEN, 1]
    assert graph.label_names == ("bad", "good")
    assert graph.owner is not None
    assert graph.owner.tolist() == [0, 1, 0, 1]
    assert graph.owner_names == ("N", "S")
    assert graph.edge_index.tolist() == [[0, 1, 2], [1, 2, 3]]
    assert graph.x.tolist() == [[1], [2], [3], [6]]
    assert graph.name == "nodes"
    assert len(notes) == 1
    assert "1 of 4 nodes have no label" in notes[0]
    assert graph.node_ids is not None
    assert subgraph(graph, torch.tensor([3, 1])).node_ids.tolist() == ["b", "d"]  # type: ignore[union-attr]


def test_whole_numbers_as_labels_are_sorted_as_numbers(tmp_path: Path) -> None:
    graph, _ = imported(tmp_path, "id,label,f\n1,10,0\n2,9,1\n3,-2,2\n", "a,b\n1,2\n", Roles())
    assert graph.label_names == ("-2", "9", "10")


def test_the_npz_keeps_ids_and_schema(tmp_path: Path) -> None:
    graph, _ = imported(tmp_path)
    write_npz(graph, tmp_path / "g.npz")
    back = read_npz(tmp_path / "g.npz")
    assert back.node_ids is not None
    assert back.node_ids.tolist() == ["a", "b", "c", "d"]
    assert FeatureSchema.from_json(back.schema).feature_names == ("age",)


@pytest.mark.parametrize(
    "spelled",
    [
        NODES.replace("\n", "\r\n"),
        "\ufeff" + NODES,
        NODES.replace(",", ";"),
        NODES.replace(",", "\t"),
        NODES.replace("\n", "\n\n"),
        NODES.replace("good", '"good"').replace(",", ", ").replace(', "', ',"'),
        NODES.rstrip("\n"),
    ],
    ids=["crlf", "bom", "semicolons", "tabs", "empty lines", "quotes and spaces", "no last line break"],
)
def test_other_spellings_of_the_same_table(spelled: str, tmp_path: Path) -> None:
    graph, _ = imported(tmp_path, spelled)
    assert graph.label_names == ("bad", "good")
    assert graph.x.tolist() == [[1], [2], [3], [6]]


def test_loops_and_repeats_are_dropped_and_counted(tmp_path: Path) -> None:
    _, notes = imported(tmp_path, NODES, "source,target,w\na,b,1\nb,a,1\na,b,1\nc,c,1\n")
    assert [
        word in note
        for word, note in zip(
            ("1 self-loops", "2 edges repeat another one", "not used: w"), notes, strict=False
        )
    ] == [True] * 3
    assert "edges.csv line 5" in notes[0]


def test_amounts_that_are_not_used_are_told_with_the_cure(tmp_path: Path) -> None:
    """Also where a date of the nodes is used, whose column has the name of one of edges."""
    nodes, edges = "id,label,day\na,x,2025-01-01\nb,y,2025-01-02\n", "source,target,day,sum\na,b,1,2\n"
    _, notes = imported(tmp_path, nodes, edges, Roles(dates=("day",)))
    assert "these edge columns are not used: day, sum; --edge-features makes features of numbers" in notes
    _, notes = imported(tmp_path, nodes, edges, Roles(dates=("day",), edge_features=("sum",)))
    assert "these edge columns are not used: day" in notes


def test_scaling_and_categories(tmp_path: Path) -> None:
    """Ages 1, 2, 3, 6: mean 3, variance (4 + 1 + 0 + 9) / 4 = 3.5. An empty kind is a category of its own."""
    graph, _ = imported(tmp_path, roles=Roles(owner="site", scale=True, one_hot=True))
    expected = np.array([-2, -1, 0, 3]) / 3.5**0.5
    assert graph.x[:, 0].numpy() == pytest.approx(expected, abs=1e-6)
    assert graph.x[:, 1:].tolist() == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]]
    schema = FeatureSchema.from_json(graph.schema)
    assert schema.feature_names == ("age", "kind=x", "kind=y", "kind=(missing)")

    new = Table("new", {"age": list_column([3] * 3), "kind": list_column(["y", "never seen", None])}, 3)
    assert schema.apply(new).tolist() == [[0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
    with pytest.raises(BadData, match="no column 'kind'"):
        schema.apply(Table("new", {"age": list_column([3])}, 1))


def test_numbers_can_be_named_as_categories(tmp_path: Path) -> None:
    graph, _ = imported(tmp_path, roles=Roles(owner="site", features=("age",), one_hot=("age",)))
    assert graph.x.tolist() == torch.eye(4).tolist()


def test_nodes_to_predict_need_no_label(tmp_path: Path) -> None:
    graph, _ = imported(tmp_path)
    nodes, edges = written(tmp_path, "id,age\nn,5\nm,7\n", "a,b\nm,n\n")
    new = new_graph(
        read_table(nodes), read_table(edges), FeatureSchema.from_json(graph.schema), num_classes=2
    )
    assert new.x.tolist() == [[5], [7]]
    assert new.edge_index.tolist() == [[0], [1]]
    assert new.y.tolist() == [HIDDEN, HIDDEN]


names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
finite = st.floats(-1e9, 1e9)


@given(
    st.lists(
        st.builds(
            FeatureRule,
            names,
            finite,
            st.floats(1e-6, 1e6),
            st.none() | st.lists(names, min_size=1).map(tuple),
        )
    )
)
def test_a_schema_survives_json(rules: list[FeatureRule]) -> None:
    schema = FeatureSchema(tuple(rules))
    assert FeatureSchema.from_json(schema.to_json()) == schema


@pytest.mark.parametrize(
    "text", ["", "{", "[1]", '[{"name": 3}]', '[{"name": "a", "mean": NaN, "std": 1, "categories": null}]']
)
def test_a_damaged_schema_is_one_sentence(text: str) -> None:
    with pytest.raises(BadData, match="import the tables again"):
        FeatureSchema.from_json(text)


def test_lines_are_right_beyond_one_block_and_after_quoted_line_breaks(tmp_path: Path) -> None:
    """Row r (from 0) is in line r + 2, and one more after a cell with a line break in it."""
    rows = [f"n{i},{i % 2},{i}" for i in range(BLOCK + 5)]
    rows[3] = '"n\n3",1,3'
    rows[BLOCK + 1] = f"n{BLOCK + 1},1,oops"
    refused(
        tmp_path,
        "id,label,f\n" + "\n".join(rows),
        EDGES.replace("a,b\nb,c\nc,d", "n0,n1"),
        Roles(),
        f"line {BLOCK + 4}",
        "oops",
    )


FREE_TEXT = "id,label,t\n" + "".join(f"{i},{i % 2},some text {i}\n" for i in range(50))
BAD: dict[str, tuple[str | bytes, str | bytes, Roles, tuple[str, ...]]] = {
    "empty": ("", EDGES, ROLES, ("nodes.csv", "is empty")),
    "only a mark": (b"\xef\xbb\xbf", EDGES, ROLES, ("nodes.csv line 1", "is empty")),
    "header only": ("id,label,site,age\n", EDGES, ROLES, ("nodes.csv", "no rows")),
    "utf-16": (NODES.encode("utf-16"), EDGES, ROLES, ("line 1", "UTF-16")),
    "latin-1": (NODES.replace("bad", "b\xe4d").encode("latin-1"), EDGES, ROLES, ("line 3", "UTF-8")),
    "nul": (NODES.replace("bad", "b\0d"), EDGES, ROLES, ("line 3", "NUL")),
    "ragged": (NODES.replace("2,y", "2"), EDGES, ROLES, ("line 3", "4 cells", "5")),
    "huge cell": (NODES.replace("bad", "b" * 200_000), EDGES, ROLES, ("line 3",)),
    "huge line": (NODES.replace("bad", "b" * 2**23), EDGES, ROLES, ("line 3", "bytes")),
    "open quote": (NODES.replace("bad", '"bad'), EDGES, ROLES, ("nodes.csv line", "quotes")),
    "no name": (NODES.replace("kind", ""), EDGES, ROLES, ("line 1", "without a name")),
    "name twice": (NODES.replace("kind", "age"), EDGES, ROLES, ("line 1", "'age' twice")),
    "no id column": (NODES.replace("id", "node"), EDGES, ROLES, ("nodes.csv", "'id'", "--id")),
    "no label column": (NODES.replace("label", "class"), EDGES, ROLES, ("'label'", "--label")),
    "no owner column": (NODES, EDGES, Roles(owner="bank"), ("'bank'", "--owner")),
    "id twice": (NODES.replace("c,,", "a,,"), EDGES, ROLES, ("line 4", "'a'", "line 2")),
    "no id": (NODES.replace("c,,", ",,"), EDGES, ROLES, ("line 4", "no id")),
    "long id": (NODES.replace("c,,", f"{'c' * 300},,"), EDGES, ROLES, ("line 4", "300 characters")),
    "no owner": (NODES.replace("bad,S", "bad,"), EDGES, ROLES, ("line 3", "'site'")),
    "nan": (NODES.replace("2,y", "nan,y"), EDGES, ROLES, ("line 3", "'age'", "mean")),
    "missing": (NODES.replace("2,y", ",y"), EDGES, ROLES, ("line 3", "'age' has no value")),
    "infinite": (NODES.replace("2,y", "inf,y"), EDGES, ROLES, ("line 3", "too large")),
    "beyond float32": (NODES.replace("2,y", "1e39,y"), EDGES, ROLES, ("line 3", "too large")),
    "text": (NODES, EDGES, Roles(owner="site"), ("line 2", "'kind'", "'x'", "--one-hot")),
    "decimal comma": (NODES.replace(",", ";").replace("2;y", "2,5;y"), EDGES, ROLES, ("line 3", "2,5")),
    "free text": (FREE_TEXT, "s,t\n1,2\n", Roles(one_hot=True), ("'t'", "text")),
    "unknown feature": (NODES, EDGES, Roles(features=("agee",)), ("'agee'", "--features")),
    "label as feature": (NODES, EDGES, Roles(features=("label",)), ("'label'", "--features")),
    "unknown category": (
        NODES,
        EDGES,
        Roles(owner="site", features=("age",), one_hot=("kind",)),
        ("'kind'", "--one-hot"),
    ),
    "no features": ("id,label\na,0\nb,1\n", "s,t\na,b\n", Roles(), ("no feature columns",)),
    "one class": (NODES.replace("bad", "good"), EDGES, ROLES, ("nodes.csv", "single class")),
    "no labels": (NODES.replace("bad", "").replace("good", ""), EDGES, ROLES, ("nodes.csv", "single class")),
    "dangling": (NODES, EDGES + "d,zz\nd,yy\n", ROLES, ("edges.csv line 5", "'zz'", "2 such edges")),
    "one column": (NODES, "source\na\n", ROLES, ("edges.csv", "two")),
    "no source": (
        NODES,
        EDGES,
        Roles(owner="site", features=("age",), source="from"),
        ("edges.csv", "'from'", "--source"),
    ),
    "text in labels": (NODES.replace("bad", "b" * 300), EDGES, ROLES, ("'label'", "text")),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_used_is_one_sentence_with_place_and_cure(case: str, tmp_path: Path) -> None:
    nodes, edges, roles, words = BAD[case]
    refused(tmp_path, nodes, edges, roles, *words)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(BadData, match="does not exist"):
            read_table(path)


def test_features_from_elsewhere_must_fit(tmp_path: Path) -> None:
    nodes, edges = written(tmp_path)
    graph, _ = import_files(nodes, edges, Roles(), torch.ones(4, 7))
    assert graph.num_features == 7
    assert graph.schema == ""
    with pytest.raises(BadData, match=r"3 rows, but .*nodes.csv has 4"):
        import_files(nodes, edges, Roles(), torch.ones(3, 7))


# --- Parquet and pandas -------------------------------------------------------------------------------------


def test_parquet_gives_the_same_graph(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "id": [1, 2, 3, 2**60], "label": ["good", "bad", None, "good"],
        "site": pa.array(["N", "S", "N", "S"]).dictionary_encode(), "age": [1.0, 2.0, 3.0, 6.0],
        "flag": [True, False, True, False],
    }  # fmt: skip
    pq.write_table(pa.table(columns), tmp_path / "nodes.parquet")
    (tmp_path / "edges.csv").write_text(f"s,t\n1,2\n2,3\n3,{2**60}\n")
    graph, _ = import_files(tmp_path / "nodes.parquet", tmp_path / "edges.csv", Roles(owner="site"))
    assert graph.x.tolist() == [[1, 1], [2, 0], [3, 1], [6, 0]]
    assert graph.y.tolist() == [1, 0, HIDDEN, 1]
    assert graph.node_ids is not None
    assert graph.node_ids.tolist() == ["1", "2", "3", str(2**60)]
    assert graph.owner_names == ("N", "S")


def test_parquet_that_cannot_be_used(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "nodes.parquet"
    pq.write_table(pa.table({"id": [1], "list": [[1, 2]]}), path)
    with pytest.raises(BadData, match="column 'list' has type"):
        read_table(path)
    content = path.read_bytes()
    for damaged in (content[:-20], b"PAR1" + bytes(50) + b"PAR1", b"id,label\n"):
        path.write_bytes(damaged)
        with pytest.raises(BadData, match=r"nodes.parquet.*write it again"):
            read_table(path)
    pq.write_table(pa.table({"id": [1, 2], "label": ["a", "b"], "f": [1.0, None]}), path)
    table = read_table(path)
    with pytest.raises(BadData, match=r"nodes.parquet row 2: column 'f' has no value"):
        import_tables(table, Table("edges", {"s": list_column([]), "t": list_column([])}, 0))


def test_without_the_extra_a_sentence_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.split(".")[0] == "pyarrow":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr("importlib.import_module", lambda name: without(name))
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(BadConfig, match=r'pyarrow is not installed; run: pip install "fedepd\[data\]"'):
        read_table(tmp_path / "a.parquet")


def test_from_pandas(tmp_path: Path) -> None:
    import pandas as pd

    nodes, edges = written(tmp_path)
    by_frame = Graph.from_pandas(
        pd.read_csv(nodes).set_index("id"), pd.read_csv(edges), owner="site", features=("age",)
    )
    by_file, _ = import_files(nodes, edges, ROLES)
    assert torch.equal(by_frame.x, by_file.x)
    assert by_frame.y.tolist() == by_file.y.tolist()
    assert (by_frame.label_names, by_frame.schema) == (by_file.label_names, by_file.schema)
    mixed = pd.DataFrame({"id": ["a", "b"], "label": ["x", 1], "f": [1, 2]})
    with pytest.raises(BadData, match="one type"):
        Graph.from_pandas(mixed, pd.read_csv(edges))


# --- files made to do harm ----------------------------------------------------------------------------------


def refused_table(path: Path, *words: str) -> None:
    with bounded(), pytest.raises(BadData) as caught:
        read_table(path)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 900
    for word in (path.name, *words):
        assert word in message


HOSTILE_CSV: dict[str, tuple[bytes, str]] = {
    "half a million columns": (",".join(map(str, range(500_000))).encode() + b"\n", "500,000 columns"),
    "half a million equal columns": (b"a," * 500_000 + b"a\n", "500,001 columns"),
    "a column twice among 100,000": (
        ",".join(map(str, range(100_000))).encode() + b",7\n",
        "column name '7' twice",
    ),
    "a line without end": (b"id,label\n" + b"a" * (2**22 + 1), "line 2 has more than"),
    "a header without end": (b"a" * (2**22 + 1), "line 1 has more than"),
    "a cell without end": (b'id,label\n"' + b"a\n" * 100_000, "line"),
    "an open quote": (b'id,label\n"a,b\n', "check the quotes"),
    "UTF-16": ("id,label\na,b\n".encode("utf-16"), "UTF-16"),
    "UTF-16 without a mark": ("id,label\na,b\n".encode("utf-16-le"), "NUL"),
    "UTF-32": ("id,label\na,b\n".encode("utf-32"), "UTF-16"),
    "half a character": (b"id,label\n\xed\xa0\x80,b\n", "UTF-8"),
    "NUL": (b"id,label\na\0,b\n", "NUL"),
    "a column name of escapes": (b"id,\x1b]0;owned\x07\nb,c\nd\n", "line 3"),
    "only a carriage return": (b"\r", "line 1"),
    "only commas": (b",,,\n", "without a name"),
    "a zip": (b"PK\x03\x04" + bytes(30), "a.csv"),
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", HOSTILE_CSV)
def test_csv_made_to_do_harm(case: str, tmp_path: Path) -> None:
    content, word = HOSTILE_CSV[case]
    path = tmp_path / "a.csv"
    path.write_bytes(content)
    refused_table(path, word)


@pytest.mark.hostile
def test_many_columns_are_read_in_time_that_grows_with_them(tmp_path: Path) -> None:
    """20,000 names were 400 million comparisons; a message that lists columns stays short too."""
    path = tmp_path / "a.csv"
    path.write_text(",".join(f"c{n}" for n in range(20_000)) + "\n" + ",".join("1" * 20_000) + "\n")
    with bounded(2):
        table = read_table(path)
        schema = fitted(table, Roles(id="c0", label="c1"))[0]
    assert len(schema.rules) == 19_998
    with pytest.raises(BadData, match="and 19,980 more") as caught:
        table.column("none", "name one")
    assert len(str(caught.value)) < 900


@pytest.mark.hostile
def test_wide_rows_are_packed_before_they_fill_the_memory(tmp_path: Path) -> None:
    """400 rows of 20,000 cells of 3 bytes: 24 MB, of which Python strings would be 500."""
    path = tmp_path / "a.csv"
    row = ",".join(["12"] * 20_000) + "\n"
    path.write_text(",".join(f"c{n}" for n in range(20_000)) + "\n" + 400 * row)
    with bounded(20, 250):
        table = read_table(path)
    assert table.rows == 400
    values = table.columns["c19999"].numbers
    assert not isinstance(values, int)
    assert values.tolist() == [12.0] * 400


def test_the_line_of_a_bad_cell_is_right_in_wide_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "BLOCK_CELLS", 6)  # two rows of three cells at a time
    path = tmp_path / "a.csv"
    path.write_text("id,label,age\n" + "a,b,1\n" * 5 + "a,b,x\n")
    assert read_table(path).columns["age"].numbers == 5


@pytest.mark.hostile
@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_a_pipe_or_device_is_no_table(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    refused_table(tmp_path / name, "regular file")


def parquet(path: Path, table: Any, **options: Any) -> Path:
    from pyarrow.parquet import write_table

    write_table(table, path, **options)
    return path


@pytest.mark.hostile
def test_parquet_text_that_stands_in_every_cell(tmp_path: Path) -> None:
    """One text of 10 kB in 100,000 cells is a gigabyte and 20 kB on disk."""
    import pyarrow as pa

    cells = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), pa.array(["x" * 10_000]))
    path = parquet(tmp_path / "a.parquet", pa.table({"id": cells}), store_schema=False)
    assert path.stat().st_size < 100_000
    refused_table(path, "claims")


@pytest.mark.hostile
def test_parquet_numbers_that_stand_in_every_row(tmp_path: Path) -> None:
    import pyarrow as pa

    path = parquet(tmp_path / "a.parquet", pa.table({f"c{n}": np.zeros(2**20) for n in range(20)}))
    refused_table(path, "claims 167,772,160 bytes")


@pytest.mark.hostile
@pytest.mark.parametrize("kind", ["list", "struct", "binary", "map"])
def test_parquet_of_nested_cells_is_refused_unread(kind: str, tmp_path: Path) -> None:
    import pyarrow as pa

    types = {"list": pa.list_(pa.int64()), "struct": pa.struct([("a", pa.int64())]), "binary": pa.binary()}
    types["map"] = pa.map_(pa.string(), pa.int64())
    path = parquet(tmp_path / "a.parquet", pa.table({"id": pa.array([None, None], types[kind])}))
    refused_table(path, "column 'id' has type")


@pytest.mark.hostile
def test_parquet_with_long_text_that_is_short_of_the_limit_is_read(tmp_path: Path) -> None:
    import pyarrow as pa

    texts = ["a" * 1000, "ü", None, ""] * 1000
    path = parquet(
        tmp_path / "a.parquet", pa.table({"id": texts, "day": pa.array([0, 1] * 2000, pa.date32())})
    )
    table = read_table(path)
    assert table.columns["id"].texts() == [text or "" for text in texts]
    assert table.columns["day"].texts()[1] == "1970-01-02"


BAD_SCHEMAS = {
    "nested": "[" * 100_000,
    "a number": "7",
    "a name": '"a"',
    "a rule that is a list": "[[]]",
    "a mean beyond float": '[{"name": "a", "mean": 1' + "0" * 400 + ', "std": 1, "categories": null}]',
    "a mean that is not a number": '[{"name": "a", "mean": NaN, "std": 1, "categories": null}]',
    "a deviation of 0": '[{"name": "a", "mean": 0, "std": 0, "categories": null}]',
    "a deviation without end": '[{"name": "a", "mean": 0, "std": Infinity, "categories": null}]',
    "a deviation of text": '[{"name": "a", "mean": 0, "std": "1", "categories": null}]',
    "categories that are numbers": '[{"name": "a", "mean": 0, "std": 1, "categories": [1]}]',
    "categories that are lists": '[{"name": "a", "mean": 0, "std": 1, "categories": [[1]]}]',
    "categories that are one number": '[{"name": "a", "mean": 0, "std": 1, "categories": 7}]',
    "categories that are true": '[{"name": "a", "mean": 0, "std": 1, "categories": true}]',
    "a name that is none": '[{"name": null, "mean": 0, "std": 1, "categories": null}]',
    "a field more": '[{"name": "a", "mean": 0, "std": 1, "categories": null, "__class__": "x"}]',
}


@pytest.mark.hostile
@pytest.mark.parametrize("case", BAD_SCHEMAS)
def test_a_schema_made_to_do_harm(case: str) -> None:
    with bounded(), pytest.raises(BadData, match="import the tables again") as caught:
        FeatureSchema.from_json(BAD_SCHEMAS[case])
    assert "\n" not in str(caught.value)


@pytest.mark.hostile
def test_categories_that_multiply_are_refused_before_they_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDEPD_MAX_GB", "0.01")
    path = tmp_path / "a.csv"
    path.write_text("id,kind\n" + "".join(f"n{row},k{row % 500}\n" for row in range(2000)))
    table = read_table(path)
    schema = fitted(table, Roles(one_hot=("kind",)))[0]
    with (
        bounded(megabytes=10),
        pytest.raises(BadData, match=r"2,000 rows of 500 features would need 0\.015 GB"),
    ):
        schema.apply(table)
