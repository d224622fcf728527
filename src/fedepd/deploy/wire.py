"""Tensors and replies as the plain records that cross the wire, and back. A record that is not exactly as agreed is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.evaluate import SPLITS
from fedepd.types import Reply, Tensors

Record = dict[str, Any]

DECLARE, STEP, EVALUATE, PING, STATUS = "fedepd_declare", "fedepd_step", "fedepd_evaluate", "fedepd_ping", "fedepd_status"
TIDY_EVERY = 10
"""Rounds between hand-backs of freed memory to the system; NVFlare's workers grow otherwise."""
ENGINE_FIELD = "__headers__"
"""NVFlare's own entry in every record."""
REPLY_FIELDS = ("num_nodes", "num_train", "round", "scalars", "tensors")
RECORDS = {"class_sizes": ("class_sizes",), "confusions": ("confusions", "round"), "tensors": REPLY_FIELDS}
"""What a site sends: by the field that holds its arrays, all its fields."""
KINDS = "fiub"


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
            raise Refused(str(name), f"is a {type(value).__name__}, not an array")
        if value.dtype.kind not in KINDS:
            raise Refused(name, f"holds {value.dtype}, not numbers")
    return {name: torch.tensor(np.ascontiguousarray(value).reshape(value.shape)) for name, value in arrays.items()}


def message_record(round: int, message: Tensors) -> Record:
    return {"round": round, "tensors": to_arrays(message)}


def read_message(record: Mapping[str, Any]) -> tuple[int, Tensors]:
    _check_fields(record, ("round", "tensors"))
    return _count(record, "round"), to_tensors(record["tensors"])


def declaration_record(class_sizes: Tensor) -> Record:
    """All that leaves the house before the first step, with methods that count nodes by class."""
    return {"class_sizes": class_sizes.numpy()}


def read_declaration(record: Mapping[str, Any], num_classes: int) -> Tensor:
    _check_fields(record, RECORDS["class_sizes"])
    sizes = to_tensors({"class_sizes": record["class_sizes"]})["class_sizes"]
    if sizes.dtype != torch.int64 or tuple(sizes.shape) != (num_classes,) or int(sizes.min()) < 0:
        raise Refused("class_sizes", f"must be {num_classes} counts")
    return sizes


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
    """The reply in a record; whether its tensors are usable is for the gate to say."""
    _check_fields(record, REPLY_FIELDS)
    _check_round(record, round)
    scalars = record["scalars"]
    if not isinstance(scalars, dict) or not all(name == "loss" and isinstance(value, float) for name, value in scalars.items()):
        raise Refused("scalars", "may hold one number called 'loss' and nothing else")
    return Reply(to_tensors(record["tensors"]), _count(record, "num_nodes"), _count(record, "num_train"), scalars, round)


def confusions_record(round: int, confusions: Mapping[str, Tensor]) -> Record:
    """All that leaves the house after an evaluation."""
    return {"round": round, "confusions": to_arrays(confusions)}


def read_confusions(record: Mapping[str, Any], round: int, num_classes: int, has_global: bool) -> dict[str, Tensor]:
    _check_fields(record, RECORDS["confusions"])
    _check_round(record, round)
    matrices = to_tensors(record["confusions"], "confusions")
    kinds = ("personal", "global") if has_global else ("personal",)
    expected = {f"{kind}_{split}" for kind in kinds for split in SPLITS}
    if matrices.keys() != expected:
        raise Refused("confusions", f"holds {sorted(matrices)}, not {sorted(expected)}")
    for name, matrix in matrices.items():
        if matrix.dtype != torch.int64 or tuple(matrix.shape) != (num_classes, num_classes) or int(matrix.min()) < 0:
            raise Refused(name, f"must be {num_classes} x {num_classes} counts")
    return matrices


def record_kind(record: Mapping[str, Any]) -> str:
    """Which of the records that a site sends this is, by its field of arrays; anything else is refused."""
    kind = next((kind for kind in RECORDS if kind in record), "tensors")
    _check_fields(record, RECORDS[kind])
    to_tensors({kind: record[kind]} if kind == "class_sizes" else record[kind])
    return kind


def _check_fields(record: Any, names: tuple[str, ...]) -> None:
    if not isinstance(record, Mapping):
        raise Refused("reply", f"is a {type(record).__name__}, not a record")
    found = sorted(str(name) for name in record if name != ENGINE_FIELD)
    if found != sorted(names):
        raise Refused("reply", f"holds {found}, not {sorted(names)}")


def _check_round(record: Mapping[str, Any], round: int) -> None:
    if _count(record, "round") != round:
        raise Refused("round", f"answers round {record['round']} in round {round}")


def _count(record: Mapping[str, Any], name: str) -> int:
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise Refused(name, "is not a whole number >= 0")
    return value
