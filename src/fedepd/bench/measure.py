"""One measurement: ``python -m fedepd.bench.measure '{"data": ...}'``.

It runs in a process of its own, so that the peak memory is that of this measurement.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedepd.datasets import load
from fedepd.datasets.synthetic import synthetic
from fedepd.rounds.admission import Refusal
from fedepd.rounds.loop import train
from fedepd.runs.experiment import Experiment
from fedepd.runs.simulation import Simulation, build
from fedepd.types import Graph, Reply, Sizes, Tensors


class Timed:
    """An exchange that measures the CPU seconds of training and of evaluation."""

    def __init__(self, simulation: Simulation) -> None:
        self.inner, self.train, self.evaluate_seconds = simulation.exchange, 0.0, 0.0

    def declared(self, clients: Sequence[int]) -> dict[int, Sizes]:
        return self.inner.declared(clients)

    def take_refusals(self) -> list[Refusal]:
        return self.inner.take_refusals()

    def step(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, Reply]:
        start = time.process_time()
        out = self.inner.step(round, messages)
        self.train = time.process_time() - start
        return out

    def evaluate(self, round: int, messages: Mapping[int, Tensors]) -> dict[int, dict[str, Tensor]]:
        start = time.process_time()
        out = self.inner.evaluate(round, messages)
        self.evaluate_seconds = time.process_time() - start
        return out


def measure(
    data: str | Mapping[str, Any],
    method: str,
    rounds: int,
    workers: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Measure a method on a graph: times in seconds, memory in MB.

    ``data`` is the name of a dataset, or the arguments of ``blocks``. The method "reference" is the plain
    implementation. Every round is evaluated. The first round does not count in the medians, because it also
    pays for allocating memory.
    """
    torch.set_num_threads(1)
    marks = [time.process_time()]
    graph = load(data) if isinstance(data, str) else blocks(**data)
    marks.append(time.process_time())
    own = method != "reference"
    experiment = Experiment.make(
        method if own else "fedavg", rounds=rounds, evaluate_every=1, **(settings or {})
    )
    simulation = build(experiment, graph, workers)
    marks.append(time.process_time())
    out: dict[str, Any] = {"data": graph.name, "method": method, "rounds": rounds, "workers": workers}
    if own:
        del graph
        simulation.exchange.prepare()
        marks.append(time.process_time())
        parts, wall = _rounds(experiment, simulation)
        out["wall"] = wall
    else:
        from fedepd.bench.reference import reference_rounds

        marks.append(time.process_time())
        parts = reference_rounds(simulation.clients, simulation.server.info, rounds)
    for name in ("train", "aggregate", "evaluate"):
        out[name] = median([part[name] for part in parts])
    out["round"] = median([sum(part.values()) for part in parts])
    out.update(load=marks[1] - marks[0], partition=marks[2] - marks[1], prepare=marks[3] - marks[2])
    out["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return out


def _rounds(experiment: Experiment, simulation: Simulation) -> tuple[list[dict[str, float]], float]:
    exchange, parts, walls = Timed(simulation), [], []
    ids = [c.client_id for c in simulation.clients]
    for each in train(
        experiment.method, simulation.server, simulation.start().tensors, ids, exchange, evaluate_every=1
    ):
        rest = each.cpu_seconds - exchange.train - exchange.evaluate_seconds
        parts.append({"train": exchange.train, "aggregate": rest, "evaluate": exchange.evaluate_seconds})
        walls.append(each.seconds)
    return parts, median(walls)


def median(values: list[float]) -> float:
    """The median of all values but the first."""
    return statistics.median(values[1:] or values)


def blocks(clients: int, nodes: int, edges: int, classes: int, features: int) -> Graph:
    """A graph with one block per client, which owns it. So large graphs need no Louvain partition."""
    size = nodes // clients
    shape: dict[str, Any] = {
        "imbalance": 10.0,
        "smallest": None,
        "features": features,
        "communities": 1,
        "inside": 1.0,
    }
    parts = [synthetic(size, edges // clients, classes, seed=k, **shape) for k in range(clients)]
    return Graph(
        x=torch.cat([p.x for p in parts]),
        edge_index=torch.cat([p.edge_index + k * size for k, p in enumerate(parts)], dim=1),
        y=torch.cat([p.y for p in parts]),
        num_classes=classes,
        name=f"{nodes} nodes, {edges} edges, {clients} clients, {classes} classes",
        owner=torch.arange(clients).repeat_interleave(size),
    )


if __name__ == "__main__":
    print(json.dumps(measure(**json.loads(sys.argv[1]))))  # noqa: T201
