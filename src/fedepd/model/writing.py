"""Writes a model folder."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedepd.files import write_json, write_text
from fedepd.folders import new_folder
from fedepd.model.card import Owned, model_card
from fedepd.model.model import (
    CALIBRATION,
    CARD,
    CONFIG,
    FORMAT,
    FORMAT_OPERATING,
    FORMAT_WEIGHTS,
    LABELS,
    METRICS,
    OPERATING,
    OPERATING_CURVE,
    SCHEMA,
    WEIGHTS,
    Model,
)
from fedepd.report.curves import operating_picture
from fedepd.report.runs import Run
from fedepd.runs.folder import weights_sha256
from fedepd.runs.record import write_tensors


def write_model(
    run: Run,
    model: Model,
    calibration: dict[str, Any],
    out: Path,
    own_scores: dict[str, dict[str, Any]] | None = None,
    owned: Owned | None = None,
    point: dict[str, Any] | None = None,
) -> None:
    """Write the model folder. ``owned``: of a model that was made for one client.

    ``point``: what the model's operating point does, where it has one.

    Everything is computed before anything is written, and a failure removes the folder. The configuration is
    written last, because a folder without it does not count as a model.
    """
    tensors, schema = model.tensors, model.schema
    names = ("protocol", "dataset", "proxy_features", "best_round", "test_without_local_train", "warnings")
    scores = own_scores or run.summary["metrics"][run.headline]
    config: dict[str, Any] = {
        "format": FORMAT_WEIGHTS
        if model.edge_weights
        else (FORMAT if model.operating is None else FORMAT_OPERATING),
        "config_hash": run.config["config_hash"],
        "weights_sha256": weights_sha256(tensors),
        # So that nobody chooses an operating point by training nodes.
        "data_sha256": [run.dataset["sha256"], *([] if owned is None else [owned.sha256])],
        "experiment": run.config["experiment"],
        "info": asdict(model.info),
        "tiers": asdict(model.tiers),
        "temperatures": calibration["temperatures"],
    }
    if model.operating is not None:
        config["operating"] = model.operating.as_json()
    if model.edge_weights:
        config["edge_weights"] = True
    if model.distilled:
        config["distilled"] = True
    if owned is not None:
        config |= {"client": model.client, "kind": model.kind}
    card = model_card(run, model, calibration, run.path.name, own_scores, owned, point)
    files = {
        LABELS: {"labels": model.label_names},
        SCHEMA: {
            "features": model.info.num_features,
            **(schema.to_dict() if schema else {"columns": None}),
            **({"roles": dict(model.roles)} if model.roles else {}),
        },
        METRICS: {"test": scores, **{name: run.summary.get(name) for name in names}},
        CALIBRATION: calibration,
        **({} if point is None else {OPERATING: point}),
        CONFIG: config,
    }
    pictures = {} if point is None else {OPERATING_CURVE: operating_picture(point, model.label_names)}
    with new_folder(out, (WEIGHTS, CARD, *pictures, *files)):
        write_tensors(out / WEIGHTS, tensors)
        write_text(out / CARD, card)
        for name, picture in pictures.items():
            write_text(out / name, picture)
        for name, content in files.items():
            write_json(out / name, content)
