"""Tensors and replies as the plain records that cross the wire, and back. A record that is not exactly as agreed is refused by name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.rounds.admission import sizes_fault
from fedepd.rounds.evaluate import SPLITS
from fedepd.shown import shown
from fedepd.types import Reply, Sizes, Tensors

Record = dict[str, Any]

DECLARE, STEP, EVALUATE, PING, STATUS = (
    "fedepd_declare",
    "fedepd_step",
    "fedepd_evaluate",
    "fedepd_ping",
    "fedepd_status",
)
REASON = "fedepd_reason"
"""The header of a site's refusal that says why, where the owner's limits allow it."""
TIDY_EVERY = 10
"""Rounds between hand-backs of freed memory to the system; NVFlare's workers grow otherwise."""
ENGINE_FIELD = "__headers__"
"""NVFlare's own entry in every record."""
REPLY_FIELDS = ("num_nodes", "num_train", "round", "scalars", "tensors")
SIZE_FIELDS = ("class_sizes", "label_names", "num_nodes", "num_train", "schema_sha256")
CLASS_SIZES = ("train", "val", "test")
RECORDS = {"class_sizes": SIZE_FIELDS, "confusions": ("confusions", "round"), "tensors": REPLY_FIELDS}
"""What a site sends: by the field that holds its arrays, all its fields."""
KINDS = "fiub"
NUMBERS = {np.dtype(name) for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")}
"""What torch takes: of these kinds, but neither in another machine's byte order nor of more than 64 bits."""
HASH = re.compile(r"([0-9a-f]{64})?")
MOST_COUNT = 2**53
"""A whole number above it is no honest count, and a float could not hold it."""


class Refused(Exception):
    """A record that fails its checks: which field, and why."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field, self.reason = field, reason


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: value.detach().contiguous().numpy() for name, value in tensors.items()}


def to_tensors(arrays: Any, field: str = "tensors") -> Tensors:
    if not isinstance(arrays, dict):
        raise Refused(field, f"is a {type(arrays).__name__}, not a table of arrays")
    for name, value in arrays.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise Refused(shown(name), f"is a {type(value).__name__}, not an array")
        if value.dtype not in NUMBERS:
            raise Refused(shown(name), f"holds {shown(value.dtype)}, not numbers")
    return {
        name: torch.tensor(np.ascontiguousarray(value).reshape(value.shape)) for name, value in arrays.items()
    }


def message_record(round: int, message: Tensors) -> Record:
    return {"round": round, "tensors": to_arrays(message)}


def read_message(record: Mapping[str, Any]) -> tuple[int, Tensors]:
    _check_fields(record, ("round", "tensors"))
    return _count(record, "round"), to_tensors(record["tensors"])


def declaration_record(sizes: Sizes, label_names: Sequence[str] = (), schema_sha256: str = "") -> Record:
    """All that leaves the house before the first step."""
    return {
        "num_nodes": sizes.num_nodes,
        "num_train": sizes.num_train,
        "class_sizes": to_arrays({name: getattr(sizes, name) for name in CLASS_SIZES}),
        "label_names": list(label_names),
        "schema_sha256": schema_sha256,
    }


@dataclass(frozen=True)
class Declaration:
    """What a site says of itself before the first step."""

    sizes: Sizes
    label_names: tuple[str, ...]
    """What it calls the classes, in order; empty where its file has no names."""
    schema_sha256: str
    """Of how its columns became features; empty where its file does not say."""


def read_declaration(record: Mapping[str, Any], num_classes: int, most_nodes: int) -> Declaration:
    _check_fields(record, SIZE_FIELDS)
    names, schema = record["label_names"], record["schema_sha256"]
    if (
        not isinstance(names, list)
        or len(names) > num_classes
        or not all(isinstance(name, str) for name in names)
    ):
        raise Refused("label_names", f"must be at most {num_classes} names")
    if not isinstance(schema, str) or not HASH.fullmatch(schema):
        raise Refused("schema_sha256", "must be 64 hexadecimal digits or nothing")
    counts = to_tensors(record["class_sizes"], "class_sizes")
    if counts.keys() != set(CLASS_SIZES):
        raise Refused("class_sizes", f"holds {_listed(counts)}, not {_listed(CLASS_SIZES)}")
    sizes = Sizes(_count(record, "num_nodes"), _count(record, "num_train"), **counts)
    if fault := sizes_fault(sizes, num_classes, most_nodes):
        raise Refused(*fault)
    return Declaration(sizes, tuple(names), schema)


def reply_record(reply: Reply) -> Record:
    """All that leaves the house after a step."""
    return {
        "round": reply.round,
        "num_nodes": reply.num_nodes,
        "num_train": reply.num_train,
        "scalars": {name: float(value) for name, value in reply.scalars.items()},
        "tensors": to_arrays(reply.tensors),
    }


def read_reply(record: Mapping[str, Any], round: int) -> Reply:
    """The reply in a record; whether its tensors are usable is for admission to say."""
    _check_fields(record, REPLY_FIELDS)
    _check_round(record, round)
    scalars = record["scalars"]
    if not isinstance(scalars, dict) or not all(_is_loss(*entry) for entry in scalars.items()):
        raise Refused("scalars", "may hold one finite number called 'loss' and nothing else")
    return Reply(
        to_tensors(record["tensors"]),
        _count(record, "num_nodes"),
        _count(record, "num_train"),
        scalars,
        round,
    )


def _is_loss(name: object, value: object) -> bool:
    return name == "loss" and isinstance(value, float) and math.isfinite(value)


def confusions_record(round: int, confusions: Mapping[str, Tensor]) -> Record:
    """All that leaves the house after an evaluation."""
    return {"round": round, "confusions": to_arrays(confusions)}


def read_confusions(
    record: Mapping[str, Any], round: int, num_classes: int, has_global: bool
) -> dict[str, Tensor]:
    _check_fields(record, RECORDS["confusions"])
    _check_round(record, round)
    matrices = to_tensors(record["confusions"], "confusions")
    kinds = ("personal", "global") if has_global else ("personal",)
    expected = {f"{kind}_{split}" for kind in kinds for split in SPLITS}
    if matrices.keys() != expected:
        raise Refused("confusions", f"holds {_listed(matrices)}, not {_listed(expected)}")
    for name, matrix in matrices.items():
        if (
            matrix.dtype != torch.int64
            or tuple(matrix.shape) != (num_classes, num_classes)
            or int(matrix.min()) < 0
        ):
            raise Refused(name, f"must be {num_classes} x {num_classes} counts")
    return matrices


def record_kind(record: Mapping[str, Any]) -> str:
    """Which of the records that a site sends this is, by its field of arrays; anything else is refused."""
    kind = next((kind for kind in RECORDS if kind in record), "tensors")
    _check_fields(record, RECORDS[kind])
    to_tensors(record[kind])
    return kind


def _check_fields(record: Any, names: tuple[str, ...]) -> None:
    if not isinstance(record, Mapping):
        raise Refused("reply", f"is a {type(record).__name__}, not a record")
    found = [name for name in record if name != ENGINE_FIELD]
    if len(found) != len(names) or set(found) != set(names):
        raise Refused("reply", f"holds {_listed(found)}, not {_listed(names)}")


def _listed(names: Iterable[object]) -> str:
    """Foreign names in a sentence: none is long, and no more than a few are shown."""
    every = sorted(shown(name, 40) for name in names)
    return ", ".join(every[:8]) + (f" and {len(every) - 8} more" if len(every) > 8 else "") or "nothing"


def _check_round(record: Mapping[str, Any], round: int) -> None:
    if _count(record, "round") != round:
        raise Refused("round", f"answers round {shown(record['round'])} in round {round}")


def _count(record: Mapping[str, Any], name: str) -> int:
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_COUNT:
        raise Refused(name, f"is not a whole number from 0 to {MOST_COUNT}")
    return value
