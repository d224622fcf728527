"""Any method without its federation: every client is the only client of a server of its own.

Down: nothing.  Up: nothing.  Bytes: 0.

It is no method of its own. ``--scope alone`` and ``--scope pooled`` put a method into it, so that two runs
differ in the federation alone, and not in how they treat rare classes, as they would with plain training
(``isolated`` and ``centralised``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from torch import Tensor

from fedepd.methods.base import Client, Method, P, Server
from fedepd.methods.steps import renamed, reply
from fedepd.network.backbones import Backbone
from fedepd.types import ClientData, Fields, Reply, Tensors

SERVER, OWN = "server.", "own."
"""A client's state has the tensors of its own server, and what the method keeps at the client."""


class Silent(Method[P]):
    """What methods share whose clients send nothing: their servers have nothing to do."""

    has_global: ClassVar[bool] = False
    trains_alone: ClassVar[bool] = True

    @property
    def averages(self) -> bool:
        """Nothing is sent."""
        return False

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        return {}

    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        return tensors

    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        return {}


@final
@dataclass(frozen=True)
class Alone(Silent[Any]):
    """A method whose clients never meet. Its headline model becomes the personal model of every client."""

    inner: Method[Any]
    pooled: bool = False
    """Whether there is one client, which holds the whole graph."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "merges_clients", self.pooled)
        for name in ("label", "last_layer", "retired", "weighs_edges", "reads_float16"):
            object.__setattr__(self, name, getattr(self.inner, name))

    def idle(self) -> Mapping[str, str]:
        return self.inner.idle()

    def complete_from(self, last_round: int) -> int:
        return self.inner.complete_from(last_round)

    def prepare(self, data: ClientData, model: Backbone) -> Any:
        return self.inner.prepare(data, model)

    def client_step(self, client: Client[Any], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        """A whole round: the message, the client's step and the server's."""
        number, server, own = client.data.client_id, _server(client), renamed(state, OWN, "")
        tensors = self._tensors(client, state)
        answer, own = self.inner.client_step(_only(client), self.inner.message(tensors, number), own)
        tensors = self.inner.server_step(server, tensors, {number: answer})
        return reply(client, {}, **answer.scalars), renamed(tensors, "", SERVER) | renamed(own, "", OWN)

    def _tensors(self, client: Client[Any], state: Tensors) -> Tensors:
        """What the client's own server holds; before round 1, what any server would begin with."""
        if found := renamed(state, SERVER, ""):
            return found
        server = replace(_server(client), round=0)
        return self.inner.server_init(server, server.model.initial(server.info, server.seed))

    def network_of(self, model: Backbone, client_id: int, tensors: Tensors) -> Backbone:
        return self.inner.network_of(model, client_id, renamed(tensors, OWN, ""))

    def predict(self, client: Client[Any], tensors: Tensors) -> Tensor:
        sent = self.inner.message(self._tensors(client, tensors), client.data.client_id)
        own = {} if self.inner.has_global else renamed(tensors, OWN, "")
        return self.inner.predict(_only(client), {**sent, **own})

    def without_labels(self, tensors: Tensors, counts: Tensor) -> Tensors:
        if self.inner.has_global:
            return {name: value for name, value in tensors.items() if name.startswith(SERVER)}
        own = self.inner.without_labels(renamed(tensors, OWN, ""), counts)
        return {**tensors, **renamed(own, "", OWN)}

    def training_edges(self, data: ClientData, prepared: Any, tensors: Tensors) -> Tensor:
        """``tensors``: the client's state. Before its first round nothing was decided about edges."""
        found = renamed(tensors, SERVER, "")
        return self.inner.training_edges(data, prepared, found) if found else data.graph.edge_index


def _only(client: Client[Any]) -> Client[Any]:
    return replace(client, info=replace(client.info, num_clients=1))


def _server(client: Client[Any]) -> Server:
    info = replace(client.info, num_clients=1)
    return Server(info, client.model, client.training, client.seed, client.round, client.last_round)


def inner(method: Method[Any]) -> Method[Any]:
    """The method itself, whoever trains by it."""
    return method.inner if isinstance(method, Alone) else method


def scoped(method: Method[Any], scope: str) -> Method[Any]:
    """The method as it is trained: federated, by each client alone, or on the pooled graph."""
    if method.merges_clients or scope == "federated" or (scope == "alone" and method.trains_alone):
        return method
    return Alone(method, pooled=scope == "pooled")
