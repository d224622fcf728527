"""A server and some sites on this machine, on a graph everybody has. A simulation must reach their digest."""

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
        say(
            f"{time.perf_counter() - start:.1f} s: server and {sites} sites connected, mutual TLS on one port"
        )
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
        lines = read_rounds(folder / "run")
        say("seconds per round: " + " ".join(f"{line['seconds']:.2f}" for line in lines))
        median = statistics.median([line["seconds"] for line in lines[1:]] or [0.0])
        say(f"median after the first round: {median:.2f} s")
        say(f"federation {end['digest']}", f"simulation {expected}")
    say(
        "the same bits; everything is stopped"
        if end["digest"] == expected
        else "THE DIGESTS DIFFER; everything is stopped"
    )
    return bool(end["digest"] == expected)


def cut(graph: Graph, experiment: Experiment, folder: Path, names: list[str]) -> dict[str, Path]:
    """One client file per name, cut and split as a simulation would."""
    folder.mkdir(parents=True)
    files = {name: folder / f"{name}.npz" for name in names}
    for client, file in zip(build(experiment, graph).clients, files.values(), strict=True):
        write_client_file(client, file)
    return files
