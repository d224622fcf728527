"""Which tensors a model needs, and matrices that differ from the run's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.datasets.synthetic import synthetic
from fedepd.errors import BadConfig
from fedepd.longtail import Tiers
from fedepd.model.export import export
from fedepd.model.held_out import HeldOut, check_reproduced, measured, needed_only
from fedepd.model.model import load_model
from fedepd.report.runs import read_run
from fedepd.rounds.calibrate import SIZE
from fedepd.rounds.guard import Privacy
from fedepd.runs.resume import rebuild
from fedepd.runs.run import run

QUICK: dict[str, Any] = {"rounds": 2, "hidden": 8, "clients": 2, "evaluate_every": 2}


def test_a_model_keeps_what_it_needs_and_predicts_as_the_run(tmp_path: Path) -> None:
    graph = synthetic(
        nodes=120, edges=400, classes=3, imbalance=4.0, smallest=None, features=8, communities=4
    )
    run(graph, "fedavg", out=tmp_path / "run", **QUICK)
    model = load_model(export(tmp_path / "run", tmp_path / "model", graph))
    more = replace(model, tensors={**model.tensors, "prototype.mean": torch.ones(3, 8)})
    clients = rebuild(tmp_path / "run", graph).clients
    assert needed_only(more, clients[0].graph).tensors.keys() == model.tensors.keys()
    found = measured(clients, lambda client: model.logits(client.graph))
    check_reproduced(read_run(tmp_path / "run"), found)
    found.confusion["test"][1] = np.roll(found.confusion["test"][1], 1, axis=1)
    with pytest.raises(BadConfig, match="client 1 gets other predictions than in the run"):
        check_reproduced(read_run(tmp_path / "run"), found)


def test_what_clients_would_send_to_calibrate_by() -> None:
    """Two clients with 3 and 2 validation nodes that are predicted head. Where single answers are seen and
    fewer than 3 nodes are hidden, the second sends nothing. A node of a closed class never counts."""
    tiers, one = Tiers((0,), (1,), (2,)), torch.tensor([[1.0, 0.0, 0.0]])
    rows = {"val": [(one.repeat(3, 1), torch.tensor([0, 0, 1])), (one.repeat(2, 1), torch.tensor([0, 1]))]}
    said = HeldOut(rows, {"val": np.zeros((2, 3, 3), dtype=np.int64)})
    alone, masked = Privacy(guard=True, min_count=3), Privacy(guard=True, min_count=3, secure=True)
    assert said.validation_sums(tiers, Privacy(), None)[0] == 5
    assert said.validation_sums(tiers, masked, [0, 1, 2])[0] == 5
    assert said.validation_sums(tiers, alone, [0, 1, 2])[0] == 3
    assert said.validation_sums(tiers, masked, [0, 2])[0] == 3
    assert said.validation_sums(tiers, masked, [0, 2]).shape == (3 * SIZE,)
