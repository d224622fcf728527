"""Clients spread over processes of this machine. Each process keeps its clients for the whole run.

A process is a copy of this one, made by fork when the first client is asked. So it has the clients' data
without reading them again, and both share the memory of what neither changes. What a client becomes in the
rounds is known to its process alone. Questions and answers are the bytes of ``rounds.records``.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import torch

from fedepd import errors
from fedepd.errors import BadConfig, FedEPDError
from fedepd.rounds.records import from_bytes, to_bytes

Act = Callable[[str, int, Sequence[Any]], Any]
"""Takes the name of an act, a client and arguments. Returns what the client answers."""
STOPPING = (signal.SIGINT, signal.SIGTERM)
_elsewhere = 0.0


def cpu_time() -> float:
    """CPU seconds of this process and of its shards so far."""
    return time.process_time() + _elsewhere


class Shards:
    """Processes that act for clients. ``parts`` are the clients of each."""

    def __init__(self, act: Act, parts: Sequence[Sequence[int]]) -> None:
        if "fork" not in multiprocessing.get_all_start_methods():
            raise BadConfig("shards need a system that can copy a process, such as Linux; leave shards out")
        self._act, self._parts = act, parts
        self._running: list[tuple[BaseProcess, Connection]] = []

    def each(self, name: str, given: Mapping[int, Sequence[Any]]) -> dict[int, Any]:
        """What each client answers, by client. All processes work at the same time."""
        if not self._running:
            self._start()
        asked = [[[k, given[k]] for k in part if k in given] for part in self._parts]
        for (process, pipe), mine in zip(self._running, asked, strict=True):
            if mine:
                try:
                    pipe.send_bytes(to_bytes([name, mine]))
                except OSError as cause:
                    raise _ended(process) from cause
        # All answers are taken before a failure is raised. So the next question finds no old answer.
        answers = [_received(*each) for each, mine in zip(self._running, asked, strict=True) if mine]
        for answer in answers:
            _raise(answer)
        return {k: value for answer in answers for k, value in answer["values"]}

    def _start(self) -> None:
        context, ours = multiprocessing.get_context("fork"), list[Connection]()
        ours_to_free = not gc.get_freeze_count()  # what the program itself has frozen stays so
        gc.freeze()  # else a collection in a copy would write to all objects, and so double their memory
        try:
            for _ in self._parts:
                mine, theirs = context.Pipe()
                ours.append(mine)
                process = context.Process(target=_serve, args=(self._act, theirs, list(ours)), daemon=True)
                before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
                try:  # a signal that arrives here would leave a process that nobody stops
                    with warnings.catch_warnings():
                        # Later Pythons warn of threads. Ours draw progress, and a copy never prints.
                        warnings.simplefilter("ignore", DeprecationWarning)
                        process.start()
                    self._running.append((process, mine))
                finally:
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
                theirs.close()
        finally:
            if ours_to_free:
                gc.unfreeze()

    def close(self) -> None:
        """End all processes."""
        for process, _ in self._running:
            process.kill()
        for process, pipe in self._running:
            process.join()
            pipe.close()
        self._running = []


def _received(process: BaseProcess, pipe: Connection) -> dict[str, Any]:
    global _elsewhere
    try:
        answer: dict[str, Any] = from_bytes(pipe.recv_bytes())
    except (EOFError, OSError) as cause:
        raise _ended(process) from cause
    _elsewhere += answer["cpu"]
    return answer


def _ended(process: BaseProcess) -> FedEPDError:
    process.join()
    code = process.exitcode or 0
    how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with exit code {code}"
    why = ", as the system does for want of memory; give fewer shards" if code == -signal.SIGKILL else ""
    return FedEPDError(f"the process of a shard {how}{why or '; run it without shards to see why'}")


def _raise(answer: Mapping[str, Any]) -> None:
    """Raise what a client's process could not."""
    if "error" not in answer:
        return
    name, text, about = answer["error"]
    if name == "KeyError":
        raise KeyError(text)
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, FedEPDError)):
        raise FedEPDError(f"a client failed in its shard: {name}: {text}")
    error = kind.__new__(kind, text)
    error.__dict__.update(about)
    raise error


def _serve(act: Act, pipe: Connection, others: Sequence[Connection]) -> None:
    """In the process of a shard: answer until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes, and the first one ends us
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPPING)
    for each in others:  # otherwise we would never read the end of what they write
        each.close()
    torch.set_num_threads(1)
    with suppress(EOFError, OSError):
        while True:
            pipe.send_bytes(_answer(act, pipe, *from_bytes(pipe.recv_bytes())))


def _answer(act: Act, pipe: Connection, name: str, asked: Sequence[Any]) -> bytes:
    before, values = time.process_time(), []
    try:
        for client, arguments in asked:
            values.append([client, act(name, client, arguments)])
            if pipe.poll():  # nobody asks before we have answered, so the run has ended
                raise EOFError
    except EOFError:
        raise
    except Exception as error:
        about = {key: value for key, value in vars(error).items() if isinstance(value, int | str)}
        return to_bytes({"error": [type(error).__name__, str(error), about], "cpu": 0.0})
    return to_bytes({"values": values, "cpu": time.process_time() - before})
