"""The same task over the same client files in one process: what the federation's digest must be."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedepd.deploy.ledger import Ledger
from fedepd.deploy.task import FederationTask, site_data
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.participant import Participant
from fedepd.rounds.pooled import Summed
from fedepd.rounds.sums import sizes_of
from fedepd.runs.drive import drive
from fedepd.types import Reply, Tensors


class Attended(InProcess):
    """Only those answer who answered in the rounds of a federated run."""

    def __init__(self, participants: Iterable[Participant], lines: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(participants)
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


def _of(messages: Mapping[int, Tensors], clients: Collection[int]) -> dict[int, Tensors]:
    return {client: message for client, message in messages.items() if client in clients}


def rehearse(
    task: FederationTask,
    files: Sequence[str | Path],
    lines: Sequence[Mapping[str, Any]] = (),
    members: Sequence[int] | None = None,
) -> Ledger:
    """Run the task here.

    Args:
        task: The task.
        files: The client files, in the order of ``task.sites``.
        lines: The rounds of a federated run, if sites were absent there: they are absent here, too.
        members: Under secure sums, the sites that were there when sizes were summed; all of them if None.

    Returns:
        The book of the run. Under noise its digest is no other run's.
    """
    torch.set_num_threads(1)
    clients = [site_data(task, site, file) for site, file in zip(task.sites, files, strict=True)]
    ledger = Ledger(task)
    exchange = Attended([task.participant(client) for client in clients], lines)
    exchange.prepare()
    everyone = [c.client_id for c in clients]
    if ledger.experiment.privacy.secure:
        total, here = exchange.sum_sizes(everyone if members is None else members)
        ledger.together = sizes_of(total), here
    else:
        ledger.declare(exchange.declared(everyone))
    drive(ledger.course(exchange), ledger.progress, ledger.add)
    return ledger
