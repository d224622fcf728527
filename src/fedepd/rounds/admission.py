"""The server checks every reply before it uses it, in simulations and deployments alike.

A reply that fails is refused, and the refusal is named and counted. The run goes on with the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from fedepd.shown import shown
from fedepd.types import Field, Fields, Reply, Sizes

MOST_NODES = 2**40
"""No client has more nodes than this. So sums over millions of clients still fit an int64."""


@dataclass(frozen=True)
class Refusal:
    client: int
    field: str
    reason: str
    absent: bool = False
    """True if no answer arrived. That is not held against the client."""


Fault = tuple[str, str]
"""The name of a field, and what is wrong with it."""


def admit(
    replies: Mapping[int, Reply],
    invited: Mapping[int, object],
    fields: Fields,
    round: int,
    max_norm: float,
    declared: Mapping[int, Sizes],
) -> tuple[dict[int, Reply], list[Refusal]]:
    """The replies that may be used, in ascending order of clients, and a refusal with a reason for each
    other one."""
    accepted: dict[int, Reply] = {}
    refused: list[Refusal] = []
    for client in sorted(replies):
        fault: Fault | None = ("client", "is not in this round")
        if client in invited:
            fault = reply_fault(replies[client], fields, round, max_norm, declared.get(client))
        if fault is None:
            accepted[client] = replies[client]
        else:
            refused.append(Refusal(client, *fault))
    return accepted, refused


def admit_confusions(
    confusions: Mapping[int, Mapping[str, Tensor]],
    declared: Mapping[int, Sizes],
    closed: Tensor | None = None,
) -> tuple[dict[int, dict[str, Tensor]], list[Refusal]]:
    """The confusion matrices that count exactly the held-out nodes their client declared, and a refusal
    for the others. Those of ``closed`` classes [C] may be left out."""
    accepted: dict[int, dict[str, Tensor]] = {}
    refused: list[Refusal] = []
    for client in sorted(confusions):
        fault = confusion_fault(confusions[client], declared.get(client), closed)
        if fault is None:
            accepted[client] = dict(confusions[client])
        else:
            refused.append(Refusal(client, *fault))
    return accepted, refused


def sizes_fault(sizes: Sizes, num_classes: int, most_nodes: int = MOST_NODES) -> Fault | None:
    """Why a client's declaration contradicts itself, or None. A part cannot be larger than the whole."""
    if not 0 <= sizes.num_nodes <= most_nodes:
        return "num_nodes", f"is {shown(sizes.num_nodes)}, which is not between 0 and {most_nodes:,}"
    if not 0 <= sizes.num_train <= sizes.num_nodes:
        return "num_train", f"is {shown(sizes.num_train)} of {sizes.num_nodes} nodes"
    for name, counts in {"train": sizes.train, "val": sizes.val, "test": sizes.test}.items():
        if counts.dtype != torch.int64 or tuple(counts.shape) != (num_classes,):
            return name, f"must be {num_classes} whole numbers"
        if int(counts.min()) < 0 or int(counts.max()) > sizes.num_nodes:
            return name, f"counts a class with fewer than 0 or more than {sizes.num_nodes} nodes"
    if int(sizes.train.sum()) > sizes.num_train:
        return (
            "train",
            f"counts {int(sizes.train.sum())} nodes, but there are {sizes.num_train} training nodes",
        )
    if sizes.num_train + int(sizes.val.sum()) + int(sizes.test.sum()) > sizes.num_nodes:
        return "test", f"and the other splits together have more nodes than the client ({sizes.num_nodes})"
    return None


def reply_fault(
    reply: Reply, fields: Fields, round: int, max_norm: float, sizes: Sizes | None
) -> Fault | None:
    """The first thing that is wrong with a reply, or None."""
    if sizes is None:
        return "sizes", "were not declared before the first round, so nothing can be checked against them"
    if reply.round != round:
        return "round", f"answers round {shown(reply.round)} in round {round}"
    for name, said, known in (
        ("num_nodes", reply.num_nodes, sizes.num_nodes),
        ("num_train", reply.num_train, sizes.num_train),
    ):
        # A sum may lack the clients that dropped out of this round.
        if said != known if sizes.clients == 1 else not 0 <= said <= known:
            return name, f"is {shown(said)}, but the client declared {known}"
    missing = sorted(fields.keys() - reply.tensors.keys())
    if missing:
        return missing[0], "is missing"
    for name, value in reply.tensors.items():
        if name not in fields:
            return shown(name), "is not expected"
        reason = _tensor_fault(value, fields[name], max_norm) or _meaning_fault(value, fields[name], sizes)
        if reason:
            return name, reason
    for name, field in fields.items():
        if field.of is not None:
            reason = _rows_fault(reply.tensors[name], reply.tensors[field.of], field)
            if reason:
                return name, reason
    return None


def confusion_fault(
    matrices: Mapping[str, Tensor], sizes: Sizes | None, closed: Tensor | None = None
) -> Fault | None:
    """What is wrong with a client's confusion matrices, or None.

    The row of a class must add up to the held-out nodes that the client declared for that class. So a client
    can lie about its predictions, but not about its size. The row of a class that the guard closed may be
    empty: it was declared before anybody knew that it would be closed.
    """
    if sizes is None:
        return "sizes", "were not declared before the first round, so nothing can be checked against them"
    for name, matrix in matrices.items():
        held_out = (sizes.val if name.endswith("_val") else sizes.test).numpy()  # [C]
        counts = matrix.numpy()
        if counts.min() < 0 or (counts > held_out[:, None]).any():
            return name, "holds a count that is negative or larger than the class"
        rows = counts.sum(1)
        unequal = rows != held_out if sizes.clients == 1 else rows > held_out
        if closed is not None:
            unequal &= ~(closed.numpy() & (rows == 0))
        if unequal.any():
            first = int(unequal.argmax())
            reason = f"counts {rows[first]} nodes of class {first}, but the client declared {held_out[first]}"
            return name, reason
    return None


def _tensor_fault(value: Tensor, field: Field, max_norm: float) -> str | None:
    if value.dtype != torch.float32 or value.layout != torch.strided:
        return f"is {value.layout} {value.dtype}, not dense float32"
    sizes = zip(value.shape, field.shape, strict=False)
    if value.ndim != len(field.shape) or any(want not in (-1, size) for size, want in sizes):
        return f"has shape {list(value.shape)}, not {list(field.shape)}"
    norm = float(torch.linalg.vector_norm(value, dtype=torch.float64))
    if norm != norm or norm == float("inf"):
        return "holds NaN or infinite values"
    if norm > max_norm:
        return f"has norm {norm:.3g}, more than {max_norm:g}"
    return None


def _meaning_fault(value: Tensor, field: Field, sizes: Sizes) -> str | None:
    if field.kind == "weight" and bool((value < 0).any()):
        return "is negative"
    if field.kind not in ("count", "presence", "votes"):
        return None
    if bool((value < 0).any()) or bool((value != value.round()).any()):
        return "holds counts that are negative or not whole"
    if field.kind == "votes":
        most = float(value.max()) if value.numel() else 0.0
        return (
            f"gives {most:.0f} votes, but the client has {sizes.num_train} training nodes"
            if most > sizes.num_train
            else None
        )
    if field.kind == "presence" and bool((value > 1).any()):
        return "holds a number that is neither 0 nor 1"
    over = (value > sizes.train).nonzero().reshape(-1).tolist()
    if over:
        known = int(sizes.train[over[0]])
        return f"counts {value[over[0]]:.0f} nodes of class {over[0]}, but the client declared {known}"
    return None


def _rows_fault(rows: Tensor, counts: Tensor, field: Field) -> str | None:
    if field.kind == "rows":
        named = int(counts.count_nonzero())
        return (
            None
            if rows.shape[0] == named
            else f"has {rows.shape[0]} rows, but {field.of} names {named} classes"
        )
    if bool(rows[counts == 0].any()):
        return f"has a row for a class of which {field.of} counts no node"
    return None
