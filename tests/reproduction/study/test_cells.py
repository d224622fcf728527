"""Cells: keyed by what is computed, shared by targets, run once, and remembered when they fail."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fedepd.datasets import synthetic, write_npz
from fedepd.errors import BadConfig, UnknownName
from fedepd.reproduction.study.cells import (
    Planned,
    check_acting,
    datasets_of,
    of_shard,
    parse_shard,
    plan,
    run_planned,
    to_run,
)
from fedepd.reproduction.study.results import read_results
from fedepd.reproduction.study.targets import Row, Target, over_grid, read_target

QUICK: dict[str, Any] = {"rounds": 2, "hidden": 8, "clients": 3}
TARGET = Target(
    "mine",
    "Mine",
    "comparison",
    (Row("fedavg", label="FedAvg"), Row("fedepd", label="FedEPD")),
    ("synthetic",),
    2,
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("data") / "small.npz"
    write_npz(synthetic(nodes=300, edges=900, classes=4, imbalance=10, smallest=None, communities=6), path)
    return str(path)


def planned(data: str, out: Path, *targets: Target, **settings: Any) -> list[Planned]:
    return plan(targets, {target.name: [data] for target in targets}, out, {**QUICK, **settings})


def test_the_folder_is_named_by_the_hash_of_the_run_in_it(data: str, tmp_path: Path) -> None:
    """And seeds vary the clients too, once the nodes are shuffled."""
    cells = planned(data, tmp_path, TARGET, shuffle_nodes=True)
    assert [(each.row.method, each.seed) for each in cells] == [
        ("fedavg", 0),
        ("fedepd", 0),
        ("fedavg", 1),
        ("fedepd", 1),
    ]
    said: list[str] = []
    assert (
        run_planned(to_run(cells), 2, lambda: None, lambda each, failure: said.append(each.text + failure))
        == 0
    )
    assert sorted(said) == sorted(each.text for each in cells)
    summaries = [json.loads((each.job.out / "summary.json").read_text()) for each in cells]
    assert [summary["config_hash"] for summary in summaries] == [each.job.out.name for each in cells]
    assert len({summary["partition_sha256"] for summary in summaries}) == 2
    assert to_run(cells) == []
    results = read_results(TARGET, cells)
    assert [sorted(entry.runs) for entry in results.entries] == [[0, 1], [0, 1]]
    known = {each.path: each for each in results.runs}
    again = read_results(TARGET, cells, known)  # another target with the same cells does not read them again
    assert all(one is other for one, other in zip(results.runs, again.runs, strict=True))


def test_a_target_of_ones_own_names_files_and_what_is_nowhere_is_named(data: str, tmp_path: Path) -> None:
    mine = replace(TARGET, datasets=(data, "corafull", "nowhere"))
    datasets, lines = datasets_of(mine, tmp_path)
    assert datasets == [data, "nowhere"]
    assert lines == ["CoraFull is not on this machine; 'fedepd data fetch corafull' gets it"]
    with pytest.raises(UnknownName, match="'nowhere'"):
        plan([mine], {mine.name: datasets}, tmp_path, QUICK)


def test_targets_share_cells_that_compute_the_same(data: str, tmp_path: Path) -> None:
    """``without_purification`` and ``purify = false`` are one computation; another setting is another."""
    rows = (
        Row("fedepd", "without_purification"),
        Row("fedepd", "default", "x", {"purify": False}),
        Row("fedepd", "default", "y"),
    )
    other = replace(TARGET, name="other", rows=rows)
    cells = planned(data, tmp_path, TARGET, other)
    names = {(each.target, each.row.key, each.seed): each.job.out.name for each in cells}
    assert names["other", "fedepd:without_purification", 0] == names["other", "fedepd:purify=False", 0]
    assert names["mine", "fedepd", 0] == names["other", "fedepd", 0]
    assert (
        len(set(names.values())) == len(to_run(cells)) == 6
    )  # fedavg, fedepd, fedepd without purification; two seeds each


def test_what_moves_no_number_moves_no_hash_and_what_does_moves_it(data: str, tmp_path: Path) -> None:
    def hashes(**settings: Any) -> list[str]:
        return [each.job.out.name for each in planned(data, tmp_path, TARGET, **settings)]

    assert hashes() == hashes(partition="openfgl")  # what "auto" means here
    assert not set(hashes()) & set(hashes(lr=0.02))
    assert not set(hashes()) & set(hashes(features="row_normalised"))
    assert hashes(seed=1)[:2] == hashes()[2:]  # seeds from 1 on


def test_a_failed_cell_is_remembered_until_it_succeeds(data: str, tmp_path: Path) -> None:
    """A file where the run folder should be is a failure that a user can mend."""
    cells = planned(data, tmp_path, replace(TARGET, seeds=1))
    first = cells[0]
    assert first.failure == "not run yet"
    first.job.out.parent.mkdir()
    first.job.out.write_text("in the way")
    assert run_planned(to_run(cells), 1, lambda: None, lambda *_: None) == 1
    assert "is a file; give a folder" in first.failure
    assert cells[1].failure == ""
    results = read_results(TARGET, cells)
    assert [dict(entry.failures) for entry in results.entries] == [{0: first.failure}, {}]
    first.job.out.unlink()
    assert to_run(cells) == [first]
    assert run_planned(to_run(cells), 1, lambda: None, lambda *_: None) == 0
    assert first.failure == ""
    assert not first.note.exists()


def test_a_mistake_is_found_before_anything_runs(data: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="unknown setting 'round'; did you mean 'rounds'"):
        planned(data, tmp_path, TARGET, round=3)
    assert list(tmp_path.iterdir()) == []


def test_datasets_by_default(tmp_path: Path) -> None:
    target = read_target("table3")
    at_hand, missing = datasets_of(target, tmp_path)
    assert at_hand == ["synthetic"]
    assert missing[0] == "CoraFull is not on this machine; 'fedepd data fetch corafull' gets it"
    assert len(missing) == 3
    (tmp_path / "graphs").mkdir()
    (tmp_path / "graphs" / "corafull.npz").touch()
    at_hand, missing = datasets_of(target, tmp_path)
    assert at_hand == ["corafull"]
    assert len(missing) == 2
    for other in ("mine", "email"):  # email is the paper's, but not in its Table 3
        (tmp_path / "graphs" / f"{other}.npz").touch()
    assert datasets_of(target, tmp_path)[0] == ["corafull", "mine"]
    assert datasets_of(replace(target, name="of my own"), tmp_path)[0] == ["corafull"]


def test_a_study_that_names_graph_files_gets_no_others(tmp_path: Path) -> None:
    for folder, name in (("graphs", "mine"), ("graphs", "cora"), ("longtail/graphs", "acm_lt")):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / f"{name}.npz").touch()
    at_hand, missing = datasets_of(read_target("equal"), tmp_path)
    assert at_hand == ["synthetic", "cora", "acm_lt"]
    assert len(missing) == 11
    assert missing[0] == "Email is not on this machine; 'fedepd data fetch email' gets it"
    assert "dblp_lt is not on this machine; put dblp_lt.npz into the folder graphs" in "\n".join(missing)
    assert datasets_of(read_target("table3"), tmp_path)[0] == ["cora", "mine"]  # none that is down-sampled


def test_small_graphs_have_more_seeds_unless_the_user_says_how_many(data: str, tmp_path: Path) -> None:
    """The graph has fewer than 10,000 nodes and more than one."""
    for nodes, count in ((10_000, 3), (1, 2)):
        target = replace(TARGET, seeds=2, small={"nodes": nodes, "seeds": 3})
        assert {each.seed for each in planned(data, tmp_path, target)} == set(range(count))
    found = plan([target], {target.name: [data]}, tmp_path, {"rounds": 1}, seeds=1)
    assert {each.seed for each in found} == {0}


def test_a_row_about_another_model_shares_its_cell(data: str, tmp_path: Path) -> None:
    rows = (Row("fedavg"), Row("fedavg", label="personal", model="personal", reference=True))
    found = planned(data, tmp_path, replace(TARGET, rows=rows, seeds=1))
    assert len({each.job.out for each in found}) == 1
    assert len({each.row.key for each in found}) == 2


def with_rows(*rows: Row, grid: dict[str, tuple[Any, ...]] | None = None, **settings: Any) -> Target:
    grid = grid or {}
    return Target("mine", "Mine", "ablation", over_grid(rows, grid), ("synthetic",), 2, settings, grid)


def test_a_setting_that_acts_in_no_cell_of_its_row_is_refused() -> None:
    """gamma belongs to the injection, which the printed method has and the default has not."""
    printed = Row("fedepd", "printed", "printed")
    sweep = {"gamma": (0.1, 0.9)}
    check_acting(with_rows(printed, grid=sweep), {})
    for target in (
        with_rows(Row("fedepd", label="ours"), grid=sweep),
        with_rows(printed, Row("fedepd", label="ours"), grid=sweep),
        with_rows(printed, Row("fedepd", label="ours", settings={"gamma": 0.1})),
    ):
        with pytest.raises(
            BadConfig, match=r"gamma is 0\.1, but with consensus_by = rehearsal.*target 'mine'"
        ):
            check_acting(target, {})


def test_a_setting_needs_to_act_in_one_point_of_a_sweep_only() -> None:
    """With mu = 0 there is no margin, so its gate does nothing there."""
    row = Row("fedepd", label="gated", settings={"gate": "labelled"})
    check_acting(with_rows(row, grid={"mu": (0.0, 1.0)}), {})
    with pytest.raises(BadConfig, match=r"gate is labelled, but with mu = 0\.0"):
        check_acting(with_rows(row, grid={"mu": (0.0,)}), {})


def test_a_setting_for_all_rows_needs_to_act_in_one_of_them_only() -> None:
    """``tolerate`` means something to the trimmed mean alone.

    A target's common settings are not asked at all.
    """
    off, trimmed = Row("fedavg", label="off"), Row("fedavg", label="trimmed", settings={"robust": "trimmed"})
    check_acting(with_rows(off, trimmed), {"tolerate": 2})
    check_acting(with_rows(off, tolerate=2), {})
    with pytest.raises(BadConfig, match="tolerate is 2, but with robust = off"):
        check_acting(with_rows(off), {"tolerate": 2})


def test_a_cell_with_a_common_setting_that_is_idle_there_is_run(data: str, tmp_path: Path) -> None:
    target = with_rows(Row("fedavg", label="off"), tolerate=2)
    cells = planned(data, tmp_path, replace(target, seeds=1), rounds=1)
    assert run_planned(to_run(cells), 1, lambda: None, lambda each, failure: None) == 0
    config = json.loads((cells[0].job.out / "config.json").read_text())
    assert (config["config_hash"], config["experiment"]["defence"]["tolerate"]) == (cells[0].job.out.name, 2)


def test_shards_have_every_cell_once(data: str, tmp_path: Path) -> None:
    planned = plan([TARGET], {TARGET.name: [data]}, tmp_path, {}, seeds=5)
    parts = [of_shard(planned, (number, 3)) for number in (1, 2, 3)]
    assert sorted(each.job.out for part in parts for each in part) == sorted(each.job.out for each in planned)
    assert of_shard(planned, (1, 1)) == planned
    assert max(map(len, parts)) < len(planned)


@pytest.mark.parametrize(
    "text", ["0/3", "4/3", "1", "1/0", "-1/2", "1/2/3", "", "1/999999", "a/b", "1/\u0663"]
)
def test_a_shard_that_is_none(text: str) -> None:
    with pytest.raises(BadConfig, match="such as 1/3"):
        parse_shard(text)
