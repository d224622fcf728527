"""What a run asks its clients before the first round."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import cast

from fedepd.rounds.pooled import Summing
from fedepd.rounds.question import Setting
from fedepd.rounds.questions import QUESTIONS, STATISTICS
from fedepd.rounds.statistics import statistics_of
from fedepd.runs.drive import Course
from fedepd.runs.selection import Progress
from fedepd.types import Tensors


def measure(
    course: Course, setting: Setting, progress: Progress, most_nodes: int, names: Sequence[str] = ()
) -> bool:
    """Agree on the scaling of columns by sums over the clients. Returns whether they were asked.

    What was found is kept in ``progress.answers``. A run that has it there does not ask again: late clients
    and a resumed run use it. ``most_nodes``: of one client. ``names``: of the features, where they
    are known.
    """
    question = QUESTIONS[STATISTICS]
    if not question.asked(setting) or STATISTICS in progress.answers:
        return False
    messages: dict[int, Tensors] = {client: {} for client in sorted(course.clients)}
    total, clients = cast(Summing, course.exchange).ask(STATISTICS, messages)
    found = statistics_of(
        total, clients, setting.scaled, setting.counted, setting.privacy, most_nodes * len(clients)
    )
    numbers = sum(prod(shape) for _, shape in question.layout(setting))
    progress.answers[STATISTICS] = {
        **found.saved(names),
        "bytes_up": 8 * numbers * len(clients),
        "bytes_down": 0,
    }
    return True
