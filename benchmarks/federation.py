"""What a deployed run costs, compared with the simulation: seconds per round, and the memory of every
participant.

    python benchmarks/federation.py --data twin:corafull --rounds 200

A server and three sites run on this machine with mutual TLS. Memory is measured as the rounds go by, over all
processes of a participant.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

from fedepd import run
from fedepd.datasets import load
from fedepd.deploy.demo import demo
from fedepd.deploy.loopback import processes_naming

EVERY = 2.0
"""Seconds between two measurements of memory."""
SITES = 3


def resident_mb(kit: Path) -> float:
    pages = 0
    for pid in processes_naming(kit):
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:  # it has just ended
            continue
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def finished_rounds(federation: Path) -> int:
    return max((len(path.read_text().splitlines()) for path in federation.glob("**/rounds.jsonl")), default=0)


def watch(federation: Path, seen: dict[int, dict[str, float]], ended: threading.Event) -> None:
    while not ended.wait(EVERY):
        kits = [path.parent for path in federation.glob("**/startup") if path.parent.name != "admin"]
        seen[finished_rounds(federation)] = {kit.name: resident_mb(kit) for kit in kits}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="twin:corafull")
    parser.add_argument("--method", default="fedepd")
    parser.add_argument("--rounds", type=int, default=200)
    values = parser.parse_args()
    seen: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder, ended = Path(scratch) / "demo", threading.Event()
        watcher = threading.Thread(target=watch, args=(folder / "federation", seen, ended))
        watcher.start()
        try:
            same = demo(values.method, values.rounds, SITES, values.data, str(folder), print)
        finally:
            ended.set()
            watcher.join()
        if not same:
            raise SystemExit(1)
        lines = [json.loads(line) for line in (folder / "run" / "rounds.jsonl").read_text().splitlines()]
    graph, start = load(values.data), time.process_time()
    run(graph, values.method, clients=SITES, rounds=10)
    simulated = (time.process_time() - start) / 10
    deployed = statistics.median(line["seconds"] for line in lines)
    print(
        f"seconds per round: {deployed:.2f} deployed (median); {simulated:.2f} CPU simulated, preparation "
        "included"
    )
    while_training = sorted(number for number in seen if 0 < number < values.rounds)
    for number in while_training[:: max(1, len(while_training) // 10)]:
        print(f"round {number}: MB", {name: round(mb) for name, mb in sorted(seen[number].items())})


if __name__ == "__main__":
    main()
