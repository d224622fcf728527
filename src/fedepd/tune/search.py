"""The search for one method's settings: Optuna proposes, cells score, the best is kept.

A search is replayed from its first trial every time. Finished cells cost nothing, and the sampler draws the
same numbers. So a search that was killed goes on where it was, and no state is kept beside the cells.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from fedepd.errors import BadConfig
from fedepd.methods import make_method, method_class
from fedepd.options import Ladder, idle_settings
from fedepd.rng import key, seeded_numpy
from fedepd.runs.experiment import GROUPS
from fedepd.shown import shown

BATCH = 4
"""Trials that are proposed before any of them is scored. It does not depend on the number of workers."""
State = Literal["open", "complete", "pruned", "failed"]


@dataclass(frozen=True)
class Knob:
    """A setting that is searched: the rungs of its ladder from ``low`` to ``high``."""

    name: str
    ladder: Ladder
    default: int
    """The rung of the default. It may be outside of what is searched."""
    low: int
    high: int

    def edge(self, rung: int) -> int | None:
        """The rung one step beyond the searched ones, if ``rung`` is at an end and there is such a step."""
        if rung == self.low and rung == 0 and self.ladder.below is not None:
            return -1
        last = len(self.ladder.values) - 1
        return last + 1 if rung == self.high == last and self.ladder.above is not None else None

    def rung_of(self, settings: Mapping[str, Any]) -> int:
        """Where the value of ``settings`` stands on the ladder. Without one, where the default stands."""
        if self.name not in settings:
            return self.default
        ladder, value = self.ladder, settings[self.name]
        for rung in range(-1, len(ladder.values) + 1):
            if ladder.at(rung) == value:
                return rung
        raise BadConfig(f"{self.name} is {shown(value)}, which no search tries; give another --earlier")

    def with_rung(self, rung: int) -> Knob:
        return replace(self, low=min(self.low, rung), high=max(self.high, rung))


def knobs_of(method: str, preset: str, fixed: Sequence[str] = ()) -> list[Knob]:
    """What is searched for a method: the shared settings, then its own.

    Left out are the ``fixed`` ones, and those that change nothing under the preset.
    """
    made = make_method(method, preset)
    parts = [*((cls, cls()) for cls in GROUPS.values()), (method_class(method), made)]
    out = []
    for cls, usual in parts:
        for f in fields(cls):
            ladder = f.metadata.get("search")
            if ladder is not None and f.name not in fixed and f.name not in idle_settings(usual):
                values, value = ladder.values, getattr(usual, f.name)
                # A preset may lie between two values. The search then begins at the nearest.
                nearest = min(range(len(values)), key=lambda rung: abs(values[rung] - value))
                out.append(Knob(f.name, ladder, nearest, 0, len(values) - 1))
    return out


@dataclass
class Trial:
    """One setting, and what its cells have scored so far."""

    number: int
    rungs: dict[str, int]
    settings: dict[str, Any]
    extra: bool = False
    """Whether it was added because a best value was at an end of its ladder."""
    scores: list[float] = field(default_factory=list)
    """One per graph, in order."""
    state: State = "open"
    failure: str = ""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.scores) if self.scores else float("nan")


@dataclass
class Search:
    """The trials of one method on some graphs."""

    method: str
    preset: str
    graphs: tuple[str, ...]
    knobs: list[Knob]
    seed: int = 0
    earlier: Mapping[str, Any] = field(default_factory=dict)
    """A setting that is tried right after the default. A knob that it does not name has its default."""
    trials: list[Trial] = field(default_factory=list)
    extended: list[str] = field(default_factory=list)
    """Settings whose ladder was left."""

    def __post_init__(self) -> None:
        optuna = imported()
        if not self.knobs:
            raise BadConfig(f"nothing is left to search for {self.method}; fix fewer settings")
        number = key("tune", self.seed, self.method, self.preset, *self.graphs) % 2**32
        sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=2 * BATCH)
        self._study = optuna.create_study(direction="maximize", sampler=sampler)
        self._asked: dict[int, Any] = {}
        default = {knob.name: knob.default for knob in self.knobs}
        self._queue = [default]  # the default is the first trial
        if self.earlier:
            first = {knob.name: knob.rung_of(self.earlier) for knob in self.knobs}
            self.knobs = [knob.with_rung(first[knob.name]) for knob in self.knobs]
            self._queue += [first] if first != default else []

    @property
    def name(self) -> str:
        return self.method if self.preset == "default" else f"{self.method}:{self.preset}"

    @property
    def size(self) -> int:
        """How many settings there are to try."""
        out = 1
        for knob in self.knobs:
            out *= knob.high - knob.low + 1
        return out

    def ask(self, extra: bool = False) -> Trial:
        """A setting that was not tried yet, where there is one."""
        if self._queue:
            self._study.enqueue_trial(self._queue.pop(0))
        asked = self._study.ask(self._distributions())
        if asked.params in [trial.rungs for trial in self.trials] and len(self.trials) < self.size:
            # Ladders are short, so a proposal can come twice. It would cost nothing and tell nothing.
            self._study.tell(asked, state=imported().trial.TrialState.FAIL)
            self._study.enqueue_trial(self._untried())
            asked = self._study.ask(self._distributions())
        settings = {knob.name: knob.ladder.at(asked.params[knob.name]) for knob in self.knobs}
        trial = Trial(len(self.trials), dict(asked.params), settings, extra)
        self.trials.append(trial)
        self._asked[trial.number] = asked
        return trial

    def _distributions(self) -> dict[str, Any]:
        kind = imported().distributions.IntDistribution
        return {knob.name: kind(knob.low, knob.high) for knob in self.knobs}

    def _untried(self) -> dict[str, int]:
        draws = seeded_numpy("tune", self.seed, self.method, self.preset, len(self.trials))
        tried = [trial.rungs for trial in self.trials]
        while True:
            drawn = {knob.name: int(draws.integers(knob.low, knob.high + 1)) for knob in self.knobs}
            if drawn not in tried:
                return drawn

    def add_score(self, trial: Trial, score: float) -> None:
        """The score on the trial's next graph."""
        trial.scores.append(score)
        self._asked[trial.number].report(trial.mean, len(trial.scores))

    def is_hopeless(self, trial: Trial) -> bool:
        """Whether the trial's mean so far is below the median of the finished trials on the same graphs.

        Choice: Optuna's own rule takes a trial's best value so far. The means of the first graphs are then
        compared with those of all graphs, and an easy first graph would save every trial.
        """
        done = len(trial.scores)
        others = [statistics.fmean(t.scores[:done]) for t in self.trials if t.state == "complete"]
        return len(others) >= BATCH and done < len(self.graphs) and trial.mean < statistics.median(others)

    def tell(self, trial: Trial, state: State) -> None:
        """Close a trial. Optuna learns from it only then."""
        trial.state, states = state, imported().trial.TrialState
        asked = self._asked.pop(trial.number)
        if state == "complete":
            self._study.tell(asked, trial.mean)
        else:
            self._study.tell(asked, state=states.PRUNED if state == "pruned" else states.FAIL)

    @property
    def best(self) -> Trial:
        """The complete trial with the highest score; the earliest wins a tie."""
        complete = [trial for trial in self.trials if trial.state == "complete"]
        if not complete:
            why = next((trial.failure for trial in self.trials if trial.failure), "no trial is complete")
            raise BadConfig(f"no setting of {self.name} could be scored: {why}")
        return max(complete, key=lambda trial: trial.mean)

    def at_edge(self) -> dict[str, int]:
        """The settings whose best value is at an end of its ladder, with the rung one step beyond."""
        best = self.best
        found = {knob.name: knob.edge(best.rungs[knob.name]) for knob in self.knobs}
        return {name: rung for name, rung in found.items() if rung is not None}

    def extend(self) -> None:
        """Let the search go one step beyond. Each such step from the best setting is tried first."""
        beyond, best = self.at_edge(), self.best
        self.extended = list(beyond)
        self.knobs = [k.with_rung(beyond[k.name]) if k.name in beyond else k for k in self.knobs]
        self._queue += [{**best.rungs, name: rung} for name, rung in beyond.items()]

    def importance(self) -> dict[str, float]:
        """The share of the scores' variance that goes with each setting, the largest first.

        Choice: epsilon squared of a one-way analysis of variance over complete trials, 0 where it is
        negative. Without the correction, a setting with many values would look important after few trials.
        """
        complete = [trial for trial in self.trials if trial.state == "complete"]
        found = {k.name: _explained([(t.rungs[k.name], t.mean) for t in complete]) for k in self.knobs}
        return dict(sorted(found.items(), key=lambda item: -item[1]))


def _explained(pairs: Sequence[tuple[int, float]]) -> float:
    """Epsilon squared of groups (number, value)."""
    values = [value for _, value in pairs]
    groups = [
        [value for _, value in group]
        for _, group in itertools.groupby(sorted(pairs), key=lambda pair: pair[0])
    ]
    total = statistics.pvariance(values) * len(values) if values else 0.0
    free = len(values) - len(groups)
    if total <= 0 or free < 1 or len(groups) < 2:
        return 0.0
    within = sum(statistics.pvariance(group) * len(group) for group in groups)
    return max(0.0, (total - within - (len(groups) - 1) * within / free) / total)


def imported() -> Any:
    """Optuna, without its messages."""
    try:
        import optuna
    except ImportError as cause:
        raise BadConfig(
            "'fedepd tune' needs the package optuna; install it with: pip install 'fedepd[tune]'"
        ) from cause
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
