"""A running client: its data, what the method prepared from them, and its state between rounds.

A simulation holds all participants in one process. A deployment has one at each site. Both run this code.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedepd.errors import BadMessage, ClientFailed, FedEPDError
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.admission import reply_fault
from fedepd.rounds.evaluate import client_facts, confusions, sizes
from fedepd.rounds.guard import (
    HOME,
    NO_PRIVACY,
    OPEN,
    Privacy,
    guarded,
    guarded_matrix,
    guarded_sizes,
    own_columns,
    with_own_columns,
)
from fedepd.rounds.home import refitted
from fedepd.rounds.loop import cohort_size
from fedepd.rounds.noise import noisy_sizes, noisy_vector
from fedepd.rounds.sums import Vector, matrices_vector, sizes_vector, vector_of
from fedepd.types import ClientData, Fields, Reply, Sizes, TaskInfo, Tensors


class Participant:
    def __init__(
        self,
        method: Method[Any],
        data: ClientData,
        info: TaskInfo,
        model: Backbone,
        training: Training,
        seed: int,
        last_round: int,
        privacy: Privacy = NO_PRIVACY,
        shows_test: bool = True,
    ) -> None:
        self.method, self.info, self.model, self.training, self.seed, self.last_round = (
            method,
            info,
            model,
            training,
            seed,
            last_round,
        )
        self.privacy, self.shows_test = privacy, shows_test
        """Whether test scores of classes that the guard hides are told: in a simulation, not at a site."""
        self.releases = 0
        """Under noise: how many noisy vectors the client has given out. A resumed run sets it."""
        self.state: Tensors = {}
        self._true = data
        self._hidden = data.hidden()
        self._prepared: Any = None

    @property
    def client_id(self) -> int:
        return self._hidden.client_id

    @property
    def size(self) -> int:
        return self._hidden.graph.num_nodes

    @cached_property
    def own_sizes(self) -> Sizes:
        """All sizes, whether or not they may be told."""
        return sizes(self._true)

    @cached_property
    def sizes(self) -> Sizes:
        """The sizes that the client declares before its first reply.

        Under the guard, classes with few nodes are left out. Under secure sums they need not be, because only
        the sum over all clients is seen.
        """
        own = self.own_sizes
        if self.privacy.noisy:
            return noisy_sizes(own, self.shows_test)
        if not self.privacy.guard or self.privacy.secure:
            return own
        shown = guarded_sizes(own, self.privacy.min_count)
        return replace(shown, test=own.test) if self.shows_test else shown

    def _enough(self, counts: Tensor, everyone: bool = True) -> Tensor:
        """The classes of which as many nodes may be seen, bool [C].

        In a sum over ``everyone``, any number. In a sum over a part of the clients, a class can have fewer
        holders than the guard counted, down to one, and the sum is then that client's row.
        """
        return counts >= (0 if self.privacy.secure and everyone else self.privacy.min_count)

    def prepare(self) -> None:
        """Compute once what the method needs from the local data."""
        if self._prepared is None:
            try:
                self._prepared = self.method.prepare(self._hidden, self.model)
            except Exception as cause:
                raise self._failure(0, "prepare", cause) from cause

    def step(self, round: int, message: Tensors) -> Reply:
        """A round of the method. Under the guard the reply says nothing about closed classes."""
        self.prepare()
        if OPEN not in message:
            return self._step(round, message)
        opened, message = split_message(message)
        fields = self._fields(round, message)
        home = with_prefix(self.state, HOME)
        self.state = {name: value for name, value in self.state.items() if name not in home}
        seen = with_own_columns(message, fields, home, opened, self._held)
        reply = self._step(round, seen)
        self.state |= home | own_columns(reply.tensors, message, fields)
        everyone = cohort_size(self.info.num_clients, self.training) == self.info.num_clients
        return guarded(reply, message, fields, opened & self._enough(self.own_sizes.train, everyone))

    def _step(self, round: int, message: Tensors) -> Reply:
        try:
            reply, self.state = self.method.client_step(self._client(round), message, self.state)
        except Exception as cause:
            raise self._failure(round, "client_step", cause) from cause
        return reply

    def evaluate(self, round: int, message: Tensors) -> dict[str, Tensor]:
        """Confusion matrices: "personal_val", "personal_test", "global_val", "global_test".

        A method without a global model has no "global_*". Under the guard, validation nodes of hidden classes
        are not counted, and test nodes of them only where ``shows_test`` says so.
        """
        self.prepare()
        opened = None
        if OPEN in message:
            opened, message = split_message(message)
            home = with_prefix(self.state, HOME)
            message = with_own_columns(message, self._fields(round, message), home, opened, self._held)
            message = refitted(self.method, self._client(round), message, ~opened & self._held)
        tensors = {"personal": {**message, **self.state}}
        if self.method.has_global:
            tensors["global"] = message
        out: dict[str, Tensor] = {}
        try:
            for kind, named in tensors.items():
                logits = self.method.predict(self._client(round), named)
                out.update(
                    {f"{kind}_{split}": matrix for split, matrix in confusions(logits, self._true).items()}
                )
        except Exception as cause:
            raise self._failure(round, "evaluate", cause) from cause
        return out if opened is None else {name: self._told(name, m, opened) for name, m in out.items()}

    def _told(self, name: str, matrix: Tensor, opened: Tensor) -> Tensor:
        """What the server sees of a confusion matrix under the guard."""
        if self.shows_test and name.endswith("_test"):
            return matrix
        own = self.own_sizes
        held_out = own.val if name.endswith("_val") else own.test
        return guarded_matrix(matrix, opened, opened & self._enough(own.train) & self._enough(held_out))

    def sizes_vector(self) -> Vector:
        """What the client adds to the sum of all declarations."""
        return sizes_vector(self.sizes)

    def step_vector(self, round: int, message: Tensors, clients: int | None = None) -> Vector:
        """What the client adds to the sum of all replies. It checks itself what the server cannot see.

        ``clients``: how many take part in the sum, if it is not a whole cohort. Of fewer, each adds more
        noise.
        """
        if budget := self.privacy.budget(self.last_round):
            budget.check_left(self.releases)
            self.releases += 1
            reply, fields = self.step(round, message), self._fields(round, message)
            taking_part = clients or cohort_size(self.info.num_clients, self.training)
            return noisy_vector(self.method, self.info, fields, reply, message, budget, taking_part)
        reply = self.step(round, message)
        fields = self._fields(round, {name: value for name, value in message.items() if name != OPEN})
        if fault := reply_fault(reply, fields, round, self.training.max_norm, self.own_sizes):
            raise BadMessage(f"client {self.client_id} takes back its reply: {fault[0]} {fault[1]}")
        return vector_of(self.method, self.info, fields, reply, self.info.num_clients)

    def matrices_vector(self, round: int, message: Tensors) -> Vector:
        """What the client adds to the sum of all confusion matrices.

        Scores are not in the budget of a noisy run. A simulation has them, to measure what noise costs.
        """
        matrices = self.evaluate(round, message)
        if self.privacy.noisy and not self.shows_test:
            matrices = {name: torch.zeros_like(matrix) for name, matrix in matrices.items()}
        return matrices_vector(matrices)

    @property
    def _held(self) -> Tensor:
        """The classes of which the client has training nodes, bool [C]."""
        return self.own_sizes.train > 0

    def _fields(self, round: int, message: Tensors) -> Fields:
        server = Server(self.info, self.model, self.training, self.seed, round, self.last_round)
        return self.method.reply_fields(server, message)

    def facts(self, tensors: Tensors) -> dict[str, float | int | None]:
        """What the report says about this client. ``tensors`` are the server's."""
        self.prepare()
        return client_facts(self._true, self.method.training_edges(self._hidden, self._prepared, tensors))

    def _client(self, round: int) -> Client[Any]:
        return Client(
            self._hidden,
            self._prepared,
            self.info,
            self.model,
            self.training,
            self.seed,
            round,
            self.last_round,
        )

    def _failure(self, round: int, stage: str, cause: Exception) -> FedEPDError:
        return cause if isinstance(cause, FedEPDError) else ClientFailed(self.client_id, round, stage, cause)


def split_message(message: Tensors) -> tuple[Tensor, Tensors]:
    """Which classes are open, bool [C], and the message of the method."""
    return message[OPEN] > 0, {name: value for name, value in message.items() if name != OPEN}
