"""Shadows: the same experiment with other training nodes, and nothing else changed."""

from __future__ import annotations

import multiprocessing
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.datasets.synthetic import synthetic
from fedepd.errors import FedEPDError
from fedepd.privacy.membership import confidence
from fedepd.privacy.shadows import Recipe, audited, client_logits, recipe, train_shadows, trained
from fedepd.runs.experiment import Experiment
from fedepd.runs.run import run
from fedepd.types import Graph, Tensors

QUICK: dict[str, Any] = {"rounds": 2, "hidden": 8, "clients": 3, "evaluate_every": 1}


@pytest.fixture(scope="module")
def graph() -> Graph:
    return synthetic(nodes=200, edges=600, classes=4, imbalance=5.0, smallest=None, features=8, communities=6)


@pytest.fixture(scope="module")
def how(graph: Graph) -> Recipe:
    return recipe(audited(Experiment.make("fedavg", **QUICK), graph), confidence)


def test_the_first_training_is_the_run_itself(graph: Graph, how: Recipe) -> None:
    member, seen = how(0)
    result = run(graph, "fedavg", **QUICK)
    for client in how.clients:
        ids = client.global_ids
        assert np.array_equal(member[ids], client.train_mask)
        simulation = audited(Experiment.make("fedavg", **QUICK), graph)
        z = client_logits(how.experiment, simulation.server.info, result.tensors, client)
        assert np.array_equal(seen[ids], confidence(z, client.graph.y))


def test_a_shadow_has_other_training_nodes_and_as_many_of_each_class(how: Recipe) -> None:
    for client in how.clients:
        new = how.drawn(client, 1)
        assert new.graph is client.graph
        assert not torch.equal(new.train_mask, client.train_mask)
        for mine, theirs in (
            (new.train_mask, client.train_mask),
            (new.val_mask, client.val_mask),
            (new.test_mask, client.test_mask),
        ):
            y = client.graph.y
            assert torch.equal(torch.bincount(y[mine], minlength=4), torch.bincount(y[theirs], minlength=4))
        assert torch.equal(how.drawn(client, 1).train_mask, new.train_mask)
        assert not torch.equal(how.drawn(client, 2).train_mask, new.train_mask)


def test_a_node_outside_the_split_stays_outside(how: Recipe) -> None:
    client = how.clients[0]
    some = client.test_mask & (torch.arange(client.graph.num_nodes) % 2 == 0)
    fewer = how.drawn(replace(client, test_mask=client.test_mask & ~some), 1)
    assert not bool(((fewer.train_mask | fewer.val_mask | fewer.test_mask) & some).any())


def test_features_are_not_normalised_twice(graph: Graph) -> None:
    """Rows of a normalised graph need not sum to one in every bit, so a second time could move them."""
    settings = {**QUICK, "features": "row_normalised"}
    simulation = audited(Experiment.make("fedavg", **settings), graph)
    _, seen = recipe(simulation, confidence)(0)
    result = run(graph, "fedavg", **settings)
    client = simulation.clients[1]
    z = client_logits(simulation.experiment, simulation.server.info, result.tensors, client)
    assert np.array_equal(seen[client.global_ids], confidence(z, client.graph.y))


def test_columns_of_closed_classes_are_not_in_the_model(graph: Graph) -> None:
    """With three clients and four holders asked for, all classes are closed: the classifier never moves."""
    guarded = Experiment.make("fedavg", **QUICK, guard=True, min_holders=4)
    simulation = audited(guarded, graph)
    first = simulation.start().tensors
    last = trained(simulation)
    for name in ("classifier.weight", "classifier.bias"):
        assert torch.equal(last[name], first[name])
    assert not torch.equal(last["encoder.weight"], first["encoder.weight"])


def test_the_centralised_model_has_its_own_names(graph: Graph) -> None:
    tensors: Tensors = trained(audited(Experiment.make("centralised", **QUICK), graph))
    assert "encoder.weight" in tensors


@pytest.mark.heavy
def test_a_failure_in_a_process_is_the_sentence_that_it_is_here(how: Recipe) -> None:
    broken = replace(how, signal=confidence_of_nobody)
    for workers in (1, 2):
        with pytest.raises(FedEPDError, match="nobody"):
            train_shadows(broken, 4, workers, None)


def confidence_of_nobody(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    raise FedEPDError("nobody")


def test_a_killed_process_is_named(how: Recipe) -> None:
    with pytest.raises(FedEPDError, match="for want of memory; give fewer --workers"):
        train_shadows(replace(how, signal=suicide), 4, 2, None)


def suicide(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    import os
    import signal

    os.kill(os.getpid(), signal.SIGKILL)
    return z


def test_processes_end_with_a_watcher_that_fails(how: Recipe) -> None:
    """As Ctrl-C does: no process is left behind."""

    def stop(done: int, all: int) -> None:
        raise SystemExit(130)

    before = set(multiprocessing.active_children())
    with pytest.raises(SystemExit):
        train_shadows(how, 8, 2, stop)
    assert set(multiprocessing.active_children()) == before
