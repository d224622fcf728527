"""Processes that act for clients: who answers, what happens to a failure, and what is left at the end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from fedepd.errors import BadConfig, BadData, ClientFailed, FedEPDError
from fedepd.rounds import shards as module
from fedepd.rounds.shards import Act, Shards, cpu_time

Make = Callable[[Act, Sequence[Sequence[int]]], Shards]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Shards] = []

    def start(act: Act, parts: Sequence[Sequence[int]]) -> Shards:
        made.append(Shards(act, parts))
        return made[-1]

    yield start
    for each in made:
        each.close()
    assert not multiprocessing.active_children()


def test_every_client_is_answered_for_by_its_own_process(make: Make) -> None:
    counts: dict[int, int] = {}

    def act(name: str, client: int, arguments: Sequence[Any]) -> Any:
        counts[client] = counts.get(client, 0) + 1
        return [os.getpid(), counts[client], name, arguments[0] * client]

    shards = make(act, [[0, 2], [1]])
    assert not multiprocessing.active_children()  # nobody was asked
    first = shards.each("a", {k: (torch.tensor(2.0),) for k in (0, 1, 2)})
    again = shards.each("b", {2: (torch.tensor(3.0),)})
    assert first[0][0] == first[2][0] != first[1][0]
    assert os.getpid() not in {first[0][0], first[1][0]}
    assert again[2][1:] == [2, "b", torch.tensor(6.0)]  # its second act, in the process that knows the first
    assert again.keys() == {2}
    assert not counts  # nothing happened here


@pytest.mark.parametrize("frozen", [True, False])
def test_what_the_program_has_frozen_stays_so_and_nothing_else(make: Make, frozen: bool) -> None:
    gc.unfreeze()
    try:
        if frozen:
            gc.freeze()
        make(lambda name, client, arguments: client, [[0]]).each("tell", {0: ()})
        assert bool(gc.get_freeze_count()) == frozen
    finally:
        gc.freeze()


def test_a_failure_is_raised_here_as_it_was_there_and_the_next_question_is_answered(make: Make) -> None:
    def act(name: str, client: int, arguments: Sequence[Any]) -> Any:
        if name == "break" and client == 1:
            raise ClientFailed(1, 7, "step", ValueError("no"))
        if name == "refuse":
            raise BadData("too small; give more")
        if name == "lack":
            return dict[str, int]()["x"]
        if name == "err":
            raise ZeroDivisionError("by zero")
        return client

    shards = make(act, [[0], [1]])
    with pytest.raises(ClientFailed) as caught:
        shards.each("break", {0: (), 1: ()})
    assert str(caught.value) == "client 1 failed in round 7 (step): ValueError: no"
    assert (caught.value.client, caught.value.round, caught.value.stage) == (1, 7, "step")
    with pytest.raises(BadData, match=r"^too small; give more$"):
        shards.each("refuse", {1: ()})
    with pytest.raises(KeyError):
        shards.each("lack", {0: ()})
    with pytest.raises(FedEPDError, match="a client failed in its shard: ZeroDivisionError: by zero"):
        shards.each("err", {0: ()})
    assert shards.each("tell", {0: (), 1: ()}) == {0: 0, 1: 1}


def test_a_killed_process_is_one_sentence(make: Make) -> None:
    def act(name: str, client: int, arguments: Sequence[Any]) -> Any:
        if name == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return client

    shards = make(act, [[0], [1]])
    with pytest.raises(FedEPDError, match=r"was killed \(SIGKILL\), .* want of memory; give fewer shards$"):
        shards.each("die", {1: ()})
    shards.close()
    assert not multiprocessing.active_children()


def test_a_process_ends_where_nobody_asks_any_more(make: Make) -> None:
    """As when the first process was killed: its end of the pipe is closed."""
    shards = make(lambda name, client, arguments: client, [[0], [1]])
    shards.each("tell", {0: (), 1: ()})
    processes = multiprocessing.active_children()
    for _, pipe in shards._running:
        pipe.close()
    for process in processes:
        process.join(20)
        assert process.exitcode == 0


def test_the_seconds_of_the_processes_count(make: Make) -> None:
    def act(name: str, client: int, arguments: Sequence[Any]) -> Any:
        return sum(range(200_000)) > 0

    shards, before = make(act, [[0], [1]]), module._elsewhere
    shards.each("work", {0: (), 1: ()})
    assert module._elsewhere > before
    assert cpu_time() > module._elsewhere


def test_a_system_without_fork_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    with pytest.raises(BadConfig, match="leave shards out"):
        Shards(lambda *_: None, [[0]])
