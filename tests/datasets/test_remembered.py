"""Columns by role survive the way through JSON, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedepd.datasets import load, write_npz
from fedepd.datasets.remembered import recalled, remembered
from fedepd.datasets.table_files import read_table
from fedepd.datasets.tables import Roles, import_tables
from fedepd.errors import BadData


def test_only_roles_that_a_column_had_are_kept() -> None:
    text = remembered({"id": "Konto", "label": "fraud", "owner": None, "source": "von", "scale": "x"})
    assert recalled(text) == {"id": "Konto", "label": "fraud", "source": "von"}
    assert remembered({"owner": None}) == ""
    assert recalled("") == {}


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"id": 3}', '{"id": ""}', '{"colour": "a"}', '{"id": "%s"}' % ("a" * 10_001)]
)
def test_anything_else_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(BadData, match=r"list of columns by role .*import the tables again"):
        recalled(text)


def test_an_imported_graph_remembers_its_columns(tmp_path: Path) -> None:
    nodes, edges = tmp_path / "nodes.csv", tmp_path / "edges.csv"
    nodes.write_text("account,fraud,age\na,mule,1\nb,clean,2\n")
    edges.write_text("von,nach\na,b\n")
    roles = Roles(id="account", label="fraud", source="von", target="nach")
    graph, _ = import_tables(read_table(nodes), read_table(edges), roles)
    write_npz(graph, tmp_path / "a.npz")
    expected = {"id": "account", "label": "fraud", "source": "von", "target": "nach"}
    assert recalled(load(tmp_path / "a.npz").roles) == expected
