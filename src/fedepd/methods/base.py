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
from fedepd.network.contract import Inputs
from fedepd.network.training import Objective, Training
from fedepd.rng import fast_numpy, seeded
from fedepd.types import ClientData, Fields, Reply, TaskInfo, Tensors

AVERAGED = ("real", "mean", "rows")
"""The kinds of fields that a server averages over the clients. It adds up all others."""

P = TypeVar("P")


@dataclass(frozen=True, eq=False)
class Client(Generic[P]):
    """All that a step at a client may read.

    Examples:
        >>> from dataclasses import replace
        >>> import torch
        >>> from fedepd import Graph, METHODS
        >>> from fedepd.methods.base import Client
        >>> from fedepd.network.backbones import Backbone
        >>> from fedepd.network.training import Training
        >>> from fedepd.types import ClientData, TaskInfo
        >>> graph = Graph.make(torch.eye(3), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, 1]))
        >>> first, second, third = torch.eye(3, dtype=torch.bool)
        >>> data = ClientData(0, graph, first, second, third, torch.arange(3)).hidden()
        >>> data.graph.y.tolist()
        [0, -1, -1]
        >>> method, model = METHODS["fedavg"](), Backbone()
        >>> client = Client(data, method.prepare(data, model), TaskInfo(3, 2, 1), model, Training(), 0, 1, 10)
        >>> client.trained_by(lr=0.5).training.lr
        0.5
        >>> client.dropping(0.1).model.dropout
        0.1
        >>> again = replace(client)
        >>> bool(client.draws("edges").random() == again.draws("edges").random())
        True
    """

    data: ClientData
    """Labels outside the training mask are hidden."""
    prepared: P
    """What the method's ``prepare`` made of the data."""
    info: TaskInfo
    """The numbers of features, classes and clients."""
    model: Backbone
    """The network."""
    training: Training
    """Optimiser, epochs and the rest of a local training."""
    seed: int
    """The run's seed. Draw through ``draws`` and ``torch_draws``, never from it."""
    round: int
    """1, 2, ...; 0 outside training."""
    last_round: int
    """The number of rounds of the run, for methods with stages."""

    def trained_by(self, **changes: Any) -> Client[P]:
        """The same client under other training settings, such as a method's own optimiser.

        Args:
            **changes: Fields of ``Training`` by name.

        Returns:
            A changed copy.
        """
        return replace(self, training=replace(self.training, **changes))

    def dropping(self, share: float) -> Client[P]:
        """The same client with another dropout, such as that of a method's authors.

        Args:
            share: The share of hidden units that a training step drops.

        Returns:
            A changed copy.
        """
        return replace(self, model=replace(self.model, dropout=share))

    def draws(self, purpose: str) -> np.random.Generator:
        """Random numbers that depend on seed, purpose, round and client, and on nothing else.

        Args:
            purpose: What they are for. Two uses in one round need two names.

        Returns:
            A new generator of numpy.
        """
        return fast_numpy(self.seed, purpose, self.round, self.data.client_id)

    def torch_draws(self, purpose: str) -> torch.Generator:
        """The same for torch.

        Args:
            purpose: What they are for.

        Returns:
            A new generator of torch.
        """
        return seeded(self.seed, purpose, self.round, self.data.client_id)


@dataclass(frozen=True)
class Server:
    """All that a step at the server may read besides tensors and replies.

    Examples:
        >>> from fedepd.methods.base import Server
        >>> from fedepd.network.backbones import Backbone
        >>> from fedepd.network.training import Training
        >>> from fedepd.types import TaskInfo
        >>> server = Server(TaskInfo(3, 2, 1), Backbone(), Training(), seed=0, round=1, last_round=10)
        >>> server.torch_draws("noise").initial_seed() == server.torch_draws("noise").initial_seed()
        True
    """

    info: TaskInfo
    """The numbers of features, classes and clients."""
    model: Backbone
    """The network."""
    training: Training
    """Optimiser, epochs and the rest of a local training."""
    seed: int
    """The run's seed. Draw through ``torch_draws``, never from it."""
    round: int
    """1, 2, ...; 0 outside training."""
    last_round: int
    """The number of rounds of the run, for methods with stages."""

    def torch_draws(self, purpose: str) -> torch.Generator:
        """Random numbers that depend on seed, purpose and round, and on nothing else.

        Args:
            purpose: What they are for. Two uses in one round need two names.

        Returns:
            A new generator of torch.
        """
        return seeded(self.seed, purpose, self.round, "server")


@dataclass(frozen=True)
class Method(ABC, Generic[P]):
    """What every method is. A method derives from it, and nothing derives from a method.

    To reuse a step of another method, call the functions of ``fedepd.methods.steps``.

    Examples:
        >>> from dataclasses import fields
        >>> from fedepd import METHODS
        >>> from fedepd.methods.base import Method
        >>> all(issubclass(method, Method) for method in METHODS.values())
        True
        >>> [field.name for field in fields(METHODS["fedlc"])]  # its settings
        ['tau', 'form', 'absent']
    """

    label: ClassVar[str]
    """How the method is called in tables."""
    has_global: ClassVar[bool] = True
    """False where no model is common to all clients. Personal models are then the headline."""
    merges_clients: ClassVar[bool] = False
    """True where one client holds the whole graph. Such a method is the ceiling of every table."""
    trains_alone: ClassVar[bool] = False
    """True where every client trains by itself and sends nothing."""
    last_layer: ClassVar[str] = "classifier"
    """The tensors that ``predict`` tells classes apart by: this name with ``.weight`` and ``.bias``."""
    weighs_edges: ClassVar[bool] = False
    """Whether every step that reads edges uses their weights, too, where a graph has any.

    A method that reads edges through ``model.inputs`` alone may say so. Others are refused such a graph.
    """
    reads_float16: ClassVar[bool] = False
    """Whether every step reads features through ``model.inputs`` alone, which knows those in float16, too.

    Clients of other methods get a copy in float32.
    """
    works_without_rows: ClassVar[bool] = False
    """True where the server's step can do with class rows, counts and votes that are all zero.

    Under noise (docs/privacy.md) no client sends any. Methods whose replies are parameters only need not say
    so.
    """
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"default": {}}
    """Named settings of the fields."""
    revision: ClassVar[int] = 1
    """Raised where the same settings give other results than before.

    Above 1 it is part of a run's identity, so that old and new runs are told apart.
    """
    added: ClassVar[frozenset[str]] = frozenset()
    """Settings that came later. At their defaults they are left out of a run's identity."""
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
        """The settings that change nothing, whatever their value.

        Returns:
            By the setting's name, the name of the setting that is the reason.
        """
        return {}

    @property
    def needs_single_replies(self) -> str:
        """Why sums over all replies are not enough for the server's step; empty where they are."""
        return ""

    def network_of(self, model: Backbone, client_id: int, tensors: Tensors) -> Backbone:
        """The network that a client trains. Here: the run's.

        Args:
            model: The run's network.
            client_id: The client.
            tensors: The client's own model; empty before its first round.

        Returns:
            The network that the tensors belong to.
        """
        return model

    def weights(self, info: TaskInfo, fields: Fields, reply: Reply) -> Tensors:
        """How much a reply counts in the mean of each averaged field.

        By default that is the client's size, and for class rows the nodes behind them. ``server_step`` must
        weigh in the same way.

        Args:
            info: What is known beforehand.
            fields: What the reply carries, from ``reply_fields``.
            reply: A client's reply.

        Returns:
            By field one number [1], or one per class [C].
        """
        size = torch.tensor([weight_of(info, reply)])
        averaged = {name: field for name, field in fields.items() if field.kind in AVERAGED}
        return {name: reply.tensors[f.of] if f.of else size for name, f in averaged.items()}

    def classifier_reads(
        self, client: Client[P], tensors: Tensors
    ) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """What the last layer reads of the client's training nodes.

        Under the guard a client fits its own columns of closed classes to it.

        Args:
            client: What the step may read.
            tensors: As for ``predict``.

        Returns:
            Rows [t, w], their classes [t], and what the method adds to the logits in its loss, [C] or None.
            None where the method has no such layer.
        """
        inputs = (
            client.prepared
            if isinstance(client.prepared, Inputs)
            else getattr(client.prepared, "inputs", None)
        )
        if not isinstance(inputs, Inputs):
            return None
        return *client.model.training_rows(tensors, inputs), None

    def adaptation(self, client: Client[P], tensors: Tensors) -> tuple[Tensors, Objective] | None:
        """What a client trains after the last round, to adapt the selected model to its own nodes.

        Args:
            client: What the step may read.
            tensors: As for ``predict``.

        Returns:
            The parameters, by their names in ``tensors``, and the method's own loss of them. None: the
            encoder and the last layer, by plain cross-entropy of the logits.
        """
        return None

    @abstractmethod
    def prepare(self, data: ClientData, model: Backbone) -> P:
        """What a client computes once per run. It is never sent and never saved.

        Args:
            data: The client's data; labels outside the training mask are hidden.
            model: The network.

        Returns:
            Anything: ``client.prepared`` of all later steps.
        """

    @abstractmethod
    def client_step(self, client: Client[P], message: Tensors, state: Tensors) -> tuple[Reply, Tensors]:
        """One round at a client.

        Args:
            client: What the step may read.
            message: What the server sent.
            state: What this function returned in the client's last round; empty in its first.

        Returns:
            The reply, and the state for the next round. Entries of the state that are named like entries of
            the message are the client's personal version of them.
        """

    @abstractmethod
    def server_step(self, server: Server, tensors: Tensors, replies: Mapping[int, Reply]) -> Tensors:
        """One round at the server.

        Args:
            server: What the step may read.
            tensors: The server's tensors before the round.
            replies: By client, in ascending order.

        Returns:
            The server's tensors after the round.
        """

    @abstractmethod
    def reply_fields(self, server: Server, tensors: Tensors) -> Fields:
        """What every reply of this round must carry. Other replies are refused.

        Args:
            server: What the step may read.
            tensors: The server's tensors before the round.

        Returns:
            Shape and meaning of each tensor of a reply, by name.
        """

    @abstractmethod
    def predict(self, client: Client[P], tensors: Tensors) -> Tensor:
        """Classify a client's nodes.

        Args:
            client: What the step may read.
            tensors: The server's message (the global model), or the message overlaid with the client's state.

        Returns:
            Logits [n, C].
        """

    def without_labels(self, tensors: Tensors, counts: Tensor) -> Tensors:
        """A client's own model that predicts the same where the client's labels are not known.

        It is exported, and then meets graphs without labels.

        Args:
            tensors: The message overlaid with the client's state.
            counts: The client's training nodes of each class, int64 [C].

        Returns:
            The tensors for ``predict``. A method that predicts from the labels puts what it needs of them
            here. By default nothing is needed.
        """
        return tensors

    def server_init(self, server: Server, params: Tensors) -> Tensors:
        """The server's tensors before round 1.

        Args:
            server: What the step may read.
            params: Freshly initialised parameters of the network.

        Returns:
            The parameters, and whatever else the server keeps.
        """
        return params

    def message(self, tensors: Tensors, client_id: int) -> Tensors:
        """What the server sends to a client.

        Args:
            tensors: The server's tensors.
            client_id: The client.

        Returns:
            Those that the client gets.
        """
        return tensors

    def complete_from(self, last_round: int) -> int:
        """The first round whose model is the method's own, for methods with stages.

        Earlier rounds are not selected.

        Args:
            last_round: The number of rounds of the run.

        Returns:
            A round's number.
        """
        return 1

    def training_edges(self, data: ClientData, prepared: P, tensors: Tensors) -> Tensor:
        """The edges that a client trains on, for the report.

        Args:
            data: The client's data.
            prepared: What ``prepare`` made of them.
            tensors: The server's tensors.

        Returns:
            int64 [2, e].
        """
        return data.graph.edge_index


def weight_of(info: TaskInfo, reply: Reply) -> float:
    """A client's weight in the average.

    Choice: a client without training nodes has none, because it returns what it was sent.
    """
    if reply.num_train == 0:
        return 0.0
    return float(reply.num_nodes if info.weighting == "nodes" else reply.num_train)
