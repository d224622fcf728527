"""The question behind a common operating point: how many validation nodes have which score.

It is asked after the last round, before the final message, which then brings the thresholds to all clients.
"""

from __future__ import annotations

import numpy as np
import torch

from fedepd.rounds.calibrate import grid_sums, probabilities, temperatures_from
from fedepd.rounds.final import CLASS_TIERS, ENTRIES, SELECTED, USUAL, selection, selection_fault
from fedepd.rounds.guard import OPEN
from fedepd.rounds.participant import Participant
from fedepd.rounds.point import counts_fault, goals_of, histograms, names_of, point_layout, rules_of
from fedepd.rounds.question import Question, Setting
from fedepd.rounds.sums import Layout, Vector
from fedepd.types import Tensors


class Pointing(Question):
    def asked(self, setting: Setting) -> bool:
        return bool(setting.aim)

    def entries(self, setting: Setting) -> Tensors:
        return {**selection(setting), USUAL: torch.zeros(1, dtype=torch.int64)}

    def fault(self, message: Tensors, setting: Setting) -> str | None:
        return selection_fault(message, setting)

    def answer_fault(self, answer: Vector, validation: int) -> str | None:
        return counts_fault(answer, validation)

    def layout(self, setting: Setting) -> Layout:
        return point_layout(goals_of(setting.aim))

    def answer(self, participant: Participant, message: Tensors) -> Vector:
        """Counts by score, of the model that the client takes home.

        Choice: probabilities are calibrated on the client's own validation nodes, as in the model folder
        that its owner gets. So a threshold means the same in the counts and in the folder.

        Choice: where a vector is seen alone, scores stand in groups of ``min_count`` nodes, also without the
        guard. A bin with one node would be that node's score.
        """
        privacy, classes = participant.privacy, participant.info.num_classes
        own = {name: value for name, value in message.items() if name not in ENTRIES}
        selected = int(message[SELECTED][0]) or participant.last_round
        logits = participant.predictions(selected, own)["global"]
        rows, y = (part.numpy() for part in participant.validation(logits))
        rows, tier = rows.astype(np.float64), message[CLASS_TIERS].numpy()
        held = participant.own_sizes.train > 0
        opened = message[OPEN] > 0 if OPEN in message else torch.ones(classes, dtype=torch.bool)
        temperatures = temperatures_from(grid_sums(rows, y, tier, (held | opened).numpy()))
        p = probabilities(rows, temperatures, tier)
        seen = np.ones(len(y), dtype=bool)
        if OPEN in message:
            seen = participant.shown_classes(opened).numpy()[y]
        goals = goals_of(participant.aim)
        rules = rules_of(goals, names_of(participant.label_names, classes), int(message[USUAL]))
        return histograms(p[seen], y[seen], rules, goals, 0 if privacy.secure else privacy.min_count)
