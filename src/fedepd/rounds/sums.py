"""Replies as sums: what a server learns of a round when it may see no single reply.

A reply becomes one vector of whole numbers: what is averaged as weight times value beside the weights, what
is
added up as it is. Vectors are added. The sum becomes one reply that stands for all, which the method's own
``server_step`` takes like any other. Whole numbers add up to the same bits in any order and under any masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.errors import BadMessage
from fedepd.methods.base import AVERAGED, Method
from fedepd.rounds.guard import ROWS
from fedepd.types import Field, Fields, Reply, Sizes, TaskInfo, Tensors

Vector = NDArray[np.int64]
Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Names and shapes of the parts of a vector, in order."""

Bytes = dict[str, int]
"""Numbers of bytes by field."""

FRACTION_BITS = 24
"""A number v is summed as the whole number nearest to v * 2^24. The mean of many is then right to 2^-25."""
WEIGHT = "/weight"
"""Ends the name of the part that holds an averaged field's weights."""
MASKS = "masks"
"""What the keys and shares of a secure sum are called where bytes are counted."""
ABOUT = ("loss", "loss/weight", "num_nodes", "num_train", "clients")
"""What every vector holds besides the fields."""


class CannotSum(BadMessage):
    """A number that is too large to be summed, or none at all."""


def layout(method: Method[Any], info: TaskInfo, fields: Fields) -> Layout:
    """The parts of every client's vector."""
    empty = {name: torch.zeros([max(n, 0) for n in field.shape]) for name, field in fields.items()}
    weights, classes = method.weights(info, fields, Reply(empty, 0, 0)), info.num_classes
    parts: list[tuple[str, tuple[int, ...]]] = []
    rows: list[tuple[str, tuple[int, ...]]] = []
    for name in sorted(fields):
        field = fields[name]
        shape = (classes, *field.shape[1:]) if field.kind == "rows" else field.shape
        here = rows if field.kind in ROWS or field.factors else parts
        here.append((name, shape))
        if field.kind in AVERAGED:
            here.append((name + WEIGHT, tuple(weights[name].shape)))
    return (*parts, *((name, (1,)) for name in ABOUT), *rows)


def class_rows(parts: Layout) -> int:
    """How many numbers at the end of a vector belong to class rows.

    They are used only if no client dropped out. The rows of a class are those of three holders or more. If
    one drops out, the sum is over fewer, and the difference to the last round's sum would show its row. So it
    is with what is weighed by the nodes of each class.
    """
    last = [name for name, _ in parts].index(ABOUT[-1])
    return sum(prod(shape) for _, shape in parts[last + 1 :])


def vector_of(method: Method[Any], info: TaskInfo, fields: Fields, reply: Reply, clients: int) -> Vector:
    """A client's vector. ``clients``: how many are summed at most, so that no sum can overflow."""
    weights = method.weights(info, fields, reply)
    parts: dict[str, Tensor] = {}
    for name, field in fields.items():
        value = reply.tensors[name].to(torch.float64)
        if field.kind == "rows":
            value = spread(value, reply.tensors[str(field.of)], info.num_classes)
        if field.kind in AVERAGED:
            weight = weights[name].to(torch.float64)
            value = value * along(field, weight, value)
            parts[name + WEIGHT] = weight
        parts[name] = value
    counted = float(reply.num_train) if "loss" in reply.scalars else 0.0
    trained = reply.clients if reply.num_train > 0 else 0
    about = (
        reply.scalars.get("loss", 0.0) * counted,
        counted,
        reply.num_nodes,
        reply.num_train,
        trained,
    )
    parts |= {
        name: torch.tensor([value], dtype=torch.float64) for name, value in zip(ABOUT, about, strict=True)
    }
    order = [parts[name].reshape(-1) for name, _ in layout(method, info, fields)]
    return whole(torch.cat(order).numpy(), clients)


def along(field: Field, weight: Tensor, value: Tensor) -> Tensor:
    """The weights of a field's value, one or one per class, in a shape that multiplies it."""
    shape = [1] * value.ndim
    if shape:
        shape[field.classes if field.factors and field.classes is not None else 0] = -1
    return weight.reshape(shape)


SIZES = ("train", "val", "test", "holders", "num_nodes", "num_train", "clients")


def sizes_layout(classes: int) -> Layout:
    """The parts of a declaration's vector."""
    return tuple((name, (classes,) if name in SIZES[:4] else (1,)) for name in SIZES)


def sizes_vector(sizes: Sizes) -> Vector:
    """What a client declares, as whole numbers that can be summed."""
    parts = [sizes.train, sizes.val, sizes.test, sizes.holders]
    about = torch.tensor([sizes.num_nodes, sizes.num_train, sizes.clients])
    vector: Vector = torch.cat([*parts, about]).numpy()
    return vector


def sizes_of(total: Vector) -> Sizes:
    """What all clients declare together."""
    counts = torch.from_numpy(total[:-3].copy()).reshape(4, -1)
    nodes, train, clients = (int(each) for each in total[-3:])
    return Sizes(nodes, train, counts[0], counts[1], counts[2], counts[3], clients)


def matrices_layout(names: Sequence[str], classes: int) -> Layout:
    """The parts of an evaluation's vector."""
    return tuple((name, (classes, classes)) for name in sorted(names))


def matrices_vector(matrices: Mapping[str, Tensor]) -> Vector:
    """Confusion matrices, in the order of their names."""
    vector: Vector = torch.cat([matrices[name].reshape(-1) for name in sorted(matrices)]).numpy()
    return vector


def matrices_of(total: Vector, names: Sequence[str], classes: int) -> dict[str, Tensor]:
    parts = torch.from_numpy(total.copy()).reshape(len(names), classes, classes)
    return dict(zip(sorted(names), parts, strict=True))


def spread(rows: Tensor, present: Tensor, classes: int) -> Tensor:
    """Rows of the classes that are present, in order, as rows of all classes: [C, ...]."""
    return torch.zeros(classes, *rows.shape[1:], dtype=rows.dtype).index_copy(
        0, present.nonzero()[:, 0], rows
    )


def reply_of(fields: Fields, parts_of: Layout, total: Vector, round: int) -> Reply:
    """The reply that stands for all whose vectors were summed."""
    values, parts, start = torch.from_numpy(fractions(total)), dict[str, Tensor](), 0
    for name, shape in parts_of:
        parts[name] = values[start : start + prod(shape)].reshape(shape)
        start += prod(shape)
    tensors: Tensors = {}
    for name, field in fields.items():
        value = parts[name]
        if field.kind in AVERAGED:
            weight = along(field, parts[name + WEIGHT], value)
            value = torch.where(weight > 0, value / weight.clamp(min=2.0**-FRACTION_BITS), 0.0)
        if field.kind == "presence":
            value = value.clamp(max=1)
        if field.kind == "rows":
            value = value[parts[str(field.of)] > 0]
        tensors[name] = value.to(torch.float32)
    loss, counted, nodes, train, clients = (float(parts[name]) for name in ABOUT)
    scalars = {"loss": loss / counted} if counted > 0 else {}
    return Reply(tensors, round_to(nodes), round_to(train), scalars, round, round_to(clients))


SIGNATURE_BYTES = 512
ADVERT_BYTES, SEALED_BYTES, OPENED_BYTES = 64 + SIGNATURE_BYTES, 226, 132
"""What a client sends beside its vector, so that the sum can be masked.

These are its two keys with their signature, and for every client of the sum the secrets that it seals and the
shares that it opens. If a client was lost, each other one signs who is in the sum.
"""


def traffic(parts: Layout, message: Tensors, invited: int, members: int) -> tuple[Bytes, Bytes]:
    """Bytes by field that the clients of one sum send and receive."""
    up: Bytes = {}
    for name, shape in parts:
        field = name.removesuffix(WEIGHT)
        up[field] = up.get(field, 0) + 8 * prod(shape) * members
    up[MASKS] = members * (ADVERT_BYTES + (members - 1) * SEALED_BYTES + members * OPENED_BYTES)
    down = {name: value.numel() * value.element_size() * invited for name, value in message.items()}
    down[MASKS] = members * (members * ADVERT_BYTES + (members - 1) * SEALED_BYTES + 8 * members)
    if members < invited:
        up[MASKS] += members * SIGNATURE_BYTES
        down[MASKS] += members * members * (SIGNATURE_BYTES + 16)
    return up, down


def round_to(count: float) -> int:
    return int(np.rint(count))


def summed(vectors: Sequence[Vector]) -> Vector:
    """No overflow: each is within a share of what an int64 holds."""
    total: Vector = np.sum(np.stack(vectors), axis=0, dtype=np.int64)
    return total


def largest(clients: int) -> int:
    """The largest whole number that a client may add, so that the sum over all clients does not overflow."""
    return int((2**63 - 1) // clients)


def whole(values: NDArray[np.float64], clients: int) -> Vector:
    """Numbers as the whole numbers that are summed.

    What is too large, or no number, is refused and never cut.
    """
    scaled = np.rint(values * 2.0**FRACTION_BITS)
    # 1024: the step between float64 numbers just below 2^63.
    if not bool((np.abs(scaled) <= float(largest(clients)) - 1024).all()):
        raise CannotSum(
            "holds a number that is infinite, or too large to be summed; scale the features, or lower lr"
        )
    return scaled.astype(np.int64)


def fractions(vector: Vector) -> NDArray[np.float64]:
    """The numbers behind a sum of whole ones."""
    return vector.astype(np.float64) * 2.0**-FRACTION_BITS
