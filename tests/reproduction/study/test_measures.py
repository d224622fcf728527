from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from fedepd.report.runs import Run
from fedepd.reproduction.study import measures
from fedepd.reproduction.study.measures import MEASURES, align_seeds, measure_run, trajectory
from fedepd.reproduction.study.results import OPENFGL


def made_up(accuracies: dict[int, float], rounds: int = 8) -> Run:
    """Every round costs 2 processor seconds and 0.5 + 1 megabytes; accuracies by evaluated round."""
    found = Run(
        Path(),
        {
            "headline": "global",
            "rounds": rounds,
            "cpu_seconds": 20.0,
            "metrics": {"global": {"pooled": {"acc": 0.5}}},
        },
        {},
    )
    found.__dict__["rounds"] = [line(r, accuracies.get(r)) for r in range(1, rounds + 1)]
    return found


def line(r: int, accuracy: float | None) -> dict[str, Any]:
    result: dict[str, Any] = {
        "round": r,
        "cpu_seconds": 2.0,
        "bytes_up": {"a": 400_000, "b": 100_000},
        "bytes_down": {"a": 1_000_000},
    }
    return (
        result
        if accuracy is None
        else result | {"val": {"global": {"acc": accuracy}, "personal": {"acc": 0.9}}}
    )


def test_a_trajectory_by_hand() -> None:
    assert trajectory(made_up({2: 0.25, 8: 0.5}), "acc").tolist() == [[2, 4, 3, 0.25], [8, 16, 12, 0.5]]
    assert trajectory(made_up({2: 0.25}), "bacc").shape == (0, 4)


def test_measures_by_hand() -> None:
    """Of 8 rounds the last quarter is 7 and 8: plateau (60 + 64) / 2; the last half 5 to 8: steps of 4, 2
    and 4 points."""
    found = measure_run(made_up({4: 0.1, 5: 0.58, 6: 0.62, 7: 0.6, 8: 0.64}))
    assert tuple(found) == MEASURES
    assert found["acc"] == 50
    assert found["cpu_seconds"] == 20
    assert found["megabytes"] == pytest.approx(12)
    assert found["plateau"] == pytest.approx(62)
    assert found["fluctuation"] == pytest.approx(10 / 3)
    assert isnan(found["tail_acc"])


def test_a_run_that_was_hardly_evaluated() -> None:
    found = measure_run(made_up({8: 0.5}))
    assert found["plateau"] == 50
    assert isnan(found["fluctuation"])
    assert isnan(measure_run(made_up({}))["plateau"])


def test_a_seed_without_a_run_is_missing_in_its_place() -> None:
    found = align_seeds({3: made_up({8: 0.5}), 1: made_up({8: 0.25})}, seeds=(1, 2, 3))
    assert tuple(found) == MEASURES
    assert found["plateau"] == pytest.approx([25, float("nan"), 50], nan_ok=True)


def test_another_scoring_has_scores_alone() -> None:
    run = made_up({8: 0.5})
    run.summary["metrics"]["personal"] = {"client_mean": {"acc": 0.25}}
    assert align_seeds({1: run}, [1])["acc"] == [50]
    found = align_seeds({1: run}, [1], OPENFGL)
    assert found["acc"] == [25]
    assert isnan(found["plateau"][0])


def test_rounds_are_read_for_measures_that_need_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    run = made_up({8: 0.5})
    taken: list[str] = []

    def unevaluated(_: Run, metric: str) -> npt.NDArray[np.float64]:
        taken.append(metric)
        return np.zeros((0, 4))

    monkeypatch.setattr(measures, "trajectory", unevaluated)
    found = align_seeds({1: run}, [1])
    assert (found["acc"], found["cpu_seconds"], taken) == ([50], [20], [])
    assert isnan(found["plateau"][0])
    assert isnan(found["plateau"][0])
    assert taken == ["acc"]
    with pytest.raises(KeyError):
        found["speed"]
