"""The same experiment again and again, with other training nodes each time: what an attacker rehearses on.

The graph, the clients and the edges stay. Only the split is drawn anew.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.errors import BadConfig, FedEPDError
from fedepd.rng import seeded_numpy
from fedepd.runs.distil import distilled
from fedepd.runs.drive import now
from fedepd.runs.experiment import Experiment
from fedepd.runs.predict import check_common, common_model, logits
from fedepd.runs.run import complete
from fedepd.runs.simulation import Simulation, build
from fedepd.runs.source import Data
from fedepd.types import ClientData, TaskInfo, Tensors

Signal = Callable[[Tensor, Tensor], Tensor]
"""Logits [n, C] and classes [n] -> what the attack looks at, [n, 2]."""
Progress = Callable[[int, int], None]
"""Called after each training with how many are done, and how many there are."""
Scores = Literal["all", "top"]
"""What an attacker is told of a node: all probabilities, or the likeliest class with a rounded one."""
Training = tuple[NDArray[np.bool_], NDArray[np.float64]]
"""Of one training: which nodes it had, [n], and what the attack saw of them, [n, 2]."""


@dataclass(frozen=True, eq=False)
class Shadows:
    """What an attacker sees of all trainings. The first of them is the run itself."""

    members: NDArray[np.bool_]
    """Which node was a training node in which training: [S + 1, n]."""
    signals: NDArray[np.float64]
    """What the attack saw of each node, NaN where it has no label: [S + 1, n, 2]."""

    @classmethod
    def of(cls, trainings: Sequence[Training]) -> Shadows:
        members, signals = zip(*trainings, strict=True)
        return cls(np.stack(members), np.stack(signals))


class Trainers(Protocol):
    """Who trains the run and its shadows, if not this machine."""

    def train(
        self, experiment: Experiment, scores: Scores, distil: bool, size: tuple[int, int], progress: Progress
    ) -> Shadows:
        """All trainings. ``size``: how many there are, and nodes."""
        ...


@dataclass(frozen=True, eq=False)
class Recipe:
    """One training by number: 0 is the run itself, any other one is a shadow."""

    experiment: Experiment
    clients: Sequence[ClientData]
    signal: Signal
    distil: bool = False
    """Whether the attacked model is the distilled one."""

    def __call__(self, number: int) -> Training:
        clients = [self.drawn(each, number) for each in self.clients] if number else list(self.clients)
        simulation = build(self.experiment, clients)
        tensors = trained(simulation, self.distil)
        nodes = sum(each.graph.num_nodes for each in clients)
        member, seen = np.zeros(nodes, dtype=np.bool_), np.full((nodes, 2), np.nan)
        for each in clients:
            ids, y = each.global_ids.numpy(), each.graph.y
            member[ids] = each.train_mask.numpy()
            known = y >= 0
            z = client_logits(self.experiment, simulation.server.info, tensors, each)
            seen[ids[known.numpy()]] = self.signal(z[known], y[known]).numpy()
        return member, seen

    def drawn(self, client: ClientData, number: int) -> ClientData:
        """The client with another split.

        Choice: nodes of one class at one client swap their parts in the split at random. So every class has
        as many training nodes as in the run at every client, and the run is one of these draws. If all nodes
        of a class at a client have the same part, none of them is attacked: they are no secret to somebody
        who knows the rule of the split.
        """
        y, masks = client.graph.y.numpy(), (client.train_mask, client.val_mask, client.test_mask)
        parts = torch.stack(masks).numpy()  # [3, n]
        pool = np.flatnonzero(parts.any(0))
        draws = seeded_numpy(self.experiment.protocol.seed, "shadow", number, client.client_id)
        shuffled = draws.permutation(pool)
        new = np.zeros_like(parts)
        new[:, by_class(shuffled, y)] = parts[:, by_class(pool, y)]
        train, val, test = torch.from_numpy(new)
        return replace(client, train_mask=train, val_mask=val, test_mask=test)


def by_class(nodes: NDArray[np.int64], y: NDArray[np.int64]) -> NDArray[np.int64]:
    """The nodes, sorted by class; in one class their order stays."""
    return nodes[np.argsort(y[nodes], kind="stable")]


def audited(experiment: Experiment, data: Data) -> Simulation:
    """The experiment before its first round, if it ends with a model that can be attacked."""
    check_common(experiment.method, "audit")
    if experiment.attack.on:
        raise BadConfig(
            f"the run was attacked ({experiment.attack.attack}), and an audit looks at honest clients; "
            "audit a run with attack = none"
        )
    return build(experiment, data)


def recipe(simulation: Simulation, signal: Signal, distil: bool = False) -> Recipe:
    """How to train the simulation's experiment on other splits.

    Choice: shadows have the run's seed, so that they begin with its weights and draw its dropout. The server
    knows the seed, and it stands in the model folder.
    """
    experiment = simulation.experiment
    # The clients of the simulation have their features as the protocol wants them already.
    again = replace(experiment, protocol=replace(experiment.protocol, features="raw", adapt=False))
    return Recipe(again, simulation.clients, signal, distil)


def train_shadows(how: Recipe, shadows: int, workers: int | None, progress: Progress | None) -> Shadows:
    """The run and its shadows, in processes of their own. Their number changes no bit."""
    workers = os.cpu_count() or 1 if workers is None else workers
    if workers < 1:
        raise BadConfig(f"workers is {workers}; give at least 1")
    found: list[Training] = []
    with _mapped(how, shadows + 1, workers) as results:
        for each in results:
            found.append(each)
            if progress is not None:
                progress(len(found), shadows + 1)
    return Shadows.of(found)


def trained(simulation: Simulation, distil: bool = False) -> Tensors:
    """The model of all clients at the selected round, or the one distilled from it.

    Under the guard it is the part that is shared.
    """
    result = complete(simulation, None, None, 0, now())
    model = common_model(simulation.experiment.method, result.tensors)
    return distilled(simulation, model) if distil else model


def client_logits(experiment: Experiment, info: TaskInfo, tensors: Tensors, client: ClientData) -> Tensor:
    """What the model says about a client's nodes, float64 [n, C]. The attacker knows features and edges."""
    return logits(experiment, info, tensors, client.graph).to(torch.float64)


@contextmanager
def _mapped(how: Recipe, count: int, workers: int) -> Iterator[Iterator[Training]]:
    """The results in order. Leaving the block early ends the processes."""
    if workers == 1:
        yield map(how, range(count))
        return
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["fedepd.runs.run"])  # else every process pays for its own imports
    before = set(multiprocessing.active_children())
    pool = ProcessPoolExecutor(min(workers, count), context, initializer=_quiet)
    try:
        yield pool.map(how, range(count))
        pool.shutdown()
    except BrokenProcessPool as cause:
        raise FedEPDError(
            "a process that trained a shadow was killed, as the system does for want of memory; "
            "give fewer --workers"
        ) from cause
    finally:
        for process in set(multiprocessing.active_children()) - before:
            process.terminate()
        pool.shutdown(cancel_futures=True)


def _quiet() -> None:
    """Ctrl-C reaches the whole group of processes. The one that asked for the shadows ends them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
