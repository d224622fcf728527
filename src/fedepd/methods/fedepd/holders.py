"""Part of the classifier is averaged class by class, over the clients that hold a class.

FedAvg's mean of a class's column is mostly one of clients without the class, which only push it down. With
``holders`` = h, client k's column of class c has the weight

    s_k ((1 - h) + h (n_kc / n_k) / (N_c / N))

with its size s_k, its n_kc training nodes of the class among n_k, and the sums N_c and N of all clients. If
sizes are numbers of training nodes, that is (1 - h) times FedAvg's mean plus h times the mean over the
holders, weighted by their nodes of the class. If they are numbers of nodes, it is so nearly, because all
clients train on about the same share of their nodes. It is one weighted mean, so a server that sees sums only
can make it too: it gets the sums of weight times column and of the weights. No byte more is sent.

Choice: N_c are the counts of the last round, which client and server both know from the message. In round 1,
and for a class that nobody has, the mean is FedAvg's.
Choice: a reply that counts no node of any class has no say. Under the guard its columns are as it received
them. Under secure sums it stands for a round in which a client dropped out, whose counts must not be told.
Then the classifier stays as it is for a round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from fedepd.methods.base import weight_of
from fedepd.methods.steps import class_mean, weighted_mean
from fedepd.types import CLASSIFIER, Fields, Reply, TaskInfo, Tensors

COUNT = "prototype.count"
"""Training nodes of each class, [C]: a client's, and those of all clients in the last round."""


def by_holders(fields: Fields, tensors: Tensors) -> Fields:
    """The fields of a reply, in which the classifier's say how rare each class is: N / N_c, or 0."""
    count = tensors[COUNT].to(torch.float64)
    if not bool(count.any()):
        return fields
    rarity = torch.where(count > 0, count.sum() / count.clamp(min=1), 0.0)
    factors = tuple(rarity.tolist())
    return {n: replace(f, factors=factors) if n in CLASSIFIER else f for n, f in fields.items()}


def column_weights(info: TaskInfo, factors: tuple[float, ...], share: float, reply: Reply) -> Tensor:
    """How much a reply counts in the mean of each class's column: float64 [C]."""
    counts = reply.tensors[COUNT].to(torch.float64)
    if not bool(counts.any()):
        return counts
    over_represented = torch.tensor(factors, dtype=torch.float64) * counts / counts.sum()
    return weight_of(info, reply) * ((1 - share) + share * over_represented)


def average_by_holders(
    info: TaskInfo, fields: Fields, tensors: Tensors, replies: Mapping[int, Reply], share: float
) -> Tensors:
    """The mean of the named tensors.

    Those whose field has factors are averaged class by class, all others as FedAvg does. Where no reply has
    a say, a column stays as it is.
    """
    sizes = {k: weight_of(info, reply) for k, reply in replies.items()}
    plain = {name: value for name, value in tensors.items() if fields[name].factors is None}
    new = weighted_mean(plain, replies, sizes)
    for name in (name for name in tensors if name not in plain):
        factors = fields[name].factors
        assert factors is not None
        pairs = [
            (replies[k].tensors[name].movedim(-1, 0), column_weights(info, factors, share, replies[k]))
            for k in sorted(replies)
        ]
        new[name] = class_mean(tensors[name].movedim(-1, 0), pairs).movedim(0, -1).contiguous()
    return new
