"""The exchange of a simulation: all clients live in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from fedepd.rounds.admission import Refusal
from fedepd.rounds.participant import Participant
from fedepd.rounds.pooled import Summed
from fedepd.rounds.questions import QUESTIONS
from fedepd.rounds.sums import Vector, summed
from fedepd.types import Reply, Sizes, Tensors

T = TypeVar("T")

THREADED_FROM = 1000
"""Threads are used from this many nodes per client on, on average.

With smaller clients the threads mostly wait for each other, because Python runs one at a time. Two threads
made a round of email (100 nodes per client) 1.5 times as long, and a round of corafull (2,000) a third
shorter.
"""


class InProcess:
    """Calls the participants one after the other, or in ``workers`` threads if the clients are large enough.

    Each thread uses one BLAS thread. The results have the same bits either way.
    """

    def __init__(
        self, participants: Iterable[Participant], workers: int = 1, threaded_from: int | None = None
    ) -> None:
        self.participants = {p.client_id: p for p in participants}
        least = THREADED_FROM if threaded_from is None else threaded_from
        nodes = sum(p.size for p in self.participants.values())
        pays = workers > 1 and nodes >= least * len(self.participants)
        self._pool = (
            ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) if pays else None
        )

    def prepare(self) -> None:
        self._map(lambda k: self.participants[k].prepare(), self.participants)

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        return {k: self.participants[k].sizes for k in clients}

    def take_refusals(self) -> list[Refusal]:
        return []

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        return self._map(lambda k: self.participants[k].step(round, messages[k]), messages)

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        return self._map(lambda k: self.participants[k].evaluate(round, messages[k]), messages)

    def sum_sizes(self, clients: Sequence[int]) -> Summed:
        return self._sum(lambda k: self.participants[k].sizes_vector(), clients)

    def sum_steps(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        return self._sum(lambda k: self.participants[k].step_vector(round, messages[k]), messages)

    def sum_matrices(self, round: int, messages: Mapping[int, Tensors]) -> Summed:
        return self._sum(lambda k: self.participants[k].matrices_vector(round, messages[k]), messages)

    def ask(self, question: str, messages: Mapping[int, Tensors]) -> Summed:
        answer = QUESTIONS[question].answer
        return self._sum(lambda k: answer(self.participants[k], messages[k]), messages)

    def _sum(self, act: Callable[[int], Vector], clients: Iterable[int]) -> Summed:
        vectors = self._map(act, clients)
        return summed(list(vectors.values())), tuple(sorted(vectors))

    def _map(self, act: Callable[[int], T], clients: Iterable[int]) -> dict[int, T]:
        clients = list(clients)
        # The largest client goes first, so that no thread is left with it at the end.
        by_size = sorted(clients, key=lambda k: -self.participants[k].size)
        results = list(self._pool.map(act, by_size)) if self._pool else [act(k) for k in by_size]
        return dict(zip(by_size, results, strict=True))

    def close(self) -> None:
        if self._pool:
            # After the last round nothing is waiting. After a failure nobody should wait for the others.
            self._pool.shutdown(wait=False, cancel_futures=True)
