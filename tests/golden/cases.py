"""What is pinned: every method and preset, adapted models of every method that can have them, FedEPD under
both heads of gcn and sage, FedAvg under every other backbone and other numbers of layers, and a rehearsed
federation of each method."""

from __future__ import annotations

import math
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch

import fedepd
from fedepd.clients.client_file import write_client_file
from fedepd.datasets.synthetic import synthetic
from fedepd.deploy.rehearse import rehearse
from fedepd.deploy.task import FederationTask
from fedepd.methods import METHODS
from fedepd.network import kernels
from fedepd.runs.folder import weights_sha256
from toy import CLASSES, FEATURES, toy_clients

ROUNDS = 6
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    f"{method}:{preset}": (method, preset, {}) for method, cls in METHODS.items() for preset in cls.presets
}
RUNS |= {
    f"fedepd:default:{backbone}:{head}": ("fedepd", "default", {"backbone": backbone, "head": head})
    for backbone in ("gcn", "sage")
    for head in ("gcn", "linear")
}
RUNS |= {
    f"fedavg:default:{name}:{layers}": ("fedavg", "default", {"backbone": name, "layers": layers})
    for name, layers in (
        ("gat", 2),
        ("sgc", 2),
        ("mlp", 2),
        ("h2gcn", 2),
        ("gcn", 1),
        ("gcn", 3),
        ("sage", 3),
    )
}
# Undertrained, so that adaptation is sure to help.
RUNS |= {
    f"{method}:default:adapted": (
        method,
        "default",
        {"adapt": True, "epochs": 1, "train_share": 0.4, "val_share": 0.4},
    )
    for method, cls in METHODS.items()
    if cls.has_global
}
SLOW = {f"{method}:default:adapted" for method in ("graphsmote", "hiertail", "fedgac", "tailgnn")}
FEDERATIONS = [method for method, cls in METHODS.items() if not cls.merges_clients]
FEDERATIONS += [f"{method}:guarded" for method in FEDERATIONS if not METHODS[method]().needs_single_replies]


def machine() -> str:
    """What bits may depend on: torch, our kernels, and the processor's maker and width of vectors.

    MKL takes other paths on processors of other makers, so the same width is not enough.
    """
    version, vectors = torch.__version__.split("+")[0], torch.backends.cpu.get_cpu_capability()
    return f"torch {version}, {kernels.name()}, {_maker()} {vectors}"


def _maker() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    named = (line.split(":")[1].strip() for line in lines if line.startswith("vendor_id"))
    return next(named, platform.machine())


def pin_run(name: str) -> dict[str, Any]:
    """``bits`` are this machine's; the rest is everybody's, to rounding."""
    method, preset, settings = RUNS[name]
    graph = synthetic(
        nodes=240,
        edges=900,
        classes=4,
        imbalance=8.0,
        smallest=None,
        features=12,
        communities=8,
        name="golden",
    )
    settings = {"backbone": "gcn", **settings}
    result = fedepd.run(
        graph, method, preset=preset, rounds=ROUNDS, clients=4, hidden=8, evaluate_every=2, **settings
    )
    model, tensors = result.summary["headline"], result.tensors
    if result.adapted:
        model, tensors = "adapted", result.adapted
    scores = result.metrics[model]["pooled"]
    return {
        "config_hash": result.summary["config_hash"],
        "metrics": {metric: round(scores[metric], 6) for metric in ("acc", "bacc", "macro_f1")},
        "norms": {name: round(float(value.double().norm()), 6) for name, value in sorted(tensors.items())},
        "bits": weights_sha256(tensors) + result.summary["weights_sha256"],
    }


def pin_federation(name: str) -> str:
    """A method's name, with ":guarded" behind it where guard and secure sums are on."""
    method, _, guarded_ = name.partition(":")
    guarded = bool(guarded_)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{client.client_id}.npz" for client in toy_clients()]
        for client, file in zip(toy_clients(), files, strict=True):
            write_client_file(client, file)
        settings = {"rounds": ROUNDS, "evaluate_every": 2, "hidden": 4, "guard": guarded, "secure": guarded}
        task = FederationTask("golden", method, "default", settings, FEATURES, CLASSES, ("a", "b", "c"))
        return rehearse(task, files).digest()


ROUGH = {"hiertail:default:adapted"}
"""Runs whose norms are the same to 3 % only, where rounding differs.

HierTail pools by rank, so a last digit can change which nodes are pooled, and adaptation goes on from there.
Compiled kernels and torch alone differ by up to 1.8 % here on one machine. Their metrics are the same.
"""


def near(a: float, b: float, tolerance: float = 1e-3) -> bool:
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=1e-3)
