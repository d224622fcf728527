"""Features made from edges where new nodes are attached to old ones: as one table of all would give them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fedepd.datasets import write_npz
from fedepd.datasets.tables import Roles, import_files
from fedepd.model.edge_made import edge_rules
from fedepd.model.export import export
from fedepd.model.model import Model, load_model
from fedepd.model.subject import Files, read_subject
from fedepd.runs.run import run

OLD, NEW = 40, 4


def nodes(path: Path, numbers: range, label: bool = True) -> str:
    lines = [f"k{i},{('fraud', 'plain')[i % 2]},{10 * (i % 2) + i % 7}" for i in numbers]
    path.write_text("\n".join(["id,label,balance", *lines]) + "\n")
    return str(path)


def edges(path: Path, pairs: list[tuple[int, int]]) -> str:
    lines = [f"k{a},k{b},{(3 * a + b) % 11 + 1}" for a, b in pairs]
    path.write_text("\n".join(["source,target,amount", *lines]) + "\n")
    return str(path)


RING = [(i, (i + step) % OLD) for i in range(OLD) for step in (2, 4)]
LINKS = [(i, (i + step) % OLD) for i in range(OLD, OLD + NEW) for step in (0, 6)]
"""Each new node sends to two old ones."""


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("amounts")
    nodes(folder / "old.csv", range(OLD))
    edges(folder / "old_edges.csv", RING)
    nodes(folder / "new1.csv", range(OLD, OLD + 2))
    nodes(folder / "new2.csv", range(OLD + 2, OLD + NEW))
    edges(folder / "new_edges1.csv", LINKS[:4])
    edges(folder / "new_edges2.csv", LINKS[4:])
    graph, _ = import_files(
        folder / "old.csv", folder / "old_edges.csv", Roles(scale=True, edge_features=("amount",))
    )
    write_npz(graph, folder / "old.npz")
    run(folder / "old.npz", "fedavg", out=folder / "run", rounds=1, hidden=4, clients=2, partition="balanced")
    export(folder / "run", folder / "model")
    return folder


@pytest.fixture(scope="module")
def model(bank: Path) -> Model:
    return load_model(bank / "model")


def new(bank: Path) -> Files:
    several = [[str(bank / f"{name}{part}.csv") for part in (1, 2)] for name in ("new", "new_edges")]
    return Files(nodes=several[0], edges=several[1])


def by_id(found: object) -> dict[str, torch.Tensor]:
    graph = found.graph  # type: ignore[attr-defined]
    return dict(zip(graph.node_ids.tolist(), graph.x, strict=True))


def test_tables_of_old_and_new_edges_give_the_features_of_one_table(model: Model, bank: Path) -> None:
    """Two files of new nodes, two of new edges, and tables as context, against everything in one."""
    context = {"context_nodes": str(bank / "old.csv"), "context_edges": [str(bank / "old_edges.csv")]}
    found = read_subject(model, replace(new(bank), **context))  # type: ignore[arg-type]
    assert found.asked == tuple(f"k{i}" for i in range(OLD, OLD + NEW))
    whole = nodes(bank / "all.csv", range(OLD + NEW)), edges(bank / "all_edges.csv", RING + LINKS)
    merged = read_subject(model, Files(nodes=whole[0], edges=whole[1]))
    assert torch.equal(found.graph.edge_index, merged.graph.edge_index)
    assert torch.equal(found.graph.x, merged.graph.x)


def test_nodes_of_a_file_keep_what_they_had_there(model: Model, bank: Path) -> None:
    """New nodes have the features of their own edges. An old one that got a new edge says so in a note."""
    found = read_subject(model, replace(new(bank), context=str(bank / "old.npz")))
    assert any("stay as they are in the context for its nodes" in note for note in found.notes)
    whole = nodes(bank / "all.csv", range(OLD + NEW)), edges(bank / "all_edges.csv", RING + LINKS)
    merged = by_id(read_subject(model, Files(nodes=whole[0], edges=whole[1])))
    before = by_id(read_subject(model, Files(data=str(bank / "old.npz"))))
    for node, row in by_id(found).items():
        assert torch.equal(row, before[node] if node in before else merged[node])
    assert any(not torch.equal(merged[node], before[node]) for node in before)


def test_a_node_in_both_has_the_new_cells_and_the_old_edges(model: Model, bank: Path) -> None:
    """k1 is in the new table with a balance of 12 instead of 11, and without an edge."""
    (bank / "again.csv").write_text("id,label,balance\nk1,plain,12\nk40,fraud,5\n")
    files = Files(nodes=str(bank / "again.csv"), edges=edges(bank / "one.csv", [(40, 2)]))
    found = by_id(read_subject(model, replace(files, context=str(bank / "old.npz"))))
    before = by_id(read_subject(model, Files(data=str(bank / "old.npz"))))
    places = [at for at, _ in edge_rules(model.schema)]
    assert len(places) == 8
    assert torch.equal(found["k1"][places], before["k1"][places])
    assert float(found["k1"][0]) > float(before["k1"][0])


def test_a_file_of_new_nodes_works_too(model: Model, bank: Path) -> None:
    table = nodes(bank / "fresh.csv", range(OLD - 2, OLD + NEW))
    links = edges(bank / "fresh_edges.csv", [(i, i - 1) for i in range(OLD, OLD + NEW)])
    graph = read_subject(model, Files(nodes=table, edges=links)).graph
    write_npz(replace(graph, y=torch.arange(graph.num_nodes) % 2), bank / "fresh.npz")
    found = read_subject(model, Files(data=str(bank / "fresh.npz"), context=str(bank / "old.npz")))
    assert found.asked == tuple(f"k{i}" for i in range(OLD, OLD + NEW))
    before = by_id(read_subject(model, Files(data=str(bank / "old.npz"))))
    places = [at for at, _ in edge_rules(model.schema)]
    assert torch.equal(by_id(found)[f"k{OLD - 1}"][places], before[f"k{OLD - 1}"][places])
