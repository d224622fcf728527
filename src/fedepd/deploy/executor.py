"""One site. It holds its graph and one ``Participant``, and answers steps, evaluations, sums and pings.

Nothing but these answers leaves the site.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
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
from fedepd.deploy.agreement import hashed_names, schema_sha256
from fedepd.deploy.book import COHORTS, Book, Cohorts
from fedepd.deploy.intake import Intake, guarded, message_bytes
from fedepd.deploy.kits import SITE_FILE, plan_in, site_keys
from fedepd.deploy.limits import LIMITS_FILE, Limits, Tally, expected_message
from fedepd.deploy.measured import Measured
from fedepd.deploy.plan_task import contradiction
from fedepd.deploy.policy import allowed_at
from fedepd.deploy.sent import Sent, record_bytes, vector_bytes
from fedepd.deploy.signing import signer, verifier
from fedepd.deploy.state import Final, SiteState, without_moments
from fedepd.deploy.sum_site import SumSite, following_sum, used_round, what_of
from fedepd.deploy.task import FederationTask, site_data
from fedepd.deploy.wire import (
    ASK,
    DECLARE,
    EVALUATE,
    KEYS,
    MASKED,
    PING,
    REASON,
    SHARES,
    SIGNED,
    STEP,
    TIDY_EVERY,
    TRIPS,
    Parts,
    Record,
    Refused,
    Sum,
    answer_record,
    confusions_record,
    declaration_record,
    read_message,
    read_sum,
    reply_record,
    sum_record,
)
from fedepd.errors import BadConfig, BadMessage, FedEPDError
from fedepd.files import file_sha256
from fedepd.rounds.final import KINDS, SELECTED
from fedepd.rounds.guard import OPEN
from fedepd.rounds.participant import Participant
from fedepd.rounds.question import Setting
from fedepd.rounds.questions import ADAPTED, FINAL, QUESTIONS, asked_before, asked_in, asked_of
from fedepd.rounds.statistics import SCALING
from fedepd.rounds.sums import Layout, Vector
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
    measured: Measured
    """How the run scales columns."""
    sums: SumSite | None = None
    """Where the server sees sums only. It then gets no other answers."""

    def check_question(self, question: str, round: int, message: Tensors, setting: Setting) -> None:
        """Refuse a question that an honest server would not ask, before any data is touched."""
        if question not in asked_of(setting) or round != asked_in(question, self.participant.last_round):
            raise BadMessage(
                f"the server asks for the {question} of round {round}, which the run does not have"
            )
        asked = QUESTIONS[question]
        own = {} if asked.before else self.expected
        fault = self.limits.message_fault(message, {**own, **asked.entries(setting)})
        if fault := fault or asked.fault(message, setting):
            raise BadMessage(fault)
        self._check_notices(message)
        self.tally.add("evaluations")

    def _check_notices(self, message: Tensors) -> None:
        """Refuse another scaling, and other open classes, than in the run's first message."""
        if SCALING in message:
            self.measured.check(message[SCALING])
        if self.sums is not None and OPEN in message:
            self.sums.check_open(message[OPEN].nonzero().reshape(-1).tolist())

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
        self._check_notices(message)
        self.tally.add("rounds" if task_name == STEP else "evaluations")


class SiteExecutor(Executor):  # type: ignore[misc]
    def __init__(self, task: str) -> None:
        super().__init__()
        self.task = task
        self._admitted: Admitted | None = None
        self._agreement: tuple[tuple[str, ...], str] = (), ""
        self._nodes_sha256 = self._data_sha256 = ""
        self._told = ""
        self._open = ExitStack()
        self._busy = threading.Lock()
        self._layouts: dict[Sum, Layout] = {}
        """Of the sum under way: the parts of the vector that will leave under masks."""

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
        file = Path(json.loads(Path(settings).read_bytes())["data"])
        self._data_sha256, data = file_sha256(file), site_data(task, site, file)
        participant = task.participant(data)
        participant.prepare()
        folder = Path(workspace.get_root_dir()) / "state"
        states = SiteState(folder / task.run, task.identity())
        self._task, self._nodes_sha256 = task, nodes_sha256(data.graph)
        self._sent = Sent(folder / task.run)
        noisy = participant.privacy.noisy
        tally = Tally(folder / "answers" / f"{task.run}.json", limits, durable=noisy)
        expected = expected_message(task, participant.client_id)
        every = task.experiment().protocol.evaluate_every
        self._open.enter_context(guarded(Intake(message_bytes(task, participant.client_id))))
        agreed = bool(task.label_names or task.schema_sha256)  # then ``site_data`` has compared them already
        secure, names = participant.privacy.secure, data.graph.label_names
        if not agreed or not secure:
            said = hashed_names(names, task.run) if secure else names
            self._agreement = said, schema_sha256(data.graph.schema)
        sums = self._sums(task, data, Path(workspace.get_root_dir()), limits)
        measured = Measured.of(folder / task.run, data, task)
        self._admitted = Admitted(participant, states, tally, limits, expected, every, measured, sums)

    def _sums(self, task: FederationTask, data: ClientData, kit: Path, limits: Limits) -> SumSite | None:
        privacy = task.experiment().privacy
        if not privacy.secure:
            return None
        answers = kit / "state" / "answers"
        # Under noise every answer is another one, and the difference of two of them has the noise of both.
        may_differ = limits.new_cohorts or privacy.noisy
        cohorts = Cohorts(answers / COHORTS, self._nodes_sha256, task.sites, may_differ)
        self._refuse(cohorts.refusal(), limits)
        book = Book(answers / f"{task.run}.sums.jsonl")
        keys = signer(kit), verifier(site_keys(kit), task.sites)
        return SumSite(task, data.client_id, *keys, book, cohorts)

    def _limits(self, workspace: Any, task: FederationTask, allowed: Sequence[str]) -> Limits:
        """The owner's limits, if they and the kit's plan allow this run.

        A kit without the file has the safe limits.
        """
        path = workspace.get_file_path_in_site_config(LIMITS_FILE)
        limits = Limits.read(Path(path)) if os.path.lexists(path) else Limits()
        self._refuse(limits.refusal(task, allowed), limits)
        if (plan := plan_in(Path(workspace.get_root_dir()))) is not None:
            self._refuse(contradiction(plan, task), limits)
        return limits

    def _refuse(self, refusal: str | None, limits: Limits) -> None:
        if refusal:
            self._told = refusal if limits.tell_reasons else ""
            raise BadConfig(refusal)

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: Any, abort_signal: Any) -> Shareable:
        # Requests of the server come in threads of their own. Only one of them may use the client's state.
        with self._busy:
            return self._execute(task_name, shareable, fl_ctx)

    def _execute(self, task_name: str, shareable: Shareable, fl_ctx: Any) -> Shareable:
        if self._admitted is None:
            reply = make_reply(ReturnCode.TASK_UNSUPPORTED)
            reply.set_header(REASON, self._told)
            return reply
        participant, sums = self._admitted.participant, self._admitted.sums
        try:
            if task_name == DECLARE:
                sizes = participant.sizes if sums is None else undeclared(participant.info.num_classes)
                return self._leaving("declaration", 0, declaration_record(sizes, *self._agreement))
            if sums is not None and task_name in TRIPS:
                return self._sum(self._admitted, sums, task_name, shareable)
            if sums is not None or task_name not in (STEP, EVALUATE, ASK):
                return make_reply(ReturnCode.TASK_UNKNOWN)
            if task_name == ASK:
                return self._question(self._admitted, shareable)
            round, message = read_message(shareable)
            self._admitted.check(task_name, round, message)
            self._begin(self._admitted, task_name, round)
            if task_name == EVALUATE:
                matrices = participant.evaluate(round, message)
                self._admitted.states.keep_evaluated(round, participant.own)
                return self._leaving("evaluate", round, confusions_record(round, matrices))
            reply = participant.step(round, message)
            self._end(self._admitted, round)
            return self._leaving("step", round, reply_record(reply))
        except (FedEPDError, Refused, OSError) as fault:
            # The reason stays in the site's own log, because an exception's text can hold data.
            self.log_error(fl_ctx, f"{task_name} failed: {fault}")
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)

    def _leaving(self, what: str, round: int, record: Record) -> Shareable:
        """An answer that leaves as it is. The site's own book has it first."""
        self._sent.note(what, round, record_bytes(record))
        return Shareable(record)

    def _question(self, site: Admitted, record: Any) -> Shareable:
        """An answer to a question, where answers are seen alone."""
        which, _, message = read_sum(record)
        if which.purpose not in QUESTIONS:
            return make_reply(ReturnCode.TASK_UNKNOWN)
        site.check_question(which.purpose, which.round, message, self._task.setting())
        answer = self._answer(site, which.purpose, message, which.round + 1)
        self._sent.note(which.purpose, which.round, vector_bytes(self._layout(which, message)))
        return Shareable(answer_record(which, answer))

    def _answer(self, site: Admitted, question: str, message: Tensors, before: int) -> Vector:
        """``before``: the site's state is that with which this round would begin."""
        participant = site.participant
        participant.state = site.states.before(before)
        if question == FINAL:
            self._take_home(site, message)
        answer = QUESTIONS[question].answer(participant, message)
        if question == ADAPTED:
            site.states.keep_adapted(participant.adapted)
        return answer

    def _take_home(self, site: Admitted, message: Tensors) -> None:
        """Keep the selected model. It is the last message of a run."""
        selected = dict(zip(KINDS, message[SELECTED].tolist(), strict=True))
        state = site.participant.state
        personal = site.states.evaluated(selected["personal"])
        about = {
            "task": self._task.to_json(),
            "nodes_sha256": self._nodes_sha256,
            "data_sha256": self._data_sha256,
        }
        site.states.keep_final(Final(message, without_moments(state), personal, about))
        if not site.participant.method.has_global and personal is not None:
            site.participant.state = personal

    def _layout(self, which: Sum, message: Tensors) -> Layout:
        return what_of(self._task, which, message).layout

    def _begin(self, site: Admitted, task_name: str, round: int) -> None:
        site.participant.state = site.states.before(round if task_name == STEP else round + 1)

    def _end(self, site: Admitted, round: int, used: int | None = None) -> None:
        site.states.save(round, site.participant.state, used)
        if round % TIDY_EVERY == 0:
            cleanup_memory()

    def _sum(self, site: Admitted, sums: SumSite, trip: str, record: Any) -> Shareable:
        """One of the answers to a secure sum."""
        which, parts, message = read_sum(record)
        self.logger.info(f"secure sum, {which}: asked for {trip}")
        if trip == KEYS:
            answer = sums.keys(which, parts)
        elif trip == SHARES:
            answer = self._shares(site, sums, which, parts, message)
        elif trip == MASKED:
            answer = sums.masked(which, parts)
            self._sent.note_vector(which, self._layouts.pop(which, ()))
        elif trip == SIGNED:
            answer = sums.signed(which, parts)
        else:
            following = following_sum(parts)
            answer = sums.opened(which, parts)
            if following is not None and sums.takes_part(following):
                answer |= sums.keys(following)
        if trip != MASKED:
            self._sent.note_masks(which, answer)
        return Shareable(sum_record(which, answer))

    def _shares(self, site: Admitted, sums: SumSite, which: Sum, parts: Parts, message: Tensors) -> Parts:
        """The server has sent the message of the sum: check it, compute the vector, and seal secrets."""
        participant, round = site.participant, which.round
        if which.purpose == "sizes":
            if message:
                raise BadMessage("the server's message about sizes holds tensors, which it never needs")
            return self._sealed(sums, which, parts, {}, participant.sizes_vector)
        if which.purpose in QUESTIONS:
            site.check_question(which.purpose, round, message, self._task.setting())
            before = 1 if asked_before(which.purpose) else used_round(parts, which) + 1
            answer = partial(self._answer, site, which.purpose, message, before)
            return self._sealed(sums, which, parts, message, answer)
        name = STEP if which.purpose == "step" else EVALUATE
        site.check(name, round, message)
        used = used_round(parts, which)

        def vector() -> Vector:
            # A round whose sum this site was lost from never happened for it. So the bits do not depend on
            # when it was lost.
            participant.state = site.states.before(used + 1)
            if name == EVALUATE:
                matrices = participant.matrices_vector(round, message)
                site.states.keep_evaluated(round, participant.own)
                return matrices
            # Under noise: this answer is counted already, so that no crash makes it a gift.
            participant.releases = site.tally.steps - 1
            found = participant.step_vector(round, message, len(sums.sites(which)))
            self._end(site, round, used)
            return found

        return self._sealed(sums, which, parts, message, vector)

    def _sealed(
        self, sums: SumSite, which: Sum, parts: Parts, message: Tensors, vector: Callable[[], Vector]
    ) -> Parts:
        what = what_of(self._task, which, message)
        self._layouts = {which: what.layout}
        return sums.shares(which, parts, what, vector)


def undeclared(classes: int) -> Sizes:
    """What a site declares by itself where its sizes are only summed."""
    nothing = torch.zeros(classes, dtype=torch.int64)
    return Sizes(0, 0, nothing, nothing, nothing)
