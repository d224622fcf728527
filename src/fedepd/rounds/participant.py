"""A running client: its data, what the method prepared from them, and its state between rounds.

A simulation holds all participants in one process. A deployment has one at each site. Both run this code.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from fedepd.clients.scaling import scaled_by, with_features
from fedepd.errors import BadMessage, ClientFailed, FedEPDError
from fedepd.methods.base import Client, Method, Server
from fedepd.methods.contract import check_weights, readable
from fedepd.methods.steps import model_part, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.adapt import Adapter, adapted_logits
from fedepd.rounds.admission import reply_fault
from fedepd.rounds.evaluate import client_facts, compared, confusions, counted, held_out, sizes
from fedepd.rounds.guard import (
    HOME,
    NEVER,
    NO_PRIVACY,
    OPEN,
    Privacy,
    guarded,
    guarded_matrix,
    guarded_predictions,
    guarded_sizes,
    own_columns,
    with_own_columns,
)
from fedepd.rounds.home import refitted
from fedepd.rounds.loop import cohort_size
from fedepd.rounds.noise import noisy_sizes, noisy_vector
from fedepd.rounds.statistics import (
    SCALING,
    of_method,
    own_counts,
    own_sums,
    scaling_fault,
    statistics_vector,
)
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
        features: str = "raw",
        counted: Sequence[int] = (),
        trained: ClientData | None = None,
        aim: str = "",
        label_names: tuple[str, ...] = (),
    ) -> None:
        """``features``: what becomes of columns that are yet to be scaled once they are (``with_features``).

        ``counted``: the categories whose rows are counted before the first round. ``trained``: what the
        client trains on, where that is not ``data``, on which it is scored (``clients.corruption``).
        ``aim``: what a common operating point shall reach, with the classes' names as in ``label_names``.
        """
        self.aim, self.label_names = aim, label_names
        check_weights(method, data.graph)
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
        self._scored: Tensors = {}
        self.adapted: Tensors = {}
        """What the client keeps of its adapted model, once it has one."""
        self._adapter: Adapter | None = None
        self._features, self._counted = features, tuple(counted)
        self._scaling: Tensor | None = None
        self._true = data
        self._hidden = readable(method, trained or data).hidden()
        self._prepared: Any = None
        self._asked_data = readable(method, data).hidden() if trained else None
        self._asked_prepared: Any = None

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

    @cached_property
    def statistics_vector(self) -> Vector:
        """What the client adds to the sum of all statistics."""
        columns = own_sums(self._true, self.privacy)
        return statistics_vector(columns, own_counts(self._true, self._counted, self.privacy))

    def scale(self, scaling: Tensor) -> None:
        """Complete the features by the means and deviations [2, s] of all clients.

        They are the same in all messages of a run.
        """
        unscaled = self._true.unscaled
        if self._scaling is not None and not torch.equal(scaling, self._scaling):
            raise BadMessage("the server changed how columns are scaled during the run; start a new run")
        if unscaled is None:
            return
        if fault := scaling_fault(scaling, len(unscaled.columns)):
            raise BadMessage(f"'{SCALING}' in the server's message {fault}")
        _ = self.statistics_vector  # it is computed from the columns as they were
        data = scaled_by(self._true, scaling.numpy())
        self._true = replace(data, graph=with_features(data.graph, self._features))
        self._hidden, self._scaling = self._true.hidden(), scaling.clone()

    def _received(self, message: Tensors) -> Tensors:
        """Make ready for a message. Returns it without the scaling."""
        if SCALING in message:
            self.scale(message[SCALING])
        elif self._true.unscaled is not None:
            raise BadMessage("the server's message does not say how columns are scaled; start a new run")
        self.prepare()
        return {name: value for name, value in message.items() if name != SCALING}

    def prepare(self) -> None:
        """Compute once what the method needs from the local data, as soon as all features are known."""
        if self._prepared is None and self._true.unscaled is None:
            try:
                self._prepared = self.method.prepare(self._hidden, self.model)
                if self._asked_data is not None:
                    self._asked_prepared = self.method.prepare(self._asked_data, self.model)
            except Exception as cause:
                raise self._failure(0, "prepare", cause) from cause

    def step(self, round: int, message: Tensors) -> Reply:
        """A round of the method. Under the guard the reply says nothing about closed classes."""
        message = self._received(message)
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
        predicted = self.predictions(round, message)
        matrices = {id(logits): confusions(logits, self._true) for logits in predicted.values()}
        out = {
            f"{kind}_{split}": matrix
            for kind, logits in predicted.items()
            for split, matrix in matrices[id(logits)].items()
        }
        if OPEN not in message:
            return out
        opened, _ = split_message(message)
        return {name: self._told(name, matrix, opened) for name, matrix in out.items()}

    def predictions(self, round: int, message: Tensors) -> dict[str, Tensor]:
        """Logits [n, C] of the client's nodes: "personal" and, if the method has such a model, "global".

        A client that has not trained yet has no model of its own. Both are then one and the same tensor.
        """
        tensors = self.models(round, message)
        try:
            if not self.state:
                return dict.fromkeys(tensors, self.method.predict(self._asked(round), tensors["personal"]))
            return {kind: self.method.predict(self._asked(round), named) for kind, named in tensors.items()}
        except Exception as cause:
            raise self._failure(round, "evaluate", cause) from cause

    def models(self, round: int, message: Tensors) -> dict[str, Tensors]:
        """The tensors of the client's models. Under the guard, closed classes have the client's columns."""
        message = self._received(message)
        if OPEN in message:
            opened, message = split_message(message)
            home = with_prefix(self.state, HOME)
            message = with_own_columns(message, self._fields(round, message), home, opened, self._held)
            message = refitted(self.method, self._client(round), message, ~opened & self._held)
        if not self.method.has_global:
            self._scored = model_part(message)
        out = {"personal": {**message, **self.state}}
        return {**out, "global": message} if self.method.has_global else out

    @property
    def own(self) -> Tensors:
        """The client's state, with the network of its own model.

        Where the state has none, as with FedGTA's averages, it is that of the last message that was scored.
        """
        return {**self._scored, **self.state}

    def taken_home(self, message: Tensors) -> tuple[Tensor, Tensor]:
        """Logits [n, C] of the model that is exported for all, and the classes that it knows, bool [C].

        Under the guard it has no column of a closed class. A method without a model for all has the
        client's own one.
        """
        if not self.method.has_global:
            return self.predictions(self.last_round, message)["personal"], torch.ones(
                self.info.num_classes, dtype=torch.bool
            )
        message = self._received(message)
        opened, message = split_message({OPEN: torch.ones(self.info.num_classes), **message})
        try:
            logits = self.method.predict(self._asked(self.last_round), message)
        except Exception as cause:
            raise self._failure(self.last_round, "evaluate", cause) from cause
        return torch.where(opened, logits, NEVER), opened

    def validation(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Of all nodes' logits [n, C] those of the validation nodes, and their classes."""
        return held_out(logits, self._true)["val"]

    def tested(self, round: int, tensors: Tensors, split: str = "test") -> tuple[Tensor, Tensor, Tensor]:
        """What a model says of the test nodes: its confusion matrix, the nodes' logits and their classes.

        ``split``: "val" for the validation nodes instead.
        """
        tensors = self._received(tensors)
        try:
            logits = self.method.predict(self._asked(round), tensors)
        except KeyError:  # the model is not whole, and the caller knows why
            raise
        except Exception as cause:
            raise self._failure(round, "evaluate", cause) from cause
        return confusions(logits, self._true)[split], *held_out(logits, self._true)[split]

    def adapter(self, message: Tensors) -> Adapter:
        """What the client can make of a global model (``rounds.adapt``), kept for the next call."""
        if self._adapter is None or not same_tensors(self._adapter.message, message):
            tensors = self.models(self.last_round, message)["global"]
            try:
                after = self.last_round + 1
                adapter = Adapter(self.method, self._client(after), message, tensors, self._asked(after))
                adapter.train()
            except Exception as cause:
                raise self._failure(self.last_round, "adapt", cause) from cause
            self._adapter = adapter
        return self._adapter

    def adapt(self, message: Tensors, choice: int) -> None:
        """Keep what is needed of one candidate, and forget the others."""
        self.adapted, self._adapter = self.adapter(message).kept(choice), None

    def adapted_predictions(self, message: Tensors, kept: Tensors) -> Tensor:
        """Log-probabilities [n, C] of an adapted model, from what ``adapt`` has kept of it."""
        message = self._received(message)
        try:
            return adapted_logits(self.method, self._asked(self.last_round + 1), message, kept)
        except Exception as cause:
            raise self._failure(self.last_round, "evaluate", cause) from cause

    def compared(self, predicted: Sequence[Tensor], opened: Tensor | None = None) -> list[Tensor]:
        """How models differ from the first one on validation nodes (``evaluate.compared``).

        With ``opened`` [C], only what may be told under the guard.
        """
        if opened is None:
            return compared(predicted, self._true)
        shown = self.shown_classes(opened)
        return compared(predicted, self._true, shown, partial(guarded_predictions, opened=opened))

    def shown_classes(self, opened: Tensor) -> Tensor:
        """The classes whose validation nodes may be counted under the guard, bool [C]."""
        own = self.own_sizes
        return opened & self._enough(own.train) & self._enough(own.val)

    def counted(self, kind: str, predicted: Tensor, opened: Tensor | None = None) -> dict[str, Tensor]:
        """Confusion matrices of predicted classes [n]: "KIND_val" and "KIND_test"."""
        matrices = {f"{kind}_{split}": matrix for split, matrix in counted(predicted, self._true).items()}
        if opened is None:
            return matrices
        return {name: self._told(name, matrix, opened) for name, matrix in matrices.items()}

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
        fields = self._fields(round, of_method(message))
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
        tensors = {**tensors, **self.state}
        graph = replace(self._true.graph, edge_index=self._hidden.graph.edge_index)
        kept = self.method.training_edges(self._hidden, self._prepared, tensors)
        return client_facts(replace(self._true, graph=graph), kept)

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

    def _asked(self, round: int) -> Client[Any]:
        """The client with the graph that it predicts on. In training it may have a corrupted one."""
        if self._asked_data is None:
            return self._client(round)
        return replace(self._client(round), data=self._asked_data, prepared=self._asked_prepared)

    def _failure(self, round: int, stage: str, cause: Exception) -> FedEPDError:
        return cause if isinstance(cause, FedEPDError) else ClientFailed(self.client_id, round, stage, cause)


def split_message(message: Tensors) -> tuple[Tensor, Tensors]:
    """Which classes are open, bool [C], and the message of the method."""
    return message[OPEN] > 0, {name: value for name, value in message.items() if name != OPEN}


def same_tensors(some: Tensors, others: Tensors) -> bool:
    return some.keys() == others.keys() and all(torch.equal(v, others[name]) for name, v in some.items())
