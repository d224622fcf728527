"""The exchange of a deployed run over a stand-in for NVFlare.

The stand-in's sites can be silent, frozen or wrong; test_faults.py has real ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable, make_reply

from fedepd.deploy import line as module
from fedepd.deploy.exchange import OverNVFlare
from fedepd.deploy.intake import Intake
from fedepd.deploy.ledger import Ledger
from fedepd.deploy.line import QuorumLost, Stopped
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import (
    DECLARE,
    ENGINE_FIELD,
    EVALUATE,
    PING,
    REASON,
    STEP,
    confusions_record,
    declaration_record,
    read_message,
    reply_record,
)
from fedepd.rounds.admission import Refusal
from fedepd.rounds.loop import train
from fedepd.types import Reply, Sizes, Tensors
from toy import CLASSES, FEATURES, toy_client

SITES = ("a", "b", "c")
MESSAGES = {k: {"w": torch.tensor([float(k)])} for k in range(3)}
Answer = Callable[[str, Any], Shareable | None]
NONE = torch.zeros(CLASSES, dtype=torch.int64)
ONE_EACH = Sizes(5, 3, torch.ones(CLASSES, dtype=torch.int64), NONE, NONE)


class StandIn:
    """What ``OverNVFlare`` uses of a controller and its engine.

    ``answers``: by site, its record for a task, or None for silence. Requests to ``broken`` sites break off.
    """

    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers, self.frozen, self.broken = answers, set[str](), set[str]()
        self.posted: list[tuple[str, str]] = []
        self.sent: list[tuple[str, str]] = []
        self.cancelled: list[Any] = []
        self.engine = SimpleNamespace(
            get_clients=self.clients, new_context=FLContext, send_aux_request=self.send_aux_request
        )
        self.context = SimpleNamespace(get_engine=lambda: self.engine)

    def clients(self) -> list[Any]:
        return [SimpleNamespace(name=site) for site in self.answers]

    def send_aux_request(
        self, targets: Sequence[str], topic: str, request: Any, seconds: float, context: Any, optional: bool
    ) -> dict[str, Any]:
        if topic == PING:
            return {site: make_reply(ReturnCode.OK) for site in targets if site not in self.frozen}
        (site,) = targets
        if site in self.broken:
            return {site: make_reply(ReturnCode.COMMUNICATION_ERROR)}
        headers = request.pop(ENGINE_FIELD)
        self.sent.append((site, headers[ReservedHeaderKey.TASK_NAME]))
        record = self._record(site, headers[ReservedHeaderKey.TASK_NAME], request)
        while record is None and not context.get_run_abort_signal().triggered:
            time.sleep(0.01)
        return {site: record}

    def broadcast(self, task: Any, fl_ctx: Any, targets: list[str], min_responses: int) -> None:
        (site,) = targets
        self.posted.append((site, task.name))
        record = self._record(site, task.name, task.data)
        if record is not None:
            task.result_received_cb(SimpleNamespace(result=record), fl_ctx)

    def _record(self, site: str, name: str, data: Any) -> Shareable | None:
        return None if site in self.frozen else self.answers[site](name, data)

    def cancel_task(self, task: Any, fl_ctx: Any) -> None:
        self.cancelled.append(task)


def echo(name: str, record: Any) -> Shareable:
    """Sends back what it was sent, or declares one node of each class."""
    if name == DECLARE:
        return Shareable(declaration_record(ONE_EACH))
    round, message = read_message(record)
    return Shareable(reply_record(Reply(message, 5, 3, {}, round)))


def silent(name: str, record: Any) -> None:
    return None


Open = Callable[..., OverNVFlare]


@pytest.fixture
def over() -> Iterator[Open]:
    opened = []

    def make(stand_in: StandIn, min_sites: int = 1, deadline: float = 0.5, **more: Any) -> OverNVFlare:
        task = FederationTask("r", "fedavg", "default", {}, FEATURES, CLASSES, SITES, min_sites, deadline)
        abort = SimpleNamespace(triggered=more.get("stopped", False))
        opened.append(
            OverNVFlare(
                task,
                more.get("declared", {}),
                more.get("intake", Intake(2**30)),
                stand_in,
                stand_in.context,
                abort,
            )
        )
        return opened[-1]

    yield make
    for each in opened:
        each.close()


@pytest.fixture
def quick_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty times as fast, but for the time to start: who has answered once has started."""
    for name, seconds in {"PING_EVERY": 0.1, "PING_TIMEOUT": 0.1, "GONE_AFTER": 0.4}.items():
        monkeypatch.setattr(module, name, seconds)


def test_every_site_gets_its_own_message(over: Open) -> None:
    replies = over(StandIn(dict.fromkeys(SITES, echo))).step(4, MESSAGES)
    assert {k: reply.tensors["w"].tolist() for k, reply in replies.items()} == {0: [0.0], 1: [1.0], 2: [2.0]}
    assert [reply.round for reply in replies.values()] == [4, 4, 4]


def test_only_the_first_question_waits_until_a_site_asks(over: Open) -> None:
    stand_in = StandIn(dict.fromkeys(SITES, echo))
    exchange = over(stand_in)
    for round in (1, 2, 3):
        assert sorted(exchange.step(round, MESSAGES)) == [0, 1, 2]
    assert sorted(stand_in.posted) == [(site, STEP) for site in SITES]
    assert sorted(stand_in.sent) == [(site, STEP) for site in SITES for _ in range(2)]


def test_a_site_that_never_answers_costs_the_deadline_and_its_own_reply(over: Open) -> None:
    stand_in = StandIn({"a": echo, "b": silent, "c": echo})
    exchange = over(stand_in, min_sites=2, deadline=0.3)
    start = time.monotonic()
    assert sorted(exchange.step(1, MESSAGES)) == [0, 2]
    assert 0.3 <= time.monotonic() - start < 3
    assert exchange.take_refusals() == [
        Refusal(1, "reply", "is missing: no answer within 0.3 s", absent=True)
    ]
    assert len(stand_in.cancelled) == 1
    stand_in.answers["b"] = echo
    assert sorted(exchange.step(2, MESSAGES)) == [0, 1, 2]
    assert exchange.take_refusals() == []


def test_a_frozen_site_is_noticed_by_its_pulse_and_is_back_when_it_answers_again(
    over: Open, quick_pings: None
) -> None:
    stand_in = StandIn(dict.fromkeys(SITES, echo))
    exchange = over(stand_in, deadline=60)
    assert sorted(exchange.step(1, MESSAGES)) == [0, 1, 2]
    stand_in.frozen.add("c")
    start = time.monotonic()
    assert sorted(exchange.step(2, MESSAGES)) == [0, 1]
    assert time.monotonic() - start < 5
    assert exchange.take_refusals() == [
        Refusal(2, "reply", "is missing: the site became unreachable", absent=True)
    ]
    assert exchange.missing() == ["c"]
    stand_in.sent.clear()
    assert sorted(exchange.step(3, MESSAGES)) == [0, 1]
    assert sorted(stand_in.sent) == [("a", STEP), ("b", STEP)]
    stand_in.frozen.clear()
    end = time.monotonic() + 5
    while exchange.missing() and time.monotonic() < end:
        time.sleep(0.05)
    assert sorted(exchange.step(4, MESSAGES)) == [0, 1, 2]


def test_a_site_that_is_not_in_the_job_is_missing_from_the_first_round_on(over: Open) -> None:
    exchange = over(StandIn({"a": echo, "c": echo}), deadline=60)
    assert sorted(exchange.step(1, MESSAGES)) == [0, 2]
    assert exchange.take_refusals() == [
        Refusal(1, "reply", "is missing: the site is unreachable", absent=True)
    ]


def test_a_lost_quorum_names_who_was_missing(over: Open) -> None:
    exchange = over(StandIn({"a": echo, "b": silent}), min_sites=2)
    with pytest.raises(
        QuorumLost,
        match=r"too few sites answered fedepd_step in round 7: 1 instead of at least 2 "
        r"\(b: .* within 0.5 s; c: .*unreachable\)",
    ):
        exchange.step(7, MESSAGES)


def test_a_stopped_job_stops_waiting(over: Open) -> None:
    with pytest.raises(Stopped):
        over(StandIn(dict.fromkeys(SITES, silent)), deadline=60, stopped=True).step(1, MESSAGES)


def test_failed_and_broken_answers_are_refused_by_name(over: Open) -> None:
    def failing(name: str, record: Any) -> Shareable:
        return make_reply(ReturnCode.EXECUTION_EXCEPTION)

    def wrong(name: str, record: Any) -> Shareable:
        return Shareable({**echo(name, record), "labels": np.ones(3)})

    exchange = over(StandIn({"a": failing, "b": wrong, "c": echo}))
    assert sorted(exchange.step(1, MESSAGES)) == [2]
    assert [(r.client, r.field) for r in exchange.refusals] == [(0, "reply"), (1, "reply")]
    assert "the site's own log says why" in exchange.refusals[0].reason
    assert "labels" in exchange.refusals[1].reason


@pytest.mark.hostile
def test_an_answer_that_was_too_large_to_read_is_refused_at_once_and_blamed(over: Open) -> None:
    """The byte count has dropped what site b sent, so nothing of it ever arrives.

    No deadline is waited for.
    """
    intake = Intake(2**20)

    def bomb(name: str, record: Any) -> None:
        intake.note("b.job", "is 800,000,000 bytes, but at most 1,048,576 are expected")

    exchange = over(StandIn({"a": echo, "b": bomb, "c": echo}), intake=intake, deadline=60)
    start = time.monotonic()
    assert sorted(exchange.step(1, MESSAGES)) == [0, 2]
    assert time.monotonic() - start < 5
    assert exchange.take_refusals() == [
        Refusal(1, "reply", "is 800,000,000 bytes, but at most 1,048,576 are expected")
    ]


def test_an_owner_may_let_its_site_say_why_it_refuses(over: Open) -> None:
    def refusing(name: str, record: Any) -> Shareable:
        reply = make_reply(ReturnCode.TASK_UNSUPPORTED)
        reply.set_header(REASON, "the run asks for hidden = 2048\x1b[2J")
        return reply

    exchange = over(StandIn({"a": refusing, "b": echo, "c": echo}))
    exchange.step(1, MESSAGES)
    (refusal,) = exchange.take_refusals()
    assert refusal.reason.endswith("the run asks for hidden = 2048?[2J")
    assert refusal.absent


def test_class_sizes_are_asked_for_once_and_again_where_they_are_unknown(over: Open) -> None:
    stand_in = StandIn({"a": echo, "b": silent, "c": echo})
    exchange = over(stand_in, declared={2: Sizes(30, 21, torch.tensor([7, 7, 7]), NONE, NONE)})
    assert {k: sizes.train.tolist() for k, sizes in exchange.declared([0, 1, 2]).items()} == {
        0: [1, 1, 1],
        2: [7, 7, 7],
    }
    stand_in.answers["b"] = echo
    assert sorted(exchange.declared([0, 1, 2])) == [0, 1, 2]
    exchange.declared([0, 1, 2])
    assert stand_in.posted == [("a", DECLARE), ("b", DECLARE), ("b", DECLARE)]


def named(*names: str) -> Answer:
    """A site whose data calls the classes so."""
    return lambda name, record: (
        Shareable(declaration_record(ONE_EACH, names)) if name == DECLARE else echo(name, record)
    )


@pytest.mark.hostile
def test_a_site_that_calls_the_classes_otherwise_is_refused_in_words(over: Open) -> None:
    """A branch without a 'mule' numbers 'takeover' 1: its class 1 is not the others' class 1."""
    right = named("clean", "mule", "takeover")
    exchange = over(StandIn({"a": named("clean", "takeover"), "b": right, "c": right}))
    assert sorted(exchange.declared([0, 1, 2])) == [1, 2]
    (refusal,) = exchange.take_refusals()
    assert (refusal.client, refusal.field) == (0, "label_names")
    assert refusal.reason.startswith("calls class 1 'takeover', but the federation calls it 'mule'")


@pytest.mark.hostile
def test_a_site_with_other_columns_is_refused(over: Open) -> None:
    def columns(name: str) -> Answer:
        return lambda task, record: (
            Shareable(declaration_record(ONE_EACH, (), name * 64)) if task == DECLARE else echo(task, record)
        )

    exchange = over(StandIn({"a": columns("1"), "b": columns("2"), "c": columns("2")}))
    assert sorted(exchange.declared([0, 1, 2])) == [1, 2]
    assert [(r.client, r.field) for r in exchange.take_refusals()] == [(0, "schema_sha256")]


def test_sites_without_names_or_without_the_last_class_agree_with_all(over: Open) -> None:
    exchange = over(
        StandIn({"a": named(), "b": named("clean", "mule"), "c": named("clean", "mule", "takeover")})
    )
    assert sorted(exchange.declared([0, 1, 2])) == [0, 1, 2]


class Site:
    """A participant behind records; each of its steps fails with the given probability.

    A failure is known at once, so that no round waits for a deadline.
    """

    def __init__(self, participant: Any, loss: float) -> None:
        self.participant, self.loss, self.losses = (
            participant,
            loss,
            np.random.default_rng(participant.client_id),
        )

    def __call__(self, name: str, record: Any) -> Shareable:
        if name == DECLARE:
            return Shareable(declaration_record(self.participant.sizes))
        round, message = read_message(record)
        if name == EVALUATE:
            return Shareable(confusions_record(round, self.participant.evaluate(round, message)))
        reply = self.participant.step(round, message)
        lost = self.losses.random() < self.loss
        return make_reply(ReturnCode.TASK_ABORTED) if lost else Shareable(reply_record(reply))


def test_thirty_percent_of_answers_lost_over_fifty_rounds(tmp_path: Path) -> None:
    """Class 2 lives at site c alone.

    In rounds without c it keeps its prototype, bit for bit, and the round's line says so.
    """
    settings = {"rounds": 50, "evaluate_every": 50, "hidden": 4, "epochs": 1}
    task = FederationTask("r", "fedepd", "default", settings, FEATURES, CLASSES, SITES, min_sites=1)
    clients = [toy_client(0, missing_class=True), toy_client(1, missing_class=True), toy_client(2)]
    losses = {"a": 0.0, "b": 0.3, "c": 0.3}  # all three lost would end the run, as it should
    stand_in = StandIn(
        {site: Site(task.participant(c), losses[site]) for site, c in zip(SITES, clients, strict=True)}
    )
    exchange = OverNVFlare(
        task, {}, Intake(2**30), stand_in, stand_in.context, SimpleNamespace(triggered=False)
    )
    ledger = Ledger(task)
    kept: Tensors = {}
    absent = 0
    try:
        for each in train(
            ledger.experiment.method,
            ledger.server,
            ledger.progress.tensors,
            [0, 1, 2],
            exchange,
            50,
            defence=ledger.experiment.defence,
        ):
            ledger.declare(exchange.sizes)
            line = ledger.add(each, exchange.counts)
            assert line.get("stale", {}) == (
                {"prototype.count": [2]} if kept and 2 not in each.clients else {}
            )
            assert {r.client for r in each.refused} == {0, 1, 2} - set(each.clients)
            assert not each.excluded  # nobody is blamed for a lost answer
            if 2 in each.clients:
                kept = {"last": each.tensors["prototype.mean"][2]}
            elif kept:
                absent += 1
                assert torch.equal(each.tensors["prototype.mean"][2], kept["last"])
    finally:
        exchange.close()
    assert ledger.progress.next_round == 51
    assert 5 < absent < 25
