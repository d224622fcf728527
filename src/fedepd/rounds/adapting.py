"""The two questions of the adaptation stage. Their answers are added up over the clients.

``Adaptation`` asks how each candidate differs from the selected model on validation nodes. ``Adapted`` names
the common choice, and asks how the models score that the clients then use.
"""

from __future__ import annotations

from math import prod

import torch

from fedepd.errors import BadMessage
from fedepd.rounds.adapt import CANDIDATES, own_choice
from fedepd.rounds.gains import FIRST, Counts
from fedepd.rounds.guard import OPEN
from fedepd.rounds.participant import Participant
from fedepd.rounds.question import Question, Setting
from fedepd.rounds.sums import Layout, Vector
from fedepd.types import Tensors

CHOICE = "adapt.choice"
"""The entry of a message that says what all clients have chosen: int64 [2], a candidate and a metric."""
METRICS = ("macro_f1", "acc")
"""The scores that can decide."""
NAMES = ("adapted_test", "adapted_val")


def choice_entry(candidate: int, metric: str) -> Tensors:
    """What the message holds beside the selected model."""
    return {CHOICE: torch.tensor([candidate, METRICS.index(metric)])}


class Adaptation(Question):
    def asked(self, setting: Setting) -> bool:
        return setting.adapts

    def layout(self, setting: Setting) -> Layout:
        """The selected model's confusion matrix, and how each other candidate differs from it."""
        classes = setting.server.info.num_classes
        others = ((f"{c.steps} steps, {c.weight:g}", (3, classes, classes)) for c in CANDIDATES[1:])
        return (("selected", (classes, classes)), *others)

    def answer(self, participant: Participant, message: Tensors) -> Vector:
        predicted = participant.adapter(message).predicted
        opened = message[OPEN] > 0 if OPEN in message else None
        counts = participant.compared(predicted, opened)
        vector: Vector = torch.cat([each.reshape(-1) for each in counts]).numpy()
        return vector


def adaptation_counts(total: Vector, classes: int) -> tuple[Counts, list[Counts]]:
    """The sum of such answers, taken apart. It is refused if its counts contradict each other."""
    first = total[: classes**2].reshape(classes, classes)
    others = list(total[classes**2 :].reshape(-1, 3, classes, classes))
    for each in others:
        enough = first.sum(0) - each.sum((0, 2)), first.diagonal() - each[FIRST].sum(1)
        if first.min() < 0 or each.min() < 0 or any(left.min() < 0 for left in enough):
            raise BadMessage(
                "the clients' counts for the adaptation contradict each other; resume the run without adapt, "
                "or find the client that sends them"
            )
    return first, others


class Adapted(Question):
    def asked(self, setting: Setting) -> bool:
        return setting.adapts

    def entries(self, setting: Setting) -> Tensors:
        return choice_entry(0, METRICS[0])

    def fault(self, message: Tensors, setting: Setting) -> str | None:
        candidate, metric = message[CHOICE].tolist()
        if 0 <= candidate < len(CANDIDATES) and 0 <= metric < len(METRICS):
            return None
        return f"the server chooses {[candidate, metric]}, which is no candidate of the adaptation"

    def layout(self, setting: Setting) -> Layout:
        """The confusion matrices, and how many clients use each candidate."""
        classes = setting.server.info.num_classes
        return (*((name, (classes, classes)) for name in NAMES), ("used", (len(CANDIDATES),)))

    def answer(self, participant: Participant, message: Tensors) -> Vector:
        common, metric = message[CHOICE].tolist()
        model = {name: value for name, value in message.items() if name != CHOICE}
        ways = participant.adapter(model).predicted
        choice = own_choice(common, participant.compared([ways[common], *ways]), METRICS[metric])
        participant.adapt(model, choice)
        opened = message[OPEN] > 0 if OPEN in message else None
        matrices = participant.counted("adapted", ways[choice], opened)
        used = torch.zeros(len(CANDIDATES), dtype=torch.int64).index_fill(0, torch.tensor(choice), 1)
        vector: Vector = torch.cat([*(matrices[name].reshape(-1) for name in NAMES), used]).numpy()
        return vector


def adapted_counts(total: Vector, classes: int) -> tuple[dict[str, Counts], Counts]:
    """The sum of such answers: confusion matrices [1, C, C], and clients by candidate."""
    shape = (len(NAMES), 1, classes, classes)
    if total.min() < 0:
        raise BadMessage("the adapted models' confusion matrices hold a negative count; find who sends it")
    matrices = total[: prod(shape)].reshape(shape)
    return dict(zip(NAMES, matrices, strict=True)), total[prod(shape) :]
