"""The last message of a federated run: every site gets the selected model, and helps to calibrate it.

The answers are sums of likelihoods (``rounds.calibrate``). Under noise nothing may be told about held-out
nodes, so the answer is zeros. The site still gets the model.
"""

from __future__ import annotations

import numpy as np
import torch

from fedepd.rounds.calibrate import grid_layout, grid_sums
from fedepd.rounds.participant import Participant
from fedepd.rounds.question import Question, Setting
from fedepd.rounds.sums import Layout, Vector
from fedepd.types import Tensors

SELECTED = "final.rounds"
"""The entry of the message that says which rounds were selected: int64 [2], of the models in ``KINDS``."""
CLASS_TIERS = "final.tiers"
"""The entry of the message that says which tier each class is in: int64 [C], 0 head, 1 medium, 2 tail."""
KINDS = ("global", "personal")
"""Models that a round is selected for. A model that the method does not have has round 0."""


class Final(Question):
    def entries(self, setting: Setting) -> Tensors:
        classes = setting.server.info.num_classes
        return {
            SELECTED: torch.zeros(len(KINDS), dtype=torch.int64),
            CLASS_TIERS: torch.zeros(classes, dtype=torch.int64),
        }

    def fault(self, message: Tensors, setting: Setting) -> str | None:
        rounds, tiers = message[SELECTED], message[CLASS_TIERS]
        if not bool(((rounds >= 0) & (rounds <= setting.server.last_round)).all()):
            return f"the server selects round {rounds.tolist()}, but the run has {setting.server.last_round}"
        if not bool(((tiers >= 0) & (tiers < 3)).all()):
            return "the server's tiers are not 0, 1 or 2"
        return None

    def layout(self, setting: Setting) -> Layout:
        return grid_layout()

    def answer(self, participant: Participant, message: Tensors) -> Vector:
        privacy, info = participant.privacy, participant.info
        nothing: Vector = np.zeros(sum(size for _, (size, *_) in grid_layout()), dtype=np.int64)
        if privacy.noisy:
            return nothing
        own = {name: value for name, value in message.items() if name not in (SELECTED, CLASS_TIERS)}
        logits, known = participant.taken_home(own)
        rows, y = participant.validation(logits)
        few = privacy.min_count if privacy.guard and not privacy.secure else 0
        tier = message[CLASS_TIERS].numpy()
        return grid_sums(rows.numpy(), y.numpy(), tier, known.numpy(), few, info.num_clients)
