"""The one driver of the round loop: simulations, federations and rehearsals walk it by the same lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from fedepd.errors import BadConfig
from fedepd.longtail import Tiers
from fedepd.methods import Server
from fedepd.rounds.loop import Exchange, Round, cohort, cohort_size, train
from fedepd.rounds.noise import check_noise
from fedepd.rounds.pooled import EVERYONE, Pooled, Summing
from fedepd.rounds.questions import STATISTICS
from fedepd.rounds.shards import cpu_time
from fedepd.rounds.statistics import Statistics
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import Json
from fedepd.runs.selection import Progress, offences
from fedepd.runs.spending import Spending
from fedepd.types import Fields, Sizes, Tensors


@dataclass(frozen=True, eq=False)
class Course:
    """What the round loop needs, but for what a run has reached so far."""

    experiment: Experiment
    server: Server
    clients: Sequence[int]
    exchange: Exchange | Summing
    declared: tuple[Sizes, tuple[int, ...]] | None = None
    """Under secure sums: what all clients declared together, if they did before, and which ones they are."""
    spending: Spending | None = None
    """Under noise: how much of its budget the run has spent."""

    def members(self) -> list[int]:
        """Who can be asked after the last round. Under secure sums, whoever declared its sizes."""
        return sorted(self.clients if self.declared is None else self.declared[1])


def begin(experiment: Experiment, server: Server, tiers: Tiers, start: Tensors | None = None) -> Progress:
    """A run before its first round. ``start``: its initial weights, if they are not random."""
    method = experiment.method
    if experiment.protocol.start and start is None:
        raise BadConfig(
            "the setting start is given, but only a run of 'fedepd run' or fedepd.run can begin with the "
            "weights of a model; leave it out here"
        )
    tensors = method.server_init(server, start or server.model.initial(server.info, server.seed))
    first = method.complete_from(server.last_round)
    return Progress(tensors, experiment.protocol.select, tiers, first, experiment.defence.cap_weights)


def first_fields(experiment: Experiment, server: Server) -> tuple[Fields, Tensors]:
    """What the clients send in any stage of the method, and the server's tensors before round 1.

    A method with two stages sends something else in its last rounds.
    """
    method = experiment.method
    tensors = method.server_init(server, server.model.initial(server.info, server.seed))
    stages = [method.reply_fields(replace(server, round=n), tensors) for n in (server.last_round, 1)]
    return {**stages[0], **stages[1]}, tensors


def check_budget(experiment: Experiment, server: Server) -> None:
    """Refuse noise where it would not keep its promise. Without noise all is well."""
    budget = experiment.privacy.budget(server.last_round)
    if budget is None:
        return
    if experiment.protocol.adapt:
        raise BadConfig(
            "adapt is on with dp_epsilon, but the choice of an adaptation would tell about validation nodes "
            "without noise; give adapt = false"
        )
    fields, tensors = first_fields(experiment, server)
    clients = cohort_size(server.info.num_clients, server.training)
    check_noise(
        budget,
        experiment.method,
        fields,
        experiment.method.message(tensors, 0),
        clients,
        experiment.protocol.select,
    )


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
    spending, wanted = course.spending, course.server.last_round
    last = spending.last_round(progress.next_round, wanted) if spending else wanted
    if spending:
        if last < progress.next_round and not progress.best:
            spending.budget.check_left(spending.made)  # nothing is left, and nothing was reached
        progress.spent = spending.so_far(last, wanted)
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
        last,
        spending.count if spending else lambda: None,
        notices(progress),
    ):
        line = add(each)
        if spending:
            progress.spent = spending.so_far(last, wanted)
            line["privacy"] = {**spending.budget.spent(spending.made)}
        for act in after:
            act(each, line)


def notices(progress: Progress) -> Tensors:
    """What every message says beside the method's own tensors: how columns are scaled."""
    if STATISTICS not in progress.answers:
        return {}
    return Statistics.read(progress.answers[STATISTICS], "the checkpoint").message()


def pooled(course: Course) -> Pooled:
    """The exchange of a server that sees sums over all clients."""
    clients, server = sorted(course.clients), course.server
    cohorts = [clients, *(cohort(clients, server, n) for n in range(1, server.last_round + 1))]
    return Pooled(cast(Summing, course.exchange), course.experiment.method, server, cohorts, course.declared)


def now() -> tuple[float, float]:
    """On the wall and on the CPU clock."""
    return time.perf_counter(), cpu_time()


def since(started: tuple[float, float]) -> tuple[float, float]:
    """Seconds since ``started``, on the wall and on the CPU clock."""
    wall, cpu = now()
    return wall - started[0], cpu - started[1]
