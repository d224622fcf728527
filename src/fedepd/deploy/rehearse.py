"""The same task over the same client files in one process: what the federation's digest must be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from fedepd.deploy.ledger import Ledger
from fedepd.deploy.task import FederationTask, site_data
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.sums import sizes_of
from fedepd.runs.drive import drive


def rehearse(task: FederationTask, files: Sequence[str | Path]) -> Ledger:
    """``files`` in the order of ``task.sites``."""
    torch.set_num_threads(1)
    clients = [site_data(task, site, file) for site, file in zip(task.sites, files, strict=True)]
    ledger = Ledger(task)
    exchange = InProcess([task.participant(client) for client in clients])
    exchange.prepare()
    everyone = [c.client_id for c in clients]
    if ledger.experiment.privacy.secure:
        total, members = exchange.sum_sizes(everyone)
        ledger.together = sizes_of(total), members
    else:
        ledger.declare(exchange.declared(everyone))
    drive(ledger.course(exchange), ledger.progress, ledger.add)
    return ledger
