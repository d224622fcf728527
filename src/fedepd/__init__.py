"""Federated learning on graphs whose classes are long-tailed.

>>> import fedepd
>>> graph = fedepd.load("synthetic")
>>> result = fedepd.run(graph, "fedepd", rounds=2)
>>> 0 < result.metrics["global"]["pooled"]["bacc"] < 1
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedepd.datasets import DATASETS as DATASETS
    from fedepd.datasets import load as load
    from fedepd.methods import METHODS as METHODS
    from fedepd.model.aim import Aim as Aim
    from fedepd.model.export import export as export
    from fedepd.model.model import Model as Model
    from fedepd.model.model import load_model as load_model
    from fedepd.report.frames import read_runs as read_runs
    from fedepd.report.page import build_report as build_report
    from fedepd.runs.experiment import Experiment as Experiment
    from fedepd.runs.frames import Frames as Frames
    from fedepd.runs.resume import resume as resume
    from fedepd.runs.run import RunResult as RunResult
    from fedepd.runs.run import run as run
    from fedepd.sweeps.comparison import compare as compare
    from fedepd.types import Graph as Graph

_HOMES = {
    "Aim": "fedepd.model.aim",
    "DATASETS": "fedepd.datasets",
    "Experiment": "fedepd.runs.experiment",
    "Frames": "fedepd.runs.frames",
    "Graph": "fedepd.types",
    "METHODS": "fedepd.methods",
    "Model": "fedepd.model.model",
    "RunResult": "fedepd.runs.run",
    "build_report": "fedepd.report.page",
    "compare": "fedepd.sweeps.comparison",
    "export": "fedepd.model.export",
    "load": "fedepd.datasets",
    "load_model": "fedepd.model.model",
    "read_runs": "fedepd.report.frames",
    "resume": "fedepd.runs.resume",
    "run": "fedepd.runs.run",
}

__all__ = ["DATASETS", "METHODS", "Aim", "Experiment", "Frames", "Graph", "Model", "RunResult"]
__all__ += ["build_report", "compare", "export", "load", "load_model", "read_runs", "resume", "run"]


def __getattr__(name: str) -> Any:
    """Public names on first use: ``import fedepd`` and ``fedepd --help`` do not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'fedepd' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
