"""New nodes beside old ones: who is asked about, and that nothing else changes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import fedepd
from fedepd.cli import main
from fedepd.datasets import write_npz
from fedepd.datasets.tables import Roles, import_files
from fedepd.errors import BadConfig, BadData
from fedepd.model.export import export
from fedepd.model.model import Model, load_model
from fedepd.model.subject import Files, read_ids, read_subject
from fedepd.network.sparse import csr_tensor
from fedepd.runs.run import run

OLD, NEW = 60, 6


def rows(start: int, count: int, label: bool) -> str:
    """The amount tells the class; ids are k0, k1, ..."""
    lines = ["Konto,art,betrag" if label else "Konto,betrag"]
    for i in range(start, start + count):
        art = f"{('fraud', 'plain')[i % 2]}," if label else ""
        lines.append(f"k{i},{art}{10 * (i % 2) + i % 7}")
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Old tables with a model of them, and new tables with two edges from each new node to old ones."""
    folder = tmp_path_factory.mktemp("bank")
    (folder / "old.csv").write_text(rows(0, OLD, True))
    ring = [f"k{i},k{(i + step) % OLD}" for i in range(OLD) for step in (2, 4)]
    (folder / "old_edges.csv").write_text("\n".join(["von,nach", *ring]) + "\n")
    (folder / "new.csv").write_text(rows(OLD, NEW, False))
    links = [f"k{i},k{(i + step) % OLD}" for i in range(OLD, OLD + NEW) for step in (0, 6)]
    (folder / "new_edges.csv").write_text("\n".join(["von,nach", *links]) + "\n")
    roles = Roles(id="Konto", label="art", source="von", target="nach", scale=True)
    graph, _ = import_files(folder / "old.csv", folder / "old_edges.csv", roles)
    write_npz(graph, folder / "old.npz")
    run(folder / "old.npz", "fedavg", out=folder / "run", rounds=3, hidden=8, clients=2, partition="balanced")
    export(folder / "run", folder / "model")
    return folder


@pytest.fixture(scope="module")
def model(bank: Path) -> Model:
    return load_model(bank / "model")


def new_tables(bank: Path, **more: str) -> Files:
    return Files(nodes=str(bank / "new.csv"), edges=str(bank / "new_edges.csv"), **more)


def test_the_model_remembers_the_columns_of_its_tables(model: Model) -> None:
    assert dict(model.roles) == {"id": "Konto", "label": "art", "source": "von", "target": "nach"}


def test_new_nodes_see_the_old_ones_as_if_all_tables_were_one(model: Model, bank: Path) -> None:
    """The merged tables give the same graph, so the same bits; the old nodes are not asked about."""
    found = read_subject(model, new_tables(bank, context=str(bank / "old.npz")))
    assert found.asked == tuple(f"k{i}" for i in range(OLD, OLD + NEW))
    assert found.notes == ()
    (bank / "all.csv").write_text(
        (bank / "new.csv").read_text() + drop_labels((bank / "old.csv").read_text())
    )
    both = (bank / "old_edges.csv").read_text() + (bank / "new_edges.csv").read_text().split("\n", 1)[1]
    (bank / "all_edges.csv").write_text(both)
    merged = read_subject(model, Files(nodes=str(bank / "all.csv"), edges=str(bank / "all_edges.csv")))
    assert merged.graph.num_edges == found.graph.num_edges == OLD * 2 + NEW * 2
    one = model.predict(found.graph).of(found.asked)
    two = model.predict(merged.graph).of(found.asked)
    assert np.allclose(one.probabilities, two.probabilities, atol=1e-6)
    (bank / "alone.csv").write_text("von,nach\n")
    without = read_subject(model, Files(nodes=str(bank / "new.csv"), edges=str(bank / "alone.csv")))
    alone = model.predict(without.graph).of(found.asked)
    assert not np.allclose(one.probabilities, alone.probabilities, atol=1e-3)


def drop_labels(text: str) -> str:
    return "".join(f"{a},{c}\n" for a, _, c in (line.split(",") for line in text.splitlines()[1:]))


def test_tables_are_a_context_too(model: Model, bank: Path) -> None:
    tables = {"context_nodes": str(bank / "old.csv"), "context_edges": str(bank / "old_edges.csv")}
    by_table = read_subject(model, new_tables(bank, **tables)).graph
    by_file = read_subject(model, new_tables(bank, context=str(bank / "old.npz"))).graph
    assert torch.equal(by_table.x, by_file.x)
    assert torch.equal(by_table.edge_index, by_file.edge_index)


def test_a_file_that_shares_nodes_with_the_context_is_joined_by_ids(model: Model, bank: Path) -> None:
    """k58 and k59 are in both. Their new features count, and only the others are new."""
    graph = fedepd.load(bank / "old.npz")
    ids = np.array([f"k{i}" for i in range(OLD - 2, OLD + 2)])
    ends = torch.tensor([[0, 1, 2], [2, 3, 3]])
    later = replace(
        graph, x=torch.full((4, 1), 5.0), y=torch.tensor([0, 1, 0, 1]), edge_index=ends, node_ids=ids
    )
    write_npz(later, bank / "later.npz")
    files = Files(data=str(bank / "later.npz"), context=str(bank / "old.npz"))
    found = read_subject(model, files)
    assert found.asked == ("k60", "k61")
    assert "2 of 4 nodes are in the context already" in found.notes[0]
    assert found.graph.x[-4:].flatten().tolist() == [5.0] * 4
    assert found.graph.num_edges == graph.num_edges + 3
    sparse = replace(graph, x=csr_tensor(sp.csr_matrix(graph.x.numpy())))
    write_npz(sparse, bank / "sparse.npz")
    again = read_subject(model, Files(data=str(bank / "later.npz"), context=str(bank / "sparse.npz")))
    assert torch.equal(again.graph.x.to_dense(), found.graph.x)


def test_what_cannot_be_joined_is_refused(model: Model, bank: Path, tmp_path: Path) -> None:
    graph = fedepd.load(bank / "old.npz")
    write_npz(replace(graph, node_ids=None), tmp_path / "nameless.npz")
    write_npz(replace(graph, x=torch.ones(OLD, 2), schema=""), tmp_path / "wide.npz")
    for name, words in (("nameless", "has no node ids"), ("wide", "2 features but the model")):
        with pytest.raises(BadData, match=words):
            read_subject(model, new_tables(bank, context=str(tmp_path / f"{name}.npz")))
    with pytest.raises(BadData, match="every node is in the context already"):
        read_subject(model, Files(data=str(bank / "old.npz"), context=str(bank / "old.npz")))
    nameless = str(tmp_path / "nameless.npz")
    with pytest.raises(BadData, match=r"nameless.*has no node ids"):
        read_subject(model, Files(data=nameless, context=str(bank / "old.npz")))
    shutil.copy(bank / "new_edges.csv", tmp_path / "edges.csv")
    with (tmp_path / "edges.csv").open("a") as file:
        file.write("k60,FR1\n")
    with pytest.raises(BadData, match=r"edges\.csv line 14: 'FR1' .* is not the id of a node"):
        read_subject(
            model, replace(new_tables(bank, context=str(bank / "old.npz")), edges=str(tmp_path / "edges.csv"))
        )


def test_edges_to_nobody_known_are_said(bank: Path, tmp_path: Path) -> None:
    """All 12 new edges lead to old nodes. Without a context the model, whose tables dropped such edges, sees

    none of them. With it, only the edge to FR1 is lost. As external nodes, the six old ones stay.
    """
    made = {}
    for ends in ("drop", "external"):
        roles = Roles(id="Konto", label="art", source="von", target="nach", unknown_ends=ends)
        graph, _ = import_files(bank / "old.csv", bank / "old_edges.csv", roles)
        write_npz(graph, tmp_path / "old.npz")
        settings: dict[str, Any] = {"rounds": 1, "hidden": 8, "clients": 2, "partition": "balanced"}
        run(tmp_path / "old.npz", "fedavg", out=tmp_path / ends, **settings)
        export(tmp_path / ends, tmp_path / f"{ends}-model")
        made[ends] = load_model(tmp_path / f"{ends}-model")
    found = read_subject(made["drop"], new_tables(bank))
    assert found.graph.num_edges == 0
    (note,) = found.notes
    assert note == (
        f"12 of 12 edges have an end that is not in the table of nodes and are left out, the first in "
        f"{bank / 'new_edges.csv'} line 2; --context names a graph of older nodes"
    )
    (tmp_path / "edges.csv").write_text((bank / "new_edges.csv").read_text() + "k60,FR1\n")
    more = replace(new_tables(bank, context=str(tmp_path / "old.npz")), edges=str(tmp_path / "edges.csv"))
    (note,) = read_subject(made["drop"], more).notes
    assert note == (
        f"1 of 13 edges have an end that is neither a new node nor in the context and are left out, the "
        f"first in {tmp_path / 'edges.csv'} line 14"
    )
    (note,) = read_subject(made["external"], new_tables(bank)).notes
    assert note.startswith("12 ids that are not in the table of nodes became external nodes, the first in ")
    assert note.endswith("; --context names a graph of older nodes")


@pytest.mark.parametrize(
    "names",
    [{}, {"data": "a", "nodes": "b", "edges": "c"}, {"nodes": "a"}, {"data": "a", "context_nodes": "b"}],
)
def test_half_of_a_pair_is_refused(names: dict[str, str]) -> None:
    with pytest.raises(BadConfig, match=r"^give the (new graph|older nodes) either with"):
        Files(**names)


def test_ids_come_from_the_command_line_or_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ids.txt"
    file.write_bytes("\ufeffa\r\n\r\n b \nü,c\n".encode())
    assert read_ids(f"@{file}") == ["a", "b", "ü,c"]
    for content, words in ((b"", "holds no id"), (b"\xff", "not UTF-8"), (b"a" * 201, "more than 200")):
        file.write_bytes(content)
        with pytest.raises(BadData, match=words):
            read_ids(f"@{file}")
    with pytest.raises(BadData, match="give a text file"):
        read_ids(f"@{tmp_path / 'none'}")


def test_predict_returns_the_new_nodes_or_those_of_a_file(
    bank: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No column is named: the model knows them."""
    model, context = str(bank / "model"), ["--context", str(bank / "old.npz")]
    tables = ["--nodes", str(bank / "new.csv"), "--edges", str(bank / "new_edges.csv")]
    assert main(["predict", model, *tables, *context]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in lines[1:]] == [f"k{i}" for i in range(OLD, OLD + NEW)]
    (tmp_path / "ids").write_text("k61\nk3\n")
    assert main(["predict", model, *tables, *context, "--ids", f"@{tmp_path / 'ids'}"]) == 0
    assert [line.split(",")[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["k61", "k3"]
    assert lines[2] != lines[1]


def with_amounts(edges: Path, out: Path, first: int = 0) -> None:
    """The same edges with amounts 1, 2, 3, ..."""
    head, *lines = edges.read_text().split()
    amounts = [f"{line},{first + number}" for number, line in enumerate(lines, 1)]
    out.write_text("\n".join([f"{head},summe", *amounts]) + "\n")


@pytest.fixture(scope="module")
def paid(bank: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same bank, whose edges have amounts."""
    folder = tmp_path_factory.mktemp("paid")
    for name in ("old.csv", "new.csv"):
        shutil.copy(bank / name, folder)
    with_amounts(bank / "old_edges.csv", folder / "old_edges.csv")
    with_amounts(bank / "new_edges.csv", folder / "new_edges.csv", 500)
    roles = Roles(id="Konto", label="art", source="von", target="nach", scale=True, edge_weight="summe")
    graph, _ = import_files(folder / "old.csv", folder / "old_edges.csv", roles)
    write_npz(graph, folder / "old.npz")
    run(folder / "old.npz", "fedepd", out=folder / "run", rounds=2, hidden=8, clients=2, partition="balanced")
    export(folder / "run", folder / "model")
    return folder


def test_amounts_of_new_and_old_edges_are_weights(paid: Path) -> None:
    """With a context the graph is that of all tables together, and each edge counts log(1 + amount)."""
    model = load_model(paid / "model")
    assert model.edge_weights
    new, edges = str(paid / "new.csv"), str(paid / "new_edges.csv")
    found = read_subject(model, Files(nodes=new, edges=edges, context=str(paid / "old.npz")))
    graph = found.graph
    assert graph.edge_weight is not None
    place = {node: number for number, node in enumerate(graph.node_ids.tolist())}  # type: ignore[union-attr]
    for table in ("old_edges.csv", "new_edges.csv"):
        for line in (paid / table).read_text().split()[1:]:
            a, b, amount = line.split(",")
            pair = torch.tensor([sorted((place[a], place[b]))]).T
            own = graph.weights_of(pair)
            assert own is not None
            assert float(own) == pytest.approx(np.log1p(float(amount)), rel=1e-6)
    assert len(model.predict(graph).labels) == OLD + NEW


def test_a_graph_without_weights_is_not_for_a_model_with_them(paid: Path, bank: Path) -> None:
    weighted, plain = load_model(paid / "model"), load_model(bank / "model")
    with pytest.raises(BadData, match="have no weights, but those of the model's training had some; import"):
        read_subject(weighted, Files(data=str(bank / "old.npz")))
    with pytest.raises(BadData, match="have weights, but those of the model's training had none; import the"):
        read_subject(plain, Files(data=str(paid / "old.npz")))


def test_a_model_folder_that_hides_its_weights_is_refused(paid: Path, tmp_path: Path) -> None:
    shutil.copytree(paid / "model", tmp_path / "model")
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace('"edge_weights": true', '"edge_weights": false'))
    with pytest.raises(BadData, match="has format 3 and no weights of edges"):
        load_model(tmp_path / "model")
