"""Gives a model its operating point, chosen on validation nodes and measured on test nodes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedepd.files import read_json
from fedepd.model.aim import Aim
from fedepd.model.held_out import HeldOut
from fedepd.model.model import LABELS, OPERATING, Model
from fedepd.model.operating import chosen
from fedepd.model.point_measured import Split, measured_point
from fedepd.report.curves import rule_name


def pointed(
    model: Model, aim: Aim | None, predicted: HeldOut, temperatures: dict[str, float], nodes: int
) -> tuple[Model, dict[str, Any] | None]:
    """The model with the point that reaches the aim, and what the point does; neither without an aim.

    Args:
        model: The model. It need not have its temperatures yet.
        aim: What to reach.
        predicted: What the model says about held-out nodes.
        temperatures: Those of the model.
        nodes: Nodes of the graph; alerts are so many of them.
    """
    if aim is None:
        return model, None
    calibrated = replace(model, temperatures=temperatures)
    splits = []
    for name in ("val", "test"):
        logits, y = predicted.split(name)
        splits.append(Split(calibrated.calibrated(logits), y))
    validation, test = splits
    usual = model.tiers.head[0]
    point = chosen(aim, validation.p, validation.classes, model.label_names, usual, nodes)
    return replace(model, operating=point), measured_point(point, aim, validation, test, model.tiers, nodes)


def point_in_words(folder: Path) -> list[str]:
    """What the operating point of a model folder does, a sentence for each rule. Empty if it has none."""
    if not (folder / OPERATING).is_file():
        return []
    point, names = read_json(folder / OPERATING), read_json(folder / LABELS)["labels"]
    lines = []
    for rule in point["measured"]:
        what = rule_name(rule["classes"], point["usual"], names)
        (found, *_), (false, *ends) = rule["found"], rule["false_alarms"]
        lines.append(
            f"alerts to {what}: {found:,} of {rule['nodes']:,} test nodes found, {false:,} false alarms "
            f"(95 %: {ends[0] or 0:,.0f} to {ends[1] or 0:,.0f})"
        )
    return lines
