"""How the server of a deployed run asks its sites, and what counts as an answer.

Each question is one NVFlare task per site with a deadline. A pulse of pings notices dead sites, and a
question fails if too few sites answer.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable

from fedepd.deploy.intake import Fault, Intake
from fedepd.deploy.question import Question
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import PING, REASON, Record, Refused
from fedepd.errors import BadMessage
from fedepd.rounds.admission import Refusal
from fedepd.shown import shown

PING_EVERY, PING_TIMEOUT, GONE_AFTER = 2.0, 2.0, 8.0
START_UP = 120.0
"""Seconds a site has to load torch and its graph before its silence counts against it."""

T = TypeVar("T")


class QuorumLost(BadMessage):
    """Too few sites answered. The run stops at its last checkpoint and can be resumed."""


class Stopped(Exception):
    """The job was told to end."""


class Pulse:
    """Pings every site of the job, so that a dead or frozen one is noticed within ten seconds."""

    def __init__(self, engine: Any, sites: Sequence[str]) -> None:
        self._engine, self._end = engine, threading.Event()
        self._seen = dict.fromkeys(sites, time.monotonic() + START_UP - GONE_AFTER)
        self._met: set[str] = set()
        self._thread = threading.Thread(target=self._beat, name="fedepd-pulse", daemon=True)
        self._thread.start()

    def alive(self, site: str) -> bool:
        return site in self._seen and time.monotonic() - self._seen[site] < GONE_AFTER

    def met(self, site: str) -> bool:
        """Whether the site's worker has given a sign of life, so that a request can reach it."""
        return site in self._met

    def heard(self, site: str) -> None:
        """Note a sign of life: an answer to a ping or to anything else.

        The first one ends the start-up time.
        """
        if site in self._seen:
            self._seen[site] = time.monotonic()
            self._met.add(site)

    def _beat(self) -> None:
        while not self._end.wait(PING_EVERY):
            context = self._engine.new_context()
            answers = self._engine.send_aux_request(
                list(self._seen), PING, Shareable(), PING_TIMEOUT, context, optional=True
            )
            for site, answer in (answers or {}).items():
                if answer is not None and answer.get_return_code() == ReturnCode.OK:
                    self.heard(site)

    def close(self) -> None:
        self._end.set()
        self._thread.join(PING_EVERY + PING_TIMEOUT)


class Line:
    """Asks the sites of a job. An answer that is late, broken or missing is noted in ``refusals``."""

    def __init__(
        self, task: FederationTask, intake: Intake, controller: Any, fl_ctx: Any, abort_signal: Any
    ) -> None:
        self.task, self._intake = task, intake
        self._controller, self._fl_ctx, self._abort_signal = controller, fl_ctx, abort_signal
        here = {client.name for client in fl_ctx.get_engine().get_clients()}
        self._pulse = Pulse(fl_ctx.get_engine(), [site for site in task.sites if site in here])
        self._log = logging.getLogger(f"{__name__}.{type(self).__name__}")
        self.refusals: list[Refusal] = []
        """Answers that were refused before they became a reply. Admission's own refusals are in the round."""

    def missing(self) -> list[str]:
        return [site for site in self.task.sites if not self._pulse.alive(site)]

    def take_refusals(self) -> list[Refusal]:
        taken, self.refusals = self.refusals, []
        return taken

    def close(self) -> None:
        self._pulse.close()

    def _asked(self, name: str, records: Mapping[int, Record], read: Callable[[int, Any], T]) -> dict[int, T]:
        """For each client that answered: what ``read`` made of its record."""
        return self._read(self._ask(name, records), read)

    def _need(self, found: Mapping[int, Any], needed: int, name: str, round: int) -> None:
        if len(found) < needed:
            why = "; ".join(f"{self.task.sites[r.client]}: {r.field} {r.reason}" for r in self.refusals)
            raise QuorumLost(
                f"too few sites answered {name} in round {round}: {len(found)} instead of at least {needed} "
                f"({why}); resume when the others are back"
            )

    def _read(self, answers: Mapping[int, Any], read: Callable[[int, Any], T]) -> dict[int, T]:
        """The answers that can be read. The others are noted in ``refusals``."""
        out: dict[int, T] = {}
        for client, answer in sorted(answers.items()):
            fault = self._intake.take(self.task.sites[client]) or missing(answer)
            try:
                if fault is not None:
                    self.refusals.append(Refusal(client, "reply", fault.reason, absent=not fault.offence))
                else:
                    out[client] = read(client, answer)
            except Refused as refused:
                self.refusals.append(Refusal(client, refused.field, refused.reason))
        return out

    def _ask(self, name: str, records: Mapping[int, Record]) -> dict[int, Any]:
        """For each client: its record, or a text that says why there is none."""
        start = time.monotonic()
        reach = self._controller, self._fl_ctx, self._abort_signal
        question = Question(name, *reach, self._pulse.heard, self._intake.noted)
        for client, record in records.items():
            site = self.task.sites[client]
            if not self._pulse.alive(site):
                question.answers[client] = "is missing: the site is unreachable"
            elif self._pulse.met(site):
                question.send(client, site, record, self.task.deadline)
            else:
                question.post(client, site, record)
        try:
            self._wait(records, question.answers, question.ready)
        finally:
            question.close()
        if records:
            there = sum(not isinstance(answer, str) for answer in question.answers.values())
            elapsed = 1000 * (time.monotonic() - start)
            self._log.info("%s: %d of %d sites in %.0f ms", name, there, len(records), elapsed)
        return question.answers

    def _wait(self, asked: Mapping[int, Record], answers: dict[int, Any], ready: threading.Condition) -> None:
        end = time.monotonic() + self.task.deadline
        with ready:
            while pending := [client for client in asked if client not in answers]:
                if self._abort_signal.triggered:
                    raise Stopped
                for client in pending:
                    if self._intake.noted(self.task.sites[client]):
                        answers[client] = "cannot be read"
                    elif not self._pulse.alive(self.task.sites[client]):
                        answers[client] = "is missing: the site became unreachable"
                    elif time.monotonic() > end:
                        answers[client] = f"is missing: no answer within {self.task.deadline:g} s"
                ready.wait(max(0.0, min(0.5, end - time.monotonic())))


def missing(answer: Any) -> Fault | None:
    """Why there is nothing to check in an answer: it did not arrive, or the site reports a failure."""
    if isinstance(answer, str):
        return Fault(answer, offence=False)
    if answer.get_return_code() == ReturnCode.OK:
        return None
    why = shown(answer.get_header(REASON) or "the site's own log says why", 300)
    return Fault(f"failed at the site ({shown(answer.get_return_code())}); {why}", offence=False)
