"""A method that is watched while it runs.

What crosses is written down, and what a step was given is compared afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
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


def copies(value: Any, path: str = "") -> Tensors:
    """Copies of all numbers held anywhere inside ``value``, by where they are."""
    if isinstance(value, Tensor) and value.layout == torch.sparse_csr:
        parts: Any = {"rows": value.crow_indices(), "columns": value.col_indices(), "values": value.values()}
    elif isinstance(value, Tensor):
        return {path: value.detach().clone()}
    elif isinstance(value, np.ndarray):
        return {path: torch.from_numpy(value.copy())}
    elif isinstance(value, (bool, int, float)):
        return {path: torch.tensor(value)}
    elif sp.issparse(value):
        parts = {"rows": value.tocsr().indptr, "columns": value.tocsr().indices, "values": value.tocsr().data}
    elif is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
    elif isinstance(value, Mapping):
        parts = value
    elif isinstance(value, (list, tuple)):
        parts = dict(enumerate(value))
    else:
        return {}
    return {name: copy for key, part in parts.items() for name, copy in copies(part, f"{path}/{key}").items()}


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
        before = [copies(value) for value in values] if self.strict else []
        yield
        for old, value in zip(before, values, strict=False):
            new = copies(value)
            require(old.keys() == new.keys(), f"{what} added or removed {sorted(old.keys() ^ new.keys())}")
            for name in old:
                same = old[name].shape == new[name].shape and torch.equal(old[name], new[name])
                require(same, f"{what} wrote into {name}")

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
