"""Real searches on a small graph: resumed, with any number of workers, with equal effort."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedepd.datasets import synthetic, write_npz
from fedepd.errors import BadConfig, UnknownName
from fedepd.runs.jobs import Outcome, outcomes
from fedepd.runs.tuned import Entry, TunedFile, as_toml
from fedepd.tune.output import write_found
from fedepd.tune.search import Search, Trial
from fedepd.tune.tuning import CELLS, Found, Tuning, extra_trials, tune

pytest.importorskip("optuna", reason="needs the extra 'tune'")

QUICK: dict[str, Any] = {"rounds": 2, "hidden": 4, "clients": 2, "evaluate_every": 1}


@pytest.fixture(scope="module")
def tuning(tmp_path_factory: pytest.TempPathFactory) -> Tuning:
    file = tmp_path_factory.mktemp("graphs") / "small.npz"
    write_npz(synthetic(nodes=120, edges=300, classes=3, imbalance=3, smallest=20, features=8), file)
    return Tuning((("fedavg", "default"), ("fedlc", "default")), (str(file),), 5, (100,), QUICK)


@pytest.fixture(scope="module")
def done(tuning: Tuning, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Found]:
    folder = tmp_path_factory.mktemp("tune")
    return folder, tune(tuning, folder)


def history(found: Found) -> list[list[tuple[dict[str, int], list[float], str, bool]]]:
    return [[(t.rungs, t.scores, t.state, t.extra) for t in s.trials] for s in found.searches]


def test_every_method_gets_the_same_number_of_trials(done: tuple[Path, Found], tuning: Tuning) -> None:
    """Five, and more for all if a best value of any was at an end: every step beyond is tried."""
    _, found = done
    assert {len(search.trials) for search in found.searches} == {5 + found.extra}
    steps = max(len(search.extended) for search in found.searches)
    assert found.extra == (max(steps, 5 // 4) if steps else 0)
    for search in found.searches:
        ladders = {knob.name: knob.ladder for knob in search.knobs}
        for name in search.extended:
            assert any(ladders[name].beyond(t.rungs[name]) for t in search.trials if t.extra)


def test_extra_trials_are_enough_for_the_search_with_most_edges(tuning: Tuning) -> None:
    """A quarter of 40 is ten. Three edges need three trials where a quarter of 4 is one. No edge: none."""

    def with_edges(count: int) -> Any:
        return SimpleNamespace(at_edge=lambda: dict.fromkeys(range(count), 0))

    searches = [with_edges(1), with_edges(3)]
    assert extra_trials(replace(tuning, trials=40), searches) == 10
    assert extra_trials(replace(tuning, trials=4), searches) == 3
    assert extra_trials(replace(tuning, trials=40), [with_edges(0)]) == 0


def found_before(folder: Path, vault: float = 0.2) -> TunedFile:
    """A file of an earlier search over all graphs. ``weight_decay`` is at an end of its ladder."""
    about = {
        "data": ["other"], "trials": 9, "extra": 0, "rounds": 2, "seeds": [100], "vault": vault,
        "per_graph": False, "objective": "any",
    }  # fmt: skip
    best = {"lr": 0.1, "weight_decay": 0.0}
    entries = [Entry(method, "default", 0.5, 3, best) for method in ("fedavg", "fedlc")]
    (folder / "before.toml").write_text(as_toml(entries, about))
    return TunedFile.read(folder / "before.toml")


def test_each_graph_may_choose_between_the_default_and_what_was_found_before(
    tuning: Tuning, tmp_path: Path
) -> None:
    """Two trials, and none beyond the ends: both are as good as they were in the search before."""
    both = replace(tuning, trials=2, per_graph=True, earlier=found_before(tmp_path))
    found = tune(both, tmp_path / "out")
    assert found.extra == 0
    for search in found.searches:
        first, second = (trial.settings for trial in search.trials)
        assert {**first, "lr": 0.1, "weight_decay": 0.0} == second != first
    written, _ = write_found(found, tmp_path / "out", "a command")
    assert "# Searches began at the default and at what 'before.toml' has." in written.read_text()
    assert TunedFile.read(written).settings_of("fedavg", "default", tuning.data[0]) is not None


def test_a_setting_that_is_given_is_not_taken_from_before(tuning: Tuning, tmp_path: Path) -> None:
    given = {**tuning.settings, "lr": 0.003}
    (search, _) = replace(tuning, settings=given, earlier=found_before(tmp_path)).searches()
    assert search.earlier == {"weight_decay": 0.0}


def test_a_search_that_saw_the_vault_is_no_start(tuning: Tuning, tmp_path: Path) -> None:
    both = replace(tuning, earlier=found_before(tmp_path, 0.0), settings={**tuning.settings, "vault": 0.2})
    with pytest.raises(BadConfig, match=r"vault is 0\.2, but the search of .* had 0, so it saw nodes"):
        tune(both, tmp_path / "out")


def test_a_start_has_every_method(tuning: Tuning, tmp_path: Path) -> None:
    both = replace(tuning, methods=(("lws", "default"),), earlier=found_before(tmp_path))
    with pytest.raises(BadConfig, match="has no settings for lws here; it has: fedavg, fedlc"):
        both.searches()


def test_a_killed_search_goes_on_and_ends_the_same(
    done: tuple[Path, Found], tuning: Tuning, tmp_path: Path
) -> None:
    """With three workers, killed after its third trial: the same trials, bit for bit, and no cell twice."""
    ended = 0

    def kill(*_: object) -> None:
        nonlocal ended
        ended += 1
        if ended == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(tuning, tmp_path, 3, None, kill)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / CELLS).glob("*.json")}
    assert before
    assert history(tune(tuning, tmp_path, 2)) == history(done[1])
    assert {file: file.stat().st_mtime_ns for file in before} == before
    names = [sorted(file.name for file in (folder / CELLS).glob("*.json")) for folder in (done[0], tmp_path)]
    assert names[0] == names[1]


def test_nothing_that_is_left_holds_a_test_score(done: tuple[Path, Found]) -> None:
    for file in (done[0] / CELLS).glob("*.json"):
        assert "test" not in file.read_text()


def test_a_search_per_graph_is_one_search_each(tuning: Tuning) -> None:
    two = replace(tuning, data=(*tuning.data, "synthetic"), per_graph=True)
    assert [s.graphs for s in two.searches()] == [(each,) for each in two.data for _ in two.methods]
    joint = replace(two, per_graph=False)
    assert [s.graphs for s in joint.searches()] == [joint.data] * 2


def test_a_failed_trial_is_no_end(tuning: Tuning, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells with a large learning rate fail here. The others are scored."""

    def failing(jobs: Any, *more: Any) -> Any:
        for job in jobs:
            if job.settings["lr"] > 0.02:
                yield Outcome(job, "too fast")
        yield from outcomes([job for job in jobs if job.settings["lr"] <= 0.02], *more)

    monkeypatch.setattr("fedepd.tune.tuning.outcomes", failing)
    found = tune(replace(tuning, methods=tuning.methods[:1], trials=4), tmp_path)
    states = {trial.state: trial for trial in found.searches[0].trials}
    assert all((t.settings["lr"] > 0.02) == (t.state == "failed") for t in found.searches[0].trials)
    assert "complete" in states


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"trials": 0}, "trials is 0; give at least 1"),
        ({"seeds": ()}, "seeds is 0; give at least 1"),
        ({"seeds": (99, 100)}, "seed is 99, but seeds below 100 are for tables; give 100 or more"),
        ({"data": ("email", "email")}, "the graph 'email' is named twice"),
        ({"methods": (("fedavg", "default"),) * 2}, "the method 'fedavg:default' is named twice"),
        ({"settings": {"vault": 0.2, "score_on": "vault"}}, "a search may not see the vault"),
        ({"settings": {"rounds": 0}}, "rounds is 0"),
    ],
)
def test_what_cannot_be_searched_is_refused(tuning: Tuning, change: dict[str, Any], says: str) -> None:
    with pytest.raises(BadConfig, match=re.escape(says)):
        replace(tuning, **change)


def test_unknown_names_are_refused_with_a_guess(tuning: Tuning) -> None:
    with pytest.raises(UnknownName, match="unknown method 'fedavgg'; did you mean 'fedavg'"):
        replace(tuning, methods=(("fedavgg", "default"),))
    with pytest.raises(UnknownName, match="unknown preset"):
        replace(tuning, methods=(("fedepd", "printedd"),))
    with pytest.raises(UnknownName, match="unknown setting 'lrr'"):
        replace(tuning, settings={"lrr": 1})


def test_hopeless_trials_stop_between_graphs(tuning: Tuning, tmp_path: Path) -> None:
    """Two graphs. After the first batch, a trial below the median of the first graph sees no second one."""
    other = tmp_path / "other.npz"
    write_npz(synthetic(nodes=100, edges=200, classes=3, imbalance=2, smallest=20, features=8, seed=1), other)
    one = replace(tuning, data=(*tuning.data, str(other)), methods=tuning.methods[:1], trials=8)
    trials: list[Trial] = []

    def ended(_: Search, trial: Trial) -> None:
        trials.append(trial)

    found = tune(one, tmp_path / "out", 2, None, ended)
    assert len(trials) == len(found.searches[0].trials)
    first = [t for t in found.searches[0].trials if t.number < 4]
    assert all(t.state == "complete" for t in first)
    median = float(np.median([t.scores[0] for t in first]))
    for trial in found.searches[0].trials[4:8]:
        assert (trial.state == "pruned") == (trial.scores[0] < median) == (len(trial.scores) == 1)
