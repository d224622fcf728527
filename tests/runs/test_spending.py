"""A noisy run counts its sums, also those of rounds that a crash took away, and stops when none is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import fedepd
from fedepd.errors import BadConfig, BadData
from fedepd.report.runs import read_run
from fedepd.rounds.budget import Budget
from fedepd.rounds.loop import Round
from fedepd.runs.folder import RELEASES, releases_made
from fedepd.runs.spending import Spending

BUDGET = Budget(8.0, 1e-5, 1.0, releases=6)
SETTINGS: dict[str, Any] = {
    "clients": 3,
    "rounds": 6,
    "epochs": 1,
    "secure": True,
    "dp_epsilon": 8.0,
    "select": "last",
    "evaluate_every": 2,
}


def interrupted(folder: Path, after: int, every: int = 1) -> None:
    """A run that dies once round ``after`` is finished."""

    def die(each: Round) -> None:
        if each.number == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fedepd.run("synthetic", "fedavg", out=folder, on_round=die, checkpoint_every=every, **SETTINGS)


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def test_a_sum_is_counted_before_it_is_made(tmp_path: Path) -> None:
    spending = Spending(BUDGET, tmp_path)
    spending.count()
    assert releases_made(tmp_path) == Spending(BUDGET, tmp_path).made == 1


def test_the_last_round_is_the_one_that_the_budget_allows() -> None:
    """4 of 6 sums are made, and round 3 is next: rounds 3 and 4 are left."""
    spending = Spending(BUDGET)
    assert spending.last_round(1, 6) == 6
    for _ in range(4):
        spending.count()
    assert spending.last_round(5, 6) == 6
    assert spending.last_round(3, 6) == 4
    assert spending.so_far(4, 6)["stopped_after"] == 4
    assert "stopped_after" not in spending.so_far(6, 6)


def test_every_line_and_the_summary_say_what_was_spent(tmp_path: Path) -> None:
    made = fedepd.run("synthetic", "fedepd", out=tmp_path / "run", **SETTINGS)
    spent = [line["privacy"] for line in lines(tmp_path / "run")]
    assert [each["releases"] for each in spent] == [1, 2, 3, 4, 5, 6]
    assert spent[0]["epsilon_spent"] < spent[-1]["epsilon_spent"] == pytest.approx(8.0)
    assert made.summary["privacy"] == spent[-1]
    assert made.summary["best_round"] == 6
    assert "epsilon 8 at delta 1e-05" in made.summary["protocol"]
    assert "all clients count alike" in made.summary["protocol"]
    assert all(line["loss"] is None for line in lines(tmp_path / "run"))


def test_a_run_without_noise_says_nothing_of_it(tmp_path: Path) -> None:
    made = fedepd.run("synthetic", "fedavg", rounds=1, clients=3, secure=True, out=tmp_path / "run")
    assert "privacy" not in made.summary
    assert not (tmp_path / "run" / RELEASES).exists()
    assert "privacy" not in lines(tmp_path / "run")[0]


def test_a_resumed_run_spends_what_is_left(tmp_path: Path) -> None:
    """Round 4 was finished and saved, so 2 of 6 sums are left for rounds 5 and 6."""
    interrupted(tmp_path / "run", 4)
    summary = fedepd.resume(tmp_path / "run").summary
    assert summary["privacy"]["releases"] == 6
    assert "stopped_after" not in summary["privacy"]


def test_a_repeated_round_is_one_more_sum_and_the_run_stops_early(tmp_path: Path) -> None:
    """Nothing was saved, so rounds 1 to 3 are made again. They cost 3 sums; 3 of 6 are left for them."""
    interrupted(tmp_path / "run", 3, every=0)
    resumed = fedepd.resume(tmp_path / "run")
    spent = resumed.summary["privacy"]
    assert spent["releases"] == 6
    assert spent["stopped_after"] == resumed.summary["best_round"] == 3
    assert spent["epsilon_spent"] == pytest.approx(8.0)
    assert [line["privacy"]["releases"] for line in resumed.rounds] == [4, 5, 6]
    assert "the privacy budget was spent after round 3 of 6" in resumed.summary["warnings"][-1]
    assert len(read_run(tmp_path / "run").rounds) == 3  # the report takes it


def test_a_budget_that_is_spent_before_anything_was_reached_ends_the_run(tmp_path: Path) -> None:
    interrupted(tmp_path / "run", 6, every=0)
    with pytest.raises(BadConfig, match="the privacy budget is spent: 6 of 6 sums were made"):
        fedepd.resume(tmp_path / "run")


def test_a_spent_budget_ends_with_the_last_round_that_was_scored(tmp_path: Path) -> None:
    """Round 2 was scored and saved, and all else of the budget went to rounds that were lost."""
    interrupted(tmp_path / "run", 3)
    (tmp_path / "run" / RELEASES).write_text('{"releases": 6}')
    summary = fedepd.resume(tmp_path / "run").summary
    assert summary["best_round"] == 2
    assert summary["privacy"]["releases"] == 6
    assert summary["privacy"]["stopped_after"] == 3


@pytest.mark.parametrize("text", ["", "{}", '{"releases": -1}', '{"releases": "many"}', "[1]"])
def test_a_count_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    interrupted(tmp_path / "run", 1)
    (tmp_path / "run" / RELEASES).write_text(text)
    with pytest.raises(BadData, match=RELEASES):
        fedepd.resume(tmp_path / "run")
