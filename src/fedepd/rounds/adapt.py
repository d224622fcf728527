"""Adaptation: after the last round a client trains the selected model on, on its own training nodes.

The client trains once and looks at the model after each of ``STEPS``. Its predictions can be those of such a
model, or lie halfway between that model and the selected one. Which of these candidates is used, all clients
decide together (``rounds.gains``). A client with many validation nodes may decide otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from fedepd.methods.base import Client, Method
from fedepd.methods.steps import class_counts, cross_entropy, renamed, with_prefix
from fedepd.network.contract import Inputs
from fedepd.network.training import Gradient, Objective, descend
from fedepd.rounds.gains import best
from fedepd.types import Tensors

STEPS = (20, 40, 80, 160, 320)
WEIGHTS = (0.5, 1.0)


@dataclass(frozen=True)
class Candidate:
    """How a client could predict."""

    steps: int
    """Training steps after the last round."""
    weight: float
    """The adapted model's weight in the mean of log-probabilities; the selected model has the rest."""


CANDIDATES = (Candidate(0, 0.0), *(Candidate(steps, weight) for steps in STEPS for weight in WEIGHTS))
"""The selected model as it is, then all others."""
WEIGHT, SEEN, BEFORE = "adapt.weight", "adapt.seen", "adapt.before."
"""What is kept beside an adapted model: its weight [1], the classes it has seen [C], and what the selected
model had in place of the server's tensors, which is so under the guard."""
ENOUGH = 100
"""Validation nodes with which a client may leave the common choice.

Choice: its gain over the common choice must also be beyond its interval. On amazon_computers and
corafull_proxy (275 and 395 validation nodes per client, seed 100) no client then leaves it. If each client
took its own best, macro-F1 on test nodes would be 0.9 and 0.6 points lower.
"""


@dataclass(frozen=True, eq=False)
class Adapter:
    """One client's candidates."""

    method: Method[Any]
    client: Client[Any]
    message: Tensors
    """What the server sent."""
    tensors: Tensors
    """The selected model as the client has it. Without the guard it is the message."""
    asked: Client[Any]
    """The client with the graph that it predicts on."""

    @cached_property
    def models(self) -> dict[int, Tensors]:
        """The tensors that ``predict`` takes, after each number of steps."""
        return trained_on(self.method, self.client, self.tensors)

    def train(self) -> None:
        """Train now, not at the first look at a candidate."""
        self.predicted  # noqa: B018

    @cached_property
    def seen(self) -> Tensor:
        """The classes of which the client has training nodes, bool [C]."""
        return class_counts(self.client.data) > 0

    @cached_property
    def predicted(self) -> list[Tensor]:
        """The classes of all nodes by each candidate, [n] each."""
        logits = {steps: self.method.predict(self.asked, model) for steps, model in self.models.items()}
        return [
            blended(logits[0], logits[each.steps], self.seen, each.weight).argmax(1) for each in CANDIDATES
        ]

    def kept(self, choice: int) -> Tensors:
        """What a client needs to predict as the candidate does, beside the server's tensors."""
        chosen = CANDIDATES[choice]
        model = self.models[chosen.steps]
        trained = {name: value for name, value in model.items() if value is not self.tensors[name]}
        own = {
            BEFORE + name: value
            for name, value in self.tensors.items()
            if value is not self.message.get(name)
        }
        about = {WEIGHT: torch.tensor([chosen.weight]), SEEN: self.seen.to(torch.float32)}
        return {**trained, **own, **about}


def adapted_logits(method: Method[Any], client: Client[Any], message: Tensors, kept: Tensors) -> Tensor:
    """Log-probabilities [n, C] of a client's adapted model.

    Args:
        method: The method.
        client: The client, with any graph.
        message: The selected model, as the server sent it.
        kept: What ``Adapter.kept`` returned at this client.
    """
    own = renamed(kept, BEFORE, "")
    before = {**message, **own}
    after = {**before, **{name: value for name, value in kept.items() if name in before}}
    logits = [method.predict(client, each) for each in (before, after)]
    return blended(logits[0], logits[1], kept[SEEN] > 0, float(kept[WEIGHT]))


def trained_on(
    method: Method[Any], client: Client[Any], tensors: Tensors, numbers: Sequence[int] = STEPS
) -> dict[int, Tensors]:
    """The model after each number of steps, 0 among them. One training passes through all of them.

    Choice: the run's optimiser with its rate, and new moments. Those of the last round belong to a model that
    is averaged after a few steps.
    """
    models = {0: tensors}
    found = method.adaptation(client, tensors) or by_cross_entropy(method, client, tensors)
    if found is None or not bool(client.data.train_mask.any()):
        return dict.fromkeys((0, *numbers), tensors)
    params, objective = found
    training, moments, done = client.trained_by(keep_moments=True).training, Tensors(), 0
    for steps in numbers:
        params, moments, _ = descend(params, sorted(params), objective, steps - done, training, moments)
        finite = all(bool(value.isfinite().all()) for value in params.values())
        models[steps] = {**tensors, **params} if finite else models[done]
        done = steps
    return models


def by_cross_entropy(
    method: Method[Any], client: Client[Any], tensors: Tensors
) -> tuple[Tensors, Objective] | None:
    """Encoder and last layer, by plain cross-entropy. None where the method has no such network."""
    inputs = (
        client.prepared if isinstance(client.prepared, Inputs) else getattr(client.prepared, "inputs", None)
    )
    last = f"{method.last_layer}."
    params = with_prefix(tensors, "encoder.", last)
    if not isinstance(inputs, Inputs) or f"{last}weight" not in params:
        return None
    loss = cross_entropy(client, inputs)

    def of(params: Tensors) -> tuple[float, Tensors]:
        value, grads = loss.of({**params, **renamed(params, last, "classifier.")})
        return value, {**with_prefix(grads, "encoder."), **renamed(grads, "classifier.", last)}

    return params, Gradient(of)


def blended(before: Tensor, after: Tensor, seen: Tensor, weight: float) -> Tensor:
    """The mean of two models' log-probabilities, from their logits [n, C].

    Choice: a class without training nodes at the client (not ``seen``, [C]) keeps the selected model's
    probability. The adapted model only divides what is left among the classes that it has seen. Training
    pushes the other classes down without end, and no mixture brings them back. On amazon_computers (100
    rounds, seed 100) the selected model is right about 4 of the 12 test nodes of such classes, the plain mean
    about none after 20 steps, and this one about 4. It costs at most 0.3 points of macro-F1 on
    corafull_proxy, and on email it gains as much.
    """
    first, out = before.log_softmax(1), before.log_softmax(1)
    if bool(seen.any()):
        left = first[:, seen].logsumexp(1, keepdim=True)
        out[:, seen] = after[:, seen].log_softmax(1) + left
    return torch.lerp(first, out, weight)


def own_choice(common: int, compared: Sequence[Tensor], metric: str) -> int:
    """The candidate that a client uses: the common choice, unless another is surely better here.

    Args:
        common: The common choice.
        compared: As ``evaluate.compared`` counts it, with the common choice as the first model and all
            candidates as the others.
        metric: The score that decides.
    """
    first, *others = (counts.numpy() for counts in compared)
    if first.sum() < ENOUGH:
        return common
    number, gain = best(first, others, metric)
    return number if gain.sure else common
