from __future__ import annotations

from math import prod

import numpy as np

from fedepd.methods import METHODS
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.guard import NO_PRIVACY
from fedepd.rounds.measure import Measure
from fedepd.rounds.participant import Participant
from fedepd.rounds.question import Setting
from fedepd.rounds.questions import FINAL, QUESTIONS, STATISTICS, asked_before, asked_in, asked_of
from fedepd.types import Unscaled
from toy import make_server, toy_client


def test_it_is_asked_before_the_first_round_where_there_is_something_to_measure() -> None:
    server = make_server([toy_client()], Backbone(hidden=4), Training())
    setting = Setting(METHODS["fedavg"](), server, NO_PRIVACY)
    assert asked_of(setting) == [FINAL]
    for more in ({"scaled": (1,)}, {"counted": (0, 2)}):
        assert asked_of(Setting(setting.method, server, NO_PRIVACY, **more)) == [STATISTICS, FINAL]
    assert asked_before(STATISTICS)
    assert asked_in(STATISTICS, 7) == 0


def test_the_answer_has_the_layout() -> None:
    from dataclasses import replace

    data = toy_client()
    raw = Unscaled((1, 3), np.arange(48.0).reshape(24, 2))
    server = make_server([data], Backbone(hidden=4), Training())
    participant = Participant(
        METHODS["fedavg"](),
        replace(data, unscaled=raw),
        server.info,
        server.model,
        server.training,
        0,
        3,
        counted=(0,),
    )
    setting = Setting(METHODS["fedavg"](), server, NO_PRIVACY, (1, 3), (0,))
    answer = QUESTIONS[STATISTICS].answer(participant, {})
    assert isinstance(QUESTIONS[STATISTICS], Measure)
    assert answer.size == sum(prod(shape) for _, shape in Measure().layout(setting))
    assert answer[:2].tolist() == [24, 24]
