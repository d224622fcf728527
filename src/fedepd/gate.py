"""Every reply is checked before it is used, simulated or deployed. What fails is refused, named and counted; the rest goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from fedepd.types import Reply


@dataclass(frozen=True)
class Field:
    """What a reply must carry under one name."""

    shape: tuple[int, ...]
    """-1 where any size is right."""
    kind: Literal["real", "count"] = "real"
    """count: whole numbers of training nodes by class, so none is more than the client declared of that class."""
    rows_of: str | None = None
    """The field whose non-zero entries are the rows of this one."""


@dataclass(frozen=True)
class Refusal:
    client: int
    field: str
    reason: str


Fields = Mapping[str, Field]


def same_fields(tensors: Mapping[str, Tensor]) -> dict[str, Field]:
    """Replies that carry the same names and shapes as ``tensors``."""
    return {name: Field(tuple(value.shape)) for name, value in tensors.items()}


def counts_classes(fields: Fields) -> bool:
    return any(field.kind == "count" for field in fields.values())


def admit(
    replies: Mapping[int, Reply],
    invited: Mapping[int, object],
    fields: Fields,
    round: int,
    max_norm: float,
    declared: Mapping[int, Tensor],
) -> tuple[dict[int, Reply], list[Refusal]]:
    """The replies that may be used, ascending by client, and the others with the first reason found.

    ``declared``: by client, its training nodes of each class [C]; needed where ``counts_classes(fields)``.
    """
    accepted: dict[int, Reply] = {}
    refused: list[Refusal] = []
    for client in sorted(replies):
        reply, asked = replies[client], client in invited
        fault = _fault(reply, fields, round, max_norm, declared.get(client)) if asked else ("client", "is not in this round")
        if fault is None:
            accepted[client] = reply
        else:
            refused.append(Refusal(client, *fault))
    return accepted, refused


def _fault(reply: Reply, fields: Fields, round: int, max_norm: float, class_sizes: Tensor | None) -> tuple[str, str] | None:
    if reply.round != round:
        return "round", f"answers round {reply.round} in round {round}"
    if not 0 <= reply.num_train <= reply.num_nodes:
        return "num_train", f"{reply.num_train} training nodes of {reply.num_nodes} nodes"
    missing = sorted(fields.keys() - reply.tensors.keys())
    if missing:
        return missing[0], "is missing"
    for name, value in reply.tensors.items():
        if name not in fields:
            return name, "is not expected"
        reason = _tensor_fault(value, fields[name], max_norm)
        if reason is None and fields[name].kind == "count":
            reason = _count_fault(value, reply.num_train, class_sizes)
        if reason:
            return name, reason
    for name, field in fields.items():
        if field.rows_of is not None and reply.tensors[name].shape[0] != int(reply.tensors[field.rows_of].count_nonzero()):
            return name, f"has {reply.tensors[name].shape[0]} rows, but {field.rows_of} names other ones"
    return None


def _tensor_fault(value: Tensor, field: Field, max_norm: float) -> str | None:
    if value.dtype != torch.float32 or value.layout != torch.strided:
        return f"is {value.layout} {value.dtype}, not dense float32"
    if value.ndim != len(field.shape) or any(want not in (-1, size) for size, want in zip(value.shape, field.shape, strict=True)):
        return f"has shape {list(value.shape)}, not {list(field.shape)}"
    norm = float(torch.linalg.vector_norm(value, dtype=torch.float64))
    if norm != norm or norm == float("inf"):
        return "holds NaN or infinite values"
    if norm > max_norm:
        return f"has norm {norm:.3g}, more than {max_norm:g}"
    return None


def _count_fault(value: Tensor, num_train: int, class_sizes: Tensor | None) -> str | None:
    if class_sizes is None:
        return "cannot be checked: the client has not declared its class sizes"
    if bool((value < 0).any()) or bool((value != value.round()).any()):
        return "holds counts that are negative or not whole"
    if float(value.sum()) > num_train:
        return f"counts {float(value.sum()):.0f} nodes, but the client has {num_train} training nodes"
    over = (value > class_sizes).nonzero().reshape(-1).tolist()
    if over:
        return f"counts {value[over[0]]:.0f} nodes of class {over[0]}, but the client declared {int(class_sizes[over[0]])}"
    return None
