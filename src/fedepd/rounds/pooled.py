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
from fedepd.rounds.evaluate import evaluated
from fedepd.rounds.statistics import of_method
from fedepd.rounds.sums import Vector, class_rows, layout, matrices_of, reply_of, sizes_of, traffic
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

    def ask(self, question: str, messages: Mapping[int, Tensors]) -> Summed:
        """The sum of what the clients answer to a question (``rounds.questions``)."""
        ...

    def take_refusals(self) -> list[Refusal]: ...


class Pooled:
    """An exchange of the round loop over a ``Summing`` one."""

    def __init__(
        self,
        summing: Summing,
        method: Method[Any],
        server: Server,
        cohort: Sequence[Sequence[int]],
        declared: tuple[Sizes, tuple[int, ...]] | None = None,
    ) -> None:
        self._summing, self._method, self._server, self._cohort = summing, method, server, cohort
        self._declared = declared
        """What all clients declared together, and which ones they are. It is kept: a declaration is made once
        per run, and who is not in it stays out. Otherwise the difference of two sums would be one client's.
        """

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        if self._declared is None:
            total, members = self._summing.sum_sizes(self._cohort[0])
            if members:
                self._declared = sizes_of(total), members
        return {} if self._declared is None else {EVERYONE: self._declared[0]}

    def _invited(self, round: int) -> list[int]:
        known = set(self._declared[1] if self._declared is not None else ())
        return [client for client in self._cohort[round] if client in known]

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        invited = self._invited(round)
        if EVERYONE not in messages or not invited:
            return {}
        message = messages[EVERYONE]
        total, members = self._summing.sum_steps(round, dict.fromkeys(invited, message))
        if not members:
            return {}
        here = replace(self._server, round=round)
        fields = self._method.reply_fields(here, of_method(message))
        parts = layout(self._method, self._server.info, fields)
        if len(members) < len(invited):
            total = total.copy()
            total[total.size - class_rows(parts) :] = 0
        reply = reply_of(fields, parts, total, round)
        up, down = traffic(parts, message, len(invited), len(members))
        return {EVERYONE: replace(reply, members=members, sent=up, received=down)}

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        everyone = dict.fromkeys(self._invited(0), messages[EVERYONE]) if EVERYONE in messages else {}
        if not everyone:
            return {}
        total, members = self._summing.sum_matrices(round, everyone)
        if not members:
            return {}
        names = evaluated(self._method.has_global)
        return {EVERYONE: matrices_of(total, names, self._server.info.num_classes)}

    def take_refusals(self) -> list[Refusal]:
        return self._summing.take_refusals()
