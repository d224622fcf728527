"""What every question has."""

from __future__ import annotations

import pytest

from fedepd.methods import METHODS, Server
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.guard import NO_PRIVACY
from fedepd.rounds.question import Setting
from fedepd.rounds.questions import QUESTIONS
from fedepd.types import TaskInfo

SERVER = Server(TaskInfo(4, 3, 3), Backbone(), Training(), 0, 0, 9)
SETTING = Setting(METHODS["fedavg"](), SERVER, NO_PRIVACY, aim="recall 1=0.5")


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_entries_of_a_message_have_other_names_than_a_methods_tensors(name: str) -> None:
    server = SETTING.server
    own = SETTING.method.message(server.model.initial(server.info, 0), 0)
    assert not own.keys() & QUESTIONS[name].entries(SETTING).keys()


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_examples_of_entries_are_right_and_the_layout_is_not_empty(name: str) -> None:
    question = QUESTIONS[name]
    assert question.fault(question.entries(SETTING), SETTING) is None
    assert question.layout(SETTING)
