"""What a comparison is about to run, before anything runs, and a small one in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedepd
from fedepd.errors import BadConfig, UnknownName
from fedepd.sweeps.comparison import Comparison


def test_a_run_for_every_method_and_seed(tmp_path: Path) -> None:
    made = Comparison(
        ["fedavg", "fedepd:printed"], "synthetic", tmp_path / "o", 2, {"rounds": "7", "seed": "3"}
    )
    jobs = made.jobs()
    assert [job.rounds for job in jobs] == [7] * 4
    assert [job.out.name for job in jobs] == [
        "fedavg-seed3",
        "fedavg-seed4",
        "fedepd-printed-seed3",
        "fedepd-printed-seed4",
    ]
    assert not (tmp_path / "o").exists()


def test_mistakes_are_found_before_anything_runs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(BadConfig, match="'fedavg:default' is named twice"):
        Comparison(["fedavg", "fedavg"], "synthetic", out).jobs()
    with pytest.raises(BadConfig, match="seeds is 0"):
        Comparison(["fedavg"], "synthetic", out, 0).jobs()
    with pytest.raises(UnknownName, match="did you mean 'printed'"):
        Comparison(["fedepd:printd"], "synthetic", out).jobs()
    with pytest.raises(BadConfig, match="no method is named"):
        Comparison([], "synthetic", out).jobs()
    with pytest.raises(BadConfig, match=r"give a list, such as \['fedepd', 'fedavg'\]"):
        fedepd.compare("fedepd")
    assert not out.exists()


@pytest.mark.slow
def test_in_python_without_a_folder_of_ones_own() -> None:
    """The frames outlive the folder that the runs were in."""
    pytest.importorskip("pandas", reason="needs the extra 'data'")
    found = fedepd.compare(["fedavg"], seeds=2, rounds=1, clients=3, hidden=4, workers=2)
    assert found.scores.seed.unique().tolist() == [0, 1]
    assert found.rounds["round"].tolist() == [1, 1]
    assert len(found.clients) == 6
    assert found.confusions.nodes.sum() > 0
