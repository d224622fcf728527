"""A method that is watched while it runs.

What crosses is written down, and what a step was given is compared afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.methods.base import Client, Method
from fedepd.rounds.in_process import InProcess
from fedepd.rounds.loop import Round
from fedepd.testing.checks import require
from fedepd.types import Reply, Tensors


def copies(value: Any) -> Tensors:
    """Copies of all numbers held anywhere inside ``value``, by where they are."""
    return {path: torch.as_tensor(copied(leaf)) for path, leaf in leaves(value).items()}


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """All tensors, arrays and numbers held anywhere inside ``value``, by where they are: no copies."""
    found: dict[str, Any] = {}
    _find(value, path, found)
    return found


def _find(value: Any, path: str, found: dict[str, Any]) -> None:
    """The most frequent kinds first: it is asked about every object around every step."""
    if isinstance(value, Tensor) and value.layout == torch.sparse_csr:
        parts: Any = {"rows": value.crow_indices(), "columns": value.col_indices(), "values": value.values()}
    elif isinstance(value, (Tensor, np.ndarray, int, float)):
        found[path] = value
        return
    elif value is None or isinstance(value, str):
        return
    elif isinstance(value, dict):
        parts = value
    elif isinstance(value, (list, tuple)):
        parts = dict(enumerate(value))
    elif is_dataclass(value) and not isinstance(value, type):
        parts = {name: getattr(value, name) for name in _names(type(value))}
    elif isinstance(value, Mapping):
        parts = value
    elif sp.issparse(value):
        rows = value.tocsr()
        parts = {"rows": rows.indptr, "columns": rows.indices, "values": rows.data}
    else:
        return
    for key, part in parts.items():
        _find(part, f"{path}/{key}", found)


@cache
def _names(cls: type[Any]) -> tuple[str, ...]:
    return tuple(f.name for f in fields(cls))


def copied(leaf: Any) -> Any:
    """A leaf that nobody else can write into."""
    if isinstance(leaf, Tensor):
        return leaf.detach().clone()
    return leaf.copy() if isinstance(leaf, np.ndarray) else leaf


def same(old: Any, new: Any) -> bool:
    """Whether two leaves are of one kind and shape and have the same numbers."""
    if isinstance(old, Tensor):
        return isinstance(new, Tensor) and old.shape == new.shape and torch.equal(old, new)
    if isinstance(old, np.ndarray):
        return isinstance(new, np.ndarray) and np.array_equal(old, new)
    return type(old) is type(new) and bool(old == new)


@dataclass
class Watched:
    """A method and everything that crossed. Where ``strict``, inputs are compared before and after a step."""

    method: Method[Any]
    strict: bool
    down: dict[tuple[int, int], Tensors] = field(default_factory=dict)
    """By (round, client)."""
    up: dict[tuple[int, int], Tensors] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    @contextmanager
    def unchanged(self, what: str, *values: Any) -> Iterator[None]:
        given = values if self.strict else ()
        before = [{path: copied(leaf) for path, leaf in leaves(value).items()} for value in given]
        yield
        for old, value in zip(before, given, strict=True):
            new = leaves(value)
            require(old.keys() == new.keys(), f"{what} added or removed {sorted(old.keys() ^ new.keys())}")
            for name, leaf in old.items():
                require(same(leaf, new[name]), f"{what} wrote into {name}")

    def client_step(self, client: Client[Any], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        with self.unchanged("client_step", client, message, state):
            reply, new_state = self.method.client_step(client, message, state)
        place = (client.round, client.data.client_id)
        self.down[place], self.up[place] = dict(message), dict(reply.tensors)
        return reply, new_state

    def server_step(self, server: Any, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        with self.unchanged("server_step", server, tensors, replies):
            return self.method.server_step(server, tensors, replies)

    def predict(self, client: Client[Any], tensors: Tensors) -> Tensor:
        with self.unchanged("predict", client, tensors):
            logits = self.method.predict(client, tensors)
        expected = (client.data.graph.num_nodes, client.info.num_classes)
        require(
            logits.shape == expected, f"predict gave the shape {list(logits.shape)}, not {list(expected)}"
        )
        require(not bool(logits.isnan().any()), "predict gave NaN")
        return logits


@dataclass(frozen=True, eq=False)
class Outcome:
    """A run that came to its end, with all that was seen of it."""

    watched: Watched
    rounds: list[Round]
    exchange: InProcess

    def trained(self) -> Tensors:
        """Every bit that training produced or sent, by place."""
        out: dict[str, Any] = {"down": self.watched.down, "up": self.watched.up}
        out["server"] = {r.number: r.tensors for r in self.rounds}
        out["loss"] = {r.number: r.loss if r.loss == r.loss else "nan" for r in self.rounds}
        out["state"] = {k: p.state for k, p in self.exchange.participants.items()}
        return copies(out)

    def evaluated(self) -> Tensors:
        return copies({r.number: r.confusions for r in self.rounds})
