"""Head and tail classes, each with a softmax of its own, for LTE4G.

A linear layer has a column for every class, under ``HEAD.weight`` [w, C] and ``HEAD.bias`` [C]. Of a node's
logits only those of its own group count.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.types import Tensors

FAR = 20.0
"""A class of the other group lies so far below the lowest logit of a node's own group."""
SOFT = 0.1
"""The temperature at which similarities to head and tail classes are weighed against each other."""


def head_classes(counts: Tensor) -> Tensor:
    """Which classes are head classes, bool [C], by the authors' rule "pareto_73".

    The class at position int(.7 C) of the ranking says how many nodes are many. The cut is before or after
    all classes with as many, whichever is nearer to 7 head classes for 3 others.
    """
    ranked = counts.sort(descending=True).values
    place = int(0.7 * len(counts))
    after, before = counts >= ranked[place], counts > ranked[place]

    def gap(head: Tensor) -> float:
        tail = int((~head).sum())
        return abs(int(head.sum()) / tail - 7 / 3) if tail else float("inf")

    # Choice: where both are as near, after; the authors draw.
    return after if gap(after) <= gap(before) else before


def curriculum(step: int, steps: int) -> float:
    """What the experts of high degree weigh: 1 at the start of stage three, 0 at its end."""
    return math.cos(math.pi * step / (2 * steps)) if steps else 1.0


def head_logits(params: Tensors, head: str, rows: Tensor) -> Tensor:
    return torch.addmm(params[f"{head}.bias"], rows, params[f"{head}.weight"])


def own_group(logits: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
    """Log-probabilities among the classes of each node's own group [t, C]; of others they are -inf."""
    other = groups[labels][:, None] != groups
    return logits.masked_fill(other, float("-inf")).log_softmax(1)


def group_loss(params: Tensors, head: str, rows: Tensor, labels: Tensor, groups: Tensor) -> Tensor:
    """Σ over head and tail classes of the mean cross-entropy among the classes of the group."""
    if not len(labels):
        return params[f"{head}.bias"].sum() * 0
    each = F.nll_loss(own_group(head_logits(params, head, rows), labels, groups), labels, reduction="none")
    return (each * group_shares(labels, groups)).sum()


def group_shares(labels: Tensor, groups: Tensor) -> Tensor:
    """1 / the number of nodes of a node's group: [t]."""
    mine = groups[labels]
    size = torch.where(mine, mine.sum(), (~mine).sum())
    return 1 / size.to(torch.float32)


def distance(
    teachers: Tensors, teacher: str, params: Tensors, rows: Tensor, labels: Tensor, groups: Tensor
) -> Tensor:
    """Σ over head and tail classes of KL(teacher ‖ student), the mean over nodes and classes of the group."""
    if not len(labels):
        return params["student.bias"].sum() * 0
    wanted = own_group(head_logits(teachers, teacher, rows), labels, groups).detach()
    found = own_group(head_logits(params, "student", rows), labels, groups)
    inside = wanted > float("-inf")
    terms = torch.where(inside, wanted.exp() * (wanted - found).masked_fill(~inside, 0.0), 0.0)
    return (terms.sum(1) * group_shares(labels, groups) / inside.sum(1)).sum()


def similarity(rows: Tensor, means: Tensor, known: Tensor) -> Tensor:
    """The cosine of every row with every class's prototype; -inf for a class without one: [n, C]."""
    near = F.normalize(rows, dim=1) @ F.normalize(means, dim=1).t()
    return near.masked_fill(~known, float("-inf"))


def nearest_class(near: Tensor, counts: Tensor) -> Tensor:
    """The class of the nearest prototype, of several the largest: int64 [n]."""
    ranking = torch.argsort(counts, descending=True, stable=True)
    return ranking[near[:, ranking].argmax(1)]


def routed(logits: Tensor, in_head: Tensor, groups: Tensor) -> Tensor:
    """The logits of a node's own group; all other classes lie far below them: [n, C]."""
    mine = in_head[:, None] == groups
    lowest = logits.masked_fill(~mine, float("inf")).amin(1, keepdim=True) - FAR
    return torch.where(mine, logits, lowest)


def mixed(logits: Tensor, near: Tensor, groups: Tensor) -> Tensor:
    """Both students, weighed by how near the nearest class of their group is: log-probabilities [n, C]."""
    parts = []
    for group in (groups, ~groups):
        best = near.masked_fill(~group, float("-inf")).amax(1, keepdim=True)
        parts.append((group, best / SOFT))
    weights = torch.cat([best for _, best in parts], 1).log_softmax(1)
    out = torch.full_like(logits, float("-inf"))
    for place, (group, _) in enumerate(parts):
        inside = logits.masked_fill(~group, float("-inf")).log_softmax(1)
        out = torch.where(group, inside + weights[:, place : place + 1], out)
    return out.clamp(min=math.log(1e-30))
