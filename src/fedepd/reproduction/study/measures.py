"""What the claims and figures need from a run: its test scores, its costs, and the shape of its curve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from fedepd.metrics import METRICS
from fedepd.report.runs import Run
from fedepd.reproduction.study.results import HEADLINE, Scoring
from fedepd.runs.folder import Json

MEASURES = (*METRICS, "cpu_seconds", "megabytes", "plateau", "fluctuation")


def measure(run: Run, name: str, scoring: Scoring = HEADLINE) -> float:
    """One of ``MEASURES`` of a run.

    - Test scores in percent, as ``scoring`` says.
    - ``cpu_seconds``, and ``megabytes`` sent in both directions.
    - ``plateau``: mean validation accuracy over the last quarter of the rounds, in percent.
    - ``fluctuation``: mean absolute step of the validation accuracy between evaluations in the last half of
      the rounds, in points.

    The last two are NaN where a run was not evaluated often enough. Costs and curves are measured with
    HEADLINE only; they are NaN with any other scoring.
    """
    if name in METRICS:
        return 100 * run.metric(name, scoring.model, scoring.average, scoring.select)
    if scoring is not HEADLINE:
        return float("nan")
    if name == "cpu_seconds":
        return float(run.summary.get("cpu_seconds", float("nan")))
    return _sent(run) if name == "megabytes" else _of_curve(run, name)


def _of_curve(run: Run, name: str) -> float:
    curve, rounds = trajectory(run, "acc"), int(run.summary["rounds"])
    last = 100 * curve[curve[:, 0] > (0.75 if name == "plateau" else 0.5) * rounds, 3]
    if name == "plateau":
        return float(last.mean()) if len(last) else float("nan")
    return float(np.abs(np.diff(last)).mean()) if len(last) > 1 else float("nan")


def measure_run(run: Run) -> dict[str, float]:
    """All ``MEASURES`` of a run."""
    return {name: measure(run, name) for name in MEASURES}


@dataclass(frozen=True)
class Aligned(Mapping[str, Sequence[float]]):
    """Each of ``MEASURES`` with one value per seed, in the order of ``seeds``. NaN where a seed has no run.

    A measure is taken when it is first asked for. Most claims are about scores alone, and the rounds of a run
    take longer to read than the rest of it.
    """

    runs: Mapping[int, Run]
    seeds: Sequence[int]
    scoring: Scoring
    _taken: dict[str, list[float]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> list[float]:
        if name not in MEASURES:
            raise KeyError(name)
        if name not in self._taken:
            self._taken[name] = [
                measure(self.runs[seed], name, self.scoring) if seed in self.runs else float("nan")
                for seed in self.seeds
            ]
        return self._taken[name]

    def __iter__(self) -> Iterator[str]:
        return iter(MEASURES)

    def __len__(self) -> int:
        return len(MEASURES)


def align_seeds(runs: Mapping[int, Run], seeds: Iterable[int], scoring: Scoring = HEADLINE) -> Aligned:
    """The measures of a row on a dataset."""
    return Aligned(runs, tuple(seeds), scoring)


def trajectory(run: Run, metric: str) -> npt.NDArray[np.float64]:
    """The evaluated rounds: [T, 4].

    Columns: round, CPU seconds so far, megabytes in both directions so far, validation score as a fraction.

    Choice: the paper draws test accuracy over rounds. We draw validation accuracy, because a run reads its
    test nodes only once.
    Choice: CPU seconds, not wall time, because the cells of a study share a machine.
    """
    seconds = accumulate(float(line["cpu_seconds"]) for line in run.rounds)
    megabytes = accumulate(_megabytes(line) for line in run.rounds)
    lines = [
        (float(line["round"]), cpu, sent, float(line["val"][run.headline][metric]))
        for line, cpu, sent in zip(run.rounds, seconds, megabytes, strict=True)
        if line.get("val", {}).get(run.headline, {}).get(metric) is not None
    ]
    return np.array(lines, dtype=np.float64).reshape(-1, 4)


def _sent(run: Run) -> float:
    """Megabytes in both directions. Where only scores are kept, there is only the sum over the rounds."""
    if run.kept_in:
        return float(sum(run.summary.get(way, 0) for way in ("bytes_up", "bytes_down"))) / 1e6
    return sum(_megabytes(line) for line in run.rounds)


def _megabytes(line: Json) -> float:
    return float(sum(size for way in ("bytes_up", "bytes_down") for size in line.get(way, {}).values())) / 1e6
