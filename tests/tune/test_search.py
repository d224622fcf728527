"""The search without runs: a score that is a known function of the settings."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import pytest

from fedepd.errors import BadConfig
from fedepd.options import ladder
from fedepd.tune.search import BATCH, Knob, Search, Trial, _explained, knobs_of

pytest.importorskip("optuna", reason="needs the extra 'tune'")

Score = Callable[[dict[str, Any]], float]


def toy(graphs: int = 1, seed: int = 0) -> Search:
    knobs = [
        Knob("lr", ladder(0.01, 0.1, 1.0, below=0.001, above=10.0), 1, 0, 2),
        Knob("depth", ladder(1, 2, 3, 4), 0, 0, 3),
    ]
    return Search("fedavg", "default", tuple(f"g{n}" for n in range(graphs)), knobs, seed)


def searched(search: Search, score: Score, trials: int) -> Search:
    for start in range(0, trials, BATCH):
        for trial in [search.ask() for _ in range(min(BATCH, trials - start))]:
            for _ in search.graphs:
                search.add_score(trial, score(trial.settings))
            search.tell(trial, "complete")
    return search


def bowl(settings: dict[str, Any]) -> float:
    """Highest at lr = 1 and depth 3."""
    return float(1 - 0.1 * abs(math.log10(settings["lr"])) - 0.05 * abs(settings["depth"] - 3))


def test_the_first_trial_is_the_default() -> None:
    first = toy().ask()
    assert first.rungs == {"lr": 1, "depth": 0}
    assert first.settings == {"lr": 0.1, "depth": 1}


def test_all_settings_are_tried_before_one_comes_twice() -> None:
    """3 x 4 = 12 settings: twelve trials find the best, whatever the sampler does."""
    search = searched(toy(), bowl, 12)
    assert len({tuple(sorted(t.rungs.items())) for t in search.trials}) == search.size == 12
    assert search.best.settings == {"lr": 1.0, "depth": 3}
    searched(search, bowl, 2)  # then there is nothing new, and it goes on all the same
    assert len(search.trials) == 14


def started(**start: float) -> Search:
    plain = toy()
    return Search(plain.method, plain.preset, plain.graphs, plain.knobs, earlier=start)


def test_what_was_found_before_is_tried_right_after_the_default() -> None:
    """The value beyond the ladder can be tried from then on. A knob that is not named has its default."""
    search = started(lr=10.0)
    assert [search.ask().settings for _ in range(2)] == [{"lr": 0.1, "depth": 1}, {"lr": 10.0, "depth": 1}]
    assert {knob.name: (knob.low, knob.high) for knob in search.knobs} == {"lr": (0, 3), "depth": (0, 3)}
    assert search.size == 16


def test_a_default_that_was_found_before_is_tried_once() -> None:
    search = started(lr=0.1)
    assert search.ask().settings == {"lr": 0.1, "depth": 1}
    assert search.ask().settings != {"lr": 0.1, "depth": 1}


def test_a_start_that_is_on_no_ladder_is_refused() -> None:
    with pytest.raises(BadConfig, match=r"lr is 0\.2, which no search tries; give another --earlier"):
        started(lr=0.2)


def test_the_same_search_draws_the_same_trials() -> None:
    """And another seed draws others. So a search can be replayed."""
    one, again, other = (searched(toy(seed=s), bowl, 9) for s in (0, 0, 1))
    assert [t.rungs for t in one.trials] == [t.rungs for t in again.trials]
    assert [t.rungs for t in one.trials] != [t.rungs for t in other.trials]


def test_a_best_value_at_an_end_is_tried_one_step_further_once() -> None:
    """lr = 1 is at the upper end, and 10 is the step beyond. depth 3 is in the middle."""
    search = searched(toy(), bowl, 12)
    assert search.at_edge() == {"lr": 3}
    search.extend()
    trial = search.ask(extra=True)
    assert trial.settings == {"lr": 10.0, "depth": 3}
    assert trial.extra
    search.add_score(trial, 2.0)
    search.tell(trial, "complete")
    assert search.best is trial
    assert search.at_edge() == {}, "there is no second step"
    assert search.extended == ["lr"]


def test_the_end_without_a_step_beyond_is_no_edge() -> None:
    search = searched(toy(), lambda s: s["depth"] - abs(math.log10(10 * s["lr"])), 12)
    assert search.best.settings == {"lr": 0.1, "depth": 4}
    assert search.at_edge() == {}


def test_a_trial_below_the_median_on_the_first_graphs_is_hopeless() -> None:
    """Four finished trials with 1, 2, 3 and 4 on the first graph: the median is 2.5.

    Their second graph does not count, because the new trial has not seen it.
    """
    search = toy(graphs=2)
    for value in (1.0, 2.0, 3.0, 4.0):
        trial = search.ask()
        for score in (value, 100.0):
            search.add_score(trial, score)
        assert not search.is_hopeless(trial), "it has seen all graphs"
        search.tell(trial, "complete")
    worse, better = search.ask(), search.ask()
    search.add_score(worse, 2.4)
    search.add_score(better, 2.6)
    assert search.is_hopeless(worse)
    assert not search.is_hopeless(better)
    search.tell(worse, "pruned")
    assert search.best.mean == 52.0


def test_before_there_are_finished_trials_none_is_hopeless() -> None:
    search = toy(graphs=2)
    trial = search.ask()
    search.add_score(trial, 0.0)
    assert not search.is_hopeless(trial)


def test_without_a_complete_trial_there_is_no_best() -> None:
    search = toy()
    trial = search.ask()
    trial.failure = "the loss is NaN"
    search.tell(trial, "failed")
    with pytest.raises(BadConfig, match="no setting of fedavg could be scored: the loss is NaN"):
        _ = search.best


def test_importance_is_epsilon_squared() -> None:
    """Groups (1, 3) and (5, 7): mean 4, total 9 + 1 + 1 + 9 = 20, within 2 + 2 = 4.

    (20 - 4 - 1 * 4 / 2) / 20 = 0.7. One group, or equal values, explain nothing.
    """
    assert _explained([(0, 1.0), (0, 3.0), (1, 5.0), (1, 7.0)]) == pytest.approx(0.7)
    assert _explained([(0, 1.0), (0, 3.0)]) == _explained([(0, 1.0), (1, 1.0), (1, 1.0)]) == 0
    assert _explained([]) == 0


def test_the_setting_that_moves_the_score_is_the_important_one() -> None:
    search = searched(toy(), lambda s: s["depth"], 12)
    assert list(search.importance()) == ["depth", "lr"]
    assert search.importance() == pytest.approx({"depth": 1.0, "lr": 0.0})


def test_shared_settings_come_with_the_methods_own() -> None:
    shared = ["dropout", "epochs", "lr", "weight_decay"]
    assert [knob.name for knob in knobs_of("fedavg", "default")] == shared
    assert [knob.name for knob in knobs_of("fedlc", "default", ["lr"])] == [
        name for name in [*shared, "tau"] if name != "lr"
    ]
    nearest = {knob.name: knob.default for knob in knobs_of("fedepd", "printed")}
    assert nearest["mu"] == 1


def test_what_changes_nothing_under_a_preset_is_not_searched() -> None:
    """Without recalibration FedEPD has no margins and no prototypes; without a margin no counts shape it."""
    own = {"mu", "holders", "common_counts"}
    found = {
        preset: own & {knob.name for knob in knobs_of("fedepd", preset)}
        for preset in ("default", "without_consensus", "without_recalibration")
    }
    assert found == {"default": own, "without_consensus": {"mu"}, "without_recalibration": set()}


def test_all_fixed_is_refused() -> None:
    with pytest.raises(BadConfig, match="nothing is left to search for fedavg"):
        Search("fedavg", "default", ("g",), [])


def test_without_optuna_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *more: Any, **named: Any) -> Any:
        if name == "optuna":
            raise ImportError(name)
        return real(name, *more, **named)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(
        BadConfig, match=r"needs the package optuna; install it with: pip install 'fedepd\[tune\]'"
    ):
        toy()


def test_a_trial_without_scores_has_no_mean() -> None:
    assert math.isnan(Trial(0, {}, {}).mean)
