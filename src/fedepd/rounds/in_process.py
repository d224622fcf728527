"""The exchange of a simulation: all clients live in this process, or in copies of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from fedepd import memory
from fedepd.rounds.admission import Refusal
from fedepd.rounds.participant import Participant
from fedepd.rounds.pooled import Summed
from fedepd.rounds.questions import QUESTIONS
from fedepd.rounds.shards import Shards
from fedepd.rounds.sums import summed
from fedepd.types import Reply, Sizes, Tensors

THREADED_FROM = 1000
"""Threads are used from this many nodes per client on, on average.

With smaller clients the threads mostly wait for each other, because Python runs one at a time. Two threads
made a round of email (100 nodes per client) 1.5 times as long, and a round of corafull (2,000) a third
shorter.
"""
LARGE = 50_000
"""After acts of clients of so many nodes, freed memory goes back to the system."""
GIVE_BACK_EVERY = 4
"""After every fourth of them.

With ten clients of 100,000 nodes and 10 M edges, the peak fell from 3.1 to 2.3 GB. After each act, a round
took a quarter longer, because the system clears every page that it gives again.
"""


ACTS: Mapping[str, Callable[..., Any]] = {
    "prepare": lambda p: p.prepare(),
    "step": lambda p, round, message: p.step(round, message),
    "evaluate": lambda p, round, message: p.evaluate(round, message),
    "step_vector": lambda p, round, message: p.step_vector(round, message),
    "matrices_vector": lambda p, round, message: p.matrices_vector(round, message),
    "answer": lambda p, question, message: QUESTIONS[question].answer(p, message),
    "tested": lambda p, round, tensors, split: p.tested(round, tensors, split),
    "facts": lambda p, tensors: p.facts(tensors),
    "state": lambda p: p.state,
    "own": lambda p: p.own,
    "adapted": lambda p: p.adapted,
    "restore": lambda p, state: setattr(p, "state", state),
    "released": lambda p, made: setattr(p, "releases", made),
}
"""What a participant can be asked to do, where it is not asked about its data."""


class InProcess:
    """Calls the participants one after the other, or in ``workers`` threads if the clients are large enough.

    Each thread uses one BLAS thread. With ``shards``, the participants live in so many copies of this
    process. The results have the same bits in all ways.
    """

    def __init__(
        self,
        participants: Iterable[Participant],
        workers: int = 1,
        threaded_from: int | None = None,
        shards: int = 1,
    ) -> None:
        self._large_acts = itertools.count(1)
        self.participants = {p.client_id: p for p in participants}
        least = THREADED_FROM if threaded_from is None else threaded_from
        nodes = sum(p.size for p in self.participants.values())
        pays = workers > 1 and nodes >= least * len(self.participants)
        self._pool = (
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) if pays else None
        )
        by_size, count = self._by_size(self.participants), min(shards, len(self.participants))
        self._shards = Shards(self._act, [by_size[n::count] for n in range(count)]) if count > 1 else None

    def prepare(self) -> None:
        self._each("prepare", dict.fromkeys(self.participants, ()))

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        return {k: self.participants[k].sizes for k in clients}

    def take_refusals(self) -> list[Refusal]:
        return []

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        return self._each("step", {k: (round, message) for k, message in messages.items()})

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        return self._each("evaluate", {k: (round, message) for k, message in messages.items()})

    def sum_sizes(self, clients: Sequence[int]) -> Summed:
        return summed([self.participants[k].sizes_vector() for k in clients]), tuple(sorted(clients))

    def sum_steps(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        return self._sum("step_vector", {k: (round, message) for k, message in messages.items()})

    def sum_matrices(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        return self._sum("matrices_vector", {k: (round, message) for k, message in messages.items()})

    def ask(self, question: str, messages: Mapping[int, Tensors]) -> Summed:
        return self._sum("answer", {k: (question, message) for k, message in messages.items()})

    def tested(self, round: int, tensors: Mapping[int, Tensors], split: str) -> dict[int, list[Tensor]]:
        """What models say of the clients' test nodes (``Participant.tested``)."""
        return self._each("tested", {k: (round, own, split) for k, own in tensors.items()})

    def facts(self, tensors: Tensors) -> list[dict[str, Any]]:
        """What the report says about each client."""
        found = self._each("facts", dict.fromkeys(self.participants, (tensors,)))
        return [found[k] for k in self.participants]

    def kept(self, what: str) -> dict[int, Tensors]:
        """What each client keeps: its "state", its "own" model or its "adapted" one."""
        found = self._each(what, dict.fromkeys(self.participants, ()))
        return {k: found[k] for k in self.participants}

    def restore(self, states: Mapping[int, Tensors]) -> None:
        """Give each client its state of an earlier sitting."""
        self._each("restore", {k: (states.get(k, {}),) for k in self.participants})

    def released(self, made: int) -> None:
        """Tell each client how many noisy sums the run has made before."""
        self._each("released", dict.fromkeys(self.participants, (made,)))

    def _sum(self, act: str, given: Mapping[int, Sequence[Any]]) -> Summed:
        vectors = self._each(act, given)
        return summed(list(vectors.values())), tuple(sorted(vectors))

    def _act(self, name: str, client: int, arguments: Sequence[Any]) -> Any:
        participant = self.participants[client]
        out = ACTS[name](participant, *arguments)
        if participant.size >= LARGE and next(self._large_acts) % GIVE_BACK_EVERY == 0:
            memory.give_back()
        return out

    def _each(self, act: str, given: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        if self._shards is not None:
            return self._shards.each(act, given)
        # The largest client goes first, so that no thread is left with it at the end.
        clients = self._by_size(given)
        if self._pool:
            results = list(self._pool.map(lambda k: self._act(act, k, given[k]), clients))
        else:
            results = [self._act(act, k, given[k]) for k in clients]
        return dict(zip(clients, results, strict=True))

    def _by_size(self, clients: Iterable[int]) -> list[int]:
        return sorted(clients, key=lambda k: -self.participants[k].size)

    def close(self) -> None:
        if self._pool:
            # After the last round nothing is waiting. After a failure nobody should wait for the others.
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._shards:
            self._shards.close()
