"""The tables for decisions, from run folders of today and of before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedepd.report import decisions
from fedepd.report.runs import group, read_runs
from fedepd.report.tables import html_table

WriteRun = Callable[..., Path]
MATRIX = np.array([[[90, 10, 0], [4, 6, 0], [2, 0, 2]], [[80, 0, 0], [0, 0, 0], [1, 0, 3]]])


def ranking(nodes: list[int], values: list[float]) -> dict[str, object]:
    from fedepd.metrics import wilson

    classes = []
    for count, value in zip(nodes, values, strict=True):
        low, high = wilson(np.array(value * count), np.array(count))
        triple = [value, float(low), float(high)]
        classes.append(
            {
                "nodes": count,
                "average_precision": triple,
                "at_alerts": [[10, min(count, 5)]],
                "curve": [[5, min(count, 5)], [sum(nodes), count]],
            }
        )
    return {"model": "global", "nodes": sum(nodes), "classes": classes, "clients": [0.5, 0.5]}


@pytest.fixture
def folder(write_run: WriteRun) -> Path:
    return write_run("one", sizes=(900, 50, 40), clients=2, confusion=MATRIX)


def test_numbers_of_an_older_run_come_from_its_matrices(folder: Path) -> None:
    """Class 1: called 16 times, 6 right; 10 nodes, 6 found. No ranking is there, and the table says so."""
    (each,) = group(read_runs(folder))
    table = decisions.by_class(each)
    assert table.headers == ["Class", "Tier", "Test nodes", "Called so", "Precision", "Recall", "F1"]
    row = table.sections[0][1]
    assert [cell.text for cell in row] == ["1", "medium", "10", "16", "37.5", "60.0", "46.2"]
    assert row[5].spread == "31-83"  # Wilson's interval of 6 in 10
    assert "AP is not there" in table.note
    assert decisions.at_alerts(each) is None


def test_a_ranking_adds_average_precision_and_alerts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (each,) = group(read_runs(folder))
    each.first.__dict__["ranking"] = ranking([180, 10, 8], [0.99, 0.5, 0.25])
    row = decisions.by_class(each).sections[0][2]
    assert row[-1].text == "25.0"
    table = decisions.at_alerts(each)
    assert table is not None
    # Of 10 alerts 5 are right; they are 5 of 10 nodes of class 1, and 5 of 8 of class 2.
    assert [[cell.text for cell in row] for row in table.sections[0]] == [
        ["1", "10", "50 / 50"],
        ["2", "8", "50 / 62"],
    ]
    assert len(table.sections) == 1  # a ranking of before has neither tiers nor clients
    assert decisions.alerts_at_clients(each) is None
    tiers = decisions.by_tier([each])
    assert tiers.headers[-1] == "AP"
    assert [row[-1].text for row in tiers.sections[0]] == ["99.0", "50.0", "25.0"]


def test_tiers_and_clients_have_alerts(folder: Path) -> None:
    """Of 10 alerts to the tail 4 are right, of 8 nodes. Client 0 has 14 cases, and client 1 has none."""
    (each,) = group(read_runs(folder))
    more = {
        "tiers": {
            "head": {"nodes": 180, "at_alerts": [[10, 10]]},
            "medium": {"nodes": 0, "at_alerts": []},
            "tail": {"nodes": 8, "at_alerts": [[10, 4]]},
        },
        "client_alerts": [{"nodes": 14, "at_alerts": [[10, 7]]}, {"nodes": 0, "at_alerts": []}],
    }
    each.first.__dict__["ranking"] = {**ranking([180, 10, 8], [0.99, 0.5, 0.25]), **more}
    table, clients = decisions.at_alerts(each), decisions.alerts_at_clients(each)
    assert table is not None
    assert [[cell.text for cell in row] for row in table.sections[1]] == [
        ["head classes", "180", "100 / 6"],
        ["tail classes", "8", "40 / 50"],
    ]
    assert clients is not None
    assert [[cell.text for cell in row] for row in clients.sections[0]] == [["0", "14", "70 / 50"]]
    assert "<table" in html_table(clients)


def test_clients_have_their_own_numbers(folder: Path, write_run: WriteRun) -> None:
    (each,) = group(read_runs(folder))
    table = decisions.by_client(each)
    assert table is not None
    # Client 1 has no node of class 1 and never calls one so: no row.
    assert [[cell.text for cell in row[:5]] for row in table.sections[1]] == [
        ["1", "0", "80", "81", "98.8"],
        ["1", "2", "4", "3", "100.0"],
    ]
    many = write_run("many", dataset="many", sizes=tuple(range(400, 200, -1)), clients=4)
    (large,) = group(read_runs(many))
    short = decisions.by_client(large)
    assert short is not None
    assert [len(rows) for rows in short.sections] == [1, 1, 1, 1]


def test_a_run_that_says_one_class_is_named(write_run: WriteRun) -> None:
    everything = np.zeros((2, 3, 3), dtype=np.int64)
    everything[:, :, 0] = [90, 5, 4]
    for seed in range(2):
        folder = write_run(f"s{seed}", sizes=(900, 50, 40), clients=2, seed=seed, confusion=everything)
    (each,) = group(read_runs(folder.parent))
    (line,) = decisions.notices(each)
    assert line.startswith("FedEPD (seed 0, 1): the model says '0' for every test node")


def test_tables_can_be_written(folder: Path) -> None:
    (each,) = group(read_runs(folder))
    for table in (decisions.by_class(each), decisions.by_tier([each]), decisions.by_client(each)):
        assert table is not None
        assert all(len(row) == len(table.headers) for rows in table.sections for row in rows)
        assert "<table" in html_table(table)
