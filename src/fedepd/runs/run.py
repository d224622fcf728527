"""One run, from a graph to its numbers and its folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any, cast

import torch

from fedepd.clients.partition import partition_sha256
from fedepd.clients.vault import too_small
from fedepd.errors import BadConfig
from fedepd.folders import held
from fedepd.methods import Method
from fedepd.network.backbones import AUTO, described
from fedepd.rounds.attack import Attacked
from fedepd.rounds.loop import Round
from fedepd.runs import checkpoint, record
from fedepd.runs.adaptation import adapt
from fedepd.runs.asking import adapts
from fedepd.runs.drive import drive, now, since
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import START, Json, claim_folder
from fedepd.runs.frames import Frames
from fedepd.runs.ranked import ranked
from fedepd.runs.selection import Confusions, Progress
from fedepd.runs.settings import nameless
from fedepd.runs.simulation import Simulation, build, warnings_of
from fedepd.runs.source import Data, Source
from fedepd.shown import shown
from fedepd.types import ClientData, Graph, Tensors


@dataclass(frozen=True, eq=False)
class RunResult:
    """What a run found.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=2, clients=3)
        >>> sorted(result.metrics["global"]["pooled"])
        ['acc', 'bacc', 'head_acc', 'macro_f1', 'medium_acc', 'tail_acc']
        >>> [line["round"] for line in result.rounds]
        [1, 2]
        >>> list(result.to_pandas().clients["nodes"])
        [509, 485, 506]
    """

    summary: dict[str, Any]
    """What summary.json holds.

    These are all scores, the selected round, the protocol in words, bytes, seconds and hashes.
    """
    rounds: list[dict[str, Any]]
    """One entry per round, as in rounds.jsonl.

    It has losses, bytes, seconds, and scores where the round was evaluated.
    """
    confusions: Confusions
    """Confusion matrices by name, such as "global_test".

    Each is int64 [K, C, C] over clients, true classes and predicted classes. Those of adapted models are sums
    over the clients, [1, C, C].
    """
    tensors: Tensors
    """The server's tensors at the selected round."""
    folder: Path | None = None
    """The run folder, where there is one."""
    adapted: Tensors = field(default_factory=dict)
    """The clients' adapted models, as "client3.encoder.weight". Empty where none was adapted."""
    config: dict[str, Any] = field(default_factory=dict)
    """What config.json holds: every setting, and what is known of the graph."""
    clients: list[dict[str, Any]] = field(default_factory=list)
    """What each client holds, as in clients.json."""

    @property
    def metrics(self) -> dict[str, Any]:
        """Test scores by model ("global", "personal", "adapted"), then by average ("pooled", "client_mean").

        Adapted models are scored pooled only, because nothing but sums leaves the clients.
        """
        out: dict[str, Any] = self.summary["metrics"]
        return out

    def to_pandas(self) -> Frames:
        """The run as data frames: ``.scores``, ``.rounds``, ``.classes``, ``.clients``, ``.confusions``.

        Returns:
            Frames of one run. ``fedepd.read_runs`` gives those of many.

        Raises:
            BadConfig: pandas is not installed, on the first use of a frame.
        """
        return Frames([(self.folder.name if self.folder else "", self)])

    def __repr__(self) -> str:
        return f"RunResult({self._title}, {self._selected}: {', '.join(self._scores)})"

    def _repr_html_(self) -> str:
        cells = "".join(f"<td>{escape(each)}</td>" for each in self._scores)
        where = f"<br><code>{escape(shown(self.folder))}</code>" if self.folder else ""
        return f"<b>{escape(self._title)}</b>, {self._selected}<table><tr>{cells}</tr></table>{where}"

    @property
    def _title(self) -> str:
        summary = self.summary
        return f"{shown(summary['method_label'])} on {shown(summary['dataset'])}, seed {summary['seed']}"

    @property
    def _selected(self) -> str:
        return f"{self.summary['headline']} model of round {self.summary['best_round']}"

    @property
    def _scores(self) -> list[str]:
        """The headline model's test scores in percent, pooled over all clients."""
        found = self.metrics[self.summary["headline"]]["pooled"]
        return [f"{name} {100 * value:.1f}" for name, value in found.items() if value == value]


def run(
    data: Data | str | Path,
    method: str | Method[Any] = "fedepd",
    *,
    preset: str = "default",
    out: str | Path | None = None,
    workers: int = 1,
    shards: int = 1,
    data_dir: str | Path | None = None,
    on_round: Callable[[Round], None] | None = None,
    checkpoint_every: int = 1,
    track: str | None = None,
    **settings: Any,
) -> RunResult:
    """Train a method on a graph that is cut into clients, and evaluate it.

    Args:
        data: A graph, a dataset's name, an npz file, or clients from ``read_clients``.
        method: A name among ``fedepd.METHODS``, or an object of a class of your own (docs/extend.md).
        preset: A named set of the method's values, such as "printed" of "fedepd". An object has none.
        out: A new folder for everything behind the numbers. Without it nothing is written.
        workers: Threads that share the clients. Their number changes no bit.
        shards: Processes that share the clients, in place of threads: for many small clients (docs/speed.md).
        data_dir: The folder with the datasets' files, if it is not ``$FEDEPD_DATA``.
        on_round: Called with each finished round.
        checkpoint_every: After so many rounds the folder gets what ``fedepd.resume`` needs; 0: never.
        track: With ``out``, who else gets its numbers as they come: "tensorboard:DIR", "mlflow:URI", "wandb"
            or "wandb:PROJECT" (docs/trackers.md).
        **settings: The flat names that ``fedepd run METHOD --help`` explains, such as ``rounds`` or ``seed``.
            Without ``backbone`` it is "auto": a rule chooses the network, and a warning of the summary says
            which (docs/backbones.md).

    Returns:
        The scores, every round, the confusion matrices and the weights of the selected round.

    Raises:
        UnknownName: The method, preset, dataset or a setting does not exist.
        BadConfig: A setting cannot be used, ``out`` is not a new folder, or ``track`` cannot be used.
        BadData: The graph or its file cannot be used.
        ClientFailed: A client's step broke.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=2, clients=3, out="runs/first")
        >>> 0 < result.metrics["global"]["pooled"]["bacc"] < 1
        True
        >>> (result.folder / "summary.json").exists()
        True
    """
    experiment, told = (
        Experiment.make(method, preset, **{"backbone": AUTO, **settings}),
        "backbone" in settings,
    )
    folder = Path(out) if out is not None else None
    source = Source.make(data, data_dir) if isinstance(data, (str, Path)) else None
    with tracked(track, folder):
        features = experiment.protocol.features
        graph = cast(Data, data) if source is None else source.load(features)
        return execute(
            experiment, graph, folder, workers, on_round, checkpoint_every, source, told, shards=shards
        )


def tracked(target: str | None, folder: Path | None) -> AbstractContextManager[None]:
    """Inside this, a tracker gets what is written into the folder."""
    if target is None:
        return nullcontext()
    from fedepd.trackers.follow import following

    return following(target, folder)


def execute(
    experiment: Experiment,
    data: Data,
    out: Path | None = None,
    workers: int = 1,
    on_round: Callable[[Round], None] | None = None,
    checkpoint_every: int = 1,
    source: Source | None = None,
    told: bool = True,
    notes: Sequence[str] = (),
    shards: int = 1,
) -> RunResult:
    """A new run.

    ``source`` says in the folder where ``data`` came from. ``told``: whether a person named the backbone.
    ``notes``: sentences for the summary.
    """
    check_workers(workers, shards, checkpoint_every)
    if (
        experiment.split.vault
        and not isinstance(data, Graph)
        and any(isinstance(c, ClientData) for c in data)
    ):
        raise BadConfig(
            f"vault is {experiment.split.vault:g}, but the clients were split before; leave vault out, "
            "or give the graph"
        )
    started = now()
    notes, initial = list(notes), None
    if experiment.protocol.start:
        from fedepd.runs.start import with_start

        experiment, initial, found = with_start(experiment, data)
        notes += found
    simulation = replace(build(experiment, data, workers, told, shards), initial=initial)
    if simulation.note:
        notes.append(simulation.note)
    if out is not None and "class" in described(experiment.model.backbone):
        notes.append(nameless(experiment.model.backbone))
    if out is None:
        return complete(simulation, None, on_round, 0, started, notes)
    claim_folder(out, simulation.config["config_hash"])
    with held(out):
        if initial is not None:
            record.write_tensors(out / START, initial)
        record.write_config(out, {**simulation.config, "source": source and asdict(source), "notes": notes})
        return complete(simulation, out, on_round, checkpoint_every, started, notes)


def check_workers(workers: int, shards: int, checkpoint_every: int) -> None:
    """Refuse what is no number of threads, processes or rounds."""
    given = {"workers": (workers, 1), "shards": (shards, 1), "checkpoint_every": (checkpoint_every, 0)}
    for name, (value, least) in given.items():
        if value < least:
            raise BadConfig(f"{name} is {value}; give at least {least}")


def complete(
    simulation: Simulation,
    out: Path | None,
    on_round: Callable[[Round], None] | None,
    checkpoint_every: int,
    started: tuple[float, float],
    notes: Sequence[str] = (),
) -> RunResult:
    """All rounds that are not in the folder's checkpoints yet, and the results.

    ``started``: as ``drive.now`` gave it.
    """
    torch.set_num_threads(1)
    progress, config_hash = simulation.start(), simulation.config["config_hash"]
    after: list[Callable[[Round, Json], None]] = []
    try:
        simulation.exchange.prepare()
        if out is not None:
            record.write_setting(out, simulation.facts(progress.tensors), simulation.cut())
            rounds = simulation.experiment.protocol.rounds
            spent, found = checkpoint.restore(out, config_hash, progress, simulation.exchange, rounds)
            notes = [*notes, *found]
            started = started[0] - spent[0], started[1] - spent[1]
            record.write_rounds(out, progress.lines)
            noisy = simulation.experiment.privacy.noisy
            saver = checkpoint.Saver(out, checkpoint_every, config_hash, due=noisy)
            after += [
                lambda _, line: record.add_round(out, line),
                lambda *_: saver.after_round(progress, simulation.exchange, since(started)),
            ]
        if on_round is not None:
            after.append(lambda each, _: on_round(each))
        drive(
            simulation.course(out),
            progress,
            lambda each: progress.add(each, simulation.personal_models),
            *after,
        )
        if adapts(simulation.experiment):
            adapt(simulation.course(), progress)
        ranking = ranked(simulation, progress)
        summary = summarise(simulation, progress, started, notes, ranking)
        adapted = simulation.adapted_models()
        clients = simulation.facts(progress.tensors)
    finally:
        simulation.exchange.close()
    if out is not None:
        record.write_results(out, clients, progress, summary, adapted, ranking)
        checkpoint.remove(out)
    best = progress.best[summary["headline"]]
    confusions = progress.confusions()
    return RunResult(
        summary, progress.lines, confusions, best.tensors, out, adapted, simulation.config, clients
    )


def summarise(
    simulation: Simulation,
    progress: Progress,
    started: tuple[float, float],
    notes: Sequence[str] = (),
    ranking: Json | None = None,
) -> Json:
    """The summary, with what only a simulation knows."""
    own: Json = {
        "test_without_local_train": simulation.unseen,
        "partition_sha256": partition_sha256(simulation.partition),
    }
    if isinstance(simulation.exchange, Attacked):
        own["attackers"] = list(simulation.exchange.attackers)
    if simulation.statistics is not None:
        own["statistics"] = simulation.statistics
    vault = too_small(simulation.graph, simulation.experiment.split.vault)
    about = warnings_of(simulation.clients, simulation.experiment.protocol.edges)
    warnings = [*about, *([vault] if vault else []), *notes]
    return record.summarise(simulation.config, progress, since(started), warnings, ranking, **own)
