"""Arrays from an old Python 2 pickle, read without running it.

The files of Planetoid (``ind.cora.x`` and others) are such pickles. Python's unpickler would call whatever a
file names. Nothing is called here: the instructions are read one by one by ``pickletools``, and what a file
asks to be made becomes a plain record of a name and its arguments. Only ``NAMES`` may be asked for, and only
their content is then turned into numbers, by checks of our own.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from fedepd.arrays import open_file, reason, spelled
from fedepd.datasets.npz import checked_csr
from fedepd.errors import BadData
from fedepd.files import DAMAGE, size_of
from fedepd.memory import check
from fedepd.shown import shown

NAMES = {
    "scipy.sparse.csr csr_matrix",
    "numpy.core.multiarray _reconstruct",
    "numpy ndarray",
    "numpy dtype",
    "collections defaultdict",
    "__builtin__ list",
}
"""What a file may ask for."""
PLAIN = ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4", "f8", "b1")
"""Types of numbers, as such a file spells them."""
LARGEST = 2**28
"""Most bytes of a file. Every instruction becomes an object of Python."""


@dataclass
class Asked:
    """What a file asks to be made, and with what."""

    name: str
    arguments: tuple[Any, ...] = ()
    state: Any = None
    items: dict[Any, Any] = field(default_factory=dict)


def read_inert(path: Path) -> Any:
    """The matrix (CSR), array or table of lists (a dict) in a file. Anything else is refused."""
    with open_file(path, cure="fetch it again") as file:
        check(64 * size_of(file), f"file '{spelled(path)}'")
        if size_of(file) > LARGEST:
            raise BadData(f"file '{spelled(path)}' has more than {LARGEST:,} bytes; fetch it again")
        try:
            return _value(_told(file))
        except (BadData, IndexError, KeyError, TypeError, AttributeError, *DAMAGE) as error:
            raise BadData(
                f"file '{spelled(path)}' is no array as Planetoid's are ({reason(error)}); fetch it again"
            ) from None


def _told(file: IO[bytes]) -> Any:
    """What the instructions leave on the stack. They only move values, and nothing is called."""
    stack: list[Any] = []
    marks: list[int] = []
    memo: dict[Any, Any] = {}
    argument: Any
    for code, argument, _ in pickletools.genops(file):
        name = code.name
        if name == "STOP":
            break
        if name == "MARK":
            marks.append(len(stack))
        elif name in VALUES:
            stack.append(argument)
        elif name in MADE:
            stack.append(MADE[name]())
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "GLOBAL":
            if argument not in NAMES:
                raise BadData(f"it asks for {shown(argument)}")
            stack.append(Asked(argument))
        elif name in TAKE and len(stack) >= TAKE[name]:
            _act(name, stack, stack[-TAKE[name] :])
        elif name in ("TUPLE", "APPENDS", "SETITEMS"):
            at = marks.pop()
            taken, stack[at:] = stack[at:], []
            _act_on_all(name, stack, taken)
        elif name != "PROTO":
            raise BadData(f"it has the instruction {name}")
    (found,) = stack
    return found


VALUES = {"BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING"}
"""Instructions that bring a number or a text."""
MADE: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_TUPLE": tuple,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
}
TAKE = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "APPEND": 2, "REDUCE": 2, "NEWOBJ": 2, "BUILD": 2}
"""Instructions, and how many values each takes from the stack."""


def _act(name: str, stack: list[Any], taken: list[Any]) -> None:
    del stack[-TAKE[name] :]
    if name.startswith("TUPLE"):
        stack.append(tuple(taken))
        return
    first, second = taken
    if name == "APPEND":
        first.append(second)
        stack.append(first)
    elif name == "BUILD":
        first.state = second
        stack.append(first)
    else:  # REDUCE and NEWOBJ: a name and its arguments, not called
        stack.append(Asked(first.name, second))


def _act_on_all(name: str, stack: list[Any], taken: list[Any]) -> None:
    if name == "TUPLE":
        stack.append(tuple(taken))
    elif name == "APPENDS":
        stack[-1].extend(taken)
    else:
        target = stack[-1].items if isinstance(stack[-1], Asked) else stack[-1]
        target.update(zip(taken[::2], taken[1::2], strict=True))


def _value(found: Any) -> Any:
    if not isinstance(found, Asked):
        raise BadData("it holds none")
    if found.name == "collections defaultdict":
        return {_whole(key): [_whole(each) for each in value] for key, value in found.items.items()}
    if found.name == "scipy.sparse.csr csr_matrix":
        parts = {name: _array(found.state[name]) for name in ("data", "indices", "indptr")}
        shape = np.array([_whole(each) for each in found.state["_shape"]])
        return checked_csr({**parts, "shape": shape}, "")
    return _array(found)


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise BadData("a node or a size is no whole number")
    return value


def _array(found: Any) -> NDArray[Any]:
    """An array from its shape, its type and its bytes."""
    if not isinstance(found, Asked) or found.name != "numpy.core.multiarray _reconstruct":
        raise BadData("a part of it is no array")
    _, shape, kind, by_column, content = found.state
    if not isinstance(kind, Asked) or kind.name != "numpy dtype" or kind.arguments[0] not in PLAIN:
        raise BadData("an array holds no plain numbers")
    order = kind.state[1]
    if order not in ("<", ">", "|") or not isinstance(content, str):
        raise BadData("an array holds no plain numbers")
    dtype = np.dtype(order + kind.arguments[0])
    shape = tuple(_whole(each) for each in shape)
    array = np.frombuffer(content.encode("latin-1"), dtype=dtype)
    return array.reshape(shape, order="F" if by_column else "C").astype(dtype.newbyteorder("="))
