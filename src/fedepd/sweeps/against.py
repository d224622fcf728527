"""The runs that a method is held against: ``fedepd compare METHOD --against ...``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from fedepd.errors import BadConfig, UnknownName
from fedepd.shown import shown

if TYPE_CHECKING:
    from fedepd.runs.jobs import Job

OURS: dict[str, dict[str, Any]] = {
    "alone": {"scope": "alone"},
    "pooled": {"scope": "pooled"},
    "no-graph": {"edges": False},
}
"""The same method under another setting."""
ROWS = ("logistic", "boosting")
"""scikit-learn's classifiers of rows, each on pooled rows and at each client alone."""
GRAPHLESS = "mlp"
"""The network that reads no edges: without them it is the same run again."""
SENT = ("adapt", "participation")
"""Settings about what is sent, beside those of whole groups."""


def against_names(given: str, methods: Sequence[str]) -> list[str]:
    """The names of ``--against``, checked, each once."""
    names = list(dict.fromkeys(name.strip() for name in given.split(",") if name.strip())) if given else []
    for name in names:
        if name not in (*OURS, *ROWS):
            raise UnknownName("value of --against", shown(name), [*OURS, *ROWS])
    if names and len(methods) != 1:
        raise BadConfig(
            f"--against is for one method, and {len(methods)} are named; name the one that you mean to use"
        )
    if set(names) & set(ROWS):
        from fedepd.methods.rows import needed

        needed()
    return names


def against_jobs(jobs: Sequence[Job], names: Sequence[str]) -> list[Job]:
    """For every run of the method, the runs that it is held against: same data, split and seed."""
    return [
        other
        for name in names
        for job in jobs
        if not (name == "no-graph" and job.settings.get("backbone") == GRAPHLESS)
        for other in _others(job, name)
    ]


def left_out(names: Sequence[str], jobs: Sequence[Job]) -> list[str]:
    """A sentence, if ``no-graph`` is asked for and none of the runs is without edges."""
    if "no-graph" not in names or any(job.settings.get("edges") is False for job in jobs):
        return []
    return [f"--against no-graph is left out: the network is {GRAPHLESS}, which reads no edges in any run"]


def _others(job: Job, name: str) -> list[Job]:
    from fedepd.methods.rows import BASELINES

    if name not in ROWS:
        kept = job.settings if name == "no-graph" else unsent(job.settings)
        return [_renamed(job, name, {**kept, **OURS[name]})]
    own = {"rounds": BASELINES[name].candidates, "evaluate_every": 1}
    return [
        replace(
            _renamed(job, f"{name}-{scope}", {**unsent(job.settings), **own, "scope": scope}),
            method=name,
            preset="default",
            notes=(),
        )
        for scope in ("pooled", "alone")
    ]


def unsent(settings: Any) -> dict[str, Any]:
    """Settings without those about what is sent, and to whom: nothing is."""
    from fedepd.runs.experiment import GROUPS

    about = {f.name for group in ("defence", "attack", "privacy") for f in fields(GROUPS[group])}
    return {name: value for name, value in settings.items() if name not in {*about, *SENT}}


def _renamed(job: Job, name: str, settings: dict[str, Any]) -> Job:
    """The run beside another, in a folder of its own name."""
    method, _, seed = job.out.name.rpartition("-seed")
    return replace(job, out=job.out.with_name(f"{method}-{name}-seed{seed}"), settings=settings)
