"""Turns a finished run into a model folder: weights, labels, schema, metrics, calibration and a model
card."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.datasets.tables import FeatureSchema
from fedepd.errors import BadConfig, BadData
from fedepd.files import write_json, write_text
from fedepd.folders import new_folder
from fedepd.longtail import Tiers
from fedepd.methods import Server
from fedepd.metrics import client_mean, pooled
from fedepd.model.calibration import TIERS, calibrate
from fedepd.model.card import model_card
from fedepd.model.model import (
    CALIBRATION,
    CARD,
    CONFIG,
    FORMAT,
    LABELS,
    METRICS,
    PROBE_NODES,
    SCHEMA,
    WEIGHTS,
    Model,
    check_model,
    probe,
)
from fedepd.report.agreement import CHANGED
from fedepd.report.runs import Run, read_run
from fedepd.rounds.evaluate import SPLITS, confusions, held_out
from fedepd.rounds.guard import class_axes, with_own_columns
from fedepd.runs import folder as run_folder
from fedepd.runs.distil import distilled
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import called, check_new_run, read_weights, weights_sha256
from fedepd.runs.predict import check_common, common_model
from fedepd.runs.record import write_tensors
from fedepd.runs.resume import experiment_of, rebuild
from fedepd.runs.simulation import Simulation
from fedepd.shapes import DAMAGED, EVERY, FLAG, NUMBER, ROUND_NUMBER, TEXT, expect, whole
from fedepd.shown import shown
from fedepd.types import ClientData, Graph, TaskInfo, Tensors

EXPORTED: dict[str, Any] = {"best_rounds": {EVERY: ROUND_NUMBER}, "proxy_features": FLAG, "config_hash": TEXT}
DATA_OF_EXPORTED: dict[str, Any] = {
    **dict.fromkeys(("nodes", "edges", "features", "classes"), whole()),
    "imbalance_ratio": (NUMBER,),
    "sha256": TEXT,
}
OTHER_SHA256 = f"its sha256 differs from {run_folder.SUMMARY}'s"
OTHERWISE = (
    "gets other predictions than in the run, and so would a new graph; export a run whose method does not "
    "use local labels to predict"
)
UNMEASURED = {
    "temperatures": dict.fromkeys(TIERS, 1.0),
    "unmeasured": (
        "The model is not calibrated: all temperatures are 1. The scores above were not checked again "
        "either. Both need the graphs, and the graphs of a federation stay at its sites."
    ),
}


def export(
    folder: str | Path,
    out: str | Path,
    data: Graph | str | Path | None = None,
    data_dir: str | Path | None = None,
    distil: bool = False,
) -> Path:
    """Write the model of a finished run to a new folder.

    Calibration is measured on the run's data, so they must be available. A federation's graphs stay at its
    sites, so its model is not calibrated.

    Args:
        folder: The run folder.
        out: The new folder.
        data: Needed only where the run was given a graph from memory, or its file has moved.
        data_dir: The folder with the datasets' files, if it has moved.
        distil: Train a new model on predicted classes only, and write that. It tells less about the training
            nodes, and scores lower (docs/privacy.md). This takes three times as long as the run.

    Returns:
        The new folder.

    Raises:
        BadConfig: ``out`` is there already, or the method has no model for all clients.
        BadData: The run folder is damaged or unfinished, or its data have changed.

    Examples:
        >>> import fedepd
        >>> result = fedepd.run("synthetic", "fedavg", rounds=1, clients=2, out="runs/first")
        >>> folder = fedepd.export("runs/first", "model")
        >>> sorted(path.name for path in folder.iterdir())[:3]
        ['README.md', 'calibration.json', 'config.json']
    """
    run, out = read_run(folder), Path(out)
    check_new_run(out)
    check_whole(run)
    if "sites" in run.config:
        for name, given in (("--data", data is not None), ("--distil", distil)):
            if given:
                raise BadConfig(
                    f"'{folder}' is the run of a federation, whose graphs stay at its sites; export it "
                    f"without {name}"
                )
        _write(run, of_federation(run), UNMEASURED, out)
        return out
    simulation = rebuild(Path(folder), data, data_dir)
    graph = simulation.graph
    model = uncalibrated(run, simulation.experiment, simulation.server.info, graph.label_names, graph.schema)
    model, predicted = measured(simulation, model)
    guarded = simulation.experiment.privacy.guard
    if not guarded:  # there the clients measured with their own columns of closed classes
        check_reproduced(run, predicted)
    if distil:
        pupil = replace(model, tensors=distilled(simulation, model.tensors), distilled=True)
        model, predicted = measured(simulation, pupil)
    val, test = predicted.logits()
    calibration = calibrate(val, test, model.tiers)
    _write(run, model, calibration, out, predicted.scores(model.tiers) if distil or guarded else None)
    # The report draws a diagram from this file, of the run's own model. If the run folder is read-only, only
    # that diagram is missing.
    with suppress(BadConfig):
        if not distil:
            write_json(run.path / run_folder.CALIBRATION, calibration)
    return out


def check_whole(run: Run) -> None:
    """Check what an export needs beyond a report, and that the final weights have the summary's hash."""
    summary, config = (f"'{called(run.path, file)}'" for file in (run_folder.SUMMARY, run_folder.CONFIG))
    expect(run.summary, EXPORTED, summary)
    if run.headline not in run.summary["best_rounds"]:
        raise BadData(f"{summary} has no best round of its headline model; {DAMAGED}")
    expect(run.dataset, DATA_OF_EXPORTED, f"{config}: 'dataset'")
    # Reading run.rounds also checks that the best round is among them.
    if not run.rounds or "weights_sha256" not in run.summary:
        return
    if weights_sha256(read_weights(run.path, run_folder.FINAL)) != run.summary["weights_sha256"]:
        name = called(run.path, run_folder.FINAL)
        raise BadData(f"'{name}' is not what the run ended with ({OTHER_SHA256}); {CHANGED}")


def of_federation(run: Run) -> Model:
    """The model of a federation.

    Its graphs are not here, so a random graph shows which tensors predictions need.
    """
    experiment, data = experiment_of(run.config), run.dataset
    info = TaskInfo(
        data["features"], data["classes"], len(run.config["sites"]), experiment.training.weighting
    )
    model = uncalibrated(run, experiment, info, tuple(data.get("label_names") or ()), "")
    check_model(model, f"'{shown(run.path.name)}'", DAMAGED)
    graph, n = probe(info), PROBE_NODES
    model = needed_only(model, graph)
    none = torch.zeros(n, dtype=torch.bool)
    if not torch.equal(
        model.logits(graph), model.logits_at(ClientData(0, graph, ~none, none, none, torch.arange(n)))
    ):
        raise BadConfig(f"without its training labels a site {OTHERWISE}")
    return model


def uncalibrated(
    run: Run, experiment: Experiment, info: TaskInfo, label_names: tuple[str, ...], schema: str
) -> Model:
    """The model of the selected round, with all temperatures 1."""
    method = experiment.method
    check_common(method, "export")
    tensors = read_weights(run.path, run_folder.MODEL)
    stated = run.summary.get("weights_sha256")
    if (
        run.headline == "global"
        and run.summary["best_round"] == run.summary["rounds"]
        and stated not in (None, weights_sha256(tensors))
    ):
        name = called(run.path, run_folder.MODEL)
        raise BadData(f"'{name}' is not the last round's model ({OTHER_SHA256}); {CHANGED}")
    return Model(
        experiment=experiment,
        info=info,
        tensors=common_model(method, shared_part(run, experiment, info, tensors)),
        label_names=label_names or tuple(map(str, range(info.num_classes))),
        tiers=Tiers(**{name: tuple(classes) for name, classes in run.summary["tiers"].items()}),
        temperatures=dict.fromkeys(TIERS, 1.0),
        schema=FeatureSchema.from_json(schema) if schema else None,
    )


NEVER = -1e4
"""The bias of a class that an exported model never predicts, also after a division by any temperature."""


def shared_part(run: Run, experiment: Experiment, info: TaskInfo, tensors: Tensors) -> Tensors:
    """The server's tensors. After a guarded run, the columns of closed classes are such that the classes are
    never predicted: the trained columns stayed at the clients."""
    if not experiment.privacy.guard or experiment.method.merges_clients:
        return tensors
    nobody = torch.zeros(info.num_classes, dtype=torch.bool)
    named = run.summary.get("open_classes", [])
    if any(each >= info.num_classes for each in named):
        raise BadData(f"'{called(run.path, run_folder.SUMMARY)}' names an open class that is none; {DAMAGED}")
    opened = nobody.clone()
    opened[named] = True
    training, rounds = experiment.training, experiment.protocol.rounds
    server = Server(info, experiment.model, training, experiment.protocol.seed, rounds, rounds)
    fields = experiment.method.reply_fields(server, tensors)
    out = with_own_columns(tensors, fields, {}, opened, nobody)
    biases = [name for name in class_axes(fields, out) if out[name].ndim == 1]
    return {**out, **{name: torch.where(opened, out[name], NEVER) for name in biases}}


def needed_only(model: Model, graph: Graph) -> Model:
    """The model without the tensors that change no prediction.

    Class prototypes and counts reveal more about the data than a user of the model needs.
    """
    wanted = model.logits(graph)
    for group in sorted({name.split(".")[0] for name in model.tensors}):
        fewer = replace(
            model,
            tensors={name: value for name, value in model.tensors.items() if name.split(".")[0] != group},
        )
        try:
            unchanged = torch.equal(fewer.logits(graph), wanted)
        except KeyError:
            unchanged = False
        model = fewer if unchanged else model
    return model


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What a model says about the clients' held-out nodes."""

    rows: dict[str, list[tuple[Tensor, Tensor]]]
    """Logits [n, C] and classes [n] of each client, by split."""
    confusion: dict[str, NDArray[np.int64]]
    """[K, C, C] by split."""

    def logits(self) -> list[tuple[Any, Any]]:
        """(logits [n, C], classes [n]) over all clients, for the validation nodes and for the test nodes."""
        joined = [[torch.cat(p).numpy() for p in zip(*self.rows[split], strict=True)] for split in SPLITS]
        return [(logits.astype(np.float64), y) for logits, y in joined]

    def scores(self, tiers: Tiers) -> dict[str, dict[str, Any]]:
        """Test scores, pooled and as the clients' mean."""
        test = self.confusion["test"]
        return {"pooled": pooled(test, tiers), "client_mean": client_mean(test, tiers)}


def measured(simulation: Simulation, model: Model) -> tuple[Model, HeldOut]:
    """The model without what it does not need, and what it says about the clients' held-out nodes."""
    model = needed_only(model, simulation.clients[0].graph)
    rows: dict[str, list[tuple[Tensor, Tensor]]] = {split: [] for split in SPLITS}
    found: dict[str, list[Any]] = {split: [] for split in SPLITS}
    for client in simulation.clients:
        logits = model.logits(client.graph)
        for split, matrix in confusions(logits, client).items():
            found[split].append(matrix.numpy())
        for split, pair in held_out(logits, client).items():
            rows[split].append(pair)
    return model, HeldOut(rows, {split: np.stack(matrices) for split, matrices in found.items()})


def check_reproduced(run: Run, predicted: HeldOut) -> None:
    """Refuse predictions that are not the run's, so that an exported model predicts as was measured.

    They must have the run's confusion matrices, client by client, or their sum where the server saw sums
    only.
    """
    for split, matrices in predicted.confusion.items():
        ours = matrices.sum(0, keepdims=True) if run.sums_only else matrices
        theirs = run.confusion[f"{run.headline}_{split}"]
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            if not np.array_equal(mine, other):
                raise BadConfig(f"without its training labels client {number} {OTHERWISE}")


def _write(
    run: Run,
    model: Model,
    calibration: dict[str, Any],
    out: Path,
    own_scores: dict[str, dict[str, Any]] | None = None,
) -> None:
    """Write the model folder.

    Everything is computed before anything is written, and a failure removes the folder. The configuration is
    written last, because a folder without it does not count as a model.
    """
    tensors, schema = model.tensors, model.schema
    names = ("protocol", "dataset", "proxy_features", "best_round", "test_without_local_train", "warnings")
    scores = own_scores or run.summary["metrics"][run.headline]
    config: dict[str, Any] = {
        "format": FORMAT,
        "config_hash": run.config["config_hash"],
        "weights_sha256": weights_sha256(tensors),
        "experiment": run.config["experiment"],
        "info": asdict(model.info),
        "tiers": asdict(model.tiers),
        "temperatures": calibration["temperatures"],
    }
    if model.distilled:
        config["distilled"] = True
    card = model_card(run, model, calibration, run.path.name, own_scores)
    files = {
        LABELS: {"labels": model.label_names},
        SCHEMA: {
            "features": model.info.num_features,
            "columns": json.loads(schema.to_json()) if schema else None,
        },
        METRICS: {"test": scores, **{name: run.summary.get(name) for name in names}},
        CALIBRATION: calibration,
        CONFIG: config,
    }
    with new_folder(out, (WEIGHTS, CARD, *files)):
        write_tensors(out / WEIGHTS, tensors)
        write_text(out / CARD, card)
        for name, content in files.items():
            write_json(out / name, content)
