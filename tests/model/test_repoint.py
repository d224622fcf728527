"""Another point for a model folder: the same bits as an export, and never half of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fedepd
from fedepd.clients.client_file import TRAIN
from fedepd.datasets.npz import write_npz
from fedepd.errors import BadConfig, BadData
from fedepd.model import repoint
from fedepd.model.aim import Aim
from fedepd.model.export import export
from fedepd.model.model import load_model
from fedepd.model.repoint import known_nodes, set_point, with_section
from fedepd.model.subject import Files
from fedepd.runs.resume import rebuild
from fedepd.runs.run import run
from fedepd.types import HIDDEN

RECALL = Aim(recall={"4": 0.8})


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    run("synthetic", "fedepd", out=folder, rounds=4, hidden=8, clients=3, evaluate_every=2)
    return folder


@pytest.fixture(scope="module")
def exported(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(finished, tmp_path_factory.mktemp("m") / "plain")


@pytest.fixture(scope="module")
def graph_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("g") / "whole.npz"
    write_npz(fedepd.load("synthetic"), path)
    return path


@pytest.fixture
def model(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "model"))


@pytest.fixture(scope="module")
def others(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The graph without the labels of training nodes, and with a feature changed: another graph."""
    graph, x = fedepd.load("synthetic"), fedepd.load("synthetic").x.clone()
    x[0, 0] += 1
    y = graph.y.clone()
    y[torch.from_numpy(np.asarray(rebuild(finished).cut()["split"] == TRAIN))] = HIDDEN
    path = tmp_path_factory.mktemp("o") / "later.npz"
    write_npz(replace(graph, x=x, y=y), path)
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("aim", [RECALL, Aim(alerts=60)])
def test_with_the_runs_graph_it_is_what_an_export_would_have_written(
    aim: Aim, model: Path, finished: Path, graph_file: Path, tmp_path: Path
) -> None:
    set_point(model, aim, known_nodes(model, Files(data=str(graph_file))))
    wanted = contents(export(finished, tmp_path / "again", aim=aim))
    assert contents(model) == wanted
    set_point(model, None)
    assert load_model(model).operating is None
    assert not {"operating.json", "operating.svg"} & contents(model).keys()


def test_a_point_that_is_taken_away_leaves_what_was_there(model: Path, graph_file: Path) -> None:
    before = contents(model)
    set_point(model, RECALL, known_nodes(model, Files(data=str(graph_file))))
    assert contents(model) != before
    set_point(model, None)
    assert contents(model) == before


def test_other_nodes_choose_by_halves_of_each_class(model: Path, others: Path) -> None:
    known = known_nodes(model, Files(data=str(others)))
    (_, chose), (_, measured) = (known.predicted.rows[split][0] for split in ("val", "test"))
    labelled = torch.bincount(torch.cat([chose, measured]), minlength=10)
    assert known.nodes == 1500
    assert torch.equal(torch.bincount(chose, minlength=10), (labelled + 1) // 2)
    set_point(model, RECALL, known)
    told = json.loads((model / "operating.json").read_text())
    assert told["data"] == "later"
    assert "by nodes of later" in (model / "README.md").read_text()
    threshold, exported = told["rules"][0]["threshold"], load_model(model)
    p = exported.calibrated(known.predicted.split("val")[0])[chose.numpy() == 4, 4]
    assert threshold == sorted(p, reverse=True)[int(np.ceil(0.8 * len(p))) - 1]


def test_labels_that_are_not_known_are_refused(model: Path, others: Path) -> None:
    with pytest.raises(BadData, match="which the model does not know"):
        known_nodes(model, Files(data=str(others)), {"3": "burglar"})
    with pytest.raises(BadData, match="none of the labels"):
        known_nodes(model, Files(data=str(others)), {"nobody": "3"})


def test_a_clients_own_graph_would_choose_by_training_nodes(finished: Path, tmp_path: Path) -> None:
    own = export(finished, tmp_path / "own", client=1, adapted=False)
    write_npz(rebuild(finished).clients[1].graph, tmp_path / "part.npz")
    with pytest.raises(BadConfig, match="the model was trained on"):
        known_nodes(own, Files(data=str(tmp_path / "part.npz")))


@pytest.mark.parametrize("name", ["operating.json", "operating.svg", "README.md", "config.json"])
def test_a_failure_leaves_the_folder_as_it_was(
    name: str, model: Path, graph_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, before, put = known_nodes(model, Files(data=str(graph_file))), contents(model), repoint._put
    failed: list[str] = []

    def failing(path: Path, content: bytes | None) -> None:
        if path.name == name and not failed:
            failed.append(name)
            raise BadConfig("the disk is full")
        put(path, content)

    monkeypatch.setattr(repoint, "_put", failing)
    with pytest.raises(BadConfig, match="full"):
        set_point(model, RECALL, known)
    assert contents(model) == before


def test_a_killed_change_is_refused_and_mended(model: Path, graph_file: Path) -> None:
    """The configuration is written last: without it the other files tell of a point that is not applied."""
    known = known_nodes(model, Files(data=str(graph_file)))
    config = (model / "config.json").read_bytes()
    set_point(model, RECALL, known)
    (model / "config.json").write_bytes(config)
    with pytest.raises(BadData, match="interrupted; give it again with 'fedepd point'"):
        load_model(model)
    set_point(model, RECALL, known)
    assert load_model(model).operating is not None


def test_an_aim_that_cannot_be_reached_changes_nothing(model: Path, graph_file: Path) -> None:
    before = contents(model)
    with pytest.raises(BadConfig, match="more than all"):
        set_point(model, Aim(alerts=5000), known_nodes(model, Files(data=str(graph_file))))
    assert contents(model) == before


def test_what_a_person_wrote_on_the_card_stays() -> None:
    card = "# A\n\nMine.\n\n## Calibration\n\nTold.\n\n## Limits\n\n- few\n"
    pointed = with_section(card, ["It finds.", "![x](y)"])
    assert pointed == card.replace(
        "## Calibration", "## Operating point\n\nIt finds.\n\n![x](y)\n\n## Calibration"
    )
    assert with_section(with_section(pointed, ["Other."]), []) == card
    assert with_section("# A\n", ["At the end."]) == "# A\n\n## Operating point\n\nAt the end.\n"
