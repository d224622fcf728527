"""Trainings of an attack on membership at the workers of a cluster.

Each training is a job of plain values. Its result is a file, so a training that has ended is never done
again, also by the next audit after one that was stopped.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from fedepd.arrays import OURS, read_arrays
from fedepd.errors import BadData, FedEPDError
from fedepd.privacy.membership import SIGNALS
from fedepd.privacy.shadows import Progress, Scores, Shadows, Training, audited, recipe
from fedepd.runs.experiment import Experiment
from fedepd.runs.jobs import FileJob, Pool
from fedepd.runs.record import write_arrays
from fedepd.runs.resume import flat_settings
from fedepd.runs.source import Source
from fedepd.shown import shown

AGAIN = "remove the file and run the audit again"


@dataclass(frozen=True)
class TrainingJob(FileJob):
    """One training. Two arrays are kept of it."""

    number: int = 0
    scores: Scores = "all"
    distil: bool = False

    def work(self) -> None:
        """Train, and write down what the attacker sees."""
        experiment = Experiment.recorded(self.method, self.preset, self.settings)
        simulation = audited(experiment, Source.make(self.data, self.data_dir).load())
        members, signals = recipe(simulation, SIGNALS[self.scores], self.distil)(self.number)
        write_arrays(self.out, {"members": members, "signals": signals})

    def result(self, nodes: int) -> Training:
        """What the attacker saw of so many nodes. A worker may have sent anything."""
        arrays = read_arrays(self.out, ("members", "signals"), limit=OURS, cure=AGAIN)
        members, signals = arrays["members"], arrays["signals"]
        for array, kind, shape in ((members, np.bool_, (nodes,)), (signals, np.float64, (nodes, 2))):
            if array.dtype != kind or array.shape != shape:
                raise BadData(f"file '{shown(self.out, 300)}' is not what a training leaves; {AGAIN}")
        return members, signals


@dataclass(frozen=True)
class Elsewhere:
    """Who trains, on which data, and where results lie until the audit has ended."""

    pool: Pool
    source: Source
    folder: Path
    _made: list[Path] = field(default_factory=list)

    def train(
        self, experiment: Experiment, scores: Scores, distil: bool, size: tuple[int, int], progress: Progress
    ) -> Shadows:
        """The run and its shadows. ``size``: how many trainings there are, and nodes."""
        count, nodes = size
        jobs = [self._job(experiment, number, scores, distil) for number in range(count)]
        for done, outcome in enumerate(self.pool.outcomes(jobs), start=1):
            if outcome.failure:
                raise FedEPDError(outcome.failure)
            self._made.append(outcome.job.out)
            progress(done, len(jobs))
        return Shadows.of([job.result(nodes) for job in jobs])

    def clear(self) -> None:
        """Remove the results. The audit that they were for is written."""
        for path in self._made:
            path.unlink(missing_ok=True)
            path.with_name(f"{path.name}.lock").unlink(missing_ok=True)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _job(self, experiment: Experiment, number: int, scores: Scores, distil: bool) -> TrainingJob:
        method, preset, settings = flat_settings(experiment.resolved())
        place, told = (str(self.source.data), self.folder, self.source.data_dir), (number, scores, distil)
        job = TrainingJob(method, preset, *place, settings, 1, (), *told)
        identity = json.dumps({**asdict(job), "out": ""}, sort_keys=True)
        name = f"{hashlib.sha256(identity.encode()).hexdigest()[:16]}.npz"
        return TrainingJob(**{**vars(job), "out": self.folder / name})
