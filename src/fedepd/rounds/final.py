"""The last message of a federated run: every site gets the selected model, and helps to calibrate it.

The answers are sums of likelihoods (``rounds.calibrate``). Under noise nothing may be told about held-out
nodes, so the answer is zeros. The site still gets the model.
"""

from __future__ import annotations

import numpy as np
import torch

from fedepd.rounds.calibrate import grid_layout, grid_sums
from fedepd.rounds.participant import Participant
from fedepd.rounds.point import NEVER, goals_of
from fedepd.rounds.question import Question, Setting
from fedepd.rounds.sums import Layout, Vector
from fedepd.shown import shown
from fedepd.types import Tensors

SELECTED = "final.rounds"
"""The entry of the message that says which rounds were selected: int64 [2], of the models in ``KINDS``."""
CLASS_TIERS = "final.tiers"
"""The entry of the message that says which tier each class is in: int64 [C], 0 head, 1 medium, 2 tail."""
THRESHOLDS = "final.thresholds"
"""The entry that says from where on each rule of the run's aim alerts: float64, from 0 to ``point.NEVER``."""
USUAL = "final.usual"
"""The entry that says which class is the largest: int64 [1]. Both are there if the run has an aim."""
ENTRIES = (SELECTED, CLASS_TIERS, THRESHOLDS, USUAL)
"""What is no tensor of the method."""
KINDS = ("global", "personal")
"""Models that a round is selected for. A model that the method does not have has round 0."""


def selection(setting: Setting) -> Tensors:
    """Which rounds were selected and which tier each class is in, as examples."""
    classes = setting.server.info.num_classes
    return {
        SELECTED: torch.zeros(len(KINDS), dtype=torch.int64),
        CLASS_TIERS: torch.zeros(classes, dtype=torch.int64),
    }


def selection_fault(message: Tensors, setting: Setting) -> str | None:
    """What is wrong with rounds, tiers and the largest class; None if nothing is."""
    rounds, tiers, classes = message[SELECTED], message[CLASS_TIERS], setting.server.info.num_classes
    if not bool(((rounds >= 0) & (rounds <= setting.server.last_round)).all()):
        return f"the server selects round {rounds.tolist()}, but the run has {setting.server.last_round}"
    if not bool(((tiers >= 0) & (tiers < 3)).all()):
        return "the server's tiers are not 0, 1 or 2"
    if USUAL in message and not 0 <= int(message[USUAL]) < classes:
        return f"the server's largest class is {int(message[USUAL])}, but there are {classes}"
    return None


class Final(Question):
    def entries(self, setting: Setting) -> Tensors:
        goals, usual = goals_of(setting.aim), {USUAL: torch.zeros(1, dtype=torch.int64)}
        pointed = {THRESHOLDS: torch.zeros(len(goals), dtype=torch.float64), **usual} if goals else {}
        return {**selection(setting), **pointed}

    def fault(self, message: Tensors, setting: Setting) -> str | None:
        if fault := selection_fault(message, setting):
            return fault
        limits = message.get(THRESHOLDS)
        if limits is not None and not bool(((limits >= 0) & (limits <= 1) | (limits == NEVER)).all()):
            return f"the server's thresholds are {shown(limits.tolist())}, which are no probabilities"
        return None

    def layout(self, setting: Setting) -> Layout:
        return grid_layout()

    def answer(self, participant: Participant, message: Tensors) -> Vector:
        privacy, info = participant.privacy, participant.info
        nothing: Vector = np.zeros(sum(size for _, (size, *_) in grid_layout()), dtype=np.int64)
        if privacy.noisy:
            return nothing
        own = {name: value for name, value in message.items() if name not in ENTRIES}
        logits, known = participant.taken_home(own)
        rows, y = participant.validation(logits)
        few = privacy.min_count if privacy.guard and not privacy.secure else 0
        tier = message[CLASS_TIERS].numpy()
        return grid_sums(rows.numpy(), y.numpy(), tier, known.numpy(), few, info.num_clients)
