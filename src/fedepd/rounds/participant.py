"""A running client: its data, what the method prepared from them, and its state between rounds.

A simulation holds all participants in one process. A deployment has one at each site. Both run this code.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from torch import Tensor

from fedepd.errors import ClientFailed, FedEPDError
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.steps import with_prefix
from fedepd.rounds.guard import HOME, OPEN, guarded, kept, received
from dataclasses import replace
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.evaluate import client_facts, confusions, sizes
from fedepd.types import ClientData, Reply, Sizes, TaskInfo, Tensors


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
    ) -> None:
        self.method, self.info, self.model, self.training, self.seed, self.last_round = (
            method,
            info,
            model,
            training,
            seed,
            last_round,
        )
        self.state: Tensors = {}
        self.guarded = False
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
    def sizes(self) -> Sizes:
        """The sizes that the client declares before its first reply."""
        return sizes(self._true)

    def prepare(self) -> None:
        """Compute once what the method needs from the local data."""
        if self._prepared is None:
            try:
                self._prepared = self.method.prepare(self._hidden, self.model)
            except Exception as cause:
                raise self._failure(0, "prepare", cause) from cause

    def step(self, round: int, message: Tensors) -> Reply:
        self.prepare()
        if OPEN in message:
            return self._guarded_step(round, message)
        try:
            reply, self.state = self.method.client_step(self._client(round), message, self.state)
        except Exception as cause:
            raise self._failure(round, "client_step", cause) from cause
        return reply

    def _guarded_step(self, round: int, message: Tensors) -> Reply:
        opened = message[OPEN] > 0
        server = Server(self.info, self.model, self.training, self.seed, round, self.last_round)
        message = {k: v for k, v in message.items() if k != OPEN}
        fields = self.method.reply_fields(server, message)
        home = with_prefix(self.state, HOME)
        seen = received(message, fields, home, opened, self.sizes.train > 0)
        state = {k: v for k, v in self.state.items() if k not in home}
        reply, state = self.method.client_step(self._client(round), seen, state)
        self.state = {**state, **kept(reply, fields)}
        return replace(reply, tensors=guarded(reply, message, fields, opened))

    def evaluate(self, round: int, message: Tensors) -> dict[str, Tensor]:
        """Confusion matrices: "personal_val", "personal_test", "global_val", "global_test".

        A method without a global model has no "global_*".
        """
        self.prepare()
        if OPEN in message:
            opened = message[OPEN] > 0
            server = Server(self.info, self.model, self.training, self.seed, round, self.last_round)
            message = {k: v for k, v in message.items() if k != OPEN}
            message = received(
                message,
                self.method.reply_fields(server, message),
                with_prefix(self.state, HOME),
                opened,
                self.sizes.train > 0,
            )
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
        return out

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
