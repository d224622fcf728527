"""The contract of a method: one frozen dataclass, two halves, no hidden state.

A method is final, and its fields are its hyper-parameters. ``prepare`` and ``client_step`` run where the data
is.
``server_step`` sees nothing but replies. Everything that outlives a round is passed in and out by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rng import fast_numpy, seeded
from fedepd.types import ClientData, Fields, Reply, TaskInfo, Tensors

P = TypeVar("P")


@dataclass(frozen=True, eq=False)
class Client(Generic[P]):
    """All that a step at a client may read."""

    data: ClientData
    """Labels outside the training mask are hidden."""
    prepared: P
    info: TaskInfo
    model: Backbone
    training: Training
    seed: int
    round: int
    """1, 2, ...; 0 outside training."""
    last_round: int
    """The number of rounds of the run, for methods with stages."""

    def trained_by(self, **changes: Any) -> Client[P]:
        """The same client under other training settings, e.g. a method's own optimiser."""
        return replace(self, training=replace(self.training, **changes))

    def draws(self, purpose: str) -> np.random.Generator:
        """Random numbers that depend on (seed, purpose, round, client) and on nothing else."""
        return fast_numpy(self.seed, purpose, self.round, self.data.client_id)

    def torch_draws(self, purpose: str) -> torch.Generator:
        return seeded(self.seed, purpose, self.round, self.data.client_id)


@dataclass(frozen=True)
class Server:
    """All that a step at the server may read besides tensors and replies."""

    info: TaskInfo
    model: Backbone
    training: Training
    seed: int
    round: int
    last_round: int

    def torch_draws(self, purpose: str) -> torch.Generator:
        return seeded(self.seed, purpose, self.round, "server")


@dataclass(frozen=True)
class Method(ABC, Generic[P]):
    """Abstract; every method is final. Reuse is by calling the functions of ``steps.py``."""

    label: ClassVar[str]
    """How the method is called in tables."""
    has_global: ClassVar[bool] = True
    """False where no model is common to all clients. Personal models are then the headline."""
    merges_clients: ClassVar[bool] = False
    """True where one client holds the whole graph. Such a method is the ceiling of every table."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    """Named settings of the fields."""
    retired: ClassVar[Mapping[str, Any]] = {}
    """Removed settings, each with the value that the method still has.

    They stay in ``config.json`` and in the config hash, so that a run has the same identity before and after.
    """
    retired_values: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Values that were removed from a setting that is still there."""
    retired_in_training: ClassVar[frozenset[str]] = frozenset()
    """Those of these settings that only training used. A model folder may hold any value of them."""

    @property
    def averages(self) -> bool:
        """Whether the server makes one model out of all replies.

        It could then take their median instead of the mean.
        """
        return True

    def idle(self) -> Mapping[str, str]:
        """The settings that change nothing whatever their value, each with the setting that is the reason."""
        return {}

    @abstractmethod
    def prepare(self, data: ClientData, model: Backbone) -> P:
        """Once per run, from local data; never sent, never saved."""

    @abstractmethod
    def client_step(self, client: Client[P], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        """One round at a client. The returned state comes back in the next round.

        Entries of the state that are named like entries of the message are the client's personal version of
        them.
        """

    @abstractmethod
    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        """One round at the server: the new server tensors. ``replies`` come in ascending order of client."""

    @abstractmethod
    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        """What every reply of this round must carry. Admission refuses all others."""

    @abstractmethod
    def predict(self, client: Client[P], tensors: Tensors) -> Tensor:
        """Logits [n, C].

        ``tensors`` is the server's message, which is the global model, or that message overlaid with the
        client's state.
        """

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        """The server's tensors before round 1, from freshly initialised model parameters."""
        return params

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        """What the server sends to a client."""
        return tensors

    def complete_from(self, last_round: int) -> int:
        """The first round whose model is complete, for methods with stages. No earlier round is selected."""
        return 1

    def training_edges(self, data: ClientData, prepared: P, tensors: Tensors) -> Tensor:
        """For the report: the edges that a client trains on when the server has these tensors, [2, e]."""
        return data.graph.edge_index
