"""How a deployed run exchanges messages with its sites, where the server sees every site's answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeVar

from torch import Tensor

from fedepd.deploy.agreement import Agreement, differences
from fedepd.deploy.intake import Intake
from fedepd.deploy.ledger import counted
from fedepd.deploy.line import Line, T
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import (
    ASK,
    DECLARE,
    EVALUATE,
    STEP,
    Declaration,
    Refused,
    Sum,
    message_record,
    read_answer,
    read_confusions,
    read_declaration,
    read_reply,
    sum_record,
)
from fedepd.rounds.admission import Refusal
from fedepd.rounds.pooled import Summed
from fedepd.rounds.questions import QUESTIONS, asked_before, asked_in
from fedepd.rounds.sums import Vector, largest, summed
from fedepd.types import Reply, Sizes, Tensors


class Agreeing(Line):
    """Asks every site once what its classes and columns mean."""

    names_hashed = False
    """Whether sites send hashes in place of class names."""

    def __init__(
        self, task: FederationTask, intake: Intake, controller: Any, fl_ctx: Any, abort_signal: Any
    ) -> None:
        super().__init__(task, intake, controller, fl_ctx, abort_signal)
        self._label_names, self._schema = task.label_names, task.schema_sha256
        """The meaning of classes and columns: as agreed in the kits, else as most of the first sites say."""
        self.evaluated: tuple[int, ...] = ()
        """Who took part in the last evaluation."""

    def _agreeing(self, clients: Sequence[int]) -> dict[int, Sizes]:
        """What the sites declare that mean the same as the others. The others are refused."""
        classes, most = self.task.num_classes, self.task.max_nodes
        records = {client: message_record(0, {}) for client in clients}
        said = self._asked(DECLARE, records, lambda _, record: read_declaration(record, classes, most))
        self._label_names = self._label_names or common([each.label_names for each in said.values()]) or ()
        self._schema = self._schema or common([each.schema_sha256 for each in said.values()]) or ""
        out = {}
        for client, each in said.items():
            if fault := disagreement(each, self._label_names, self._schema, self.names_hashed):
                self.refusals.append(Refusal(client, *fault))
            else:
                out[client] = each.sizes
        return out


class OverNVFlare(Agreeing):
    """The exchange of the round loop over NVFlare."""

    def __init__(
        self,
        task: FederationTask,
        declared: Mapping[int, Sizes],
        intake: Intake,
        controller: Any,
        fl_ctx: Any,
        abort_signal: Any,
    ) -> None:
        super().__init__(task, intake, controller, fl_ctx, abort_signal)
        self.has_global = task.experiment().method.has_global
        self.counts: dict[int, Tensors] = {}
        """For each client of the last step: its counts per class."""
        self.sizes = dict(declared)
        """The sizes that each client declared first. A restarted site cannot change them during the run."""

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        self.sizes |= self._agreeing([client for client in clients if client not in self.sizes])
        return self.sizes

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        replies = self._exchange(STEP, round, messages, lambda _, record: read_reply(record, round))
        self.counts = {client: counted(reply.tensors) for client, reply in replies.items()}
        return replies

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        classes, has_global = self.task.num_classes, self.has_global
        found = self._exchange(
            EVALUATE, round, messages, lambda _, record: read_confusions(record, round, classes, has_global)
        )
        self.evaluated = tuple(sorted(found))
        return found

    def ask(self, question: str, messages: Mapping[int, Tensors]) -> Summed:
        which = Sum(question, asked_in(question, self.task.experiment().protocol.rounds))
        needed = min(self.task.min_sites, len(messages))
        if asked_before(question):  # what a site's columns mean is compared before they are summed
            known = self.declared(sorted(messages))
            messages = {client: message for client, message in messages.items() if client in known}
        parts = QUESTIONS[question].layout(self.task.setting())
        length, most = sum(prod(shape) for _, shape in parts), largest(len(self.task.sites))
        records = {client: sum_record(which, {}, message) for client, message in messages.items()}

        def read(client: int, record: Any) -> Vector:
            answer, known = read_answer(record, which, length, most), self.sizes.get(client)
            held_out = 0 if known is None else int(known.val.sum())
            if fault := QUESTIONS[question].answer_fault(answer, held_out):
                raise Refused("answer", f"has counts that {fault}")
            return answer

        found = self._asked(ASK, records, read)
        self._need(found, needed, question, which.round)
        return summed(list(found.values())), tuple(sorted(found))

    def _exchange(
        self, name: str, round: int, messages: Mapping[int, Tensors], read: Callable[[int, Any], T]
    ) -> dict[int, T]:
        records = {client: message_record(round, message) for client, message in messages.items()}
        out = self._asked(name, records, read)
        self._need(out, min(self.task.min_sites, len(messages)), name, round)
        return out


T_co = TypeVar("T_co", str, tuple[str, ...])


def common(said: Sequence[T_co]) -> T_co | None:
    """What most sites say. A tie goes to the longest, then to the first.

    Sites that say nothing do not count.
    """
    given = [each for each in said if each]
    return max(given, key=lambda each: (given.count(each), len(each)), default=None)


def disagreement(
    site: Declaration, label_names: Sequence[str], schema: str, hashed: bool = False
) -> tuple[str, str] | None:
    """The field in which a site contradicts the others, and how.

    A site that says nothing, or that lacks the last classes, contradicts nobody. ``hashed``: names are hashes
    (``agreement.hashed_names``), so that only the number of a class can be told.
    """
    known = site.label_names[: len(label_names)]
    wrong = [number for number, name in enumerate(known) if name != label_names[number]]
    if hashed and wrong:
        return (
            "label_names",
            f"differ: class {wrong[0]} has another name than at most sites; only hashes of names were sent, "
            "so that its owner must compare them with the others",
        )
    if known and (difference := differences(Agreement(tuple(known)), Agreement(tuple(label_names)))):
        return "label_names", difference
    if site.schema_sha256 and schema and site.schema_sha256 != schema:
        return (
            "schema_sha256",
            "differs: the site's columns or their scaling are not the others'; "
            "import its tables with the federation's schema",
        )
    return None
