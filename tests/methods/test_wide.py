"""8,710 sparse columns, as corafull has, are never made dense: no method holds all entries of X."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fedepd.methods import METHODS, make_method
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import csr_tensor
from fedepd.types import ClientData
from toy import run_rounds, toy_client

COLUMNS, NODES, HIDDEN = 8710, 200, 4
FEW = 20
"""Entries of a row that are not zero."""
VARIANTS: list[tuple[str, dict[str, Any]]] = [(name, {}) for name in METHODS.built_in]
VARIANTS += [
    ("fedproto", {"widths": "2-8"}),
    ("fedepd", {"prune": "always"}),
    ("fedgac", {"score_rows": "raw"}),
]


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The largest dense result of all operations of torch, in numbers."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, (tuple, list)) else (out,):
            if isinstance(each, torch.Tensor) and each.layout == torch.strided:
                self.largest = max(self.largest, each.numel())
        return out


@contextmanager
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watching]:
    """Also what scipy makes dense."""
    with Watching() as seen, monkeypatch.context() as patch:
        plain = sp.csr_matrix.toarray

        def toarray(self: Any, *args: Any, **more: Any) -> Any:
            seen.largest = max(seen.largest, int(np.prod(self.shape)))
            return plain(self, *args, **more)

        patch.setattr(sp.csr_matrix, "toarray", toarray)
        yield seen


def wide_client(number: int) -> ClientData:
    """A toy client with so many columns. The first of them name its class."""
    data, draws = toy_client(number, nodes=NODES), np.random.default_rng([7, number])
    rows = np.arange(NODES).repeat(FEW)
    columns = draws.integers(3, COLUMNS, NODES * FEW)
    columns[::FEW] = data.graph.y.numpy()
    x = sp.csr_matrix((np.ones(NODES * FEW, np.float32), (rows, columns)), shape=(NODES, COLUMNS))
    return replace(data, graph=replace(data.graph, x=csr_tensor(x)))


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_no_method_makes_them_dense(
    name: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weight has 8,710 · 4 = 34,840 numbers; AdaFGL's first layers side by side nine times as many, and
    HierTail, GraphSMOTE and others have pairs of nodes, 200² = 40,000. X has 200 · 8,710 = 1,742,000."""
    clients = [wide_client(number) for number in range(2)]
    with watching(monkeypatch) as seen:
        rounds, _ = run_rounds(make_method(name, settings=settings), clients, model=Backbone(hidden=HIDDEN))
    assert all(not each.refused for each in rounds)
    assert NODES * HIDDEN <= seen.largest < NODES * COLUMNS // 2


def test_it_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    x = wide_client(0).graph.x
    with watching(monkeypatch) as seen:
        x.to_dense()
    assert seen.largest == NODES * COLUMNS
    with watching(monkeypatch) as seen:
        sp.csr_matrix((NODES, COLUMNS)).toarray()
    assert seen.largest == NODES * COLUMNS
