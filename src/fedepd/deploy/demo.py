"""Run a server and some sites on this machine, and compare the result's digest with the simulation's."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from fedepd.clients.client_file import write_client_file
from fedepd.datasets import load
from fedepd.deploy import admin
from fedepd.deploy.loopback import Loopback
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.task import FederationTask
from fedepd.runs.experiment import Experiment
from fedepd.runs.folder import check_new_run, read_rounds
from fedepd.runs.simulation import build
from fedepd.types import Graph


def demo(method: str, rounds: int, sites: int, data: str, out: str | None, say: Callable[..., None]) -> bool:
    """True if the federation reached the simulation's digest."""
    graph = load(data)
    names = [f"site-{k + 1}" for k in range(sites)]
    task = FederationTask(
        "demo",
        method,
        "default",
        {"rounds": rounds},
        graph.num_features,
        graph.num_classes,
        tuple(names),
        sites,
    )
    with ExitStack() as stack:
        folder = Path(out) if out is not None else Path(stack.enter_context(tempfile.TemporaryDirectory()))
        check_new_run(folder)
        files = cut(graph, task.experiment(), folder / "data", names)
        expected = rehearse(task, list(files.values())).digest()
        start = time.perf_counter()
        federation = stack.enter_context(Loopback(folder / "federation", files))
        federation.wait()
        elapsed = time.perf_counter() - start
        say(f"{elapsed:.1f} s: server and {sites} sites connected by mutual TLS on one port")
        job = admin.submit(federation.admin, task)
        end = admin.supervise(
            federation.admin,
            job,
            lambda now: say(f"{time.perf_counter() - start:.1f} s: {admin.describe(now)}"),
        )
        if end["state"] != "done":
            say(f"the run ended without results: {end.get('error', end['state'])}")
            return False
        admin.fetch(federation.admin, admin.last_job(federation.admin), folder / "run")
        seconds = [line["seconds"] for line in read_rounds(folder / "run")]
        say("seconds per round: " + " ".join(f"{each:.2f}" for each in seconds))
        if len(seconds) > 1:
            say(f"median after the first round: {statistics.median(seconds[1:]):.2f} s")
        say(f"federation {end['digest']}", f"simulation {expected}")
    same = bool(end["digest"] == expected)
    result = "the two results are equal bit for bit" if same else "THE DIGESTS DIFFER"
    say(f"{result}; all processes are stopped")
    return same


def cut(graph: Graph, experiment: Experiment, folder: Path, names: list[str]) -> dict[str, Path]:
    """Write one client file per name, partitioned and split as in a simulation."""
    folder.mkdir(parents=True)
    files = {name: folder / f"{name}.npz" for name in names}
    for client, file in zip(build(experiment, graph).clients, files.values(), strict=True):
        write_client_file(client, file)
    return files
