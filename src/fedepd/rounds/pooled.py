"""A server that sees sums over all clients, as an exchange with one client that stands for all.

So the round loop, admission and the method's server step are the same with and without secure sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from torch import Tensor

from fedepd.methods.base import Method, Server
from fedepd.rounds.admission import Refusal
from fedepd.rounds.evaluate import SPLITS
from fedepd.rounds.guard import OPEN
from fedepd.rounds.sums import Vector, layout, matrices_of, reply_of, sizes_of
from fedepd.types import Reply, Sizes, Tensors

EVERYONE = -1
"""The number of the client that stands for all."""

Summed = tuple[Vector, tuple[int, ...]]
"""A sum of vectors, and the clients whose vectors are in it."""


class Summing(Protocol):
    """Brings back sums over clients and never a single client's numbers. Nobody answered: no clients."""

    def sum_sizes(self, clients: Sequence[int]) -> Summed: ...

    def sum_steps(self, round: int, messages: Mapping[int, Tensors]) -> Summed: ...

    def sum_matrices(self, round: int, messages: Mapping[int, Tensors]) -> Summed: ...

    def take_refusals(self) -> list[Refusal]: ...


class Pooled:
    """An exchange of the round loop over a ``Summing`` one."""

    def __init__(
        self,
        summing: Summing,
        method: Method[Any],
        server: Server,
        cohort: Sequence[Sequence[int]],
        sizes: Sizes | None = None,
    ) -> None:
        self._summing, self._method, self._server, self._cohort = summing, method, server, cohort
        self.sizes = sizes
        """What all clients declared together; kept, because a declaration is made once per run."""

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        if self.sizes is None:
            total, members = self._summing.sum_sizes(self._cohort[0])
            if members:
                self.sizes = sizes_of(total)
        return {} if self.sizes is None else {EVERYONE: self.sizes}

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        message = messages[EVERYONE]
        total, members = self._summing.sum_steps(round, dict.fromkeys(self._cohort[round], message))
        if not members:
            return {}
        here = replace(self._server, round=round)
        tensors = {name: value for name, value in message.items() if name != OPEN}
        fields = self._method.reply_fields(here, tensors)
        reply = reply_of(fields, layout(self._method, self._server.info, fields), total, round)
        return {EVERYONE: replace(reply, members=members)}

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        everyone = dict.fromkeys(self._cohort[0], messages[EVERYONE])
        total, members = self._summing.sum_matrices(round, everyone)
        if not members:
            return {}
        kinds = ("personal", "global") if self._method.has_global else ("personal",)
        names = [f"{kind}_{split}" for kind in kinds for split in SPLITS]
        return {EVERYONE: matrices_of(total, names, self._server.info.num_classes)}

    def take_refusals(self) -> list[Refusal]:
        return self._summing.take_refusals()
