"""The yardstick: a plain loop over torch_geometric that is timed by part."""

from __future__ import annotations

import pytest

from fedepd.bench.reference import reference_rounds
from fedepd.types import TaskInfo
from toy import CLASSES, FEATURES, toy_clients


def test_every_round_has_its_three_parts() -> None:
    pytest.importorskip("torch_geometric", reason="the reference is written with torch_geometric")
    rounds = reference_rounds(toy_clients(2), TaskInfo(FEATURES, CLASSES, 2), 2)
    assert len(rounds) == 2
    for parts in rounds:
        assert parts.keys() == {"train", "aggregate", "evaluate"}
        assert all(seconds >= 0 for seconds in parts.values())
        assert parts["train"] > 0
