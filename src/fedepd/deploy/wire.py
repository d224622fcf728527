"""Turn tensors and replies into the plain records that are sent, and read such records back.

A record that is not exactly as agreed is refused, and the error names the field.
"""

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
from fedepd.rounds.evaluate import evaluated
from fedepd.rounds.questions import QUESTIONS
from fedepd.shown import shown
from fedepd.types import Reply, Sizes, Tensors

Record = dict[str, Any]

DECLARE, STEP, EVALUATE, ASK, PING, STATUS = (
    "fedepd_declare",
    "fedepd_step",
    "fedepd_evaluate",
    "fedepd_ask",
    "fedepd_ping",
    "fedepd_status",
)
KEYS, SHARES, MASKED, SIGNED, OPENED = TRIPS = (
    "fedepd_sum_keys",
    "fedepd_sum_shares",
    "fedepd_sum_masked",
    "fedepd_sum_signed",
    "fedepd_sum_opened",
)
"""The answers of a site to one secure sum, see ``fedepd.privacy.secure_sum``."""
TASKS = (DECLARE, STEP, EVALUATE, ASK, *TRIPS)
"""All that a site answers, beside pings."""
REASON = "fedepd_reason"
"""The header of a site's refusal that says why, if the owner's limits allow it."""
TIDY_EVERY = 10
"""Freed memory is returned to the system after this many rounds. Otherwise NVFlare's workers grow."""
ENGINE_FIELD = "__headers__"
"""NVFlare's own entry in every record."""
REPLY_FIELDS = ("num_nodes", "num_train", "round", "scalars", "tensors")
SIZE_FIELDS = ("class_sizes", "label_names", "num_nodes", "num_train", "schema_sha256")
CLASS_SIZES = ("train", "val", "test")
SUM_FIELDS = ("attempt", "parts", "purpose", "round")
RECORDS = {
    "class_sizes": SIZE_FIELDS,
    "confusions": ("confusions", "round"),
    "parts": SUM_FIELDS,
    "tensors": REPLY_FIELDS,
}
"""The fields of each record that a site sends. The key is the field that holds its arrays."""
KINDS = "fiub"
NUMBERS = {np.dtype(name) for name in ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?")}
"""The types that torch accepts: numbers of at most 64 bits in this machine's byte order."""
HASH = re.compile(r"([0-9a-f]{64})?")
MOST_COUNT = 2**53
"""Largest count that is accepted.

An honest count is smaller, and a float could not hold a larger one exactly.
"""


class Refused(Exception):
    """A record failed its checks. Holds the field and the reason."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field} {reason}")
        self.field, self.reason = field, reason


def to_arrays(tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    return {name: value.detach().contiguous().numpy() for name, value in tensors.items()}


def to_tensors(arrays: Any, field: str = "tensors") -> Tensors:
    check_arrays(arrays, field)
    # A copy: an array of one number or none may have a negative stride, which torch refuses.
    return {name: torch.from_numpy(np.array(value, order="C")) for name, value in arrays.items()}


def check_arrays(arrays: Any, field: str) -> None:
    """Refuse anything but a table of arrays of numbers."""
    if not isinstance(arrays, dict):
        raise Refused(field, f"is a {type(arrays).__name__}, not a table of arrays")
    for name, value in arrays.items():
        if not isinstance(name, str) or not isinstance(value, np.ndarray):
            raise Refused(shown(name), f"is a {type(value).__name__}, not an array")
        if value.dtype not in NUMBERS:
            raise Refused(shown(name), f"holds {shown(value.dtype)}, not numbers")


def message_record(round: int, message: Tensors) -> Record:
    return {"round": round, "tensors": to_arrays(message)}


def read_message(record: Mapping[str, Any]) -> tuple[int, Tensors]:
    _check_fields(record, ("round", "tensors"))
    return _count(record, "round"), to_tensors(record["tensors"])


def declaration_record(sizes: Sizes, label_names: Sequence[str] = (), schema_sha256: str = "") -> Record:
    """Everything that leaves a site before the first step."""
    return {
        "num_nodes": sizes.num_nodes,
        "num_train": sizes.num_train,
        "class_sizes": to_arrays({name: getattr(sizes, name) for name in CLASS_SIZES}),
        "label_names": list(label_names),
        "schema_sha256": schema_sha256,
    }


@dataclass(frozen=True)
class Declaration:
    """What a site declares before the first step."""

    sizes: Sizes
    label_names: tuple[str, ...]
    """The site's class names, in order; empty if its file has none."""
    schema_sha256: str
    """Hash of the rules that made features from columns; empty if its file has none."""


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
    train, val, test = (counts[name] for name in CLASS_SIZES)
    sizes = Sizes(_count(record, "num_nodes"), _count(record, "num_train"), train, val, test)
    if fault := sizes_fault(sizes, num_classes, most_nodes):
        raise Refused(*fault)
    return Declaration(sizes, tuple(names), schema)


def reply_record(reply: Reply) -> Record:
    """Everything that leaves a site after a step."""
    return {
        "round": reply.round,
        "num_nodes": reply.num_nodes,
        "num_train": reply.num_train,
        "scalars": {name: float(value) for name, value in reply.scalars.items()},
        "tensors": to_arrays(reply.tensors),
    }


def read_reply(record: Mapping[str, Any], round: int) -> Reply:
    """The reply in a record. Admission decides later whether its tensors can be used."""
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
    """Everything that leaves a site after an evaluation."""
    return {"round": round, "confusions": to_arrays(confusions)}


def read_confusions(
    record: Mapping[str, Any], round: int, num_classes: int, has_global: bool
) -> dict[str, Tensor]:
    _check_fields(record, RECORDS["confusions"])
    _check_round(record, round)
    matrices = to_tensors(record["confusions"], "confusions")
    expected = set(evaluated(has_global))
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


@dataclass(frozen=True)
class Sum:
    """Which sum a message belongs to."""

    purpose: str
    """sizes, step, evaluate, or the name of a question."""
    round: int
    attempt: int = 0

    def __str__(self) -> str:
        return f"{self.purpose} of round {self.round}"


PURPOSES = ("sizes", "step", "evaluate", *QUESTIONS)
Parts = dict[str, NDArray[Any]]


def sum_record(which: Sum, parts: Mapping[str, NDArray[Any]], message: Tensors | None = None) -> Record:
    """A message of a secure sum. The server's carries what the sum is about: ``message``."""
    record = {**vars(which), "parts": dict(parts)}
    return record if message is None else {**record, "tensors": to_arrays(message)}


def read_sum(record: Mapping[str, Any]) -> tuple[Sum, Parts, Tensors]:
    """A server's message of a secure sum."""
    _check_fields(record, (*SUM_FIELDS, "tensors"))
    return _which(record), _parts(record["parts"]), to_tensors(record["tensors"])


def read_sum_answer(record: Mapping[str, Any], which: Sum) -> Parts:
    """A site's message of the secure sum ``which``."""
    _check_fields(record, SUM_FIELDS)
    if _which(record) != which:
        raise Refused("sum", f"is {_which(record)}, but this is {which}, attempt {which.attempt}")
    return _parts(record["parts"])


def answer_record(which: Sum, answer: NDArray[np.int64]) -> Record:
    """Everything that leaves a site as the answer to a question, where its answers are seen alone."""
    return sum_record(which, {"answer": answer})


def read_answer(record: Mapping[str, Any], which: Sum, length: int, most: int) -> NDArray[np.int64]:
    """A site's answer to a question: ``length`` whole numbers, none beyond ``most``."""
    parts = read_sum_answer(record, which)
    value = parts.get("answer")
    if len(parts) != 1 or value is None or value.dtype != np.int64 or value.shape != (length,):
        raise Refused("answer", f"must be {length} whole numbers")
    if not bool(((value >= -most) & (value <= most)).all()):
        raise Refused("answer", "holds a number that is too large to be summed")
    return value


def bytes_part(parts: Parts, name: str, width: int) -> NDArray[np.uint8]:
    """Rows of ``width`` bytes each."""
    value = parts.get(name)
    if value is None or value.dtype != np.uint8 or value.ndim != 2 or value.shape[1] != width:
        raise Refused(name, f"must be rows of {width} bytes")
    return value


def sites_part(parts: Parts, name: str, most: int) -> list[int]:
    """Numbers of sites, ascending."""
    value = parts.get(name)
    if value is None or value.dtype != np.int64 or value.ndim != 1 or value.size > most:
        raise Refused(name, f"must be at most {most} numbers of sites")
    found: list[int] = value.tolist()
    if found != sorted(set(found)) or any(not 0 <= site < most for site in found):
        raise Refused(name, "must name each site once, in order")
    return found


def _which(record: Mapping[str, Any]) -> Sum:
    purpose = record["purpose"]
    if not isinstance(purpose, str) or purpose not in PURPOSES:
        raise Refused("purpose", f"is '{shown(purpose)}', not {_listed(PURPOSES)}")
    return Sum(purpose, _count(record, "round"), _count(record, "attempt"))


def _parts(parts: Any) -> Parts:
    check_arrays(parts, "parts")
    return dict(parts)


def record_kind(record: Mapping[str, Any]) -> str:
    """The kind of a record that a site sends, named by its field of arrays. Any other record is refused."""
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
    """Foreign names for a sentence. Long names are cut, and only the first few are listed."""
    every = sorted(shown(name, 40) for name in names)
    if not every:
        return "nothing"
    first = ", ".join(every[:8])
    return f"{first} and {len(every) - 8} more" if len(every) > 8 else first


def _check_round(record: Mapping[str, Any], round: int) -> None:
    if _count(record, "round") != round:
        raise Refused("round", f"is {shown(record['round'])}, but this is round {round}")


def _count(record: Mapping[str, Any], name: str) -> int:
    value = record[name]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MOST_COUNT:
        raise Refused(name, f"is not a whole number from 0 to {MOST_COUNT}")
    return value
