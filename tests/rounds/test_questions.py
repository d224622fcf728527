"""When questions are asked."""

from __future__ import annotations

from fedepd.rounds.questions import FINAL, QUESTIONS, asked_before, asked_in


def test_a_question_belongs_to_round_0_or_to_the_last_one() -> None:
    assert asked_in(FINAL, 9) == 9
    assert {asked_in(name, 9) for name in QUESTIONS} <= {0, 9}


def test_sizes_and_steps_are_no_questions() -> None:
    assert not any(asked_before(purpose) for purpose in ("sizes", "step", "evaluate", FINAL))
