"""The only round loop. Who carries the messages is injected: in this process, or between sites."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor

from fedepd.errors import BadMessage
from fedepd.methods.base import Method, Server
from fedepd.network.training import Training
from fedepd.rng import seeded_numpy
from fedepd.rounds.admission import Refusal, admit, admit_confusions
from fedepd.rounds.defence import NO_DEFENCE, Deeds, Defence, defend
from fedepd.types import Reply, Sizes, Tensors

GIVE_UP = 5
"""The run ends after this many rounds in a row without a usable reply of a client that trained."""
OFFENCES = 3
"""A client whose answers were refused this often is left out of the rest of the run."""


class Exchange(Protocol):
    """Carries messages to clients and brings back what they answer, keyed by client."""

    def declared(self, clients: Sequence[int]) -> Mapping[int, Sizes]:
        """What each client said of its data before its first reply; who said nothing usable is left out."""
        ...

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]: ...

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]: ...

    def take_refusals(self) -> list[Refusal]:
        """What was refused on the way since the last call: never arrived, or not to be read."""
        ...


@dataclass(frozen=True, eq=False)
class Round:
    """What happened in one round."""

    number: int
    tensors: Tensors
    """The server's tensors after the round."""
    clients: tuple[int, ...]
    """Whose replies were used; nobody's in an empty round, which leaves the tensors as they were."""
    loss: float
    """Mean training loss, weighted by training nodes; NaN where nobody trained."""
    bytes_up: dict[str, int]
    bytes_down: dict[str, int]
    seconds: float
    cpu_seconds: float
    refused: list[Refusal]
    """Answers that did not come or failed their checks."""
    confusions: dict[int, dict[str, Tensor]] | None
    """Of every client, in rounds that were evaluated; zeros for one whose answer is missing."""
    deeds: Deeds = Deeds()
    """What the defences did to the replies."""
    excluded: tuple[int, ...] = ()
    """Clients that are left out from now on, because their answers were refused too often."""


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
) -> Iterator[Round]:
    """Rounds ``first_round`` .. ``server.last_round``; evaluated every ``evaluate_every`` rounds and at the last.

    ``offences``: how often each client's answers were refused in earlier rounds, for a run that goes on.
    """
    empty, offended = 0, dict(offences or {})
    for number in range(first_round, server.last_round + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        asked = [k for k in clients if offended.get(k, 0) < OFFENCES]
        messages = {k: method.message(tensors, k) for k in cohort(clients, server, number) if k in asked}
        here = replace(server, round=number)
        fields = method.reply_fields(here, tensors)
        declared = exchange.declared(asked)
        replies, refused = admit(
            exchange.step(number, messages), messages, fields, number, server.training.max_norm, declared
        )
        used, deeds = defend(replies, messages, fields, defence)
        trained = any(reply.num_train > 0 for reply in used.values())
        refused = [*exchange.take_refusals(), *refused]
        empty = 0 if trained else empty + 1
        if empty == GIVE_UP:
            raise BadMessage(
                nothing_accepted(number, used, refused, deeds, [k for k in clients if k not in asked])
            )
        if trained:
            tensors = method.server_step(here, tensors, used)
        confusions = None
        if number % evaluate_every == 0 or number == server.last_round:
            answers = exchange.evaluate(number, {k: method.message(tensors, k) for k in sorted(asked)})
            confusions, more = admit_confusions(answers, declared)
            refused += [*exchange.take_refusals(), *more]
            if not confusions and number == server.last_round:
                raise BadMessage(
                    f"no usable evaluation in the last round ({_first(refused, 'nobody answered')}); resume the run"
                )
        for client in {r.client for r in refused if not r.absent}:
            offended[client] = offended.get(client, 0) + 1
        yield Round(
            number=number,
            tensors=tensors,
            clients=tuple(used) if trained else (),
            loss=mean_loss(used),
            bytes_up=bytes_by_field(r.tensors for r in replies.values()),
            bytes_down=bytes_by_field(messages.values()),
            seconds=time.perf_counter() - wall,
            cpu_seconds=time.process_time() - cpu,
            refused=refused,
            deeds=deeds,
            excluded=tuple(k for k in sorted(clients) if offended.get(k, 0) >= OFFENCES),
            confusions=complete(confusions, clients) if confusions else None,
        )


def complete(
    confusions: Mapping[int, dict[str, Tensor]], clients: Sequence[int]
) -> dict[int, dict[str, Tensor]]:
    """With empty matrices for those who are missing, so that a place in a stack of matrices is always the same client's."""
    empty = {name: matrix.new_zeros(matrix.shape) for name, matrix in next(iter(confusions.values())).items()}
    return {client: confusions.get(client, empty) for client in sorted(clients)}


def nothing_accepted(
    number: int, used: Mapping[int, Reply], refused: Sequence[Refusal], deeds: Deeds, excluded: Sequence[int]
) -> str:
    why = "none of those who answered has a training node" if used else deeds.skipped or "nobody answered"
    if excluded and not used:
        why = f"clients {', '.join(map(str, excluded))} were left out, their answers were refused too often"
    why = _first(refused, why)
    return f"no usable reply in {GIVE_UP} rounds up to round {number} ({why}); look at the clients before starting again"


def _first(refused: Sequence[Refusal], otherwise: str) -> str:
    return f"client {refused[0].client}: {refused[0].field} {refused[0].reason}" if refused else otherwise


def cohort(clients: Sequence[int], server: Server, number: int) -> list[int]:
    """The clients of a round, ascending: all of them, or a seeded draw of the asked share, at least one."""
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


def bytes_by_field(many: Any) -> dict[str, int]:
    out: dict[str, int] = {}
    for tensors in many:
        for name, value in tensors.items():
            out[name] = out.get(name, 0) + value.numel() * value.element_size()
    return out
