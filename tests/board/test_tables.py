"""The board's own tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedepd.board import tables
from fedepd.board.catalogue import Entry
from fedepd.report.runs import Run, group, read_run, read_runs
from fedepd.report.tables import Cell, Table

WriteRun = Callable[..., Path]
SCORES = (0.9, 0.8, 0.7)


def cells(table: Table) -> list[list[str]]:
    return [[cell.text for cell in row] for part in table.sections for row in part]


def federation(folder: Path, lines: list[dict[str, Any]]) -> Run:
    """The coordinator's folder of a run with four sites."""
    config = read_run(folder).config | {"sites": ["a", "b", "c", "d"]}
    (folder / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Run(folder, {}, config)


def test_sites_by_what_they_did_in_the_last_round(write_run: WriteRun) -> None:
    """Site a answers, b is late in round 2, c is refused in both and left out after the second, d is late."""
    late = {"field": "reply", "reason": "did not come in time", "absent": True}
    refused = {"client": 2, "field": "encoder.weight", "reason": "is not finite"}
    lines = [
        {"round": 1, "clients": [0, 1, 3], "refused": [refused]},
        {"round": 2, "clients": [0], "refused": [{"client": 1, **late}, refused], "excluded": [2]},
    ]
    found = cells(tables.sites(federation(write_run("a"), lines)))
    assert [row[:5] for row in found] == [
        ["a", "answered", "2 of 2", "0", "0"],
        ["b", "late", "1 of 2", "1", "0"],
        ["c", "left out of the run", "0 of 2", "0", "2"],
        ["d", "not asked", "1 of 2", "0", "0"],
    ]
    assert found[1][6] == "reply did not come in time"
    assert found[2][6] == "encoder.weight is not finite"
    assert sum(float(row[5]) for row in found) == pytest.approx(100, abs=0.3)


def test_before_the_first_round_no_site_is_judged(write_run: WriteRun) -> None:
    assert {row[1] for row in cells(tables.sites(federation(write_run("a"), [])))} == {"no round yet"}


def test_a_grid_has_a_place_for_every_method_and_seed(write_run: WriteRun) -> None:
    entries = [
        Entry("s/a", "finished", "FedAvg", "default", "toy", 0, 9, 9, SCORES),
        Entry("s/b", "running", "FedAvg", "default", "toy", 1, 4, 9),
        Entry("s/c", "stopped", "FedEPD", "printed", "toy", 1, 2, 9),
        Entry("s/d", "refused", why="damaged"),
    ]
    table = tables.grid(entries)
    assert table.headers == ["Method", "seed 0", "seed 1"]
    assert cells(table) == [["FedAvg", "70.0", "4/9"], ["FedEPD, printed", "", "2/9 stopped"]]


def test_runs_that_share_a_place_are_counted() -> None:
    """A sweep has several settings of one method at one seed: 0.7 and 0.5 have the mean 60.0."""
    runs = [Entry(f"s/{n}", "finished", "A", "", "toy", 0, 1, 1, (0.1, 0.1, n)) for n in (0.7, 0.5)]
    assert cells(tables.grid([*runs, Entry("s/x", "running", "A", "", "toy", 0, 0, 1)])) == [
        ["A", "2 of 3 done"]
    ]


def test_the_values_of_a_sweep_have_rows_of_their_own() -> None:
    """mu is 0.5, 2 or 10 at both seeds; rho is the same everywhere. 10 comes after 2, as a number."""
    runs = [
        Entry(
            f"s/{mu}-{seed}",
            "finished",
            "A",
            "own",
            "toy",
            seed,
            1,
            1,
            (0.1, 0.1, 0.01 * mu + seed / 10),
            settings=json.dumps([["method.mu", mu], ["method.rho", 1]]),
        )
        for seed in (0, 1)
        for mu in (10, 0.5, 2)
    ]
    assert cells(tables.grid(runs)) == [
        ["A, own, mu = 0.5", "0.5", "10.5"],
        ["A, own, mu = 2", "2.0", "12.0"],
        ["A, own, mu = 10", "10.0", "20.0"],
    ]


def test_settings_that_differ_between_datasets_make_no_rows() -> None:
    """One method has a backbone of its own on each graph, and still one row."""
    kinds = {"one": '[["model.backbone", "gcn"]]', "two": '[["model.backbone", "sage"]]'}
    runs = [
        Entry(data, "finished", "A", "", data, 0, 1, 1, SCORES, settings=settings)
        for data, settings in kinds.items()
    ]
    assert cells(tables.grid(runs)) == [["A", "70.0", "70.0"]]


def test_a_server_that_saw_sums_knows_no_shares(write_run: WriteRun) -> None:
    """It knows of no training node. A share of 0.0 would be wrong."""
    run = federation(write_run("a"), [{"round": 1, "clients": [0, 1, 2, 3]}])
    clients = json.loads((run.path / "clients.json").read_text())
    for client in clients:
        client["train"] = 0
    (run.path / "clients.json").write_text(json.dumps(clients))
    found = tables.sites(Run(run.path, {}, run.config))
    assert {row[5] for row in cells(found)} == {"–"}
    assert "sums" in found.note


def test_a_difference_is_told_over_seeds_only(write_run: WriteRun) -> None:
    """Skills 0.9 and 0.3 differ far more than seeds do. With two seeds it still cannot be told."""
    for seed in range(3):
        write_run(f"a{seed}", seed=seed, skill=0.9)
        root = write_run(f"b{seed}", method="fedavg", label="FedAvg", seed=seed, skill=0.3).parent
    table = tables.differences(group(read_runs(root)))
    assert table is not None
    (row,) = cells(table)
    assert row[:2] == ["FedEPD", "FedAvg"]
    assert row[3::2] == ["better", "better", "better"]
    few = tables.differences(group([run for run in read_runs(root) if run.seed < 2]))
    assert few is not None
    assert cells(few)[0][3::2] == ["–", "–", "–"]
    assert tables.differences(group(read_runs(root)[:1])) is None


def test_csv_holds_what_the_table_shows() -> None:
    table = Table(
        "t", ["Name", "Score"], [[[Cell("=1+1"), Cell("3.0", 3.0, "± 1")]], [[Cell('a,"b'), Cell("–")]]]
    )
    assert tables.as_csv(table) == 'Name,Score\n\'=1+1,3.0 ± 1\n"a,""b",–\n'


def test_the_list_as_a_table() -> None:
    found = tables.listing(
        [Entry("a", "finished", "FedAvg", "default", "toy", 2, 9, 9, SCORES), Entry("b", "refused")]
    )
    assert cells(found)[0] == [
        "a",
        "FedAvg",
        "default",
        "toy",
        "2",
        "9",
        "9",
        "90.00",
        "80.00",
        "70.00",
        "finished",
    ]
    assert cells(found)[1][-1] == "refused"


def test_a_run_that_goes_on_has_its_clients(write_run: WriteRun) -> None:
    folder = write_run("a")
    (held,) = tables.before_the_end(Run(folder, {}, read_run(folder).config))
    assert [row[0] for row in cells(held)] == ["0", "1", "2", "3"]
    assert [table.name for table in tables.of_run(group([read_run(folder)])[0])][1:] == [
        "by-class",
        "clients",
        "cost",
    ]
