"""How one question reaches its sites: posted, or sent at once; asking and waiting are in test_exchange.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply
from nvflare.apis.signal import Signal

from deploy.test_exchange import StandIn, echo, silent
from fedepd.deploy.question import BROKEN_OFF, Question
from fedepd.deploy.wire import STEP, message_record, read_reply

RECORD = message_record(1, {})


def ask(stand_in: StandIn, refused: Callable[[str], bool] = lambda site: False) -> tuple[Question, list[str]]:
    heard: list[str] = []
    return Question(STEP, stand_in, stand_in.context, Signal(), heard.append, refused), heard


def answered(question: Question) -> Any:
    with question.ready:
        assert question.ready.wait_for(lambda: 0 in question.answers, 5)
    return question.answers[0]


def test_a_task_that_is_sent_is_not_posted() -> None:
    stand_in = StandIn({"a": echo})
    question, heard = ask(stand_in)
    question.send(0, "a", RECORD, 5)
    assert read_reply(answered(question), 1).round == 1
    assert (stand_in.sent, stand_in.posted, heard) == ([("a", STEP)], [], ["a"])


@pytest.mark.parametrize("code", [*BROKEN_OFF, None])
def test_a_request_that_breaks_off_is_posted(code: str | None) -> None:
    stand_in = StandIn({"a": echo})
    stand_in.engine.send_aux_request = lambda *a, **k: None if code is None else {"a": make_reply(code)}
    question, _ = ask(stand_in)
    question.send(0, "a", RECORD, 5)
    assert read_reply(answered(question), 1).round == 1
    assert stand_in.posted == [("a", STEP)]


@pytest.mark.hostile
def test_a_site_whose_answer_was_dropped_is_not_asked_again() -> None:
    stand_in, asked = StandIn({"a": echo}), threading.Event()

    def refused(site: str) -> bool:
        asked.set()
        return True

    stand_in.broken.add("a")
    question, _ = ask(stand_in, refused)
    question.send(0, "a", RECORD, 5)
    assert asked.wait(5)
    time.sleep(0.05)
    assert (stand_in.posted, question.answers) == ([], {})


def test_a_site_that_fails_has_answered() -> None:
    stand_in = StandIn({"a": lambda name, record: make_reply(ReturnCode.EXECUTION_EXCEPTION)})
    question, _ = ask(stand_in)
    question.send(0, "a", RECORD, 5)
    assert answered(question).get_return_code() == ReturnCode.EXECUTION_EXCEPTION
    assert stand_in.posted == []


def test_nothing_is_waited_for_or_posted_after_the_end() -> None:
    """A silent site's thread ends with the question. Its task is cancelled, and none is posted any more."""
    stand_in = StandIn({"a": silent, "b": silent})
    question, _ = ask(stand_in)
    question.send(0, "a", RECORD, 5)
    question.post(1, "b", RECORD)
    question.close()
    for thread in threading.enumerate():
        if thread.name == "fedepd-a":
            thread.join(5)
            assert not thread.is_alive()
    question.post(0, "a", RECORD)
    assert stand_in.posted == [("b", STEP)]
    assert len(stand_in.cancelled) == 1
