"""A named check that says what to do when it fails, for pytest or alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from fedepd.types import Tensors


class CheckFailed(AssertionError):
    """What was checked, what is wrong, and what to do about it."""


@dataclass(frozen=True, eq=False)
class Check:
    """Call it to run it. It raises ``CheckFailed``, or comes to its end."""

    name: str
    act: Callable[[], object]
    cure: str

    def __call__(self) -> None:
        try:
            self.act()
        except CheckFailed as fault:
            raise CheckFailed(f"{self.name}: {fault}; {self.cure}") from None
        except Exception as fault:
            raise CheckFailed(f"{self.name}: {type(fault).__name__}: {fault}; {self.cure}") from fault

    def __str__(self) -> str:
        return self.name


def run_all(checks: Iterable[Check]) -> None:
    """All of them; the first that fails is raised."""
    for check in checks:
        check()


def require(holds: Any, what: str) -> None:
    if not holds:
        raise CheckFailed(what)


def require_same(first: Tensors, second: Tensors) -> None:
    """Bit for bit."""
    require(first.keys() == second.keys(), f"{sorted(first.keys() ^ second.keys())} occur in one run only")
    for name, value in first.items():
        require(torch.equal(value, second[name]), f"{name} differs")
