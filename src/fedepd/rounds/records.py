"""Values as bytes and back, bit for bit, on the way between two processes of one run.

A value is what JSON holds, and tensors, arrays and replies in it. Tensors travel as a safetensors file, in
which the JSON is one more entry, as in a checkpoint. A tensor that stands in many places travels once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from torch import Tensor

from fedepd.files import parse_tensors
from fedepd.types import Reply

TREE = "tree"
"""The entry that holds the JSON."""
ONE, ROWS, TABLE, REPLY = "tensor", "array", "table", "reply"


def to_bytes(value: Any) -> bytes:
    """A value as bytes. Lists and tuples become lists."""
    arrays: list[NDArray[Any]] = []
    known: dict[int, int] = {}

    def place(owner: object, array: NDArray[Any]) -> int:
        if id(owner) not in known:
            known[id(owner)] = len(arrays)
            arrays.append(array)
        return known[id(owner)]

    def plain(each: Any) -> Any:
        if isinstance(each, Tensor):
            return {ONE: place(each, each.detach().contiguous().numpy())}
        if isinstance(each, np.ndarray):
            return {ROWS: place(each, np.ascontiguousarray(each))}
        if isinstance(each, Mapping):
            return {TABLE: [[key, plain(item)] for key, item in each.items()]}
        if isinstance(each, Reply):
            return {REPLY: plain(vars(each))}
        return [plain(item) for item in each] if isinstance(each, list | tuple) else each

    tree = np.frombuffer(json.dumps(plain(value)).encode(), dtype=np.uint8)
    return save({TREE: tree, **{str(number): array for number, array in enumerate(arrays)}})


def from_bytes(content: bytes) -> Any:
    """What ``to_bytes`` was given."""
    tensors = parse_tensors(content, "a message between processes")
    tree = json.loads(tensors.pop(TREE).numpy().tobytes())
    # A copy begins where torch would have put it, so that products have the same bits.
    copies = {int(name): value.clone() for name, value in tensors.items()}

    def whole(each: Any) -> Any:
        if isinstance(each, list):
            return [whole(item) for item in each]
        if not isinstance(each, dict):
            return each
        ((kind, held),) = each.items()
        if kind == TABLE:
            return {key: whole(item) for key, item in held}
        if kind == REPLY:
            fields = whole(held)
            return Reply(**{**fields, "members": tuple(fields["members"])})
        return copies[held] if kind == ONE else copies[held].numpy()

    return whole(tree)
