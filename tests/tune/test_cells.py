from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedepd.datasets import synthetic, write_npz
from fedepd.errors import BadConfig, BadData
from fedepd.runs.run import run
from fedepd.tune.cells import Cell, cells_of, developed

QUICK = {"rounds": 3, "hidden": 4, "clients": 2, "evaluate_every": 1}


@pytest.fixture
def data(tmp_path: Path) -> str:
    write_npz(
        synthetic(nodes=120, edges=300, classes=3, imbalance=3, smallest=20, features=8), tmp_path / "g.npz"
    )
    return str(tmp_path / "g.npz")


def cell(folder: Path, data: str) -> Cell:
    return cells_of((folder, None), ("fedavg", "default"), (data, "hash"), QUICK, [100])[0]


def test_the_score_is_the_mean_of_two_validation_scores_in_the_selected_round(
    tmp_path: Path, data: str
) -> None:
    found = cell(tmp_path, data)
    assert not found.is_finished
    found.work()
    assert found.is_finished
    same = run(data, "fedavg", **QUICK, seed=100)
    val = same.rounds[same.summary["best_round"] - 1]["val"]["global"]
    assert found.score == (val["acc"] + val["bacc"] + val["macro_f1"]) / 3
    content = json.loads(found.out.read_text())
    assert content.keys() == {"round", "val", "seconds"}, "nothing about test nodes"


def test_a_cell_is_named_by_its_content(tmp_path: Path) -> None:
    def name(data: str = "a", **settings: object) -> str:
        made = cells_of((tmp_path, None), ("fedavg", "default"), ("g", data), settings, [100, 101])
        assert made[0].out != made[1].out
        return made[0].out.name

    assert len({name(), name("b"), name(lr=0.03), name(vault=0.2)}) == 4
    assert name(lr=0.01) == name()


@pytest.mark.parametrize(
    ("content", "says"),
    [("{", "JSON"), ('{"round": 1}', "has no 'val'"), ('{"round": 1, "val": {"acc": 2}}', "not a finite")],
)
def test_a_damaged_cell_is_refused(tmp_path: Path, content: str, says: str) -> None:
    found = cell(tmp_path, "g")
    found.out.write_text(content)
    with pytest.raises(BadData, match=says):
        _ = found.score


def test_without_validation_nodes_there_is_nothing_to_search_by(tmp_path: Path) -> None:
    found = cell(tmp_path, "g")
    found.out.write_text('{"round": 1, "val": {"acc": null, "bacc": null, "macro_f1": null}, "seconds": 1}')
    with pytest.raises(BadConfig, match="'g' has no validation nodes to search by"):
        _ = found.score


def test_the_vault_and_the_seeds_of_tables_are_out_of_reach() -> None:
    with pytest.raises(BadConfig, match="a search may not see the vault"):
        developed("fedavg", "default", {"seed": 100, "vault": 0.2, "score_on": "vault"})
    with pytest.raises(BadConfig, match="seeds below 100 are for tables"):
        developed("fedavg", "default", {"seed": 0})
