"""All questions that a server may ask beside the rounds."""

from __future__ import annotations

from collections.abc import Mapping

from fedepd.rounds.adapting import Adaptation, Adapted
from fedepd.rounds.final import Final
from fedepd.rounds.measure import Measure
from fedepd.rounds.pointing import Pointing
from fedepd.rounds.question import Question, Setting

STATISTICS, FINAL, ADAPTATION, ADAPTED, POINT = "statistics", "final", "adaptation", "adapted", "point"
QUESTIONS: Mapping[str, Question] = {
    STATISTICS: Measure(),
    FINAL: Final(),
    ADAPTATION: Adaptation(),
    ADAPTED: Adapted(),
    POINT: Pointing(),
}
"""By name."""


def asked_before(purpose: str) -> bool:
    """Whether this is the name of a question that is asked before the first round."""
    return purpose in QUESTIONS and QUESTIONS[purpose].before


def asked_in(question: str, last_round: int) -> int:
    """The round that a question belongs to: 0 or the last one."""
    return 0 if asked_before(question) else last_round


def asked_of(setting: Setting) -> list[str]:
    """The questions that a run with this setting asks."""
    return [name for name, question in QUESTIONS.items() if question.asked(setting)]
