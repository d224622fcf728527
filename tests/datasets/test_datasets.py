from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.datasets import (
    DATASETS,
    available,
    data_folder,
    describe,
    graph_sha256,
    load,
    nodes_sha256,
    write_npz,
)
from fedepd.datasets.published import TABLE1
from fedepd.errors import BadData, UnknownName
from fedepd.types import Graph


def path_graph(**more: Any) -> Graph:
    """0-1-2-3 with a lone node 4 and an unlabelled node 5 tied to 0; classes 0, 0, 0, 1, 0."""
    edges = torch.tensor([[0, 1, 2, 0], [1, 2, 3, 5]])
    return Graph.make(torch.eye(6), edges, torch.tensor([0, 0, 0, 1, 0, -1]), name="path", **more)


def test_importing_datasets_is_light() -> None:
    heavy = ("torch_geometric", "sklearn", "scipy.io", "pandas", "pyarrow", "networkx", "matplotlib")
    code = f"import sys, fedepd.datasets; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_row_of_table_1_is_a_dataset_and_has_a_twin() -> None:
    for name, row in TABLE1.items():
        assert DATASETS[name].table1 == row
        assert DATASETS[name].files
        assert not DATASETS[f"twin:{name}"].files


def test_data_folder_is_argument_then_variable_then_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDEPD_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder(tmp_path / "argument") == tmp_path / "argument"
    assert data_folder() == tmp_path / "variable"
    monkeypatch.delenv("FEDEPD_DATA")
    assert data_folder() == tmp_path / "cache" / "fedepd"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert data_folder() == Path.home() / ".cache" / "fedepd"


def test_load_by_path_by_name_and_synthetic(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    write_npz(path_graph(), tmp_path / "graphs" / "mine.npz")
    assert load(tmp_path / "graphs" / "mine.npz").num_nodes == 6
    assert load("mine", tmp_path).name == "mine"
    assert load("synthetic", tmp_path).num_nodes == 1_500
    assert load("twin:email", tmp_path).num_nodes == 986


def test_absent_official_files_are_named_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "raw" / "email").mkdir(parents=True)
    (tmp_path / "raw" / "email" / "edges.txt").write_text("0 1\n")
    with pytest.raises(BadData) as caught:
        load("email", tmp_path)
    message = str(caught.value)
    assert "raw/email/labels.txt, raw/email/graph.embeddings" in message
    assert "edges.txt" not in message
    assert "fedepd data fetch email" in message


def test_unknown_name_suggests_what_is_at_hand(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    write_npz(path_graph(), tmp_path / "graphs" / "mygraph.npz")
    with pytest.raises(UnknownName, match="did you mean 'corafull'"):
        load("coraful", tmp_path)
    with pytest.raises(UnknownName, match="did you mean 'mygraph'"):
        load("mygrap", tmp_path)


def test_missing_path_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadData, match=r"none\.npz' does not exist"):
        load(str(tmp_path / "none.npz"))


def test_ready_made_file_under_an_official_name_is_checked(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    write_npz(path_graph(), tmp_path / "graphs" / "email.npz")
    with pytest.raises(BadData, match="6 nodes, but Email in Table 1 has 986"):
        load("email", tmp_path)
    assert load(tmp_path / "graphs" / "email.npz").num_nodes == 6  # by its path it is the user's own graph


def test_ready_made_email(real_data: Path) -> None:
    assert load("email", real_data).num_edges == 16_064


def test_available_tells_present_from_missing(tmp_path: Path) -> None:
    (tmp_path / "graphs").mkdir()
    write_npz(path_graph(), tmp_path / "graphs" / "mine.npz")
    (tmp_path / "raw" / "heterophilous").mkdir(parents=True)
    (tmp_path / "raw" / "heterophilous" / "roman_empire.npz").touch()
    present = {row.name: row.present for row in available(tmp_path)}
    assert present.keys() == DATASETS.keys() | {"mine"}
    assert present["synthetic"]
    assert present["twin:arxiv"]
    assert present["mine"]
    assert present["roman_empire"]
    assert not present["email"]
    assert not present["corafull"]


def test_graphs_with_a_made_tail_have_a_folder_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "longtail" / "graphs").mkdir(parents=True)
    write_npz(path_graph(), tmp_path / "longtail" / "graphs" / "mine_lt.npz")
    assert load("mine_lt", tmp_path).num_nodes == path_graph().num_nodes
    row = next(row for row in available(tmp_path) if row.name == "mine_lt")
    assert row.present
    assert row.down_sampled
    assert "longtail/graphs/mine_lt.npz" in row.description
    (tmp_path / "graphs").mkdir()
    write_npz(path_graph(), tmp_path / "graphs" / "mine_lt.npz")  # the usual folder comes first
    assert [row.down_sampled for row in available(tmp_path) if row.name == "mine_lt"] == [False]


def test_describe() -> None:
    """Four edges; of the three between labelled nodes 0-1 and 1-2 stay in class 0.

    Node 4 is isolated. The sizes are 4 and 1, so the ratio is 4.
    """
    facts = describe(path_graph())
    shape = {
        key: facts[key]
        for key in (
            "nodes",
            "edges",
            "features",
            "feature_format",
            "classes",
            "isolated_nodes",
            "unlabelled_nodes",
        )
    }
    assert shape == {
        "nodes": 6,
        "edges": 4,
        "features": 6,
        "feature_format": "dense",
        "classes": 2,
        "isolated_nodes": 1,
        "unlabelled_nodes": 1,
    }
    assert facts["imbalance_ratio"] == 4
    assert facts["same_class_edges"] == pytest.approx(2 / 3)
    assert facts["tiers"] == {
        "head": {"classes": 1, "nodes": 4},
        "medium": {"classes": 0, "nodes": 0},
        "tail": {"classes": 1, "nodes": 1},
    }
    json.dumps(facts)


def test_describe_without_edges() -> None:
    graph = Graph.make(torch.eye(3), torch.empty((2, 0), dtype=torch.int64), torch.tensor([0, 0, 1]))
    assert describe(graph)["same_class_edges"] is None
    assert describe(graph)["isolated_nodes"] == 3


def test_hash_depends_on_content_alone(tmp_path: Path) -> None:
    graph = path_graph()
    write_npz(graph, tmp_path / "other_name.npz")
    assert graph_sha256(load(tmp_path / "other_name.npz")) == graph_sha256(graph)
    y, x = graph.y.clone(), graph.x.clone()
    y[0], x[0, 0] = 1, 0.5
    changed = [
        Graph.make(graph.x, graph.edge_index, y),
        Graph.make(x, graph.edge_index, graph.y),
        Graph.make(graph.x, graph.edge_index[:, 1:], graph.y),
        Graph.make(graph.x, graph.edge_index, graph.y, edge_weight=torch.ones(graph.num_edges)),
    ]
    assert len({graph_sha256(other) for other in [graph, *changed]}) == 5
    assert len({nodes_sha256(other) for other in [graph, *changed]}) == 3  # features and weights do not count
    write_npz(changed[3], tmp_path / "weighted.npz")
    assert graph_sha256(load(tmp_path / "weighted.npz")) == graph_sha256(changed[3])
    assert describe(changed[3])["edge_weights"] == "from 1 to 1, median 1"


def test_hash_of_sparse_features_depends_on_their_columns(tmp_path: Path) -> None:
    parts = {
        "edge_index": np.array([[0], [1]]),
        "y": np.array([0, 1]),
        "x_data": np.ones(2, np.float32),
        "x_indptr": np.array([0, 1, 2]),
    }
    for name, columns in (("a", [0, 1]), ("b", [1, 0])):
        np.savez(tmp_path / f"{name}.npz", x_indices=np.array(columns), x_shape=np.array([2, 2]), **parts)  # type: ignore[arg-type]
    assert graph_sha256(load(tmp_path / "a.npz")) != graph_sha256(load(tmp_path / "b.npz"))
