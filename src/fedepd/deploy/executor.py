"""One site. It holds its graph and one ``Participant``, and answers steps, evaluations, sums and pings.

Nothing but these answers leaves the site.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.fuel.utils.memory_utils import cleanup_memory

from fedepd import plugins
from fedepd.datasets import nodes_sha256
from fedepd.deploy.agreement import schema_sha256
from fedepd.deploy.book import COHORTS, Book, Cohorts
from fedepd.deploy.intake import Intake, guarded, message_bytes
from fedepd.deploy.kits import SITE_FILE, site_keys
from fedepd.deploy.limits import LIMITS_FILE, Limits, Tally, expected_message
from fedepd.deploy.policy import allowed_at
from fedepd.deploy.signing import signer, verifier
from fedepd.deploy.state import SiteState
from fedepd.deploy.sum_site import SumSite, following_sum, used_round, what_of
from fedepd.deploy.task import FederationTask, site_data
from fedepd.deploy.wire import (
    DECLARE,
    EVALUATE,
    KEYS,
    MASKED,
    PING,
    REASON,
    SHARES,
    STEP,
    TIDY_EVERY,
    TRIPS,
    Parts,
    Refused,
    Sum,
    confusions_record,
    declaration_record,
    read_message,
    read_sum,
    reply_record,
    sum_record,
)
from fedepd.errors import BadConfig, BadMessage, FedEPDError
from fedepd.rounds.guard import OPEN
from fedepd.rounds.participant import Participant
from fedepd.rounds.sums import Vector
from fedepd.types import ClientData, Sizes, Tensors


@dataclass(frozen=True)
class Admitted:
    """A run that the owner's limits allow, and the messages that it may send."""

    participant: Participant
    states: SiteState
    tally: Tally
    limits: Limits
    expected: Tensors
    evaluate_every: int
    sums: SumSite | None = None
    """Where the server sees sums only. It then gets no other answers."""

    def check(self, task_name: str, round: int, message: Tensors) -> None:
        """Refuse, before any data is touched, a message or a round that an honest server would not send."""
        last = self.participant.last_round
        if not 1 <= round <= last:
            raise BadMessage(f"the server asks for round {round}, but the run has rounds 1 to {last}")
        if task_name == EVALUATE and round % self.evaluate_every and round != last:
            raise BadMessage(
                f"the server asks for an evaluation in round {round}, which the run does not evaluate"
            )
        fault = self.limits.message_fault(message, self.expected)
        if fault:
            raise BadMessage(fault)
        if self.sums is not None and OPEN in message:
            self.sums.check_open(message[OPEN].nonzero().reshape(-1).tolist())
        self.tally.add("rounds" if task_name == STEP else "evaluations")


class SiteExecutor(Executor):  # type: ignore[misc]
    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = task
        self._admitted: Admitted | None = None
        self._agreement: tuple[tuple[str, ...], str] = (), ""
        self._told = ""
        self._open = ExitStack()

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.END_RUN:
            self._open.close()
        if event_type == EventType.START_RUN:
            fl_ctx.get_engine().register_aux_message_handler(
                PING, lambda topic, request, fl_ctx: make_reply(ReturnCode.OK)
            )
            try:
                allowed = allowed_at(fl_ctx.get_engine().get_workspace())
                with plugins.only(
                    allowed
                ):  # the task names its method: nothing else that is installed may run
                    self._start(fl_ctx, allowed)
            except FedEPDError as mistake:
                self.log_error(fl_ctx, f"this site takes no part in the run: {mistake}")

    def _start(self, fl_ctx: Any, allowed: Sequence[str] = ()) -> None:
        torch.set_num_threads(1)
        workspace, site = fl_ctx.get_engine().get_workspace(), fl_ctx.get_identity_name()
        task = FederationTask.from_json(self.task)
        limits = self._limits(workspace, task, allowed)
        settings = workspace.get_file_path_in_site_config(SITE_FILE)
        if not os.path.lexists(settings):
            raise BadConfig(
                f"the kit has no local/{SITE_FILE}; "
                f"start the site with 'fedepd federation join KIT --data FILE.npz'"
            )
        data = site_data(task, site, json.loads(Path(settings).read_bytes())["data"])
        participant = task.participant(data)
        participant.prepare()
        folder = Path(workspace.get_root_dir()) / "state"
        states = SiteState(folder / task.run, task.identity())
        noisy = participant.privacy.noisy
        tally = Tally(folder / "answers" / f"{task.run}.json", limits, durable=noisy)
        expected = expected_message(task, participant.client_id)
        every = task.experiment().protocol.evaluate_every
        self._open.enter_context(guarded(Intake(message_bytes(task, participant.client_id))))
        agreed = bool(task.label_names or task.schema_sha256)  # then ``site_data`` has compared them already
        if not agreed or not participant.privacy.secure:
            self._agreement = data.graph.label_names, schema_sha256(data.graph.schema)
        sums = self._sums(task, data, Path(workspace.get_root_dir()), limits)
        self._admitted = Admitted(participant, states, tally, limits, expected, every, sums)

    def _sums(self, task: FederationTask, data: ClientData, kit: Path, limits: Limits) -> SumSite | None:
        privacy = task.experiment().privacy
        if not privacy.secure:
            return None
        self._task, answers = task, kit / "state" / "answers"
        # Under noise every answer is another one, and the difference of two of them has the noise of both.
        may_differ = limits.new_cohorts or privacy.noisy
        cohorts = Cohorts(answers / COHORTS, nodes_sha256(data.graph), task.sites, may_differ)
        self._refuse(cohorts.refusal(), limits)
        book = Book(answers / f"{task.run}.sums.jsonl")
        keys = signer(kit), verifier(site_keys(kit), task.sites)
        return SumSite(task, data.client_id, *keys, book, cohorts)

    def _limits(self, workspace: Any, task: FederationTask, allowed: Sequence[str]) -> Limits:
        """The owner's limits, if they allow this run. A kit without the file has the safe limits."""
        path = workspace.get_file_path_in_site_config(LIMITS_FILE)
        limits = Limits.read(Path(path)) if os.path.lexists(path) else Limits()
        self._refuse(limits.refusal(task, allowed), limits)
        return limits

    def _refuse(self, refusal: str | None, limits: Limits) -> None:
        if refusal:
            self._told = refusal if limits.tell_reasons else ""
            raise BadConfig(refusal)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: Any, abort_signal: Any) -> Shareable:
        if self._admitted is None:
            reply = make_reply(ReturnCode.TASK_UNSUPPORTED)
            reply.set_header(REASON, self._told)
            return reply
        participant, sums = self._admitted.participant, self._admitted.sums
        try:
            if task_name == DECLARE:
                sizes = participant.sizes if sums is None else undeclared(participant.info.num_classes)
                return Shareable(declaration_record(sizes, *self._agreement))
            if sums is not None and task_name in TRIPS:
                return self._sum(self._admitted, sums, task_name, shareable)
            if sums is not None or task_name not in (STEP, EVALUATE):
                return make_reply(ReturnCode.TASK_UNKNOWN)
            round, message = read_message(shareable)
            self._admitted.check(task_name, round, message)
            self._begin(self._admitted, task_name, round)
            if task_name == EVALUATE:
                return Shareable(confusions_record(round, participant.evaluate(round, message)))
            reply = participant.step(round, message)
            self._end(self._admitted, round)
            return Shareable(reply_record(reply))
        except (FedEPDError, Refused, OSError) as fault:
            # The reason stays in the site's own log, because an exception's text can hold data.
            self.log_error(fl_ctx, f"{task_name} failed: {fault}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)

    def _begin(self, site: Admitted, task_name: str, round: int) -> None:
        site.participant.state = site.states.before(round if task_name == STEP else round + 1)

    def _end(self, site: Admitted, round: int, used: int | None = None) -> None:
        site.states.save(round, site.participant.state, used)
        if round % TIDY_EVERY == 0:
            cleanup_memory()

    def _sum(self, site: Admitted, sums: SumSite, trip: str, record: Any) -> Shareable:
        """One of the four answers to a secure sum."""
        which, parts, message = read_sum(record)
        self.logger.info(f"secure sum, {which}: asked for {trip}")
        if trip == KEYS:
            answer = sums.keys(which, parts)
        elif trip == SHARES:
            answer = self._shares(site, sums, which, parts, message)
        elif trip == MASKED:
            answer = sums.masked(which, parts)
        else:
            following = following_sum(parts)
            answer = sums.opened(which, parts)
            if following is not None and sums.takes_part(following):
                answer |= sums.keys(following)
        return Shareable(sum_record(which, answer))

    def _shares(self, site: Admitted, sums: SumSite, which: Sum, parts: Parts, message: Tensors) -> Parts:
        """The server has sent the message of the sum: check it, compute the vector, and seal secrets."""
        participant, round = site.participant, which.round
        if which.purpose == "sizes":
            if message:
                raise BadMessage("the server's message about sizes holds tensors, which it never needs")
            return sums.shares(which, parts, what_of(self._task, which, {}), participant.sizes_vector)
        name = STEP if which.purpose == "step" else EVALUATE
        site.check(name, round, message)
        used = used_round(parts, which)

        def vector() -> Vector:
            # A round whose sum this site was lost from never happened for it. So the bits do not depend on
            # when it was lost.
            participant.state = site.states.before(used + 1)
            if name == EVALUATE:
                return participant.matrices_vector(round, message)
            # Under noise: this answer is counted already, so that no crash makes it a gift.
            participant.releases = site.tally.steps - 1
            found = participant.step_vector(round, message, len(sums.sites(which)))
            self._end(site, round, used)
            return found

        return sums.shares(which, parts, what_of(self._task, which, message), vector)


def undeclared(classes: int) -> Sizes:
    """What a site declares by itself where its sizes are only summed."""
    nothing = torch.zeros(classes, dtype=torch.int64)
    return Sizes(0, 0, nothing, nothing, nothing)
