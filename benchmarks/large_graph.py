"""One round on a graph of up to 100 million edges: seconds and peak memory of every step.

    python benchmarks/large_graph.py make FOLDER --nodes 5_000_000 --edges 100_000_000
    python benchmarks/large_graph.py run FOLDER --method fedavg
    python benchmarks/large_graph.py run FOLDER --method fedepd

``make`` writes a packed graph of equal blocks, one for each client. Three of four edges of a node end at a
node of its own class. ``run`` prints a line of JSON after each step, so that a run that is killed has said
how far it came. It ends itself when the machine has less than ``--spare`` GB left.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded
os.environ.setdefault("FEDEPD_CACHE", "off")

import numpy as np
import torch
from numpy.typing import NDArray

from fedepd.bench.measure import Timed
from fedepd.datasets.packed import write_packed
from fedepd.network import near
from fedepd.rng import seeded_numpy
from fedepd.rounds.loop import train
from fedepd.runs.experiment import Experiment
from fedepd.runs.simulation import build
from fedepd.runs.source import Source
from fedepd.types import Graph

SAME, IMBALANCE, TRAIN = 0.75, 10.0, 0.6
GB = 2**30


def block(
    nodes: int, edges: int, classes: int, features: int, client: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]:
    """Edges [2, e], sorted, classes [n] and features [n, d] of one client. A few edges fall together."""
    rng = seeded_numpy(client, "large graph")
    law = np.arange(1, classes + 1) ** -(np.log(IMBALANCE) / np.log(classes))
    y = np.sort(rng.choice(classes, nodes, p=law / law.sum()))  # members of a class lie beside each other
    first, size = np.searchsorted(y, np.arange(classes)), np.bincount(y, minlength=classes)
    source, target = rng.integers(nodes, size=(2, edges))
    same = rng.random(edges) < SAME
    own = y[source[same]]
    target[same] = first[own] + target[same] % size[own]
    low, high = np.minimum(source, target), np.maximum(source, target)
    keys = np.unique((low * nodes + high)[low != high])
    means = rng.standard_normal((classes, features), dtype=np.float32)
    x = means[y]
    x += 2 * rng.standard_normal(x.shape, dtype=np.float32)
    return np.stack(np.divmod(keys, nodes)), y, x


def make(folder: Path, nodes: int, edges: int, classes: int, features: int, clients: int) -> None:
    size = nodes // clients
    x, y = np.empty((size * clients, features), np.float32), np.empty(size * clients, np.int64)
    parts = []
    for client in range(clients):
        own = slice(client * size, (client + 1) * size)
        links, y[own], x[own] = block(size, edges // clients, classes, features, client)
        parts.append(links + client * size)
    owner = np.arange(clients).repeat(size)
    edge_index = np.concatenate(parts, axis=1)
    parts.clear()
    count: NDArray[np.int64] = np.array(classes)
    write_packed({"x": x, "y": y, "edge_index": edge_index, "owner": owner, "num_classes": count}, folder)


def available() -> float:
    """GB of memory that the machine can still give."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) / 2**20


def watch(spare: float) -> None:
    """End the process before the machine runs out of memory."""
    while True:
        if available() < spare:
            sys.stderr.write(f"less than {spare:g} GB of memory are left, so the run ends\n")
            os._exit(3)
        time.sleep(0.5)


class Steps:
    """Says what each step cost."""

    def __init__(self) -> None:
        self.cpu, self.wall = time.process_time(), time.monotonic()

    def say(self, step: str, **more: float) -> None:
        cpu, wall = time.process_time(), time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / GB
        costs = {"cpu": cpu - self.cpu, "wall": wall - self.wall, "peak_gb": peak, **more}
        sys.stdout.write(json.dumps({"step": step, **{k: round(v, 2) for k, v in costs.items()}}) + "\n")
        sys.stdout.flush()
        self.cpu, self.wall = cpu, wall


def run(folder: Path, method: str, rounds: int, share: float, features: str, all_rows: bool) -> None:
    torch.set_num_threads(1)
    if all_rows:
        near.LARGE = near.HELD
    steps = Steps()
    graph = Source.make(folder).load(features)
    assert isinstance(graph, Graph)
    steps.say("load", nodes=graph.num_nodes, edges=graph.num_edges)
    shares = {} if share == TRAIN else {"train_share": share, "val_share": share}
    settings: dict[str, Any] = {"rounds": rounds, "evaluate_every": 1, "features": features, **shares}
    experiment = Experiment.make(method, partition="owner", **settings)
    simulation = build(experiment, graph)
    del graph
    steps.say("clients")
    simulation.exchange.prepare()
    steps.say("prepare")
    exchange, ids = Timed(simulation), [c.client_id for c in simulation.clients]
    start = simulation.start().tensors
    for each in train(experiment.method, simulation.server, start, ids, exchange, evaluate_every=1):
        steps.say(f"round {each.number}", train=exchange.train, evaluate=exchange.evaluate_seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description="One round on a large graph.")
    parser.add_argument("action", choices=("make", "run"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--nodes", type=int, default=5_000_000)
    parser.add_argument("--edges", type=int, default=100_000_000)
    parser.add_argument("--classes", type=int, default=40)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--method", default="fedavg")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--train", type=float, default=TRAIN, help="share of training nodes")
    parser.add_argument("--features-as", default="raw", help="the setting features: raw or float16")
    parser.add_argument("--all-rows", action="store_true", help="keep P X whole, whatever training reads")
    parser.add_argument("--spare", type=float, default=2.0, help="GB that stay free")
    values = parser.parse_args()
    threading.Thread(target=watch, args=(values.spare,), daemon=True).start()
    if values.action == "run":
        how = values.train, values.features_as, values.all_rows
        run(values.folder, values.method, values.rounds, *how)
    else:
        sizes = (values.nodes, values.edges, values.classes, values.features, values.clients)
        make(values.folder, *sizes)


if __name__ == "__main__":
    main()
