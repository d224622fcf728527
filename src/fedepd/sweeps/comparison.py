"""Methods over seeds, each with the same settings: the runs, and ``fedepd.compare``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fedepd.errors import BadConfig
from fedepd.report.frames import read_runs
from fedepd.runs.folder import check_new_run
from fedepd.runs.frames import Frames
from fedepd.runs.jobs import Job, run_jobs
from fedepd.sweeps.against import against_jobs, against_names
from fedepd.trackers.follow import following


@dataclass(frozen=True)
class Comparison:
    """What is compared. Mistakes are found by ``jobs``, before anything runs."""

    methods: Sequence[str]
    """As METHOD or METHOD:PRESET."""
    data: str
    out: Path
    seeds: int = 3
    """Their number, counted from the setting ``seed`` on."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    data_dir: str | None = None
    tuned: str | None = None
    """A file of ``fedepd tune``."""
    against: str = ""
    """Names of ``sweeps.against``, with commas between them."""

    def jobs(self) -> list[Job]:
        """The runs, each in a folder of its own."""
        from fedepd.runs.experiment import Experiment
        from fedepd.runs.tuned import TunedFile

        check_seeds(self.seeds)
        check_new_run(self.out)
        pairs = named_methods(self.methods)
        for pair in pairs:
            if pairs.count(pair) > 1:
                raise BadConfig(
                    f"method '{':'.join(pair)}' is named twice; name it once, and use seeds for repetitions"
                )
        others = against_names(self.against, self.methods)
        settings, notes = with_backbone(pairs[0], self.settings, self.data, self.data_dir)
        own = {pair: settings for pair in pairs}
        if self.tuned is not None:
            own = TunedFile.read(self.tuned).for_all(pairs, self.data, settings)
        jobs = []
        for method, preset in pairs:
            first = Experiment.make(method, preset, **own[method, preset]).protocol.seed
            folder = method if preset == "default" else f"{method}-{preset}"
            for seed in range(first, first + self.seeds):
                out, each = self.out / f"{folder}-seed{seed}", {**own[method, preset], "seed": seed}
                jobs.append(Job(method, preset, self.data, out, self.data_dir, each, notes=notes))
        return [*jobs, *against_jobs(jobs, others)]


def compare(
    methods: Sequence[str],
    data: str | Path = "synthetic",
    *,
    seeds: int = 3,
    out: str | Path | None = None,
    workers: int = 1,
    against: str = "",
    data_dir: str | Path | None = None,
    tuned: str | Path | None = None,
    track: str | None = None,
    **settings: Any,
) -> Frames:
    """Train several methods over several seeds, each run in a process of its own.

    Every process runs the calling program anew, so a script calls this below ``if __name__ == "__main__":``.
    A notebook need not.

    Args:
        methods: Names among ``fedepd.METHODS``, as "fedepd" or with a preset as "fedepd:printed".
        data: A dataset's name or an npz file.
        seeds: How many seeds, counted from the setting ``seed`` on.
        out: A new folder for the run folders. Without it they are removed at the end.
        workers: Runs at the same time. Their number changes no bit.
        against: What one method is held against: "alone,pooled,no-graph,logistic,boosting" or some of them.
        data_dir: The folder with the datasets' files, if it is not ``$FEDEPD_DATA``.
        tuned: A file of ``fedepd tune``.
        track: Who else gets the runs' numbers as they come: "tensorboard:DIR", "mlflow:URI", "wandb" or
            "wandb:PROJECT" (docs/trackers.md).
        **settings: Of every run, by the flat names that ``fedepd compare --help`` explains.

    Returns:
        All runs as data frames.

    Raises:
        UnknownName: A method, preset, dataset or setting does not exist.
        BadConfig: A setting cannot be used, ``out`` is not a new folder, or ``track`` cannot be used.
        FedEPDError: A run failed.

    Examples:
        >>> import fedepd
        >>> frames = fedepd.compare(["fedepd", "fedavg"], seeds=2, rounds=2, clients=3)
        >>> frames.scores.query("headline and average == 'pooled'")["method"].tolist()
        ['fedavg', 'fedavg', 'fedepd', 'fedepd']
    """
    if isinstance(methods, str):
        raise BadConfig(f"methods is '{methods}'; give a list, such as ['{methods}', 'fedavg']")
    with TemporaryDirectory(prefix="fedepd-") as spare:
        folder = Path(spare) / "runs" if out is None else Path(out)
        made = Comparison(
            methods,
            str(data),
            folder,
            seeds,
            settings,
            None if data_dir is None else str(data_dir),
            None if tuned is None else str(tuned),
            against,
        )
        jobs = made.jobs()
        with following(track, folder, [job.out for job in jobs]):
            run_jobs(jobs, workers)
        frames = read_runs(folder)
        for _, run in frames.runs if out is None else ():
            _ = run.rounds, run.clients, run.confusions  # read now, because the folder will be removed
        return frames


def named_methods(spelled: Sequence[str]) -> list[tuple[str, str]]:
    """Methods and presets from METHOD[:PRESET]."""
    if not spelled:
        raise BadConfig("no method is named; name at least one")
    return [(name, preset or "default") for name, _, preset in (each.partition(":") for each in spelled)]


def check_seeds(seeds: int) -> None:
    if seeds < 1:
        raise BadConfig(f"seeds is {seeds}; give at least 1")


def with_backbone(
    method: tuple[str, str], settings: Mapping[str, Any], data: str, data_dir: str | None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The settings of a whole comparison, and why the backbone was chosen, where it was.

    Choice: it is chosen once, by the first method and the first seed. So all rows differ in what is compared.
    """
    from fedepd.network.backbones import AUTO
    from fedepd.runs.experiment import Experiment
    from fedepd.runs.simulation import build
    from fedepd.runs.source import Source

    given = {"backbone": AUTO, **settings}
    experiment = Experiment.make(*method, **given)
    if experiment.model.backbone != AUTO:
        return given, ()
    built = build(experiment, Source.make(data, data_dir).load(), choose="backbone" in settings)
    return {**given, "backbone": built.experiment.model.backbone}, (built.note,) if built.note else ()
