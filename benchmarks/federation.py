"""What a deployed run costs, compared with the simulation: seconds per round, and the memory and CPU
seconds of every participant.

    python benchmarks/federation.py --data twin:corafull --rounds 200

A server and three sites run on this machine with mutual TLS. Memory is measured as the rounds go by, over all
processes of a participant.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from fedepd import run
from fedepd.clients.clients_dir import write_clients
from fedepd.datasets import load
from fedepd.deploy import admin
from fedepd.deploy.loopback import Loopback, processes_naming
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.task import FederationTask
from fedepd.runs.folder import read_rounds
from fedepd.runs.simulation import build
from fedepd.types import Graph

EVERY = 2.0
"""Seconds between two measurements of memory."""
SITES = 3
WARM = 5
"""From this round on, CPU seconds are counted."""


def resident_mb(kit: Path) -> float:
    pages = 0
    for pid in processes_naming(kit):
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:  # it has just ended
            continue
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def spent(kit: Path) -> float:
    """CPU seconds of a participant's processes so far."""
    ticks = 0
    for pid in processes_naming(kit):
        try:
            # The name of the program may hold spaces. It ends with the last bracket.
            ticks += sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def finished_rounds(federation: Path) -> int:
    return max((len(path.read_text().splitlines()) for path in federation.glob("**/rounds.jsonl")), default=0)


def watch(federation: Path, seen: dict[int, dict[str, tuple[float, float]]], ended: threading.Event) -> None:
    """Memory and CPU seconds of each participant, by the number of finished rounds."""
    while not ended.wait(EVERY):
        kits = [path.parent for path in federation.glob("**/startup") if path.parent.name != "admin"]
        now = {kit.name: (resident_mb(kit), spent(kit)) for kit in kits}
        seen.setdefault(finished_rounds(federation), now)


def deploy(graph: Graph, method: str, rounds: int, folder: Path) -> list[dict[str, Any]]:
    """The rounds of a deployed run. It must end with the bits of the same run in one process."""
    names = [f"site-{k + 1}" for k in range(SITES)]
    shape = (graph.num_features, graph.num_classes)
    task = FederationTask("cost", method, "default", {"rounds": rounds}, *shape, tuple(names), SITES)
    clients = build(task.experiment(), graph).clients
    files = dict(zip(names, write_clients(clients, names, folder / "data"), strict=True))
    with Loopback(folder / "federation", files) as federation:
        federation.wait()
        end = admin.supervise(federation.admin, admin.submit(federation.admin, task), _tell)
        if end["state"] != "done":
            raise SystemExit(f"the run ended without results: {end.get('error', end['state'])}")
        admin.fetch(federation.admin, admin.last_job(federation.admin), folder / "run")
    if rehearse(task, list(files.values())).digest() != end["digest"]:
        raise SystemExit("the deployed run and the simulation end with other weights")
    return read_rounds(folder / "run")


def _tell(now: dict[str, Any]) -> None:
    print(admin.describe(now), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="twin:corafull")
    parser.add_argument("--method", default="fedepd")
    parser.add_argument("--rounds", type=int, default=200)
    values = parser.parse_args()
    seen: dict[int, dict[str, tuple[float, float]]] = {}
    graph = load(values.data)
    with tempfile.TemporaryDirectory() as scratch:
        folder, ended = Path(scratch), threading.Event()
        watcher = threading.Thread(target=watch, args=(folder / "federation", seen, ended))
        watcher.start()
        try:
            lines = deploy(graph, values.method, values.rounds, folder)
        finally:
            ended.set()
            watcher.join()
    start = time.process_time()
    run(graph, values.method, clients=SITES, rounds=10)
    simulated = (time.process_time() - start) / 10
    deployed = statistics.median(line["seconds"] for line in lines)
    print(
        f"seconds per round: {deployed:.2f} deployed (median); {simulated:.2f} CPU simulated, preparation "
        "included"
    )
    while_training = sorted(number for number in seen if 0 < number < values.rounds)
    for number in while_training[:: max(1, len(while_training) // 10)]:
        print(f"round {number}: MB", {name: round(mb) for name, (mb, _) in sorted(seen[number].items())})
    first, last = (next((n for n in way if n >= WARM), 0) for way in (while_training, while_training[::-1]))
    if first < last:
        rates = {name: (seen[last][name][1] - cpu) / (last - first) for name, (_, cpu) in seen[first].items()}
        print("CPU seconds per round:", {name: round(rate, 3) for name, rate in sorted(rates.items())})


if __name__ == "__main__":
    main()
