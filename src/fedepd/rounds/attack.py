"""Dishonest clients in a simulation, to test the defences against.

In a run with an attack some clients send something else than they should. They are left out of the
evaluation, so the scores are those of the honest clients. Attacks exist in simulations only; no setting makes
a federation attack itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.options import option
from fedepd.rng import seeded_numpy
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.participant import Participant
from fedepd.rounds.pooled import Summed
from fedepd.types import ClientData, Fields, Reply, Sizes, Tensors

Name = Literal[
    "none",
    "honest",
    "sign-flip",
    "scale",
    "alie",
    "label-flip",
    "prototype-swap",
    "prototype-far",
    "size",
    "votes",
]
NAMES: tuple[Name, ...] = get_args(Name)[1:]
"""The attacks.

``honest`` is the baseline: the chosen clients behave, and they are left out of the scores as well.
"""

FLIPPED, SCALED, FAR = -3.0, 30.0, -30.0
"""What an attacker multiplies: its update (sign-flip, scale) or its class rows (prototype-far)."""
DEVIATIONS = 1.0
"""alie sends the honest mean minus this many standard deviations.

From "A Little Is Enough", Baruch et al., NeurIPS 2019, arXiv 1902.06156.
"""
CLAIMED = 1_000_000
"""The number of nodes that an attacker claims to have (size)."""


@dataclass(frozen=True)
class Attack:
    """Settings of dishonest clients, to test the defences."""

    attack: Name = option("none", "what dishonest clients do; only in simulations, to test defences")
    attackers: int = option(2, "how many clients are dishonest, if there is an attack")

    def __post_init__(self) -> None:
        if self.attackers < 1:
            raise BadConfig(f"attackers is {self.attackers}; give at least 1, or --attack none")

    @property
    def on(self) -> bool:
        return self.attack != "none"

    def idle(self) -> dict[str, str]:
        return {} if self.on else {"attackers": "attack"}

    def drawn(self, clients: Sequence[int], seed: int) -> list[int]:
        """The dishonest clients, in ascending order. They are drawn from a random stream of their own."""
        if not self.on:
            return []
        if self.attackers >= len(clients):
            raise BadConfig(
                f"attackers is {self.attackers} of {len(clients)} clients; leave at least one honest"
            )
        chosen = seeded_numpy(seed, "attackers").choice(sorted(clients), size=self.attackers, replace=False)
        return sorted(int(k) for k in chosen)

    def check(self, label: str, fields: Fields) -> None:
        """Refuse an attack on something that the method never sends."""
        rows = {"prototype-swap", "prototype-far"}
        if self.attack in rows and not any(field.kind in ("sum", "mean") for field in fields.values()):
            raise BadConfig(
                f"attack is '{self.attack}', but {label} sends no prototypes; choose another attack"
            )
        if self.attack == "votes" and not any(field.kind == "votes" for field in fields.values()):
            raise BadConfig(f"attack is 'votes', but {label} sends no votes; choose another attack")


def poisoned(clients: Iterable[ClientData], attackers: Sequence[int], attack: Attack) -> list[ClientData]:
    """The clients' data. With label-flip, attackers' training nodes of class c are relabelled C - 1 - c."""
    if attack.attack != "label-flip":
        return list(clients)
    return [_flipped(client) if client.client_id in attackers else client for client in clients]


def _flipped(client: ClientData) -> ClientData:
    graph = client.graph
    y = torch.where(client.train_mask & (graph.y >= 0), graph.num_classes - 1 - graph.y, graph.y)
    return replace(client, graph=replace(graph, y=y))


class Attacked(InProcess):
    """The exchange of a simulation in which some clients are dishonest."""

    def __init__(
        self,
        participants: Iterable[Participant],
        workers: int,
        attackers: Sequence[int],
        attack: Attack,
        fields: Fields,
        shards: int = 1,
    ) -> None:
        super().__init__(participants, workers, shards=shards)
        self.attackers, self.attack, self.fields = attackers, attack, fields

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        true = super().declared(clients)
        if self.attack.attack != "size":
            return true
        return {k: _boast(sizes) if k in self.attackers else sizes for k, sizes in true.items()}

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        replies = super().step(round, messages)
        honest = {k: reply for k, reply in replies.items() if k not in self.attackers}
        act = ACTS.get(self.attack.attack)
        if act is None:
            return replies
        return {
            k: reply if k in honest else replace(act(reply, messages[k], honest, self.fields), round=round)
            for k, reply in replies.items()
        }

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        return super().evaluate(
            round, {k: message for k, message in messages.items() if k not in self.attackers}
        )

    def ask(self, question: str, messages: Mapping[int, Tensors]) -> Summed:
        return super().ask(
            question, {k: message for k, message in messages.items() if k not in self.attackers}
        )


Act = Callable[[Reply, Tensors, Mapping[int, Reply], Fields], Reply]
"""What an attacker sends.

Arguments: its honest reply, the message it received, the honest clients' replies, and the fields of a reply.
"""


def _updates(reply: Reply, message: Tensors, fields: Fields) -> list[str]:
    return [name for name in reply.tensors if name in message and fields[name].kind == "real"]


def _with(reply: Reply, tensors: Mapping[str, Tensor]) -> Reply:
    return replace(
        reply, tensors={**reply.tensors, **{name: value.to(torch.float32) for name, value in tensors.items()}}
    )


def _moved(reply: Reply, message: Tensors, fields: Fields, factor: float) -> Reply:
    names = _updates(reply, message, fields)
    return _with(
        reply, {name: message[name] + factor * (reply.tensors[name] - message[name]) for name in names}
    )


def _sign_flip(reply: Reply, message: Tensors, honest: Mapping[int, Reply], fields: Fields) -> Reply:
    return _moved(reply, message, fields, FLIPPED)


def _scale(reply: Reply, message: Tensors, honest: Mapping[int, Reply], fields: Fields) -> Reply:
    return _moved(reply, message, fields, SCALED)


def _alie(reply: Reply, message: Tensors, honest: Mapping[int, Reply], fields: Fields) -> Reply:
    """Stay within the spread of the honest replies, with all attackers on the same side of the mean."""
    if not honest:
        return reply
    out = {}
    for name in _updates(reply, message, fields):
        stacked = torch.stack([honest[k].tensors[name] for k in sorted(honest)])
        out[name] = stacked.mean(0) - DEVIATIONS * stacked.std(0, correction=0)
    return _with(reply, out)


def _prototype_swap(reply: Reply, message: Tensors, honest: Mapping[int, Reply], fields: Fields) -> Reply:
    """Swap the rows of the attacker's largest and smallest class, keeping the length of each."""
    out = {}
    for name, field in fields.items():
        if field.kind not in ("sum", "mean") or field.of is None or name not in reply.tensors:
            continue
        rows, counts = reply.tensors[name].clone(), reply.tensors[field.of]
        present = counts.nonzero().reshape(-1)
        if present.numel() > 1:
            large, small = present[counts[present].argmax()], present[counts[present].argmin()]
            norms = rows[large].norm(), rows[small].norm()
            swapped = (
                rows[small] * norms[0] / norms[1].clamp(min=1e-12),
                rows[large] * norms[1] / norms[0].clamp(min=1e-12),
            )
            rows[large], rows[small] = swapped
        out[name] = rows
    return _with(reply, out)


def _prototype_far(reply: Reply, message: Tensors, honest: Mapping[int, Reply], fields: Fields) -> Reply:
    names = [
        name for name, field in fields.items() if field.kind in ("sum", "mean") and name in reply.tensors
    ]
    return _with(reply, {name: FAR * reply.tensors[name] for name in names})


def _size(reply: Reply, message: Tensors, honest: Mapping[int, Reply], fields: Fields) -> Reply:
    """Send a model of zeros with the weight of a million nodes."""
    zero = {name: torch.zeros_like(reply.tensors[name]) for name in _updates(reply, message, fields)}
    return replace(_with(reply, zero), num_nodes=CLAIMED, num_train=CLAIMED)


def _boast(sizes: Sizes) -> Sizes:
    return replace(
        sizes,
        num_nodes=CLAIMED,
        num_train=CLAIMED,
        val=torch.zeros_like(sizes.val),
        test=torch.zeros_like(sizes.test),
    )


def _votes(reply: Reply, message: Tensors, honest: Mapping[int, Reply], fields: Fields) -> Reply:
    """Give all votes to the option that the attacker found worse."""
    names = [name for name, field in fields.items() if field.kind == "votes" and name in reply.tensors]
    turned = {
        name: reply.num_train * (reply.tensors[name] < reply.tensors[name].max()).to(torch.float32)
        for name in names
    }
    return _with(reply, turned)


ACTS: dict[str, Act] = {
    "sign-flip": _sign_flip,
    "scale": _scale,
    "alie": _alie,
    "prototype-swap": _prototype_swap,
    "prototype-far": _prototype_far,
    "size": _size,
    "votes": _votes,
}
"""Attack -> act. label-flip changes the data before the run instead, and honest does nothing."""
