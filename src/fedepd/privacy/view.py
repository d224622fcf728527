"""A run with its exchange watched -> what an honest but curious server saw of its clients.

The server does what the protocol says and keeps all that it gets: the declared sizes, every reply and every
confusion matrix, or their sums where sums are all that it gets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedepd.datasets.facts import class_sizes
from fedepd.errors import BadConfig
from fedepd.longtail import tiers
from fedepd.methods.steps import class_counts
from fedepd.privacy.figures import TIERS
from fedepd.rounds.admission import Refusal
from fedepd.rounds.guard import OPEN, Privacy
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import cohort_size
from fedepd.rounds.participant import Participant
from fedepd.rounds.pooled import EVERYONE, Summed
from fedepd.rounds.sums import layout, matrices_of, reply_of, sizes_of
from fedepd.runs.drive import drive
from fedepd.runs.simulation import Simulation
from fedepd.types import ClientData, Fields, Reply, Sizes, Tensors


@dataclass(eq=False)
class Seen:
    """What crossed in one round, as the server saw it. ``EVERYONE`` is the client that stands for a sum."""

    number: int
    messages: Mapping[int, Tensors]
    """What was sent, by client, without the list of open classes."""
    fields: Fields
    """What each tensor of a reply means."""
    replies: dict[int, Reply] = field(default_factory=dict)
    """By client; one reply of ``EVERYONE`` under secure sums."""
    matrices: dict[int, dict[str, Tensor]] = field(default_factory=dict)
    """Confusion matrices by client and name, where the round was evaluated."""


@dataclass(frozen=True, eq=False)
class View:
    """All that the server saw of a run, beside the truth that an attack is scored by."""

    privacy: Privacy
    rounds: Sequence[Seen]
    declared: Mapping[int, Sizes]
    simulation: Simulation
    """The truth. An attack may read of it what it is said to know, and nothing else."""

    @property
    def sums(self) -> bool:
        """Whether the server saw sums over all clients only."""
        return self.privacy.secure

    @cached_property
    def tiers(self) -> dict[str, frozenset[int]]:
        """The classes of each tier, and of all."""
        found = tiers(class_sizes(self.simulation.graph).numpy())
        every = frozenset(range(self.simulation.graph.num_classes))
        return {"all": every} | {name: frozenset(getattr(found, name)) for name in TIERS[1:]}

    def behind(self, source: int) -> list[ClientData]:
        """The clients behind a reply: one, or all of them behind a sum."""
        return [c for c in self.simulation.clients if source in (EVERYONE, c.client_id)]

    def held(self, source: int) -> Tensor:
        """The truth: training nodes of each class behind a reply, int64 [C]."""
        return torch.stack([class_counts(c) for c in self.behind(source)]).sum(0)


class Watched:
    """An exchange that keeps what it brings back. It serves plain replies and sums alike."""

    def __init__(self, simulation: Simulation) -> None:
        self._inner, self._method = simulation.exchange, simulation.experiment.method
        self._server = simulation.server
        self.rounds: list[Seen] = []
        self.sizes: dict[int, Sizes] = {}

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        got = self._inner.declared(clients)
        self.sizes |= got
        return got

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        replies = self._inner.step(round, messages)
        self._begin(round, messages).replies = dict(sorted(replies.items()))
        return replies

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        answers = self._inner.evaluate(round, messages)
        self.rounds[-1].matrices = dict(sorted(answers.items()))
        return answers

    def sum_sizes(self, clients: Sequence[int]) -> Summed:
        total, members = self._inner.sum_sizes(clients)
        self.sizes = {EVERYONE: sizes_of(total)}
        return total, members

    def sum_steps(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        total, members = self._inner.sum_steps(round, messages)
        seen = self._begin(round, {EVERYONE: next(iter(messages.values()))})
        parts = layout(self._method, self._server.info, seen.fields)
        reply = reply_of(seen.fields, parts, total, round)
        seen.replies = {EVERYONE: replace(reply, members=members)}
        return total, members

    def sum_matrices(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        total, members = self._inner.sum_matrices(round, messages)
        kinds = ("personal", "global") if self._method.has_global else ("personal",)
        names = [f"{kind}_{split}" for kind in kinds for split in ("val", "test")]
        self.rounds[-1].matrices = {EVERYONE: matrices_of(total, names, self._server.info.num_classes)}
        return total, members

    def take_refusals(self) -> list[Refusal]:
        return self._inner.take_refusals()

    def _begin(self, round: int, messages: Mapping[int, Tensors]) -> Seen:
        sent = {
            k: {name: value for name, value in message.items() if name != OPEN}
            for k, message in sorted(messages.items())
        }
        here = replace(self._server, round=round)
        # What a method asks for depends on its stage, which every client's message shows alike.
        fields = self._method.reply_fields(here, next(iter(sent.values())))
        self.rounds.append(Seen(round, sent, fields))
        return self.rounds[-1]


def watch(
    simulation: Simulation,
    privacy: Privacy,
    rounds: int,
    on_round: Callable[[], None] = lambda: None,
) -> View:
    """Run the first rounds of a simulation under other privacy settings, and keep what its server sees.

    Choice: the run is one of ``rounds`` rounds, not the beginning of a longer one. So all stages of a method
    with stages are seen.

    Args:
        simulation: From ``fedepd.runs.resume.rebuild``. It is not changed.
        privacy: The settings to look at.
        rounds: How many rounds to run.
        on_round: Called after each round.

    Returns:
        What the server saw.
    """
    here = under(simulation, privacy, rounds)
    watched, progress = Watched(here), here.start()

    def add(each: Any) -> dict[str, Any]:
        on_round()
        return progress.add(each, dict)

    try:
        drive(replace(here.course(), exchange=watched), progress, add)
    finally:
        here.exchange.close()
    return View(privacy, watched.rounds, watched.sizes, here)


def under(simulation: Simulation, privacy: Privacy, rounds: int) -> Simulation:
    """The same clients before their first round, under other privacy settings and with fewer rounds."""
    was = simulation.experiment
    frame = replace(was.protocol, rounds=min(rounds, was.protocol.rounds), adapt=False)
    experiment = replace(was, privacy=privacy, protocol=frame)
    server = replace(simulation.server, last_round=frame.rounds)
    in_a_round = cohort_size(len(simulation.clients), was.training)
    privacy.check(was.method, was.defence, in_a_round, was.attack.on)
    participants = [
        Participant(
            was.method, c, server.info, server.model, was.training, server.seed, frame.rounds, privacy
        )
        for c in simulation.clients
    ]
    return replace(simulation, experiment=experiment, server=server, exchange=InProcess(participants))


def strongest(simulation: Simulation) -> tuple[Privacy, str]:
    """The guard and secure sums, or the guard alone where sums are not possible; then also the reason."""
    was = simulation.experiment
    both = replace(was.privacy, guard=True, secure=True)
    in_a_round = cohort_size(len(simulation.clients), was.training)
    try:
        both.check(was.method, was.defence, in_a_round, was.attack.on)
    except BadConfig as reason:
        return replace(both, secure=False), str(reason)
    return both, ""
