"""An exported model on graphs it has not seen: what it says, and what it refuses."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fedepd
from fedepd.cli import main
from fedepd.datasets import write_npz
from fedepd.datasets.tables import Roles, import_files
from fedepd.errors import BadConfig, BadData
from fedepd.longtail import Tiers
from fedepd.methods import METHODS
from fedepd.model.export import export
from fedepd.model.model import Model, Predictions, as_csv, load_model, write_predictions
from fedepd.model.subject import Files, read_subject
from fedepd.rng import seeded
from fedepd.runs.experiment import Experiment
from fedepd.runs.run import run
from fedepd.shown import plain, whole
from fedepd.types import Graph, TaskInfo
from hostile_names import ALL, PAYLOADS, cases, check_lines
from toy import toy_client

NODES, CLASSES = 90, ("fraud", "gold", "plain")


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="") as f:
        lines = csv.DictWriter(f, list(rows[0]))
        lines.writeheader()
        lines.writerows(rows)
    return path


def node_rows(nodes: int = NODES) -> list[dict[str, Any]]:
    """The amount and the country name the class, noisily."""
    draws = np.random.default_rng(0)
    y = np.arange(nodes) % 3
    return [
        {
            "id": f"n{i}",
            "label": CLASSES[y[i]],
            "amount": 100 * y[i] + 30 * draws.standard_normal(),
            "country": ("AT", "DE", "FR")[y[i]],
        }
        for i in range(nodes)
    ]


def edge_rows(nodes: int = NODES) -> list[dict[str, Any]]:
    """Two of three join nodes of one class."""
    draws = np.random.default_rng(1)
    ends = draws.integers(0, nodes, 3 * nodes)
    steps = 3 * draws.integers(1, nodes // 3, 3 * nodes) + (draws.random(3 * nodes) < 1 / 3)
    return [
        {"source": f"n{a}", "target": f"n{(a + step) % nodes}"} for a, step in zip(ends, steps, strict=True)
    ]


def read_tables(model: Model, nodes: Path, edges: Path) -> tuple[Graph, list[str]]:
    found = read_subject(model, Files(nodes=str(nodes), edges=str(edges)))
    return found.graph, list(found.notes)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    write_csv(folder / "nodes.csv", node_rows())
    write_csv(folder / "edges.csv", edge_rows())
    return folder


@pytest.fixture(scope="module")
def folder(tables: Path) -> Path:
    """A model trained on two CSV files."""
    graph, _ = import_files(tables / "nodes.csv", tables / "edges.csv", Roles(scale=True, one_hot=True))
    write_npz(graph, tables / "my.npz")
    run(
        tables / "my.npz", "fedepd", out=tables / "run", rounds=20, hidden=16, clients=2, partition="balanced"
    )
    return export(tables / "run", tables / "model")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(folder)


def predict(folder: Path, *more: object) -> int:
    return main(["predict", str(folder), *map(str, more)])


def test_tables_and_the_file_made_of_them_are_classified_alike(model: Model, tables: Path) -> None:
    graph, notes = read_tables(model, tables / "nodes.csv", tables / "edges.csv")
    assert notes == []
    one, two = model.predict(graph), model.predict(fedepd.load(tables / "my.npz"))
    assert one.node_ids == two.node_ids == tuple(f"n{i}" for i in range(NODES))
    assert np.array_equal(one.probabilities, two.probabilities)
    truth = [CLASSES[i % 3] for i in range(NODES)]
    assert np.mean([a == b for a, b in zip(one.labels, truth, strict=True)]) > 0.8
    assert np.allclose(one.probabilities.sum(1), 1)


def test_a_model_of_before_settings_of_training_were_removed(
    model: Model, folder: Path, tables: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "old")
    config = json.loads((folder / "config.json").read_text())
    config["experiment"]["method"] |= {"interleave": True, "rehearsal_weight": 0.5, "absent": "floor1"}
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    graph = fedepd.load(tables / "my.npz")
    old = load_model(tmp_path / "old").predict(graph)
    assert np.array_equal(old.probabilities, model.predict(graph).probabilities)
    config["experiment"]["method"]["infer_on"] = "original"  # on another graph it would predict otherwise
    (tmp_path / "old" / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadConfig, match="infer_on is 'original'"):
        load_model(tmp_path / "old")


def test_labels_are_not_looked_at(model: Model, tables: Path) -> None:
    graph = fedepd.load(tables / "my.npz")
    other = replace(graph, y=graph.y.flip(0))
    assert np.array_equal(model.predict(graph).probabilities, model.predict(other).probabilities)


def test_edges_are_purified_as_in_training(model: Model, tables: Path) -> None:
    """Predicting on the kept edges without purification equals predicting on all edges with it."""
    from fedepd.methods.fedepd.method import FedEPD
    from fedepd.methods.fedepd.purify import purified_edges

    graph = fedepd.load(tables / "my.npz")
    kept = purified_edges(graph)
    assert kept.shape[1] < graph.num_edges
    experiment, method = model.experiment, model.experiment.method
    assert isinstance(method, FedEPD)
    plain = replace(model, experiment=replace(experiment, method=replace(method, purify=False)))
    assert np.array_equal(
        model.predict(graph).probabilities, plain.predict(replace(graph, edge_index=kept)).probabilities
    )
    assert not np.array_equal(model.predict(graph).probabilities, plain.predict(graph).probabilities)


def test_nodes_without_edges(model: Model, tables: Path) -> None:
    """No edge at all, and one node alone: finite, and for a node alone the same either way."""
    graph = fedepd.load(tables / "my.npz")
    bare = replace(graph, edge_index=torch.empty(2, 0, dtype=torch.int64))
    p = model.predict(bare).probabilities
    assert np.isfinite(p).all()
    one = Graph(graph.x[:1], bare.edge_index, graph.y[:1], graph.num_classes)
    assert np.allclose(model.predict(one).probabilities, p[:1], atol=1e-6)
    assert model.predict(one).node_ids == ("0",)


def test_other_columns_are_refused(model: Model, tables: Path, tmp_path: Path) -> None:
    graph = fedepd.load(tables / "my.npz")
    with pytest.raises(BadData, match="has 3 features but the model was trained on 4"):
        model.predict(replace(graph, x=graph.x[:, :3]))
    rows = [{**row, "amount": 5 + float(row["amount"])} for row in node_rows()]
    other, _ = import_files(
        write_csv(tmp_path / "nodes.csv", rows), tables / "edges.csv", Roles(scale=True, one_hot=True)
    )
    with pytest.raises(BadData, match="were made from other columns, categories or scales than the model's"):
        model.predict(other)
    rows = [{name: value for name, value in row.items() if name != "amount"} for row in node_rows()]
    with pytest.raises(BadData, match="amount"):
        read_tables(model, write_csv(tmp_path / "less.csv", rows), tables / "edges.csv")


def test_unseen_columns_and_categories_are_named(model: Model, tables: Path, tmp_path: Path) -> None:
    rows = [
        {
            "id": row["id"],
            "amount": row["amount"],
            "country": "XX" if i < 2 else row["country"],
            "colour": "red",
        }
        for i, row in enumerate(node_rows())
    ]
    graph, notes = read_tables(model, write_csv(tmp_path / "nodes.csv", rows), tables / "edges.csv")
    assert notes == [
        "columns that are ignored, because training had none such: colour",
        "2 rows have a 'country' that was not seen in training, such as 'XX'; it is encoded as zeros",
    ]
    assert graph.x[0, 1:].tolist() == [0.0, 0.0, 0.0]
    assert np.isfinite(model.predict(graph).probabilities).all()


def test_abstaining(model: Model, tables: Path) -> None:
    graph = fedepd.load(tables / "my.npz")
    sure = model.predict(graph).probabilities.max(1)
    level = float(np.median(sure))
    labels = model.predict(graph, abstain_below=level).labels
    assert [label is None for label in labels] == (sure < level).tolist()
    assert None not in model.predict(graph).labels
    with pytest.raises(BadConfig, match=r"abstain_below is 1\.5"):
        model.predict(graph, abstain_below=1.5)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_the_command_writes(folder: Path, tables: Path, tmp_path: Path, ending: str, model: Model) -> None:
    out = tmp_path / f"out.{ending}"
    wanted = model.predict(fedepd.load(tables / "my.npz"), 0.6)
    assert (
        predict(folder, "--data", tables / "my.npz", "-o", out, "--abstain-below", 0.6, "--ids", "n5, n3")
        == 0
    )
    if ending == "csv":
        with out.open(newline="") as f:
            rows: list[dict[str, Any]] = [{**row, "label": row["label"] or None} for row in csv.DictReader(f)]
    elif ending == "jsonl":
        rows = [json.loads(line) for line in out.read_text().splitlines()]
    else:
        import pyarrow.parquet

        rows = pyarrow.parquet.read_table(out).to_pylist()
    assert list(rows[0]) == ["id", "label", "probability", "p(fraud)", "p(gold)", "p(plain)"]
    assert [row["id"] for row in rows] == ["n5", "n3"]
    assert [row["label"] for row in rows] == [wanted.labels[5], wanted.labels[3]]
    assert float(rows[0]["p(gold)"]) == wanted.probabilities[5, 1]
    assert float(rows[0]["probability"]) == wanted.probabilities[5].max()


def test_the_command_on_tables(folder: Path, tables: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        predict(folder, "--nodes", tables / "nodes.csv", "--edges", tables / "edges.csv", "--ids", "n4") == 0
    )
    header, row = capsys.readouterr().out.splitlines()
    assert header == "id,label,probability,p(fraud),p(gold),p(plain)"
    assert row.startswith("n4,gold,")


def test_a_file_without_labels_will_do(
    folder: Path, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph, model = fedepd.load(tables / "my.npz"), load_model(folder)
    np.savez(tmp_path / "bare.npz", x=graph.x.numpy(), edge_index=graph.edge_index.numpy())
    assert predict(folder, "--data", tmp_path / "bare.npz", "--ids", "7") == 0
    assert capsys.readouterr().out.splitlines()[1].startswith(f"7,{model.predict(graph).labels[7]},")


def test_mistakes_are_one_sentence(
    folder: Path, tables: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, nodes = ("--data", tables / "my.npz"), ("--nodes", tables / "nodes.csv")
    for words, sentence in (
        ((), "either with --data FILE.npz or with --nodes and --edges"),
        ((*data, *nodes, "--edges", "e.csv"), "either with --data FILE.npz or with --nodes and --edges"),
        (nodes, "either with --data FILE.npz or with --nodes and --edges"),
        ((*data, "--ids", "nobody"), "there is no node 'nobody'"),
        ((*data, "-o", tmp_path / "out.xlsx"), "ends in .csv, .parquet or .jsonl"),
        ((*data, "--abstain-below", "2"), "a probability lies between 0 and 1"),
        (("--data", tmp_path / "none.npz"), "does not exist"),
    ):
        assert predict(folder, *words) == 2
        captured = capsys.readouterr()
        assert sentence in captured.err
        assert captured.err.count("\n") == 1
        assert captured.out == ""


def test_a_model_without_schema_asks_for_a_file(model: Model, tables: Path) -> None:
    with pytest.raises(BadConfig, match=r"give --data FILE\.npz"):
        read_tables(replace(model, schema=None), tables / "nodes.csv", tables / "edges.csv")


def test_damaged_model_folders_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadData, match="is not a model folder"):
        load_model(tmp_path)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    config = json.loads((folder / "config.json").read_text())
    for name, content, sentence in (
        ("model.safetensors", bytes(weights), "its sha256 differs"),
        ("model.safetensors", b"", "cannot be read"),
        ("config.json", b"{", "cannot be read"),
        ("config.json", b"[]", "is a list, not a table"),
        (
            "config.json",
            json.dumps({**config, "format": 4}).encode(),
            "has format 4, this version reads 1 to 3",
        ),
        ("config.json", json.dumps({**config, "format": 3}).encode(), "has format 3 and no weights of edges"),
        ("config.json", json.dumps({**config, "format": 2}).encode(), "has format 2 and no operating point"),
        ("config.json", json.dumps({**config, "temperatures": {}}).encode(), "is damaged"),
        ("labels.json", b"{}", "is damaged"),
        ("schema.json", b'{"columns": [{}]}', r"schema\.json.*is damaged"),
    ):
        broken = tmp_path / "model"
        shutil.copytree(folder, broken)
        (broken / name).write_bytes(content)
        with pytest.raises(BadData, match=sentence):
            load_model(broken)
        shutil.rmtree(broken)


@pytest.mark.parametrize(
    "name", [name for name, cls in METHODS.items() if cls.has_global or cls.merges_clients]
)
@pytest.mark.parametrize("shape", [{}, {"edges": False}, {"sparse": True}])
def test_every_method_predicts_without_training_nodes(name: str, shape: dict[str, bool]) -> None:
    """Its logits for a client are the same whether it knows the client's training labels or not."""
    from fedepd.methods import Client, Server

    experiment = Experiment.make(name, hidden=8)
    data = toy_client(**shape)
    info = TaskInfo(data.graph.num_features, data.graph.num_classes, 1)
    server = Server(info, experiment.model, experiment.training, 0, 0, 3)
    tensors = experiment.method.server_init(server, experiment.model.init(info, seeded(0, "init")))
    tensors = tensors or experiment.model.init(info, seeded(0, "init"))
    model = Model(
        experiment, info, tensors, CLASSES, Tiers((0,), (1,), (2,)), {"head": 1.0, "medium": 1.0, "tail": 1.0}
    )
    hidden = data.hidden()
    client = Client(
        hidden,
        experiment.method.prepare(hidden, experiment.model),
        info,
        experiment.model,
        experiment.training,
        0,
        1,
        3,
    )
    assert torch.equal(model.logits(data.graph), experiment.method.predict(client, tensors))


def test_writing_to_a_folder_that_is_not_there(model: Model, tables: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="cannot write"):
        write_predictions(model.predict(fedepd.load(tables / "my.npz")), tmp_path / "no" / "out.csv")


# Names made to do harm


def poisoned(text: str) -> Predictions:
    """Three nodes and two classes of that name; of the last node nothing is said."""
    shares = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5]])
    return Predictions(
        (text, f"{text}1", "n"), shares.argmax(1), shares, (text, f"{text}2"), abstain_below=0.6
    )


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(ALL))
def test_csv_of_poisoned_names_has_no_formula_and_no_forged_row(text: str, tmp_path: Path) -> None:
    write_predictions(poisoned(text), tmp_path / "p.csv")
    with (tmp_path / "p.csv").open(newline="", encoding="utf-8") as f:
        rows = list(csv.reader(f))
    assert [len(row) for row in rows] == [5] * 4
    assert rows[0] == ["id", "label", "probability", f"p({whole(text)})", f"p({whole(text)}2)"]
    assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows for cell in row)
    assert [cell.removeprefix("'") for cell in (rows[1][0], rows[1][1])] == [
        whole(text).removeprefix("'")
    ] * 2
    assert rows[3][:3] == ["n", "", "0.5"]
    assert float(rows[1][2]) == 0.9


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(PAYLOADS))
def test_other_formats_keep_poisoned_names(text: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for ending in ("jsonl", "parquet"):
        write_predictions(poisoned(text), tmp_path / f"p.{ending}")
    lines = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
    assert len(lines) == 3
    assert lines[0]["id"] == lines[0]["label"] == whole(text)
    table = parquet.read_table(tmp_path / "p.parquet").to_pydict()
    assert table["id"][0] == table["label"][0] == whole(text)
    assert table["label"][2] is None


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(PAYLOADS))
def test_predictions_on_the_screen_steer_nothing(text: str) -> None:
    made = as_csv(poisoned(text), plain)
    check_lines(made)
    assert made.count("\n") == 4


@pytest.mark.hostile
@pytest.mark.parametrize("text", cases(PAYLOADS))
def test_an_unknown_node_is_shown_short(text: str) -> None:
    with pytest.raises(BadData) as refusal:
        poisoned(text).of([f"{text}?"])
    check_lines(str(refusal.value))
    assert len(str(refusal.value)) < 320
