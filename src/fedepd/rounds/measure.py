"""The question before the first round: statistics, by which all clients scale their columns alike."""

from __future__ import annotations

from fedepd.rounds.participant import Participant
from fedepd.rounds.question import Question, Setting
from fedepd.rounds.statistics import statistics_layout
from fedepd.rounds.sums import Layout, Vector
from fedepd.types import Tensors


class Measure(Question):
    before = True

    def asked(self, setting: Setting) -> bool:
        return bool(setting.scaled or setting.counted)

    def layout(self, setting: Setting) -> Layout:
        return statistics_layout(len(setting.scaled), len(setting.counted))

    def answer(self, participant: Participant, message: Tensors) -> Vector:
        return participant.statistics_vector
