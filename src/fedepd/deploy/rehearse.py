"""The same task over the same client files in one process: what the federation's digest must be."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from fedepd.deploy.ledger import Ledger
from fedepd.deploy.task import FederationTask, site_data
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import train


def rehearse(task: FederationTask, files: Sequence[str | Path]) -> Ledger:
    """``files`` in the order of ``task.sites``."""
    torch.set_num_threads(1)
    clients = [site_data(task, site, file) for site, file in zip(task.sites, files, strict=True)]
    ledger = Ledger(task)
    exchange = InProcess([task.participant(client) for client in clients])
    exchange.prepare()
    ids = [c.client_id for c in clients]
    ledger.declare(exchange.declared(ids))
    e = ledger.experiment
    every = e.protocol.evaluate_every
    for each in train(
        e.method, ledger.server, ledger.progress.tensors, ids, exchange, every, defence=e.defence
    ):
        ledger.add(each)
    return ledger
