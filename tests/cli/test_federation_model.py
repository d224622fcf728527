"""``fedepd federation model``: from a kit after a run to predictions for new tables, without the server."""

from __future__ import annotations

import csv
import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.office import Office
from fedepd.cli import main
from fedepd.clients.clients_dir import write_clients
from fedepd.clients.partition import PartitionConfig, partition
from fedepd.clients.split import SplitConfig, make_clients
from fedepd.datasets.table_files import read_table
from fedepd.datasets.tables import Roles, import_tables
from fedepd.deploy.agreement import agreement_of, schema_sha256
from fedepd.deploy.kits import provision
from fedepd.deploy.task import FederationTask
from fedepd.model.model import load_model

SITES = ["ada", "bob", "cyd"]


def write_tables(folder: Path, nodes: int, seed: int) -> None:
    """Accounts of three banks. Whether one is a fraud, shows in its amount and its neighbours."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(nodes) < 0.3
    with (folder / "nodes.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "amount", "kind", "fraud", "bank"])
        for i in range(nodes):
            amount = rng.normal(300 if fraud[i] else 100, 60)
            kind = rng.choice(["shop", "person"])
            rows.writerow([f"n{i}", f"{amount:.2f}", kind, "yes" if fraud[i] else "no", SITES[i % 3]])
    with (folder / "edges.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["source", "target"])
        for i in range(3 * nodes):
            source, target = rng.integers(nodes, size=2)
            if fraud[source] == fraud[target] or i % 4 == 0:
                rows.writerow([f"n{source}", f"n{target}"])


@pytest.fixture(scope="module")
def over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kits of three banks after a run. Their columns, categories and means are agreed."""
    folder = tmp_path_factory.mktemp("banks")
    write_tables(folder, 240, 0)
    tables = read_table(folder / "nodes.csv"), read_table(folder / "edges.csv")
    graph, _ = import_tables(*tables, Roles(label="fraud", owner="bank", scale=True, one_hot=True))
    clients = make_clients(graph, partition(graph, PartitionConfig(partition="owner"), 0), SplitConfig(), 0)
    files = write_clients(clients, SITES, folder / "clients")
    agreed = agreement_of(graph)
    provision(folder / "fed", SITES, "localhost", 8002, {"features": 3, "classes": 2}, agreed)
    for site, file in zip(SITES, files, strict=True):
        (folder / "fed" / site / "local" / "fedepd.json").write_text(json.dumps({"data": str(file)}))
    settings = {"rounds": 6, "evaluate_every": 2, "hidden": 8, "lr": 0.05, "adapt": True}
    names, columns = graph.label_names, schema_sha256(agreed.schema)
    more: dict[str, Any] = {"label_names": names, "schema_sha256": columns, "deadline": 5.0}
    task = FederationTask("first", "fedepd", "default", settings, 3, 2, tuple(SITES), 3, **more)
    Office(folder / "fed", task).run()
    return folder


def run(*words: object) -> int:
    return main(["federation", "model", *map(str, words)])


@pytest.mark.parametrize("kind", ["global", "personal"])
def test_an_owner_predicts_on_new_tables(
    over: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    write_tables(tmp_path, 90, 1)
    model = tmp_path / "model"
    assert run(over / "fed" / "bob", "-o", model, *(["--personal"] if kind == "personal" else [])) == 0
    assert "model of run first" in capsys.readouterr().out
    loaded = load_model(model)
    assert (loaded.client, loaded.kind, loaded.label_names) == ("bob", kind, ("no", "yes"))
    out = tmp_path / "predictions.csv"
    tables = ["--nodes", str(tmp_path / "nodes.csv"), "--edges", str(tmp_path / "edges.csv")]
    assert main(["predict", str(model), *tables, "-o", str(out)]) == 0
    with out.open() as file:
        found = {row["id"]: row for row in csv.DictReader(file)}
    with (tmp_path / "nodes.csv").open() as file:
        true = {row["id"]: row["fraud"] for row in csv.DictReader(file)}
    # Amounts of 300 and 100 with a deviation of 60 can be told apart in 95 of 100 cases.
    assert np.mean([found[node]["label"] == label for node, label in true.items()]) > 0.85
    card = (model / "README.md").read_text()
    assert "for bob, trained with FedEPD together with 2 other clients (ada, cyd)" in card
    assert "80 nodes" in card
    assert f"This is the {kind} model of bob" in card


def test_the_folder_is_like_that_of_export(over: Path, tmp_path: Path) -> None:
    assert run(over / "fed" / "ada", "-o", tmp_path / "model") == 0
    files = {"model.safetensors", "config.json", "labels.json", "schema.json", "metrics.json"}
    files |= {"calibration.json", "reference.json", "README.md"}
    assert {path.name for path in (tmp_path / "model").iterdir()} == files
    columns = json.loads((tmp_path / "model" / "schema.json").read_text())["columns"]
    assert [column["name"] for column in columns] == ["amount", "kind"]
    assert 100 < columns[0]["mean"] < 300
    calibration = json.loads((tmp_path / "model" / "calibration.json").read_text())
    # 80 nodes, of which 60 % train and 20 % validate in each class: 16 are fewer than 20.
    assert calibration["validation_nodes"] < 20
    assert set(calibration["temperatures"].values()) == {1.0}


def test_every_site_gets_the_same_global_weights(over: Path, tmp_path: Path) -> None:
    """No class is closed, so no site has columns of its own."""
    for site in SITES:
        assert run(over / "fed" / site, "-o", tmp_path / site, "--run", "first") == 0
    digests = {json.loads((tmp_path / s / "config.json").read_text())["weights_sha256"] for s in SITES}
    assert len(digests) == 1


@pytest.mark.parametrize("file", ["model.safetensors", "README.md", "config.json"])
def test_a_full_disk(
    over: Path,
    tmp_path: Path,
    file: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    replace = os.replace

    def full(source: Any, target: Any) -> None:
        if Path(target).name == file:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    assert run(over / "fed" / "ada", "-o", tmp_path / "model") == 2
    assert "No space left" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def refused(capsys: pytest.CaptureFixture[str], out: Path, *words: object) -> str:
    """One sentence, and nothing was written."""
    assert run(*words, "-o", out) == 2
    assert not out.exists()
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


def test_what_is_refused(over: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kit, out = tmp_path / "ada", tmp_path / "model"
    shutil.copytree(over / "fed" / "ada", kit)
    assert "unknown run 'other'" in refused(capsys, out, kit, "--run", "other")
    final = kit / "state" / "first" / "final"
    content = final.read_bytes()
    final.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "checksum differs" in refused(capsys, out, kit)
    final.unlink()
    assert "has not given this site a model" in refused(capsys, out, kit)
    words = [str(over / "fed" / "ada"), "-o", str(out), "--personal", "--adapted"]
    assert run(*words) == 2
    assert "not allowed with" in capsys.readouterr().err
    assert "is a kit of kind 'admin'" in refused(capsys, out, over / "fed" / "admin")
    assert "is not a kit" in refused(capsys, out, tmp_path / "nowhere")
    out.mkdir()
    (out / "thing").touch()
    assert run(over / "fed" / "ada", "-o", out) == 2
    assert "thing" in [path.name for path in out.iterdir()]
