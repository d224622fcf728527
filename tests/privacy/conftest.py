"""Four small clients, of which one has a single training node of the rarest class and one has none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd import Experiment
from fedepd.runs.simulation import Simulation, build
from fedepd.types import ClientData
from toy import toy_client

HELD = [[4, 8, 1], [8, 2, 5], [5, 9, 4], [9, 9, 0]]
"""Training nodes of each class at each of these clients; ``test_view`` counts them."""


def four_clients() -> list[ClientData]:
    """With nodes that are numbered through, as ``build`` wants them."""
    clients = [
        toy_client(0, 20, one_node_class=True),
        toy_client(1, 24),
        toy_client(2, 28),
        toy_client(3, 28, missing_class=True),
    ]
    begins = [0, 20, 44, 72]
    return [
        replace(c, global_ids=torch.arange(c.graph.num_nodes) + begin)
        for c, begin in zip(clients, begins, strict=True)
    ]


@pytest.fixture(scope="session")
def four() -> Callable[..., Simulation]:
    """``four("fedepd", lr=0.1)``: a run of these clients before its first round."""

    def made(method: str = "fedepd", **settings: Any) -> Simulation:
        return build(Experiment.make(method, **{"rounds": 3, "hidden": 8, **settings}), four_clients())

    return made


@pytest.fixture
def held() -> list[list[int]]:
    return HELD
