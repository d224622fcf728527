"""Run a server and some sites on this machine, and compare the result's digest with the simulation's.

With four sites or more, one of them dies during the run. The others go on.
"""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fedepd.clients.client_file import write_client_file
from fedepd.datasets import load
from fedepd.deploy import admin
from fedepd.deploy.loopback import Loopback
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.task import FederationTask
from fedepd.privacy.audit import main_figures
from fedepd.privacy.figures import Figure
from fedepd.privacy.secure_sum import threshold
from fedepd.runs.folder import check_new_run, read_rounds
from fedepd.runs.simulation import Simulation, build

SPARE = 4
"""From this many sites on, one can be lost and its secure sums are still made."""
Say = Callable[..., None]


def demo(
    method: str, rounds: int, sites: int, data: str, out: str | None, say: Say, lose: bool = True
) -> bool:
    """True if the federation reached the simulation's digest. ``lose``: one site dies if it can be spared."""
    graph, names = load(data), [f"site-{k + 1}" for k in range(sites)]
    victim = names[-1] if lose and sites >= SPARE else ""
    fewest = threshold(sites) if victim else sites
    features, classes = graph.num_features, graph.num_classes
    task = FederationTask(
        "demo", method, "default", {"rounds": rounds}, features, classes, tuple(names), fewest
    )
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        check_new_run(folder)
        simulation = build(task.experiment(), graph)
        files = cut(simulation, folder / "data", names)
        start = time.perf_counter()
        federation = stack.enter_context(Loopback(folder / "federation", files))
        federation.wait()
        elapsed = time.perf_counter() - start
        say(f"{elapsed:.1f} s: server and {sites} sites connected by mutual TLS on one port")
        end = _follow(federation, task, victim, start, say)
        if end["state"] != "done":
            say(f"the run ended without results: {end.get('error', end['state'])}")
            return False
        admin.fetch(federation.admin, admin.last_job(federation.admin), folder / "run")
        lines = read_rounds(folder / "run")
        _timings([line["seconds"] for line in lines], say)
        expected = rehearse(task, list(files.values()), lines if victim else ()).digest()
        say(f"federation {end['digest']}", f"simulation {expected}")
    same = bool(end["digest"] == expected)
    result = "the two results are equal bit for bit" if same else "THE DIGESTS DIFFER"
    say(f"{result}; all processes are stopped")
    _tell_leaks(simulation, min(rounds, 10), say)
    return same


def _follow(
    federation: Loopback, task: FederationTask, victim: str, start: float, say: Say
) -> dict[str, Any]:
    alive = [victim] if victim else []

    def tell(now: dict[str, Any]) -> None:
        say(f"{time.perf_counter() - start:.1f} s: {admin.describe(now)}")
        if alive and now.get("state") == "training" and now["round"] >= min(2, task.server().last_round - 1):
            federation.kill(alive.pop())
            say(f"{time.perf_counter() - start:.1f} s: {victim} was killed; the others go on")

    return admin.supervise(federation.admin, admin.submit(federation.admin, task), tell)


def _timings(seconds: list[float], say: Say) -> None:
    say("seconds per round: " + " ".join(f"{each:.2f}" for each in seconds))
    if len(seconds) > 1:
        say(f"median after the first round: {statistics.median(seconds[1:]):.2f} s")


WORDS = {
    "rows.few": "class rows of fewer nodes than the guard's minimum",
    "reidentified.rank1": "rows of one node that name their node",
    "classes.auc": "a site's classes told by its update (area; 0.5 is guessing)",
}


def _tell_leaks(simulation: Simulation, rounds: int, say: Say) -> None:
    """The audit's three main figures, without guard and sums and with the run's own settings."""
    found = main_figures(simulation, rounds)
    say(f"what the coordinator could learn in {rounds} rounds, without guard and sums -> with them:")
    for off, on in zip(found["off"], found["on"], strict=True):
        told = f"{_told(off)} -> {_told(on)}"
        if off.name == "classes.auc" and math.isnan(off.value):
            told = "not to be asked here, every site has every class"
        say(f"  {WORDS.get(off.name, off.name)}: {told}")
    say("'fedepd audit RUN' has all figures, also what the model itself gives away")


def _told(figure: Figure) -> str:
    if math.isnan(figure.value):
        return "nothing sent"
    if figure.name.endswith(".auc"):
        return f"{figure.value:.2f}"
    return f"{round(figure.value * figure.cases)} of {figure.cases}"


def cut(simulation: Simulation, folder: Path, names: list[str]) -> dict[str, Path]:
    """Write one client file per name, partitioned and split as in a simulation."""
    folder.mkdir(parents=True)
    files = {name: folder / f"{name}.npz" for name in names}
    for client, file in zip(simulation.clients, files.values(), strict=True):
        write_client_file(client, file)
    return files
