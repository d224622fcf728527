"""Trainings as jobs: the bits of those here, kept until the audit has ended, and checked when they come."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedepd.cluster.work import as_message, do
from fedepd.datasets import graph_sha256, load
from fedepd.errors import BadData, FedEPDError
from fedepd.privacy.elsewhere import Elsewhere, TrainingJob
from fedepd.privacy.membership import audit_membership, confidence
from fedepd.privacy.shadows import audited, recipe, train_shadows
from fedepd.runs.experiment import Experiment
from fedepd.runs.jobs import Job, Outcome
from fedepd.runs.source import Source

QUICK: dict[str, Any] = {"rounds": 2, "hidden": 8, "clients": 3}


@dataclass
class Here:
    """A pool whose only worker reads the message that a cluster would send, in this process."""

    done: int = 0
    fails_at: int = 100

    def outcomes(
        self, jobs: Sequence[Job], watch: Callable[[], None] | None = None
    ) -> Generator[Outcome, None, None]:
        sha256 = graph_sha256(load("synthetic"))
        for job in jobs:
            if not job.is_finished:
                self.done += 1
                if self.done > self.fails_at:
                    yield Outcome(job, "the worker's disk is full")
                    return
                do(as_message(job, sha256, shared=True), job.out)
            yield Outcome(job, "")


def elsewhere(folder: Path, pool: Here) -> Elsewhere:
    return Elsewhere(pool, Source.make("synthetic"), folder)


def test_trainings_there_have_the_bits_of_those_here(tmp_path: Path) -> None:
    experiment, told = Experiment.make("fedepd", **QUICK), list[tuple[int, int]]()
    simulation = audited(experiment, load("synthetic"))
    pool = Here()
    there = elsewhere(tmp_path / "t", pool).train(
        experiment, "all", False, (3, simulation.graph.num_nodes), lambda *each: told.append(each)
    )
    here = train_shadows(recipe(simulation, confidence), 2, 1, None)
    assert np.array_equal(there.members, here.members)
    assert np.array_equal(there.signals, here.signals, equal_nan=True)
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_attack_that_was_stopped_goes_on_and_leaves_nothing(tmp_path: Path) -> None:
    experiment, graph = Experiment.make("fedavg", **QUICK), load("synthetic")
    with pytest.raises(FedEPDError, match="disk is full"):
        audit_membership(experiment, graph, 4, elsewhere(tmp_path / "t", Here(fails_at=2)))
    assert len(list((tmp_path / "t").glob("*.npz"))) == 2
    pool = Here()
    trainers = elsewhere(tmp_path / "t", pool)
    found = audit_membership(experiment, graph, 4, trainers)
    assert pool.done == 3
    assert repr(found) == repr(audit_membership(experiment, graph, 4, 1))
    trainers.clear()
    assert not (tmp_path / "t").exists()


@pytest.mark.hostile
@pytest.mark.parametrize(
    "arrays",
    [
        {"members": np.zeros(5, bool), "signals": np.zeros((4, 2))},
        {"members": np.zeros(4, bool), "signals": np.zeros((4, 3))},
        {"members": np.zeros(4), "signals": np.zeros((4, 2))},
        {"members": np.zeros(4, bool), "signals": np.zeros((4, 2), np.float32)},
    ],
    ids=["nodes", "columns", "members", "precision"],
)
def test_a_result_of_another_form_is_refused(tmp_path: Path, arrays: dict[str, Any]) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(BadData, match="not what a training leaves"):
        TrainingJob("fedavg", "default", "synthetic", tmp_path / "a.npz").result(4)
