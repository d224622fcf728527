"""The only round loop, for simulations and deployments.

An ``Exchange`` carries the messages: within this process, or between sites.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from fedepd.errors import BadMessage
from fedepd.methods.base import Method, Server
from fedepd.network.training import Training
from fedepd.rng import seeded_numpy
from fedepd.rounds.admission import Refusal, admit, admit_confusions
from fedepd.rounds.defence import NO_DEFENCE, Deeds, Defence, defend
from fedepd.rounds.guard import NO_PRIVACY, OPEN, Privacy
from fedepd.rounds.shards import cpu_time
from fedepd.types import Reply, Sizes, Tensors

GIVE_UP = 5
"""The run stops after this many rounds in a row without a usable reply from a client that trained."""
NO_NOTICES: Mapping[str, Tensor] = {}
OFFENCES = 3
"""A client is excluded from the rest of the run once its answers were refused in this many rounds."""


class Exchange(Protocol):
    """Carries messages to the clients and brings back their answers, keyed by client."""

    def declared(self, clients: Sequence[int]) -> Mapping[int, Sizes]:
        """The sizes that each client declared before its first reply.

        Clients without a usable declaration are left out.
        """
        ...

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        """Let every client that has a message train on it."""
        ...

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        """Let every client that has a message evaluate it. Returns confusion matrices by client and name."""
        ...

    def take_refusals(self) -> list[Refusal]:
        """The answers that never arrived or could not be read since the last call."""
        ...


@dataclass(frozen=True, eq=False)
class Round:
    """What happened in one round."""

    number: int
    tensors: Tensors
    """The server's tensors after the round."""
    clients: tuple[int, ...]
    """The clients whose replies were used. Empty if nobody trained; the tensors then stay as they were."""
    loss: float
    """Mean training loss, weighted by training nodes. NaN if nobody trained."""
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]
    seconds: float
    cpu_seconds: float
    refused: list[Refusal]
    """Answers that did not arrive or failed their checks."""
    confusions: dict[int, dict[str, Tensor]] | None
    """Confusion matrices of every client, all zeros for a missing answer.

    None if the round was not evaluated.
    """
    deeds: Deeds = Deeds()
    """What the defences did to the replies."""
    excluded: tuple[int, ...] = ()
    """Clients that are excluded from now on, because their answers were refused too often."""
    opened: tuple[int, ...] | None = None
    """Under the guard: the classes that are open."""


def train(
    method: Method[Any],
    server: Server,
    tensors: Tensors,
    clients: Sequence[int],
    exchange: Exchange,
    evaluate_every: int,
    first_round: int = 1,
    offences: Mapping[int, int] | None = None,
    defence: Defence = NO_DEFENCE,
    privacy: Privacy = NO_PRIVACY,
    last_round: int | None = None,
    before_sum: Callable[[], None] = lambda: None,
    notices: Mapping[str, Tensor] = NO_NOTICES,
) -> Iterator[Round]:
    """Run the rounds ``first_round`` to ``last_round``, by default ``server.last_round``, and yield each one.

    Every ``evaluate_every``-th round and the last one are evaluated. ``before_sum`` is called before the
    clients are asked for their replies.

    ``notices`` are entries of every message beside the method's own.

    ``offences`` is for a resumed run: in how many earlier rounds each client's answers were refused.
    """
    empty, offended = 0, dict(offences or {})
    last = server.last_round if last_round is None else last_round
    for number in range(first_round, last + 1):
        wall, cpu = time.perf_counter(), cpu_time()
        asked = [k for k in clients if offended.get(k, 0) < OFFENCES]
        trusted = set(asked)
        messages = {k: method.message(tensors, k) for k in cohort(clients, server, number) if k in trusted}
        here = replace(server, round=number)
        fields = method.reply_fields(here, tensors)
        declared = exchange.declared(asked)
        opened: Tensors = {}
        if privacy.guard and declared:
            opened = {OPEN: privacy.open_classes(declared.values()).to(torch.float32)}
        messages = {k: {**message, **notices, **opened} for k, message in messages.items()}
        before_sum()
        replies, refused = admit(
            exchange.step(number, messages), messages, fields, number, server.training.max_norm, declared
        )
        used, deeds = defend(replies, messages, fields, defence)
        trained = any(reply.num_train > 0 for reply in used.values())
        refused = [*exchange.take_refusals(), *refused]
        empty = 0 if trained else empty + 1
        if empty == GIVE_UP:
            raise BadMessage(
                nothing_accepted(number, used, refused, deeds, [k for k in clients if k not in trusted])
            )
        if trained:
            tensors = method.server_step(here, tensors, used)
        confusions = None
        if number % evaluate_every == 0 or number == last:
            sent = {k: {**method.message(tensors, k), **notices, **opened} for k in sorted(asked)}
            answers = exchange.evaluate(number, sent)
            closed = opened[OPEN] == 0 if opened else None
            confusions, more = admit_confusions(answers, declared, closed)
            refused += [*exchange.take_refusals(), *more]
            if not confusions and number == last:
                raise BadMessage(
                    f"the last round has no usable evaluation ({_first(refused, 'nobody answered')}); resume "
                    "the run"
                )
        for client in {r.client for r in refused if not r.absent}:
            offended[client] = offended.get(client, 0) + 1
        yield Round(
            number=number,
            tensors=tensors,
            clients=members(used) if trained else (),
            loss=mean_loss(used),
            bytes_up=added(r.sent or sizes_in_bytes(r.tensors) for r in replies.values()),
            bytes_down=added(r.received for r in replies.values())
            or added(sizes_in_bytes(message) for message in messages.values()),
            seconds=time.perf_counter() - wall,
            cpu_seconds=cpu_time() - cpu,
            refused=refused,
            deeds=deeds,
            excluded=tuple(k for k in sorted(clients) if offended.get(k, 0) >= OFFENCES),
            confusions=complete(confusions, clients) if confusions else None,
            opened=tuple(opened[OPEN].nonzero().reshape(-1).tolist()) if opened else None,
        )


def members(replies: Mapping[int, Reply]) -> tuple[int, ...]:
    """The clients behind the replies: each one's own, or all that a sum stands for."""
    return tuple(k for client, reply in replies.items() for k in (reply.members or (client,)))


def complete(
    confusions: Mapping[int, dict[str, Tensor]], clients: Sequence[int]
) -> dict[int, dict[str, Tensor]]:
    """The matrices of all clients, zeros for those that are missing.

    So the position in a stack of matrices always belongs to the same client.
    """
    empty = {name: matrix.new_zeros(matrix.shape) for name, matrix in next(iter(confusions.values())).items()}
    return {client: confusions.get(client, empty) for client in sorted(clients)}


def nothing_accepted(
    number: int, used: Mapping[int, Reply], refused: Sequence[Refusal], deeds: Deeds, excluded: Sequence[int]
) -> str:
    """The message of a run that gives up: the round, the likeliest cause, the cure."""
    if used:
        why = "no client that answered has a training node"
    elif excluded:
        why = (
            f"clients excluded because their answers were refused too often: {', '.join(map(str, excluded))}"
        )
    else:
        why = deeds.skipped or "nobody answered"
    why = _first(refused, why)
    return (
        f"no usable reply in {GIVE_UP} rounds in a row, up to round {number} ({why}); "
        "check the clients before starting again"
    )


def _first(refused: Sequence[Refusal], otherwise: str) -> str:
    """The first refusal in words, or ``otherwise`` if there is none."""
    return f"client {refused[0].client}: {refused[0].field} {refused[0].reason}" if refused else otherwise


def cohort(clients: Sequence[int], server: Server, number: int) -> list[int]:
    """The clients that are invited to a round, in ascending order.

    All of them, or a seeded draw of the share ``participation``, at least one.
    """
    size = cohort_size(len(clients), server.training)
    if size == len(clients):
        return sorted(clients)
    chosen = seeded_numpy(server.seed, "cohort", number).choice(sorted(clients), size=size, replace=False)
    return sorted(int(k) for k in chosen)


def cohort_size(clients: int, training: Training) -> int:
    return max(1, round(training.participation * clients))


def mean_loss(replies: Mapping[int, Reply]) -> float:
    trained = [(r.scalars["loss"], r.num_train) for r in replies.values() if "loss" in r.scalars]
    total = sum(n for _, n in trained)
    return sum(loss * n for loss, n in trained) / total if total else float("nan")


def sizes_in_bytes(tensors: Tensors) -> dict[str, int]:
    return {name: value.numel() * value.element_size() for name, value in tensors.items()}


def added(many: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of each entry."""
    out: dict[str, int] = {}
    for each in many:
        for name, value in each.items():
            out[name] = out.get(name, 0) + value
    return out
