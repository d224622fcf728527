"""What the claims and figures need from a run: its test scores, its costs, and the shape of its curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from fedepd.metrics import METRICS
from fedepd.report.runs import Run
from fedepd.reproduction.study.results import HEADLINE, Scoring
from fedepd.runs.folder import Json

MEASURES = (*METRICS, "cpu_seconds", "megabytes", "plateau", "fluctuation")


def measure_run(run: Run) -> dict[str, float]:
    """All ``MEASURES`` of a run.

    - Test scores in percent, over the pooled test nodes, of the headline model.
    - ``cpu_seconds``, and ``megabytes`` sent in both directions.
    - ``plateau``: mean validation accuracy over the last quarter of the rounds, in percent.
    - ``fluctuation``: mean absolute step of the validation accuracy between evaluations in the last half of
      the rounds, in points.

    The last two are NaN where a run was not evaluated often enough.
    """
    curve, rounds = trajectory(run, "acc"), int(run.summary["rounds"])
    last_quarter, last_half = (100 * curve[curve[:, 0] > share * rounds, 3] for share in (0.75, 0.5))
    return score_run(run) | {
        "cpu_seconds": float(run.summary.get("cpu_seconds", float("nan"))),
        "megabytes": _sent(run),
        "plateau": float(last_quarter.mean()) if len(last_quarter) else float("nan"),
        "fluctuation": float(np.abs(np.diff(last_half)).mean()) if len(last_half) > 1 else float("nan"),
    }


def score_run(run: Run, scoring: Scoring = HEADLINE) -> dict[str, float]:
    return {name: 100 * run.metric(name, scoring.model, scoring.average, scoring.select) for name in METRICS}


def align_seeds(
    runs: Mapping[int, Run], seeds: Iterable[int], scoring: Scoring = HEADLINE
) -> dict[str, list[float]]:
    """Each of ``MEASURES`` with one value per seed, in the order of ``seeds``. NaN where a seed has no run.

    Costs and curves are measured with HEADLINE only. Any other scoring has test scores only.
    """
    of_run = measure_run if scoring is HEADLINE else partial(score_run, scoring=scoring)
    found = [of_run(runs[seed]) if seed in runs else {} for seed in seeds]
    return {name: [values.get(name, float("nan")) for values in found] for name in MEASURES}


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
