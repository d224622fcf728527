"""The guard: what tells of few nodes stays where they are.

A class is open when enough training nodes over all clients, at enough clients, belong to it. Of any other class no
row is sent: no prototype, no count, no gradient. Its column of the classifier stays at home, too. Every holder
trains a column of its own and uses it for its own predictions, and a client without the class has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.options import option
from fedepd.types import Field, Fields, Reply, Sizes, Tensors

OPEN = "guard.open"
"""The entry of a message that says which classes are open: 1 or 0 each, [C]."""
HOME = "guard.home."
"""Begins the names of what a client keeps of closed classes from one round to the next."""
CLOSED_BIAS = -30.0
"""The bias of a class that a client does not have: e^-30 of a softmax is nothing."""
ROWS = ("count", "presence", "sum", "mean", "rows")
"""The kinds of fields that hold something of each class in their first axis."""


@dataclass(frozen=True)
class Guard:
    """What may leave a client of a rare class."""

    guard: bool = option(False, "send nothing of a class that has few training nodes or few holders")
    min_count: int = option(5, "with guard: a class needs this many training nodes over all clients")
    min_holders: int = option(3, "with guard: a class needs this many clients with training nodes of it")

    def __post_init__(self) -> None:
        if self.min_count < 1 or self.min_holders < 1:
            raise BadConfig(
                f"min_count is {self.min_count} and min_holders {self.min_holders}; give at least 1 each"
            )

    def open_classes(self, count: Tensor, holders: Tensor) -> Tensor:
        """bool [C], from the training nodes and the holders of each class."""
        return (count >= self.min_count) & (holders >= self.min_holders)


def totals(declared: Iterable[Sizes]) -> tuple[Tensor, Tensor]:
    """Training nodes and holders of each class, int64 [C] each."""
    train = torch.stack([sizes.train for sizes in declared])
    return train.sum(0), (train > 0).sum(0)


def received(message: Tensors, fields: Fields, home: Tensors, opened: Tensor, held: Tensor) -> Tensors:
    """The message as the client's method sees it: own columns of closed classes that it holds, none of the others."""
    out = dict(message)
    for name, axis in class_axes(fields, message).items():
        own = home.get(HOME + name, message[name])
        value = put(message[name], own, axis, ~opened & held)
        absent = torch.full_like(value, CLOSED_BIAS if value.ndim == 1 else 0.0)
        out[name] = put(value, absent, axis, ~opened & ~held)
    return out


def kept(reply: Reply, fields: Fields) -> Tensors:
    """What a client keeps of its reply for closed classes."""
    return {HOME + name: reply.tensors[name] for name in class_axes(fields, reply.tensors)}


def guarded(reply: Reply, message: Tensors, fields: Fields, opened: Tensor) -> Tensors:
    """The reply's tensors without anything of closed classes: their columns as received, their rows empty."""
    out = dict(reply.tensors)
    for name, axis in class_axes(fields, reply.tensors).items():
        out[name] = put(reply.tensors[name], message[name], axis, ~opened)
    for name, field in fields.items():
        if field.kind == "rows":
            present = reply.tensors[str(field.of)] > 0
            out[name] = reply.tensors[name][opened[present]]
        elif field.kind in ROWS:
            value = reply.tensors[name]
            out[name] = put(value, torch.zeros_like(value), 0, ~opened)
    return out


def class_axes(fields: Fields, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Of the averaged parameters that hold something of each class, which axis is the classes'."""
    return {name: f.classes for name, f in fields.items() if f.classes is not None and name in tensors}


def put(old: Tensor, new: Tensor, axis: int, where: Tensor) -> Tensor:
    """``new`` in the classes of ``where``, ``old`` in all others."""
    shape = [1] * old.ndim
    shape[axis] = -1
    return torch.where(where.reshape(shape), new, old)
