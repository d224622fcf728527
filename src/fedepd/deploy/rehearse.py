"""The same task over the same client files in one process: what the federation's digest must be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedepd.deploy.ledger import Ledger
from fedepd.deploy.task import FederationTask, site_data
from fedepd.report.runs import read_run
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.participant import Participant
from fedepd.rounds.pooled import Summed
from fedepd.rounds.questions import ADAPTATION, ADAPTED, FINAL, POINT, STATISTICS
from fedepd.rounds.statistics import feature_names
from fedepd.rounds.sums import sizes_of
from fedepd.runs.drive import drive
from fedepd.types import Reply, Tensors

NOBODY_KNOWN: Mapping[str, Collection[int]] = {}


class Attended(InProcess):
    """Only those answer who answered in the rounds of a federated run."""

    def __init__(
        self,
        participants: Iterable[Participant],
        lines: Sequence[Mapping[str, Any]],
        answered: Mapping[str, Collection[int]],
    ) -> None:
        super().__init__(participants)
        self._answered = answered
        self._steps = {line["round"]: line["clients"] for line in lines if "clients" in line}
        self._evaluations = {line["round"]: line["evaluated"] for line in lines if "evaluated" in line}

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        return super().step(round, _of(messages, self._steps.get(round, messages)))

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        return super().evaluate(round, _of(messages, self._evaluations.get(round, messages)))

    def sum_steps(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        return super().sum_steps(round, _of(messages, self._steps.get(round, messages)))

    def sum_matrices(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        return super().sum_matrices(round, _of(messages, self._evaluations.get(round, messages)))

    def ask(self, question: str, messages: Mapping[int, Tensors]) -> Summed:
        return super().ask(question, _of(messages, self._answered.get(question, messages)))


def _of(messages: Mapping[int, Tensors], clients: Collection[int]) -> dict[int, Tensors]:
    return {client: message for client, message in messages.items() if client in clients}


def rehearse_like(task: FederationTask, files: Sequence[str | Path], run: str | Path) -> Ledger:
    """Run the task here as it went in a fetched run: who was absent there is absent here, too."""
    found = read_run(run)
    return rehearse(task, files, found.rounds, found.summary.get("members"), answered_in(found.summary))


def answered_in(summary: Mapping[str, Any]) -> dict[str, Collection[int]]:
    """By question, the sites that answered it in a finished run."""
    out = {name: summary[name]["clients"] for name in (STATISTICS, POINT, FINAL) if name in summary}
    if "adapted" in summary:
        out |= {ADAPTATION: summary["adapted"]["asked"], ADAPTED: summary["adapted"]["clients"]}
    return out


def rehearse(
    task: FederationTask,
    files: Sequence[str | Path],
    lines: Sequence[Mapping[str, Any]] = (),
    members: Sequence[int] | None = None,
    answered: Mapping[str, Collection[int]] = NOBODY_KNOWN,
) -> Ledger:
    """Run the task here.

    Args:
        task: The task.
        files: The client files, in the order of ``task.sites``.
        lines: The rounds of a federated run, if sites were absent there: they are absent here, too.
        members: Under secure sums, the sites that were there when sizes were summed; all of them if None.
        answered: By question, the sites that answered it; all of them where nothing is said.

    Returns:
        The book of the run. Under noise its digest is no other run's.
    """
    torch.set_num_threads(1)
    clients = [site_data(task, site, file) for site, file in zip(task.sites, files, strict=True)]
    ledger = Ledger(task)
    exchange = Attended([task.participant(client) for client in clients], lines, answered)
    exchange.prepare()
    ledger.measure(exchange, names=feature_names(clients[0].graph))
    everyone = [c.client_id for c in clients]
    if ledger.experiment.privacy.secure:
        total, here = exchange.sum_sizes(everyone if members is None else members)
        ledger.together = sizes_of(total), here
    else:
        ledger.declare(exchange.declared(everyone))
    drive(ledger.course(exchange), ledger.progress, ledger.add)
    ledger.conclude(exchange)
    return ledger
