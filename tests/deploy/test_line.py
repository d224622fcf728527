"""Why there is nothing to check in an answer; asking and waiting are in test_exchange.py."""

from __future__ import annotations

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.shareable import Shareable, make_reply

from fedepd.deploy.intake import Fault
from fedepd.deploy.line import missing
from fedepd.deploy.wire import REASON


def test_an_answer_that_came_is_not_missing() -> None:
    assert missing(Shareable({"round": 1})) is None


def test_a_text_says_why_there_is_none() -> None:
    assert missing("is missing: the site is unreachable") == Fault(
        "is missing: the site is unreachable", offence=False
    )


@pytest.mark.hostile
def test_a_site_that_failed_is_not_blamed_and_its_words_are_shown_plainly() -> None:
    answer = make_reply("EXECUTION_EXCEPTION")
    answer.set_header(REASON, "no\x1b[2J")
    fault = missing(answer)
    assert fault is not None
    assert not fault.offence
    assert fault.reason == "failed at the site (EXECUTION_EXCEPTION); no?[2J"
