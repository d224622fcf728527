"""What a watched method sends is written down, and a step that writes into its inputs is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fedepd.methods.fedavg import FedAvg
from fedepd.testing.checks import CheckFailed
from fedepd.testing.toy import run_rounds, toy_client, toy_clients
from fedepd.testing.watch import Outcome, Watched, copies


def test_copies_of_all_numbers_by_where_they_are() -> None:
    inside = {"list": [torch.ones(2), 3], "array": np.arange(2), "text": "none", "none": None}
    found = copies(inside)
    assert found.keys() == {"/list/0", "/list/1", "/array"}
    inside["list"][0].zero_()  # type: ignore[index]
    assert found["/list/0"].tolist() == [1.0, 1.0]


def test_sparse_matrices_and_dataclasses_are_looked_into() -> None:
    assert copies(sp.csr_matrix(np.eye(2))).keys() == {"/rows", "/columns", "/values"}
    found = copies(toy_client(sparse=True))
    assert {"/graph/x/values", "/graph/y", "/train_mask"} <= found.keys()


@pytest.mark.parametrize("change", ["wrote into /a", r"added or removed \['/b'\]"])
def test_a_change_is_told(change: str) -> None:
    given: dict[str, Any] = {"a": torch.ones(1)}

    def act(strict: bool) -> None:
        with Watched(FedAvg(), strict).unchanged("the step", given):
            if "wrote" in change:
                given["a"].add_(1)
            else:
                given["b"] = torch.ones(1)

    with pytest.raises(CheckFailed, match=f"the step {change}"):
        act(strict=True)
    given.pop("b", None)
    act(strict=False)


def test_everything_that_crossed_is_written_down() -> None:
    watched: Any = Watched(FedAvg(), strict=True)
    rounds, exchange = run_rounds(watched, toy_clients(2), rounds=2)
    assert watched.up.keys() == watched.down.keys() == {(r, k) for r in (1, 2) for k in (0, 1)}
    outcome = Outcome(watched, rounds, exchange)
    assert torch.equal(outcome.trained()["/server/1/classifier.bias"], watched.down[2, 0]["classifier.bias"])
    assert outcome.evaluated()
