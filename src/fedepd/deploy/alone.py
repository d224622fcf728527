"""A model that a site trains by itself, with the run's method and budget, to compare the federation's with.

Choice: it is a run of the same method with one client. So the two models differ in the federation alone, and
not in how they treat rare classes. Nothing leaves the site, so neither guard nor sums nor defences are on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fedepd.deploy.task import FederationTask
from fedepd.longtail import Tiers
from fedepd.methods import Server
from fedepd.rounds.defence import NO_DEFENCE
from fedepd.rounds.guard import NO_PRIVACY
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import Round
from fedepd.rounds.participant import Participant
from fedepd.runs.drive import Course, begin, drive
from fedepd.runs.folder import Json
from fedepd.types import ClientData

ONLY = 0
"""The number of the only client."""


@dataclass(frozen=True, eq=False)
class Alone:
    """The model of a site that took part in nothing."""

    predicted: Tensor
    """The classes of all nodes, int64 [n]."""
    selected: int
    """The round that the site's validation nodes selected, or the last one without such nodes."""


def trained_alone(
    task: FederationTask, data: ClientData, tiers: Tiers, on_round: Callable[[], None] = lambda: None
) -> Alone:
    """Train here: as many rounds and epochs as in the run, with the same settings and seed.

    Args:
        task: The run's task.
        data: The site's data.
        tiers: The federation's tiers.
        on_round: Called after each round.

    Returns:
        What the model of the round says that the site's own validation nodes select.

    Raises:
        FedEPDError: The method cannot train on these data.
    """
    torch.set_num_threads(1)
    e, kind = task.experiment(), "global" if task.experiment().method.has_global else "personal"
    experiment, info = replace(e, privacy=NO_PRIVACY, defence=NO_DEFENCE), replace(task.info(), num_clients=1)
    seed, rounds = e.protocol.seed, e.protocol.rounds
    server = Server(info, e.model, e.training, seed, 0, rounds)
    own = replace(data, client_id=ONLY)
    participant = Participant(e.method, own, info, e.model, e.training, seed, rounds)
    exchange = InProcess([participant])
    exchange.prepare()
    progress = begin(experiment, server, tiers)
    found: dict[int, Tensor] = {}

    def add(each: Round) -> Json:
        line = progress.add(each, dict)
        on_round()
        if kind in progress.best and progress.best[kind].round == each.number:
            message = e.method.message(each.tensors, ONLY)
            found.clear()
            found[each.number] = participant.predictions(each.number, message)[kind].argmax(1)
        return line

    drive(Course(experiment, server, [ONLY], exchange), progress, add)
    ((selected, predicted),) = found.items()
    return Alone(predicted, selected)
