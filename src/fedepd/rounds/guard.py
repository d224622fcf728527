"""The guard: what tells of few nodes stays where they are.

A class is open if enough training nodes belong to it, at enough clients. Nothing is sent about any other
class: no prototype, no count, no gradient, and no column of the classifier. Every client that holds a closed
class trains a column of its own and uses it for its own predictions. A client without the class has none.

Choice: a column is not averaged over the holders of a closed class. Nearly all closed classes have one or two
holders, and the mean of one or two columns shows them.

Choice: where the server sees single replies, a client also sends an open class's column as it came if it has
no training node of the class, not only if it has few. Otherwise an untouched column would say that there are
few. On email, cora and corafull_proxy this costs at most 0.3 points of balanced accuracy, which is within the
noise of a seed (validation nodes of all classes, 2 to 6 seeds).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Method
from fedepd.options import option
from fedepd.rounds.budget import Budget
from fedepd.rounds.defence import Defence
from fedepd.types import CLASSIFIER, Fields, Reply, Sizes, Tensors

OPEN = "guard.open"
"""The entry of a message that says which classes are open: 1 or 0 each, [C]."""
HOME = "guard.home."
"""Begins the names of the columns of closed classes that a client keeps from one round to the next."""
CLOSED_BIAS = -30.0
"""The bias of a closed class at a client without it. It takes e^-30 of the softmax, which is nothing."""
NEVER = -1e4
"""The bias of a class that an exported model never predicts, also after a division by any temperature."""
FEWEST = 3
"""Clients of a secure sum. Of two, each learns the other's numbers by subtraction."""
ROWS = ("count", "presence", "sum", "mean", "rows")
"""The kinds of fields whose first axis is the classes."""


@dataclass(frozen=True)
class Privacy:
    """What a server may learn about one client."""

    guard: bool = option(False, "send nothing about a class with few training nodes or few holders")
    min_count: int = option(5, "with guard, a class is open with this many training nodes over all clients")
    min_holders: int = option(3, "with guard, a class is open with this many clients that train on it")
    secure: bool = option(
        False, "the server sees sums over all clients only; in a federation these are masked"
    )
    dp_epsilon: float | None = option(
        None, "an experiment: the sums carry noise, so that no client can be recognised beyond this epsilon"
    )
    dp_delta: float = option(1e-5, "with dp_epsilon, the chance that its promise fails")
    dp_clip: float = option(0.3, "with dp_epsilon, a longer update of a client is shortened to this norm")
    # Choice: 0.3. Balanced accuracy on validation nodes of the built-in graph, epsilon 8, seeds 0 and 1, with
    # clip 0.03, 0.1, 0.3, 1, 3: 10 clients and 200 rounds 27.0, 24.3, 23.8, 19.5, 17.4; 50 clients and 40
    # rounds 16.3, 23.9, 33.0, 32.9, 23.5. The many clients decide, for them noise is meant.

    def __post_init__(self) -> None:
        self._check_noise()
        for name, value in (("min_count", self.min_count), ("min_holders", self.min_holders)):
            if value < 1:
                raise BadConfig(f"{name} is {value}; give at least 1")

    def idle(self) -> Mapping[str, str]:
        """The settings that change nothing, each with the setting that is why."""
        idle = {} if self.guard else {"min_count": "guard", "min_holders": "guard"}
        return idle if self.noisy else {**idle, "dp_delta": "dp_epsilon", "dp_clip": "dp_epsilon"}

    @property
    def noisy(self) -> bool:
        """Whether sums carry noise (``rounds.noise``)."""
        return self.dp_epsilon is not None

    def budget(self, rounds: int) -> Budget | None:
        """What a run of so many rounds may spend; None without noise."""
        if self.dp_epsilon is None:
            return None
        return Budget(self.dp_epsilon, self.dp_delta, self.dp_clip, rounds)

    def _check_noise(self) -> None:
        bounds = {"dp_epsilon": (0.01, 1000), "dp_delta": (1e-15, 0.1), "dp_clip": (1e-3, 100)}
        for name, (least, most) in bounds.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise BadConfig(f"{name} is {value:g}; give a number from {least:g} to {most:g}")
        if self.noisy and not self.secure:
            raise BadConfig(
                "dp_epsilon is given without secure, but noise is shared among the clients of a sum, and the "
                "share of one would not hide its update; give secure = true"
            )
        if self.noisy and self.guard:
            raise BadConfig(
                "dp_epsilon is given with guard, but the guard counts nodes and holders without noise, and "
                "under noise nothing is sent by class anyway; give guard = false"
            )

    def check(self, method: Method[Any], defence: Defence, clients: int, attacked: bool = False) -> None:
        """Refuse secure sums where they are not possible, or would not hide anything."""
        if not self.secure:
            return
        if attacked:
            raise BadConfig(
                "secure is on, but attacks change single replies, which secure sums hide; give secure = false"
            )
        if reason := method.needs_single_replies:
            raise BadConfig(f"secure is on, but {reason}; choose another method, or give secure = false")
        if defence.robust != "off" or defence.cap_weights:
            raise BadConfig(
                "secure is on, but robust rules and capped weights look at single replies, which secure sums "
                "hide; give robust = off and cap_weights = false, or secure = false"
            )
        if clients < FEWEST and not method.merges_clients:
            raise BadConfig(
                f"secure is on with {clients} clients in a round; it needs {FEWEST}, because of two each "
                "learns the other's numbers by subtraction; give secure = false among clients that trust "
                "each other"
            )

    def open_classes(self, declared: Iterable[Sizes]) -> Tensor:
        """Which classes are open, bool [C], from what the clients declared.

        A single one is closed too, because there would be no other to tell it from.
        """
        known = list(declared)
        count = torch.stack([sizes.train for sizes in known]).sum(0)
        holders = torch.stack([sizes.holders for sizes in known]).sum(0)
        opened = (count >= self.min_count) & (holders >= self.min_holders)
        return opened & (opened.sum() > 1)


NO_PRIVACY = Privacy()


def with_own_columns(
    message: Tensors, fields: Fields, home: Tensors, opened: Tensor, held: Tensor
) -> Tensors:
    """The message as the client's method sees it.

    A closed class that the client holds has the client's own column. Any other closed class has none.
    """
    out = dict(message)
    for name, axis in class_axes(fields, message).items():
        value = put(message[name], home.get(HOME + name, message[name]), axis, ~opened & held)
        out[name] = put(value, _nothing(name, value), axis, ~opened & ~held)
    return out


def _nothing(name: str, value: Tensor) -> Tensor:
    """What stands for a class of which a client knows nothing."""
    if name.endswith(".bias"):
        return torch.full_like(value, CLOSED_BIAS)
    return torch.zeros_like(value) if value.ndim > 1 else value


def own_columns(tensors: Tensors, message: Tensors, fields: Fields) -> Tensors:
    """What a client keeps of its own parameters for closed classes: its version of what it received."""
    return {HOME + n: tensors[n] for n in class_axes(fields, message) if n in tensors}


def guarded(reply: Reply, message: Tensors, fields: Fields, shown: Tensor) -> Reply:
    """The reply without the classes outside ``shown`` [C]: their columns as received, their rows empty."""
    out = dict(reply.tensors)
    for name, axis in class_axes(fields, reply.tensors).items():
        value = reply.tensors[name]
        out[name] = put(value, message.get(name, torch.zeros_like(value)), axis, ~shown)
    for name, field in fields.items():
        value = reply.tensors[name]
        if field.kind == "rows":
            out[name] = value[shown[reply.tensors[str(field.of)] > 0]]
        elif field.kind in ROWS:
            out[name] = put(value, torch.zeros_like(value), 0, ~shown)
    return replace(reply, tensors=out)


def guarded_sizes(sizes: Sizes, few: int) -> Sizes:
    """The declaration without classes of fewer than ``few`` training nodes, and without smaller numbers."""
    enough = sizes.train >= few
    train, val, test = (
        torch.where(enough & (counts >= few), counts, 0) for counts in (sizes.train, sizes.val, sizes.test)
    )
    return replace(sizes, train=train, val=val, test=test, own_holders=torch.where(enough, sizes.holders, 0))


def guarded_matrix(matrix: Tensor, opened: Tensor, shown: Tensor) -> Tensor:
    """A confusion matrix [C, C] with the rows of the classes of ``shown`` alone, and no closed column.

    Only holders of a closed class predict it, so its column would name them. Choice: a node that was taken
    for a closed class counts as taken for the open class after its own. So every row still has all its nodes,
    and accuracy and recall stay as they are.
    """
    rows = torch.where(shown[:, None], matrix, 0)
    out = torch.where(opened, rows, 0)
    order = opened.nonzero().reshape(-1)
    out[order, order.roll(-1)] += rows[order][:, ~opened].sum(1)
    return out


def guarded_predictions(predicted: Tensor, y: Tensor, opened: Tensor) -> Tensor:
    """Predictions [v] about nodes of open classes ``y`` [v], as ``guarded_matrix`` counts them: no closed
    class, but the open one after the node's own."""
    order = opened.nonzero().reshape(-1)
    after = torch.arange(opened.shape[0]).index_copy(0, order, order.roll(-1))
    return torch.where(opened[predicted], predicted, after[y])


def class_axes(fields: Fields, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """The tensors that hold numbers of each class, with the axis that is the classes'.

    The classifier is among them also in a round whose replies do not carry it.
    """
    axes = {name: tensors[name].ndim - 1 for name in CLASSIFIER if name in tensors}
    return axes | {n: f.classes for n, f in fields.items() if f.classes is not None and n in tensors}


def put(old: Tensor, new: Tensor, axis: int, where: Tensor) -> Tensor:
    """``new`` in the classes of ``where``, ``old`` in all others."""
    shape = [1] * old.ndim
    shape[axis] = -1
    return torch.where(where.reshape(shape), new, old)
