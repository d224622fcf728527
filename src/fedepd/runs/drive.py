"""The one driver of the round loop: simulations, federations and rehearsals walk it by the same lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from fedepd.longtail import Tiers
from fedepd.methods import Server
from fedepd.rounds.loop import Exchange, Round, cohort, train
from fedepd.rounds.pooled import EVERYONE, Pooled, Summing
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import Json
from fedepd.runs.selection import Progress, offences
from fedepd.types import Sizes


@dataclass(frozen=True, eq=False)
class Course:
    """What the round loop needs, but for what a run has reached so far."""

    experiment: Experiment
    server: Server
    clients: Sequence[int]
    exchange: Exchange | Summing
    declared: tuple[Sizes, tuple[int, ...]] | None = None
    """Under secure sums: what all clients declared together, if they did before, and which ones they are."""


def begin(experiment: Experiment, server: Server, tiers: Tiers) -> Progress:
    """A run before its first round."""
    method = experiment.method
    tensors = method.server_init(server, server.model.initial(server.info, server.seed))
    first = method.complete_from(server.last_round)
    return Progress(tensors, experiment.protocol.select, tiers, first, experiment.defence.cap_weights)


def drive(
    course: Course,
    progress: Progress,
    add: Callable[[Round], Json],
    *after: Callable[[Round, Json], None],
) -> None:
    """All rounds that ``progress`` does not have yet.

    ``add`` takes a round into ``progress`` and returns its line. Then each function of ``after`` is called.
    """
    experiment, secure = course.experiment, course.experiment.privacy.secure
    for each in train(
        experiment.method,
        course.server,
        progress.tensors,
        [EVERYONE] if secure else course.clients,
        pooled(course) if secure else cast(Exchange, course.exchange),
        experiment.protocol.evaluate_every,
        progress.next_round,
        offences(progress.lines),
        experiment.defence,
        experiment.privacy,
    ):
        line = add(each)
        for act in after:
            act(each, line)


def pooled(course: Course) -> Pooled:
    """The exchange of a server that sees sums over all clients."""
    clients, server = sorted(course.clients), course.server
    cohorts = [clients, *(cohort(clients, server, n) for n in range(1, server.last_round + 1))]
    return Pooled(cast(Summing, course.exchange), course.experiment.method, server, cohorts, course.declared)


def now() -> tuple[float, float]:
    """On the wall and on the CPU clock."""
    return time.perf_counter(), time.process_time()


def since(started: tuple[float, float]) -> tuple[float, float]:
    """Seconds since ``started``, on the wall and on the CPU clock."""
    wall, cpu = now()
    return wall - started[0], cpu - started[1]
