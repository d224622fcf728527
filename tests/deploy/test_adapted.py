"""Adaptation between real sites: the simulation's bits, and no adapted model leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.office import Office
from deploy.test_sums import SITES, files_of, kits, losing, make_task, permissive
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.sent import read_sent
from fedepd.deploy.state import ADAPTED, read_final
from fedepd.deploy.task import site_data
from fedepd.deploy.wire import ASK, SHARES, Sum, read_answer, sum_record
from fedepd.rounds.adapt import CANDIDATES, SEEN, WEIGHT
from fedepd.rounds.adapting import CHOICE, choice_entry
from fedepd.rounds.gains import Gain
from fedepd.rounds.guard import OPEN
from fedepd.rounds.questions import QUESTIONS
from toy import CLASSES

__all__ = ["kits"]
ALONE = "min_count = 1\nmin_holders = 1\nsecure = false\n"


@pytest.fixture(autouse=True)
def _always_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites of twenty nodes can be sure of nothing. The whole way is walked if any gain is enough."""
    monkeypatch.setattr(Gain, "sure", property(lambda gain: gain.value > 0))


def decided(ledger: Any) -> dict[str, Any]:
    about: dict[str, Any] = ledger.progress.adapted.about
    return {name: value for name, value in about.items() if name != "seconds"}


def test_sites_adapt_as_a_rehearsal_does(kits: Path) -> None:
    permissive(kits)
    task = make_task(sites=3, adapt=True)
    ledger, again = Office(kits, task).run(), rehearse(task, files_of(kits, 3))
    assert decided(ledger)["used"]
    assert decided(ledger) == decided(again)
    assert ledger.digest() == again.digest()
    for site in task.sites:
        found = read_final(kits / site / "state" / "r", task.identity())
        assert found.adapted is not None
        assert {WEIGHT, SEEN, "classifier.weight"} <= found.adapted.keys()
        assert float(found.adapted[WEIGHT]) in {each.weight for each in CANDIDATES}
        left = {line["what"] for line in read_sent(kits / site / "state" / "r")}
        assert {"adaptation", "adapted", "final"} <= left
    assert ledger.progress.metrics()["adapted"].keys() == {"pooled"}


def test_a_server_that_was_restarted_knows_what_was_decided(kits: Path, tmp_path: Path) -> None:
    permissive(kits)
    task = make_task(sites=3, adapt=True)
    ledger = Office(kits, task).run()
    (tmp_path / "server").mkdir()
    ledger.save(tmp_path / "server")
    again = type(ledger)(task)
    again.load(tmp_path / "server")
    assert again.progress.adapted is not None
    assert again.digest() == ledger.digest()
    assert decided(again) == decided(ledger)


def test_a_site_that_is_lost_in_between_keeps_no_adapted_model(kits: Path) -> None:
    """Sums: sizes, 3 steps, 2 evaluations, the adaptation; the eighth is that of the adapted models."""
    permissive(kits)
    task = make_task(sites=5, adapt=True)
    ledger = Office(kits, task, losing(("b", SHARES, 8))).run()
    assert decided(ledger)["asked"] == [0, 1, 2, 3, 4]
    assert decided(ledger)["clients"] == [0, 2, 3, 4]
    assert (kits / "a" / "state" / "r" / ADAPTED).exists()


def alone(kits: Path, **settings: Any) -> Office:
    """Sites whose answers are seen one by one."""
    for site in SITES:
        (kits / site / "local" / "limits.toml").write_text(ALONE)
    return Office(kits, make_task(sites=3, secure=False, **settings))


def test_a_site_whose_answers_are_seen_alone_answers_the_same(kits: Path) -> None:
    office = alone(kits, adapt=True)
    task, model = office.task, office.sites["a"]._admitted.expected  # type: ignore[union-attr]
    message = {**model, OPEN: torch.ones(CLASSES)}
    here = task.participant(site_data(task, "a", files_of(kits)[0]))
    for question, entries in (("adaptation", {}), ("adapted", choice_entry(3, "acc"))):
        which, sent = Sum(question, 3), {**message, **entries}
        expected = QUESTIONS[question].answer(here, sent)
        answer = office.ask("a", ASK, sum_record(which, {}, sent))
        assert np.array_equal(read_answer(answer, which, len(expected), 10**6), expected)
    assert (kits / "a" / "state" / "r" / ADAPTED).exists()


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("adapt", "question", "entry", "said"),
    [
        (False, "adaptation", None, "asks for the adaptation of round 3, which the run does not have"),
        (False, "adapted", [1, 0], "asks for the adapted of round 3, which the run does not have"),
        (True, "adapted", None, "adapt.choice"),  # no choice
        (True, "adapted", [99, 0], "no candidate of the adaptation"),
        (True, "adaptation", [1, 0], "holds 'adapt.choice'"),  # a choice where there is none
    ],
)
def test_a_question_that_an_honest_server_would_not_ask_is_refused(
    kits: Path, adapt: bool, question: str, entry: list[int] | None, said: str
) -> None:
    office = alone(kits, adapt=adapt)
    message = {**office.sites["a"]._admitted.expected}  # type: ignore[union-attr]
    message |= {} if entry is None else {CHOICE: torch.tensor(entry)}
    answer = office.ask("a", ASK, sum_record(Sum(question, 3), {}, message))
    assert answer.get_return_code() == "EXECUTION_EXCEPTION"
    assert said in office.log["a"][-1]
    assert not (kits / "a" / "state" / "r" / ADAPTED).exists()
