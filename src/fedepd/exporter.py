"""From a finished run to a folder that predicts: weights, labels, schema, metrics, calibration and a model card."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedepd.calibration import TIERS, calibrate
from fedepd.errors import BadConfig, BadData
from fedepd.evaluate import SPLITS, confusions
from fedepd.longtail import Tiers
from fedepd.model_card import model_card
from fedepd.predict import FORMAT, Model
from fedepd.progress import below
from fedepd.record import check_new_folder, weights_sha256, write_bytes, write_json, write_tensors
from fedepd.report.runs import Run, read_run
from fedepd.resumer import rebuild
from fedepd.runner import Simulation
from fedepd.types import HIDDEN, Graph


def export(folder: str | Path, out: str | Path, data: Graph | str | Path | None = None, data_dir: str | Path | None = None) -> Path:
    """Write the model of a finished run to the new folder ``out``. The run's data must be at hand: calibration is measured on them.

    ``data`` is needed only where the run was given a graph from memory, or its file has moved.
    """
    run, out = read_run(folder), Path(out)
    check_new_folder(out)
    simulation = rebuild(Path(folder), data, data_dir)
    model = uncalibrated(run, simulation)
    val, test = held_out(run, simulation, model)
    calibration = calibrate(val, test, model.tiers)
    _write(run, simulation, model, calibration, out)
    write_json(run.path / "calibration.json", calibration)  # for the report
    return out


def uncalibrated(run: Run, simulation: Simulation) -> Model:
    """The selected round's model with temperatures of 1, and nothing in it that predictions do not need."""
    method, graph = simulation.experiment.method, simulation.graph
    if not (method.has_global or method.merges_clients):
        # Choice: one client's model is not offered: such methods also predict from what only that client has (its classes, its labels).
        raise BadConfig(f"{method.label} keeps a model per client and none for all, so there is none to export; export a run of a method "
                        "whose headline model is 'global' in 'fedepd methods', or of 'centralised'")  # fmt: skip
    try:
        tensors = load_file(run.path / "model.safetensors")
    except (SafetensorError, OSError) as cause:
        raise BadData(f"'{run.path}/model.safetensors' cannot be read ({cause}); run it again") from cause
    model = Model(
        experiment=simulation.experiment,
        info=simulation.server.info,
        tensors=below(tensors, "client0.") if method.merges_clients else tensors,
        label_names=graph.label_names or tuple(map(str, range(graph.num_classes))),
        tiers=Tiers(**{name: tuple(classes) for name, classes in run.summary["tiers"].items()}),
        temperatures=dict.fromkeys(TIERS, 1.0),
    )
    return needed_only(model, simulation.clients[0].graph)


def needed_only(model: Model, graph: Graph) -> Model:
    """Without the tensors that change no prediction: class prototypes and counts say more of the data than a user of the model needs."""
    wanted = model.logits(graph)
    for group in sorted({name.split(".")[0] for name in model.tensors}):
        fewer = replace(model, tensors={name: value for name, value in model.tensors.items() if name.split(".")[0] != group})
        try:
            unchanged = torch.equal(fewer.logits(graph), wanted)
        except KeyError:
            unchanged = False
        model = fewer if unchanged else model
    return model


def held_out(run: Run, simulation: Simulation, model: Model) -> list[tuple[Any, Any]]:
    """(logits [n, C], classes [n]) of all clients' validation nodes, and of their test nodes, as the exported model classifies them.

    The run's own confusion matrices must come out again, client by client: so nothing is exported that predicts otherwise than measured.
    """
    rows: dict[str, list[tuple[Tensor, Tensor]]] = {split: [] for split in SPLITS}
    for number, client in enumerate(simulation.clients):
        logits = model.logits(client.graph)
        for split, matrix in confusions(logits, client).items():
            if not np.array_equal(matrix.numpy(), run.confusion[f"{run.headline}_{split}"][number]):
                raise BadConfig(f"without its training labels client {number} is classified otherwise than in the run, so a new graph "
                                "would be too; export a run whose method does not use local labels at inference (FedEPD: a sign other "
                                "than post_hoc)")  # fmt: skip
            mask = {"val": client.val_mask, "test": client.test_mask}[split] & (client.graph.y != HIDDEN)
            rows[split].append((logits[mask], client.graph.y[mask]))
    joined = {split: [torch.cat(parts).numpy() for parts in zip(*pairs, strict=True)] for split, pairs in rows.items()}
    return [(logits.astype(np.float64), y) for logits, y in (joined[split] for split in SPLITS)]


def _write(run: Run, simulation: Simulation, model: Model, calibration: dict[str, Any], out: Path) -> None:
    """config.json last: a folder without it is not taken for a model."""
    graph, tensors = simulation.graph, model.tensors
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as cause:
        raise BadConfig(f"cannot make the folder '{out}' ({cause.strerror}); give another one with -o") from cause
    names = ("protocol", "dataset", "proxy_features", "best_round", "test_without_local_train", "warnings")
    scores = run.summary["metrics"][run.headline]
    write_tensors(out / "model.safetensors", tensors)
    write_json(out / "labels.json", {"labels": model.label_names})
    write_json(out / "schema.json", {"features": graph.num_features, "columns": json.loads(graph.schema) if graph.schema else None})
    write_json(out / "metrics.json", {"test": scores, **{name: run.summary.get(name) for name in names}})
    write_json(out / "calibration.json", calibration)
    write_bytes(out / "README.md", model_card(run, model, calibration, run.path.name).encode())
    config = {
        "format": FORMAT,
        "config_hash": run.config["config_hash"],
        "weights_sha256": weights_sha256(tensors),
        "experiment": run.config["experiment"],
        "info": asdict(model.info),
        "tiers": asdict(model.tiers),
        "temperatures": calibration["temperatures"],
    }
    write_json(out / "config.json", config)
