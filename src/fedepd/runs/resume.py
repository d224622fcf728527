"""A run folder taken up again: to finish what was interrupted, or to measure what was finished."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from fedepd.errors import BadConfig, BadData
from fedepd.files import read_json
from fedepd.folders import held
from fedepd.methods import METHODS, Method
from fedepd.methods.alone import inner
from fedepd.rounds.loop import Round
from fedepd.runs import checkpoint
from fedepd.runs import folder as run_folder
from fedepd.runs.drive import now
from fedepd.runs.experiment import ADDED, GROUPS, Experiment
from fedepd.runs.folder import (
    CONFIG,
    CONFIG_FIELDS,
    DATASET_FIELDS,
    START,
    SUMMARY,
    called,
    read_weights,
    weights_sha256,
)
from fedepd.runs.run import RunResult, check_workers, complete
from fedepd.runs.simulation import Simulation, build
from fedepd.runs.source import Data, Source
from fedepd.shapes import ROUND_NUMBER, TABLE, TEXT, expect
from fedepd.shown import shown

AGAIN = "restore it or run again in another folder"
EXPERIMENT: dict[str, Any] = {"method": {"name": TEXT, "preset": TEXT}}
EXPERIMENT |= {f"{group}?" if group in ADDED else group: TABLE for group in GROUPS}
RESUMABLE = {
    **CONFIG_FIELDS,
    "method": TEXT,
    "rounds": ROUND_NUMBER,
    "dataset": {**DATASET_FIELDS, "sha256": TEXT},
}


def resume(
    folder: str | Path,
    data: Data | str | Path | None = None,
    *,
    method: Method[Any] | None = None,
    workers: int = 1,
    shards: int = 1,
    data_dir: str | Path | None = None,
    on_round: Callable[[Round], None] | None = None,
    checkpoint_every: int = 1,
) -> RunResult:
    """Finish an interrupted run.

    The weights, the metrics and rounds.jsonl (but for its seconds) become those of a run that was never
    interrupted.

    Args:
        folder: The run folder.
        data: Needed only where the run was given a graph from memory, or its file has moved.
        method: Needed only where the run was given an object of a class that has no name: an equal one.
        workers: Threads that share the clients. Their number changes no bit.
        shards: Processes that share the clients, in place of threads.
        data_dir: The folder with the datasets' files, if it has moved.
        on_round: Called with each finished round.
        checkpoint_every: After so many rounds the folder gets what the next ``resume`` needs; 0: never.

    Returns:
        The same as ``fedepd.run``, over all rounds.

    Raises:
        BadConfig: The run is finished already, its data or its method are not at hand, or another process
            holds the folder.
        BadData: The folder holds no run, is damaged, or its data have changed.
        ClientFailed: A client's step broke.

    Examples:
        A run is interrupted after its second round, and finished:

        >>> import fedepd
        >>> def interrupt(finished):
        ...     if finished.number == 2:
        ...         raise KeyboardInterrupt
        >>> try:
        ...     fedepd.run("synthetic", "fedavg", rounds=3, clients=3, out="runs/cut", on_round=interrupt)
        ... except KeyboardInterrupt:
        ...     print("interrupted")
        interrupted
        >>> len(fedepd.resume("runs/cut").rounds)
        3
    """
    folder, started = Path(folder), now()
    check_workers(workers, shards, checkpoint_every)
    if is_finished(folder):
        raise BadConfig(
            f"the run in '{folder}' is already finished; "
            f"read its {SUMMARY} or start another with 'fedepd run'"
        )
    with held(folder):
        simulation = rebuild(folder, data, data_dir, workers, method, shards)
        notes = read_config(folder).get("notes", [])
        return complete(simulation, folder, on_round, checkpoint_every, started, notes)


def is_finished(folder: Path) -> bool:
    """Whether a run folder needs no more rounds; what a crash after the last of them left is cleared away."""
    read_config(folder)
    done = run_folder.is_finished(folder)
    if done:
        checkpoint.remove(folder)
    return done


def read_config(folder: Path) -> dict[str, Any]:
    if not os.path.lexists(folder / CONFIG):
        raise BadData(
            f"'{shown(folder, 300)}' holds no run (it has no {CONFIG}); "
            "start one with 'fedepd run METHOD --out NEW'"
        )
    config: dict[str, Any] = read_json(folder / CONFIG, cure=AGAIN)
    expect(config, RESUMABLE, f"'{shown(folder, 300)}/{CONFIG}'", AGAIN)
    return config


def rebuild(
    folder: Path,
    data: Data | str | Path | None = None,
    data_dir: str | Path | None = None,
    workers: int = 1,
    method: Method[Any] | None = None,
    shards: int = 1,
) -> Simulation:
    """The simulation of a run folder as it was before its first round, on the very same data."""
    config = read_config(folder)
    experiment = experiment_of(config, method=method)
    simulation = build(
        experiment, load_data(folder, data, data_dir, experiment.protocol.features), workers, shards=shards
    )
    was, found = config["dataset"]["sha256"], simulation.config["dataset"]["sha256"]
    if was != found:
        changed = f"sha256 {was[:12]}, now {found[:12]}"
        raise BadData(
            f"the data of '{folder}' have changed since the run began ({changed}); give the old ones"
        )
    if simulation.config["config_hash"] != config["config_hash"]:
        raise BadData(
            f"'{folder}/{CONFIG}' was changed, or written by another version of fedepd; "
            "run again in another folder"
        )
    if not experiment.protocol.start:
        return simulation
    initial = read_weights(folder, START)
    if weights_sha256(initial) != experiment.protocol.start:
        raise BadData(f"'{called(folder, START)}' is not what the run began with; {AGAIN}")
    return replace(simulation, initial=initial)


def load_data(
    folder: Path, data: Data | str | Path | None, data_dir: str | Path | None = None, features: str = "raw"
) -> Data:
    """The data of a run folder, as they are on disk or as they were given. ``rebuild`` checks them."""
    if data is None or isinstance(data, (str, Path)):
        return source_of(folder, read_config(folder), data, data_dir).load(features)
    return data


def source_of(
    folder: Path, config: dict[str, Any], data: str | Path | None, data_dir: str | Path | None
) -> Source:
    if data is not None:
        return Source.make(None, clients_dir=data) if Path(data).is_dir() else Source.make(data, data_dir)
    if not config.get("source"):
        raise BadConfig(
            f"the run in '{folder}' was given a graph from memory; "
            "give it again as 'data', or its file with --data"
        )
    known = Source(**{name: config["source"].get(name) for name in ("data", "data_dir", "clients_dir")})
    return known if data_dir is None or known.data is None else Source.make(known.data, data_dir)


def experiment_of(
    config: dict[str, Any],
    where: str = CONFIG,
    cure: str = AGAIN,
    trained: bool = False,
    method: Method[Any] | None = None,
) -> Experiment:
    """From the resolved settings in a config.json; a name that no longer exists is refused by name.

    ``trained``: of a model that is only to predict. ``method`` is the object that the run was given, where
    its class has no name.
    """
    settings = config["experiment"]
    expect(settings, EXPERIMENT, f"{where}: 'experiment'", cure)
    name, preset, flat = flat_settings(settings, where, cure)
    if method is None:
        return Experiment.recorded(name, preset, flat, trained)
    own = {key: value for key, value in settings["method"].items() if key not in ("name", "preset")}
    others = {key: value for key, value in flat.items() if key not in own}
    made = Experiment.recorded(method, "default", others, trained)
    check_same(name, own, made)
    return replace(made, method_name=name, preset=preset)


def flat_settings(
    settings: dict[str, Any], where: str = CONFIG, cure: str = AGAIN
) -> tuple[str, str, dict[str, Any]]:
    """The method, its preset and all settings by name, from ``Experiment.resolved``."""
    method = dict(settings["method"])
    name, preset = method.pop("name"), method.pop("preset")
    flat: dict[str, Any] = {}
    for group, part in {**{group: settings.get(group, {}) for group in GROUPS}, "method": method}.items():
        if twice := sorted(part.keys() & {*flat, "method", "preset"}):
            raise BadData(f"{where}: '{shown(twice[0])}' in '{group}' has no place there; {cure}")
        flat |= part
    return name, preset, flat


def check_same(name: str, settings: dict[str, Any], made: Experiment) -> None:
    """Refuse another method than the run had. Its class may have moved to another module."""
    own = inner(made.method)
    cls = type(own)
    if name not in (made.method_name, METHODS.name_of(cls)) and name.partition(":")[2] != cls.__qualname__:
        raise BadConfig(
            f"the run was made with the method '{shown(name)}', not {shown(cls.__qualname__)}; give that one"
        )
    given = {**asdict(own), **own.retired}
    for key in sorted(settings.keys() | given.keys()):
        was, now = settings.get(key, "missing"), given.get(key, "missing")
        if was != now:
            raise BadConfig(
                f"the run was made with {shown(key)} = {shown(was)}, and the {made.method.label} object has"
                f" {shown(now)}; give an equal one"
            )
