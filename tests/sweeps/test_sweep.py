"""The runs of a sweep before anything runs, and what finished ones tell."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedepd.errors import BadConfig, UnknownName
from fedepd.sweeps.sweep import Sweep, folder_name, read_grid, swept, validation_score


def test_every_combination_has_its_seeds(tmp_path: Path) -> None:
    made = Sweep(
        "fedepd", {"mu": ["0.5", "1"], "rho": ["0.1", "1"]}, "synthetic", tmp_path / "o", 2, {"rounds": 5}
    )
    jobs = made.jobs()
    assert [job.out.name for job in jobs] == [
        f"mu-{mu}-rho-{rho}-seed{seed}" for mu in ("0.5", "1") for rho in ("0.1", "1") for seed in (0, 1)
    ]
    assert {job.settings["backbone"] for job in jobs} == {"gcn"}  # chosen once, for all of them
    assert jobs[0].settings["mu"] == "0.5"


def test_a_grid_is_read_as_it_is_typed() -> None:
    assert read_grid(["mu=0.5, 1,2", "max-norm=1,10"]) == {"mu": ["0.5", "1", "2"], "max_norm": ["1", "10"]}
    for typed, says in (("mu", "has no values"), ("=1", "has no values")):
        with pytest.raises(BadConfig, match=says):
            read_grid([typed])
    with pytest.raises(BadConfig, match="given twice"):
        read_grid(["mu=1,2", "mu=3,4"])


@pytest.mark.parametrize(
    ("grid", "says"),
    [
        ({}, "nothing to sweep"),
        ({"mu": ["1"]}, "mu has 1 value"),
        ({"mu": ["1", "1.0"]}, "the same as another"),
        ({"seed": ["1", "2"]}, "seed is not a setting to sweep"),
        ({"rounds": ["1", "2"]}, "rounds is fixed and swept"),
        ({"mu": [str(k) for k in range(1, 30)], "rho": [str(k) for k in range(1, 30)]}, "841 combinations"),
        ({"mu": ["1", "a lot"]}, "mu"),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    grid: dict[str, list[str]], says: str, tmp_path: Path
) -> None:
    with pytest.raises(BadConfig, match=says):
        Sweep("fedepd", grid, "synthetic", tmp_path / "o", 2, {"rounds": 5}).jobs()
    assert not (tmp_path / "o").exists()


def test_an_unknown_setting_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'mu'"):
        Sweep("fedepd", {"mux": ["1", "2"]}, "synthetic", tmp_path / "o").jobs()


def test_values_that_no_folder_may_be_called_by_give_way_to_a_number() -> None:
    assert folder_name(3, {"mu": "0.5"}) == "mu-0.5"
    for hostile in ("../../x", "a/b", "features=0.3", "", ".", "x" * 40):
        assert folder_name(3, {"corrupt": hostile}) == "combination-3"


def made_run(value: Any, seed: int, val: float, test: float) -> Any:
    """What a sweep reads of a run."""
    experiment = {"method": {"name": "m", "mu": value}, "protocol": {"seed": seed, "select": "val_macro_f1"}}
    return SimpleNamespace(
        config={"experiment": experiment},
        summary={"best_round": 5},
        headline="global",
        seed=seed,
        rounds=[
            {"round": 4, "val": {"global": {"macro_f1": 0.99, "acc": 0.99}}},
            {"round": 5, "val": {"global": {"macro_f1": val, "acc": 0.1}}},
        ],
        metric=lambda name: test,
    )


def test_validation_chooses_and_values_are_in_order() -> None:
    """By validation 2 is best (0.6 against 0.5), although 10 has the better test scores.

    Numbers are in the order of numbers, so 10 comes last. Differences over three seeds are all -10 points.
    """
    tests = {2: (0.30, 0.31, 0.32), 10: (0.40, 0.41, 0.42), 1: (0.30, 0.31, 0.32)}
    vals = {2: 0.6, 10: 0.5, 1: 0.4}
    runs = [made_run(mu, seed, vals[mu], tests[mu][seed]) for mu in (10, 2, 1) for seed in (2, 0, 1)]
    found = swept(runs, ["mu"])
    assert [each.values for each in found.combinations] == [(1,), (2,), (10,)]
    assert found.words(found.best) == "mu = 2"
    assert found.best.scores("macro_f1") == pytest.approx([30, 31, 32])
    assert found.best.validation == pytest.approx(60)
    pairs = {(a.values[0], b.values[0]): (outcome, p) for a, b, outcome, p in found.tests("macro_f1")}
    assert list(pairs) == [(1, 2), (1, 10), (2, 10)]
    assert pairs[2, 10][0].difference == pytest.approx(-10)
    assert pairs[2, 10][1] < 0.05 < pairs[1, 2][1]


def test_values_are_tested_seed_by_seed() -> None:
    """Seeds lie 20 points apart, and mu = 2 is 1, 1.1 and 0.9 points better at each of them.

    Paired: t = 1 / (0.1 / sqrt(3)) = 17.3 with 2 degrees of freedom, so p = 0.0033. Welch's standard error
    would be 20 sqrt(2 / 3) = 16.3 points. The fourth seed of one value has no partner.
    """
    worse, better = (0.30, 0.50, 0.70, 0.9), (0.310, 0.511, 0.709)
    runs = [made_run(1, seed, 0.5, each) for seed, each in enumerate(worse)]
    runs += [made_run(2, seed, 0.5, each) for seed, each in enumerate(better)]
    ((_, _, outcome, p),) = swept(runs, ["mu"]).tests("macro_f1")
    assert outcome.n == 3
    assert outcome.difference == pytest.approx(-1)
    assert p == pytest.approx(0.0033, abs=1e-4)


def test_the_last_round_is_judged_by_macro_f1() -> None:
    run = made_run(1, 0, 0.25, 0.3)
    run.config["experiment"]["protocol"]["select"] = "last"
    assert validation_score(run) == 0.25
    run.config["experiment"]["protocol"]["select"] = "val_acc"
    assert validation_score(run) == 0.1
