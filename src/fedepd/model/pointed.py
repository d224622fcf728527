"""Gives a model its operating point, chosen on validation nodes and measured on test nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedepd.files import read_json
from fedepd.model.aim import Aim
from fedepd.model.chances import fitted_chance
from fedepd.model.held_out import HeldOut
from fedepd.model.model import LABELS, OPERATING, Model
from fedepd.model.operating import Alerted, Operating, chosen
from fedepd.model.point_measured import Split, measured_point
from fedepd.report.curves import rule_name
from fedepd.shown import listed, shown


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
    validation, test = _splits(model, predicted, temperatures)
    usual = model.tiers.head[0]
    point = chosen(aim, validation.p, validation.classes, model.label_names, usual, nodes)
    point = with_rate(with_chances(point, validation), test if len(test.classes) else validation)
    return replace(model, operating=point), measured_point(point, aim, validation, test, model.tiers, nodes)


def pointed_together(
    model: Model, point: Operating, aim: str, predicted: HeldOut, temperatures: dict[str, float]
) -> tuple[Model, dict[str, Any]]:
    """The model with a point that a federation's sites chose together, and what it does here.

    ``aim``: as in the plan.
    """
    validation, test = _splits(model, predicted, temperatures)
    point = with_rate(with_chances(point, validation), test if len(test.classes) else validation)
    return replace(model, operating=point), measured_point(point, aim, validation, test, model.tiers, 0)


def _splits(model: Model, predicted: HeldOut, temperatures: dict[str, float]) -> tuple[Split, Split]:
    """Validation and test nodes with their calibrated probabilities."""
    calibrated = replace(model, temperatures=temperatures)
    (own, y), (theirs, true) = (predicted.split(name) for name in ("val", "test"))
    return Split(calibrated.calibrated(own), y), Split(calibrated.calibrated(theirs), true)


def with_chances(point: Operating, validation: Split) -> Operating:
    """The point, with how likely the alerts of each rule are right by validation nodes."""
    if point.costs is not None or not len(validation.classes):
        return point
    scores = point.scores(validation.p)
    rules = [
        replace(rule, chance=fitted_chance(own, np.isin(validation.classes, rule.classes)))
        for rule, own in zip(point.rules, scores, strict=True)
    ]
    return replace(point, rules=tuple(rules))


def with_rate(point: Operating, held_out: Split) -> Operating:
    """The point, with the share of these nodes that it alerts."""
    alerts = point.decide(held_out.p).alerts
    return replace(point, alerted=Alerted(float(alerts.mean()), len(alerts))) if len(alerts) else point


def rules_in_words(point: Operating, names: Sequence[str]) -> str:
    """What a point alerts to, in one sentence."""
    if point.costs is not None:
        usual = shown(names[point.usual])
        return f"An alert is a node that costs less, by the model's costs, if it is not called {usual}."
    rules = [
        f"{rule_name(rule.classes, point.usual, names)} from a probability of {rule.threshold:.4g} on"
        for rule in point.rules
    ]
    return f"Alerts are those of the model's operating point: to {listed(rules)}."


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
