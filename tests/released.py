"""Numbers that authors' released programs gave: how they are read, and how ours are held against them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedepd.types import ClientData, Graph, Tensors

NUMBERS = Path(__file__).parent / "methods" / "fixtures"


def numbers(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((NUMBERS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def tensors(found: dict[str, Any]) -> Tensors:
    return {name: torch.tensor(value) for name, value in found.items()}


def client_data(found: dict[str, Any], k: int = 0, classes: int = 3) -> ClientData:
    y = torch.tensor(found["y"])
    graph = Graph.make(torch.tensor(found["x"]), torch.tensor(found["edges"]), y, classes)
    train = torch.zeros(len(y), dtype=torch.bool).index_fill_(0, torch.tensor(found["train"]), True)
    return ClientData(k, graph, train, ~train, ~train, torch.arange(len(y)))


def near(ours: Tensor, theirs: Any) -> None:
    torch.testing.assert_close(ours, torch.as_tensor(theirs).to(ours.dtype), rtol=1e-5, atol=1e-5)


def wave(shape: tuple[int, ...], scale: float, start: int) -> Tensor:
    """Weights that need not be kept: scale · sin(start + i), rounded to 4 digits."""
    values = np.round(scale * np.sin(np.arange(start, start + int(np.prod(shape)))), 4)
    return torch.tensor(values, dtype=torch.float32).reshape(shape)
