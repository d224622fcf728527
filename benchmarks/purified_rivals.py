"""A control experiment for FedEPD: what another method gains from FedEPD's purification alone.

    python benchmarks/purified_rivals.py --data email coauthor_cs --methods fedgta fedavg --seeds 5 --workers
    2

Every client's graph is pruned as in the paper (Eq. 1-5). With --by-vote it is pruned only if the clients'
votes are for it, as FedEPD does by default. Then the other method trains and is tested on that graph, with
the partition, split and number of rounds of `fedepd reproduce table2`.
"""

from __future__ import annotations

import argparse
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before torch is loaded; worker processes inherit it

import torch
from torch import Tensor

from fedepd import run
from fedepd.datasets import load
from fedepd.methods.fedepd.purify import purified_edges
from fedepd.methods.fedepd.vote import pruning_votes
from fedepd.runs.experiment import Experiment
from fedepd.runs.simulation import build
from fedepd.types import ClientData

SCORES = ("acc", "bacc", "macro_f1")


def favoured(clients: list[ClientData], kept: list[Tensor]) -> bool:
    """Whether the clients vote for pruning. Votes use training labels only."""
    votes = sum(
        (pruning_votes(c.hidden(), edges) for c, edges in zip(clients, kept, strict=True)), torch.zeros(2)
    )
    return bool(votes[0] > votes[1])


def one(data: str, method: str, seed: int, rounds: int, by_vote: bool) -> tuple[bool, list[float]]:
    """One run: whether its graph was pruned, and its scores."""
    torch.set_num_threads(1)
    settings: dict[str, Any] = {"rounds": rounds, "seed": seed}
    clients = build(Experiment.make(method, shuffle_nodes=True, **settings), load(data)).clients
    kept = [purified_edges(client.graph) for client in clients]
    pruned = not by_vote or favoured(clients, kept)
    if pruned:
        clients = [
            replace(c, graph=replace(c.graph, edge_index=edges))
            for c, edges in zip(clients, kept, strict=True)
        ]
    summary = run(clients, method, **settings).summary
    pooled = summary["metrics"][summary["headline"]]["pooled"]
    return pruned, [100 * pooled[name] for name in SCORES]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=["email"])
    parser.add_argument("--methods", nargs="+", default=["fedgta"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--by-vote", action="store_true")
    args = parser.parse_args()
    with ProcessPoolExecutor(args.workers, mp_context=get_context("spawn")) as pool:
        for data in args.data:
            for method in args.methods:
                cells = [(data, method, seed, args.rounds, args.by_vote) for seed in range(args.seeds)]
                pruned, scores = zip(*pool.map(one, *zip(*cells, strict=True)), strict=True)
                shown = [
                    f"{statistics.mean(s):5.1f} ± {statistics.stdev(s) if len(s) > 1 else 0:.1f}"
                    for s in zip(*scores, strict=True)
                ]
                print(
                    f"{data:20} {method:12} pruned in {sum(pruned)} of {args.seeds} seeds:  "
                    f"{' / '.join(shown)}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
