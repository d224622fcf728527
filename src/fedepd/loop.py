"""The only round loop. Who carries the messages is injected: in this process, or between sites."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from torch import Tensor

from fedepd.errors import BadMessage
from fedepd.gate import Refusal, admit, counts_classes
from fedepd.methods.base import Method, Server
from fedepd.rng import seeded_numpy
from fedepd.types import Reply, Tensors

GIVE_UP = 5
"""So many rounds in a row in which no client that trained had a usable reply end the run."""


class Exchange(Protocol):
    """Carries messages to clients and brings back what they answer, keyed by client."""

    def declared(self, clients: Sequence[int]) -> Mapping[int, Tensor]:
        """Training nodes of each class [C], as each client gave them before its first reply; who gave none is left out."""
        ...

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]: ...

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]: ...


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
    """Replies that failed their checks."""
    confusions: dict[int, dict[str, Tensor]] | None
    """Per client, in rounds that were evaluated."""


def train(
    method: Method[Any],
    server: Server,
    tensors: Tensors,
    clients: Sequence[int],
    exchange: Exchange,
    evaluate_every: int,
    first_round: int = 1,
) -> Iterator[Round]:
    """Rounds ``first_round`` .. ``server.last_round``; evaluated every ``evaluate_every`` rounds and at the last."""
    empty = 0
    for number in range(first_round, server.last_round + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        messages = {k: method.message(tensors, k) for k in cohort(clients, server, number)}
        here = replace(server, round=number)
        fields = method.reply_fields(here, tensors)
        declared = exchange.declared(list(messages)) if counts_classes(fields) else {}
        replies, refused = admit(exchange.step(number, messages), messages, fields, number, server.training.max_norm, declared)
        trained = any(reply.num_train > 0 for reply in replies.values())
        empty = 0 if trained else empty + 1
        if empty == GIVE_UP:
            raise BadMessage(nothing_accepted(number, replies, refused))
        if trained:
            tensors = method.server_step(here, tensors, replies)
        due = number % evaluate_every == 0 or number == server.last_round
        confusions = exchange.evaluate(number, {k: method.message(tensors, k) for k in sorted(clients)}) if due else None
        yield Round(
            number=number,
            tensors=tensors,
            clients=tuple(replies) if trained else (),
            loss=mean_loss(replies),
            bytes_up=bytes_by_field(r.tensors for r in replies.values()),
            bytes_down=bytes_by_field(messages.values()),
            seconds=time.perf_counter() - wall,
            cpu_seconds=time.process_time() - cpu,
            refused=refused,
            confusions=confusions,
        )


def nothing_accepted(number: int, replies: Mapping[int, Reply], refused: Sequence[Refusal]) -> str:
    why = "none of those who answered has a training node" if replies else "nobody answered"
    if refused:
        why = f"client {refused[0].client}: {refused[0].field} {refused[0].reason}"
    return f"no usable reply in {GIVE_UP} rounds up to round {number} ({why}); look at the clients before starting again"


def cohort(clients: Sequence[int], server: Server, number: int) -> list[int]:
    """The clients of a round, ascending: all of them, or a seeded draw of the asked share, at least one."""
    size = max(1, round(server.training.participation * len(clients)))
    if size == len(clients):
        return sorted(clients)
    chosen = seeded_numpy(server.seed, "cohort", number).choice(sorted(clients), size=size, replace=False)
    return sorted(int(k) for k in chosen)


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
