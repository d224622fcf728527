"""What secure sums cost in a deployed federation: seconds and CPU seconds of a round, and of each trip.

    python benchmarks/secure_sums.py --sites 3 10 --rounds 24

A server and its sites run on this machine with mutual TLS. For each number of sites, the same task runs in
turn with and without secure sums, so that both see the same load of the machine. The minimum is closest to an
idle machine. The median holds what others computed meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import tempfile
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

from fedepd.clients.clients_dir import write_clients
from fedepd.datasets import load
from fedepd.deploy import admin
from fedepd.deploy.kits import Kit, prepare_site
from fedepd.deploy.limits import LIMITS_FILE
from fedepd.deploy.loopback import Loopback
from fedepd.deploy.task import FederationTask
from fedepd.runs.folder import read_rounds
from fedepd.runs.simulation import build

EVERY = 0.5
"""Seconds between two looks at the CPU time of all processes."""
TRIP = re.compile(r"(fedepd_\w+): (\d+) of \d+ sites in (\d+) ms")
"""The server's line about one question to its sites."""


class Lenient(Loopback):
    """Its owners also allow runs without secure sums and guard."""

    def prepare(self, name: str) -> Kit:
        if name == "server":
            return super().prepare(name)
        (self.kits[name] / "local" / LIMITS_FILE).write_text("secure = false\nguard = false\n")
        return prepare_site(self.kits[name], self.files[name], looser=True)


class Load:
    """The CPU seconds of all processes of a federation. What a process used is kept when it ends."""

    def __init__(self, federation: Loopback) -> None:
        self._federation, self._end = federation, threading.Event()
        self._seen: dict[int, float] = {}
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._end.wait(EVERY):
            self.seconds()

    def seconds(self) -> float:
        for name in self._federation.kits:
            for pid in self._federation.members(name):
                try:
                    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                except OSError:  # it has just ended
                    continue
                self._seen[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return sum(self._seen.values())

    def close(self) -> None:
        self._end.set()
        self._thread.join()


def trips(federation: Loopback, start: int) -> tuple[dict[str, list[int]], int]:
    """Milliseconds of every question since ``start`` bytes of the server's log, and where the log ends."""
    text = (federation.kits["server"] / "console.log").read_bytes()
    found: dict[str, list[int]] = defaultdict(list)
    for name, _, elapsed in TRIP.findall(text[start:].decode(errors="replace")):
        found[name].append(int(elapsed))
    return found, len(text)


def told(numbers: list[float], unit: str, digits: int) -> str:
    return f"median {statistics.median(numbers):.{digits}f} {unit}, least {min(numbers):.{digits}f}"


def measured(federation: Loopback, task: FederationTask, folder: Path, load: Load) -> dict[str, Any]:
    """One run: seconds of its rounds without the first and the last, and its trips."""
    _, start = trips(federation, 0)
    before = load.seconds()
    end = admin.supervise(federation.admin, admin.submit(federation.admin, task), lambda now: None)
    if end["state"] != "done":
        raise SystemExit(f"the run ended without results: {end.get('error', end['state'])}")
    admin.fetch(federation.admin, admin.last_job(federation.admin), folder)
    lines = read_rounds(folder)
    seconds = [float(line["seconds"]) for line in lines[1:-1]]  # the last one also evaluates
    return {
        "rounds": seconds,
        "cpu": (load.seconds() - before) / len(lines),
        "trips": trips(federation, start)[0],
    }


def compare(sites: int, rounds: int, turns: int, data: str, scratch: Path) -> dict[str, Any]:
    graph, names = load(data), [f"site-{k + 1}" for k in range(sites)]
    settings = {"rounds": rounds, "evaluate_every": rounds, "hidden": 64}

    def task(run: str, secure: bool) -> FederationTask:
        about = {**settings, "secure": secure, "guard": secure}
        return FederationTask(
            run, "fedepd", "default", about, graph.num_features, graph.num_classes, tuple(names), sites
        )

    clients = build(task("cut", True).experiment(), graph).clients
    files = dict(zip(names, write_clients(clients, names, scratch / "data"), strict=True))
    out: dict[str, Any] = {"sites": sites}
    with Lenient(scratch / "federation", files) as federation:
        federation.wait(120.0)
        load_ = Load(federation)
        for turn in range(turns):
            for name, secure in (("plain", False), ("secure", True)):
                run = f"{name}-{turn}"
                out[run] = measured(federation, task(run, secure), scratch / run, load_)
                say(run, sites, out[run])
        load_.close()
    for name in ("plain", "secure"):
        out[name] = [each for turn in range(turns) for each in out[f"{name}-{turn}"]["rounds"]]
    print(f"{sites} sites, without secure sums: {told(out['plain'], 's', 3)} a round")
    print(f"{sites} sites, with secure sums:    {told(out['secure'], 's', 3)} a round")
    median = statistics.median(out["secure"]) - statistics.median(out["plain"])
    print(f"{sites} sites, secure sums cost {median:.3f} s (medians), "
          f"{min(out['secure']) - min(out['plain']):.3f} s (least)")  # fmt: skip
    return out


def say(run: str, sites: int, found: dict[str, Any]) -> None:
    print(f"{sites} sites, {run}: {told(found['rounds'], 's', 3)} a round, {found['cpu']:.2f} CPU s a round")
    for name, elapsed in found["trips"].items():
        print(f"    {name}: {len(elapsed)} times, {told(elapsed, 'ms', 0)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="twin:corafull")
    parser.add_argument("--sites", type=int, nargs="+", default=[3, 10])
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--turns", type=int, default=1, help="how often plain and secure take turns")
    parser.add_argument("--out", help="write all numbers to this JSON file")
    values = parser.parse_args()
    found = []
    for sites in values.sites:
        with tempfile.TemporaryDirectory() as scratch:
            found.append(compare(sites, values.rounds, values.turns, values.data, Path(scratch)))
    if values.out:
        Path(values.out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
