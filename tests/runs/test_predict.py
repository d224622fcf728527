"""The model of all clients, seen from outside: no training label helps it to predict."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods import make_method
from fedepd.runs.experiment import Experiment
from fedepd.runs.predict import check_common, common_model, logits, logits_at
from fedepd.runs.simulation import build
from toy import toy_clients

QUICK = Experiment.make("fedavg", rounds=1, hidden=4)


def test_a_method_without_a_common_model_is_refused() -> None:
    check_common(make_method("fedavg", "default"), "audit")
    check_common(make_method("centralised", "default"), "audit")
    with pytest.raises(BadConfig, match="so there is nothing to audit; audit a run of a method whose"):
        check_common(make_method("fedproto", "default"), "audit")


def test_the_merged_client_is_the_common_model() -> None:
    tensors = {"client0.encoder.weight": torch.ones(1), "other": torch.ones(1)}
    assert common_model(make_method("centralised", "default"), tensors).keys() == {"encoder.weight"}
    assert common_model(make_method("fedavg", "default"), tensors) is tensors


def test_logits_do_not_look_at_labels() -> None:
    """FedAvg predicts without labels, so a client has the same logits as somebody who knows none."""
    clients = toy_clients(1)
    simulation = build(QUICK, clients)
    tensors, info, graph = simulation.start().tensors, simulation.server.info, clients[0].graph
    outside = logits(QUICK, info, tensors, graph)
    assert outside.shape == (graph.num_nodes, 3)
    assert torch.equal(outside, logits_at(QUICK, info, tensors, clients[0]))
    assert torch.equal(outside, logits(QUICK, info, tensors, replace(graph, y=graph.y.flip(0))))
