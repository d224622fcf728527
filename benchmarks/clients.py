"""What many clients cost: seconds and memory of a whole run, and how both grow with their number.

    python benchmarks/clients.py --clients 1000 10000 100000 --share 0.01 --rounds 20

Every client has 20 nodes, 40 edges at most, 64 features and 10 classes with a long tail. Each run is measured
in a process of its own, and writes no folder. "cpu" are seconds of the first process and of all shards
together, "first_process" those that cannot be shared, "mb" the peaks of the first process and of the largest
shard.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np
import torch

from fedepd import Graph, run
from fedepd.rounds.loop import Round
from fedepd.rounds.shards import cpu_time

NODES, EDGES, FEATURES, CLASSES = 20, 40, 64, 10
LEAST_FREE = 2 * 2**30
"""A run stops itself where the machine has less free memory than this."""


def graph_of(clients: int) -> Graph:
    """Blocks of nodes, one per client, which owns it. Edges stay inside a block."""
    draws, nodes = np.random.default_rng(clients), clients * NODES
    tail = 1 / np.arange(1, CLASSES + 1)
    y = draws.choice(CLASSES, nodes, p=tail / tail.sum())
    means = draws.standard_normal((CLASSES, FEATURES)).astype(np.float32)
    x = draws.standard_normal((nodes, FEATURES), dtype=np.float32)
    x += 0.5 * means[y]
    first = np.repeat(np.arange(clients) * NODES, EDGES)
    edges = first + draws.integers(0, NODES, (2, clients * EDGES))
    return Graph.make(
        torch.from_numpy(x),
        torch.from_numpy(edges),
        torch.from_numpy(y),
        CLASSES,
        name=f"{clients} clients",
        owner=torch.arange(clients).repeat_interleave(NODES),
    )


def measure(clients: int, method: str, share: float, rounds: int, shards: int) -> dict[str, Any]:
    graph, lines = graph_of(clients), list[tuple[float, bool]]()
    wall, cpu, own = time.perf_counter(), cpu_time(), time.process_time()
    begun: list[float] = []

    def watch(each: Round) -> None:
        begun.append(cpu_time() - cpu)
        lines.append((each.cpu_seconds, each.confusions is not None))
        if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGESIZE") < LEAST_FREE:
            raise SystemExit("less than 2 GB of memory are free; try again when others need less")

    settings: dict[str, Any] = {"partition": "owner", "backbone": "gcn", "adapt": False}
    settings |= {"participation": share, "rounds": rounds}
    result = run(graph, method, shards=shards, on_round=watch, **settings)
    plain, scored = ([spent for spent, evaluated in lines if evaluated is told] for told in (False, True))
    train = float(np.median(plain)) if plain else float("nan")
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return {
        "clients": clients,
        "method": method,
        "shards": shards,
        "before": begun[0] - lines[0][0],
        "round": train,
        "evaluation": float(np.median(scored)) - train,
        "cpu": cpu_time() - cpu,
        "first_process": time.process_time() - own,
        "wall": time.perf_counter() - wall,
        "mb": [resource.getrusage(kind).ru_maxrss / 1024 for kind in kinds],
        "weights": result.summary["weights_sha256"][:12],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--method", default="fedavg")
    parser.add_argument("--share", type=float, default=0.01)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--here", action="store_true", help="in this process, for one number of clients")
    values = parser.parse_args()
    if values.here:
        found = measure(values.clients[0], values.method, values.share, values.rounds, values.shards)
        print(json.dumps(found))
        return
    rows = []
    for clients in values.clients:
        more = [f"--{name}={getattr(values, name)}" for name in ("method", "share", "rounds", "shards")]
        command = [sys.executable, __file__, "--here", "--clients", str(clients), *more]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        rows.append(json.loads(done.stdout))
        print(rows[-1], flush=True)
    if len(rows) > 1:
        sizes = np.log([row["clients"] for row in rows])
        for name in ("before", "evaluation", "cpu"):
            slope = np.polyfit(sizes, np.log([row[name] for row in rows]), 1)[0]
            print(f"exponent of {name}: {slope:.2f}")


if __name__ == "__main__":
    main()
