"""Writes a model folder."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedepd.files import write_json, write_text
from fedepd.folders import new_folder
from fedepd.model.card import Owned, model_card
from fedepd.model.model import CALIBRATION, CARD, CONFIG, FORMAT, LABELS, METRICS, SCHEMA, WEIGHTS, Model
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
) -> None:
    """Write the model folder. ``owned``: of a model that was made for one client.

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
    if owned is not None:
        config |= {"client": model.client, "kind": model.kind}
    card = model_card(run, model, calibration, run.path.name, own_scores, owned)
    files = {
        LABELS: {"labels": model.label_names},
        SCHEMA: {
            "features": model.info.num_features,
            "columns": json.loads(schema.to_json()) if schema else None,
            **({"roles": dict(model.roles)} if model.roles else {}),
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
