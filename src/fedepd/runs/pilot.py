"""``--backbone auto``: a short run with each backbone, judged by pooled validation alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from fedepd.errors import BadConfig
from fedepd.runs.experiment import Experiment
from fedepd.runs.run import execute
from fedepd.runs.source import Data

Name = Literal["gcn", "sage"]
BACKBONES: tuple[Name, ...] = ("gcn", "sage")
SHARE = 5
"""A pilot runs this part of the rounds."""


def with_chosen_backbone(experiment: Experiment, data: Data) -> tuple[Experiment, str]:
    """The experiment with the better backbone, and a sentence that says so.

    The better one is that whose pilot has the higher validation macro-F1; gcn wins a tie.
    """
    if experiment.privacy.noisy:
        raise BadConfig(
            "backbone is auto, but it is chosen by validation nodes, which the budget of dp_epsilon does not "
            "cover; give backbone gcn or sage"
        )
    rounds = max(1, experiment.protocol.rounds // SHARE)
    scores = {name: pilot_score(with_backbone(experiment, name), data, rounds) for name in BACKBONES}
    chosen = max(BACKBONES, key=scores.__getitem__)
    seen = ", ".join(f"{name} {100 * score:.1f}" for name, score in scores.items())
    return with_backbone(
        experiment, chosen
    ), f"backbone {chosen} was chosen by validation macro-F1 in pilots of {rounds} rounds: {seen}"


def with_backbone(experiment: Experiment, name: Name) -> Experiment:
    return replace(experiment, model=replace(experiment.model, backbone=name))


def pilot_score(experiment: Experiment, data: Data, rounds: int) -> float:
    protocol = replace(experiment.protocol, rounds=rounds, adapt=False)
    result = execute(replace(experiment, protocol=protocol), data)
    headline = result.summary["headline"]
    scores = [line["val"][headline]["macro_f1"] for line in result.rounds if "val" in line]
    best = max((score for score in scores if score == score), default=None)
    if best is None:
        raise BadConfig(
            "backbone auto needs validation nodes to choose by; "
            "give a val_share above 0, or backbone gcn or sage"
        )
    return float(best)
