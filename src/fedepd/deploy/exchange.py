"""How a deployed run exchanges messages with its sites.

Each step is one NVFlare task per site with a deadline. A pulse of pings notices dead sites, and a step fails
if too few sites answer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from nvflare.apis.controller_spec import Task
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable
from torch import Tensor

from fedepd.deploy.agreement import differences
from fedepd.deploy.intake import Fault, Intake
from fedepd.deploy.ledger import counted
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import (
    DECLARE,
    EVALUATE,
    PING,
    REASON,
    STEP,
    Declaration,
    Refused,
    message_record,
    read_confusions,
    read_declaration,
    read_reply,
)
from fedepd.errors import BadMessage
from fedepd.rounds.admission import Refusal
from fedepd.shown import shown
from fedepd.types import Reply, Sizes, Tensors

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
        self._thread = threading.Thread(target=self._beat, name="fedepd-pulse", daemon=True)
        self._thread.start()

    def alive(self, site: str) -> bool:
        return site in self._seen and time.monotonic() - self._seen[site] < GONE_AFTER

    def heard(self, site: str) -> None:
        """Note a sign of life: an answer to a ping or to anything else.

        The first one ends the start-up time.
        """
        if site in self._seen:
            self._seen[site] = time.monotonic()

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


class OverNVFlare:
    """Carries messages to the sites. An answer that is late, broken or missing is noted in ``refusals``."""

    def __init__(
        self,
        task: FederationTask,
        declared: Mapping[int, Sizes],
        intake: Intake,
        controller: Any,
        fl_ctx: Any,
        abort_signal: Any,
    ) -> None:
        self.task, self.has_global = task, task.experiment().method.has_global
        self._intake = intake
        self._controller, self._fl_ctx, self._abort_signal = controller, fl_ctx, abort_signal
        here = {client.name for client in fl_ctx.get_engine().get_clients()}
        self._pulse = Pulse(fl_ctx.get_engine(), [site for site in task.sites if site in here])
        self.refusals: list[Refusal] = []
        """Answers that were refused before they became a reply. Admission's own refusals are in the round."""
        self.counts: dict[int, Tensors] = {}
        """For each client of the last step: its counts per class."""
        self.sizes = dict(declared)
        """The sizes that each client declared first. A restarted site cannot change them during the run."""
        self._label_names, self._schema = task.label_names, task.schema_sha256
        """The meaning of classes and columns: as agreed in the kits, else as most of the first sites say."""

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        new: dict[int, Tensors] = {client: {} for client in clients if client not in self.sizes}
        classes, most = self.task.num_classes, self.task.max_nodes
        said = self._read(self._ask(DECLARE, 0, new), lambda record: read_declaration(record, classes, most))
        self._label_names = self._label_names or common([each.label_names for each in said.values()]) or ()
        self._schema = self._schema or common([each.schema_sha256 for each in said.values()]) or ""
        for client, each in said.items():
            if fault := disagreement(each, self._label_names, self._schema):
                self.refusals.append(Refusal(client, *fault))
            else:
                self.sizes[client] = each.sizes
        return self.sizes

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        replies = self._exchange(STEP, round, messages, lambda record: read_reply(record, round))
        self.counts = {client: counted(reply.tensors) for client, reply in replies.items()}
        return replies

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        classes = self.task.num_classes
        return self._exchange(
            EVALUATE, round, messages, lambda record: read_confusions(record, round, classes, self.has_global)
        )

    def missing(self) -> list[str]:
        return [site for site in self.task.sites if not self._pulse.alive(site)]

    def take_refusals(self) -> list[Refusal]:
        taken, self.refusals = self.refusals, []
        return taken

    def close(self) -> None:
        self._pulse.close()

    def _exchange(
        self, name: str, round: int, messages: Mapping[int, Tensors], read: Callable[[Any], T]
    ) -> dict[int, T]:
        out = self._read(self._ask(name, round, messages), read)
        needed = min(self.task.min_sites, len(messages))
        if len(out) < needed:
            why = "; ".join(f"{self.task.sites[r.client]}: {r.field} {r.reason}" for r in self.refusals)
            raise QuorumLost(
                f"too few sites answered {name} in round {round}: {len(out)} instead of at least {needed} "
                f"({why}); resume when the others are back"
            )
        return out

    def _read(self, answers: Mapping[int, Any], read: Callable[[Any], T]) -> dict[int, T]:
        """The answers that can be read. The others are noted in ``refusals``."""
        out: dict[int, T] = {}
        for client, answer in sorted(answers.items()):
            fault = self._intake.take(self.task.sites[client]) or missing(answer)
            try:
                if fault is not None:
                    self.refusals.append(Refusal(client, "reply", fault.reason, absent=not fault.offence))
                else:
                    out[client] = read(answer)
            except Refused as refused:
                self.refusals.append(Refusal(client, refused.field, refused.reason))
        return out

    def _ask(self, name: str, round: int, messages: Mapping[int, Tensors]) -> dict[int, Any]:
        """For each client: its record, or a text that says why there is none."""
        answers: dict[int, Any] = {}
        ready = threading.Condition()
        tasks = {}
        for client, message in messages.items():
            site = self.task.sites[client]
            if not self._pulse.alive(site):
                answers[client] = "is missing: the site is unreachable"
                continue

            def received(client_task: Any, fl_ctx: Any, client: int = client, site: str = site) -> None:
                self._pulse.heard(site)
                with ready:
                    answers.setdefault(client, client_task.result)
                    ready.notify_all()

            # One task per site: a broadcast would send the first site's message to all of them.
            tasks[client] = Task(
                name=name, data=Shareable(message_record(round, message)), result_received_cb=received
            )
            self._controller.broadcast(tasks[client], self._fl_ctx, targets=[site], min_responses=1)
        self._wait(messages, answers, ready)
        for client, task in tasks.items():
            if isinstance(answers[client], str):
                self._controller.cancel_task(task, fl_ctx=self._fl_ctx)
        return answers

    def _wait(
        self, messages: Mapping[int, Tensors], answers: dict[int, Any], ready: threading.Condition
    ) -> None:
        end = time.monotonic() + self.task.deadline
        with ready:
            while pending := [client for client in messages if client not in answers]:
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


T_co = TypeVar("T_co", str, tuple[str, ...])


def common(said: Sequence[T_co]) -> T_co | None:
    """What most sites say. A tie goes to the longest, then to the first.

    Sites that say nothing do not count.
    """
    given = [each for each in said if each]
    return max(given, key=lambda each: (given.count(each), len(each)), default=None)


def disagreement(site: Declaration, label_names: Sequence[str], schema: str) -> tuple[str, str] | None:
    """The field in which a site contradicts the others, and how.

    A site that says nothing, or that lacks the last classes, contradicts nobody.
    """
    known = site.label_names[: len(label_names)]
    if known and (difference := differences((known, ""), (label_names, ""))):
        return "label_names", difference
    if site.schema_sha256 and schema and site.schema_sha256 != schema:
        return (
            "schema_sha256",
            "differs: the site's columns or their scaling are not the others'; "
            "import its tables with the federation's schema",
        )
    return None
