"""Defences that keep one client from deciding for all: a cap on its weight, and robust rules instead of the
mean.

They run between the check of the replies and the method's server step. So they work with every method, and no
method needs to know about them.

References: median and trimmed mean, Yin et al., ICML 2018, arXiv 1803.01498; Multi-Krum, Blanchard et al.,
NeurIPS 2017, arXiv 1703.02757; clipping to the median norm as in Sun et al., "Can You Really Backdoor
Federated Learning?", arXiv 1911.07963.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.options import option
from fedepd.types import Field, Fields, Reply, Tensors

Rule = Literal["off", "clip", "median", "trimmed", "multi-krum"]

MEDIAN_SIZES = 3
"""With capped weights no client counts for more than this many clients of median size.

Nor does it count for more than all others together.
"""
ROW_MARGIN = 1.5
"""A class row (prototype, gradient) may be at most this many times as long as the median client's median
row."""
PULL = 1.5
"""Under clip, the update of a client with more than this many median sizes is shortened in proportion to its
size.

So a large client cannot pull the mean further than a client of this size.

Choice: 1.5 median sizes. Two of ten clients claimed a million nodes and sent zeros (email, 60 rounds, 3
seeds). With the weight cap alone they took balanced accuracy from 46.0 to 7.2; with 1.5 it is 40.4. Honest
runs lose nothing with 1.5 (46.1), but a point with 1.
"""
CLIP_FROM = 3
"""Clipping starts at this many replies. With fewer there is no majority to compare with."""


@dataclass(frozen=True)
class Defence:
    """Defences against clients that lie.

    By default all are off in a simulation; a federation uses clip and the cap.
    """

    robust: Rule = option(
        "off", "clip: shorten updates to the median length; median, trimmed, multi-krum: replace the mean"
    )
    tolerate: int = option(1, "how many dishonest clients trimmed and multi-krum must tolerate")
    cap_weights: bool = option(
        False, "no client counts for more than half of the total, nor for more than 3 clients of median size"
    )

    def __post_init__(self) -> None:
        if self.tolerate < 1:
            raise BadConfig(
                f"tolerate is {self.tolerate}; give at least 1, or use another rule than '{self.robust}'"
            )

    def idle(self) -> dict[str, str]:
        return {} if self.robust in ("trimmed", "multi-krum") else {"tolerate": "robust"}

    @property
    def least(self) -> int:
        """The smallest number of replies that the rule can work with."""
        return {"trimmed": 2 * self.tolerate + 1, "multi-krum": 2 * self.tolerate + 3}.get(self.robust, 1)

    def check(self, label: str, averages: bool, clients: int) -> None:
        """Refuse a rule that cannot work with this method or with this number of clients."""
        if self.robust in ("median", "trimmed", "multi-krum") and not averages:
            raise BadConfig(
                f"robust is '{self.robust}', but {label} does not average a common model; use 'clip' or 'off'"
            )
        if clients < self.least:
            told = f"{self.robust} needs at least {self.least} clients to tolerate {self.tolerate}"
            raise BadConfig(
                f"{told}, but a round has {clients}; use another rule, or --tolerate with a smaller number"
            )


NO_DEFENCE = Defence()


@dataclass(frozen=True)
class Deeds:
    """What the defences did in one round, by client. Empty if they did nothing."""

    clipped: dict[int, float] = field(default_factory=dict)
    """Client -> the share of its update that is left, below 1."""
    rows: dict[int, int] = field(default_factory=dict)
    """Client -> how many of its class rows were shortened."""
    left_out: list[int] = field(default_factory=list)
    """The clients whose replies multi-krum did not use."""
    capped: dict[int, float] = field(default_factory=dict)
    """Client -> the share of its weight that is left, below 1."""
    skipped: str = ""
    """Why the whole round could not be used. Empty if it was used."""

    def as_json(self) -> dict[str, Any]:
        """The entries that are not empty."""
        return {name: value for name, value in vars(self).items() if value}


def defend(
    replies: Mapping[int, Reply], messages: Mapping[int, Tensors], fields: Fields, how: Defence
) -> tuple[dict[int, Reply], Deeds]:
    """The replies that the method's server step may use, and what was done to them.

    There are none if the rule has too few replies to work with.
    """
    used, deeds, capped = dict(replies), Deeds(), dict[int, float]()
    trained = [k for k in sorted(used) if used[k].num_train > 0]
    if how.cap_weights:  # before clip, which looks at the capped weight
        used, capped = cap_weights(used, fields)
    if how.robust != "off":
        if len(trained) < how.least:
            return {}, Deeds(
                skipped=f"{how.robust} needs at least {how.least} replies, but only {len(trained)} came"
            )
        used, rows = shorten_rows(used, fields)
        updates = [
            name for name, known in fields.items() if known.kind == "real" and name in messages[min(messages)]
        ]
        used, deeds = _by_rule(used, messages, trained, updates, how)
        deeds = replace(deeds, rows=rows)
    return used, replace(deeds, capped=capped)


def _by_rule(
    used: dict[int, Reply],
    messages: Mapping[int, Tensors],
    trained: Sequence[int],
    updates: Sequence[str],
    how: Defence,
) -> tuple[dict[int, Reply], Deeds]:
    if not updates or not trained:
        return used, Deeds()
    if how.robust == "clip":
        return _clip(used, messages, trained, updates) if len(trained) >= CLIP_FROM else (used, Deeds())
    if how.robust == "multi-krum":
        flat = torch.stack([_flat(used[k].tensors, updates) for k in trained])
        kept = {trained[row] for row in multi_krum(flat, how.tolerate)}
        left_out = [k for k in trained if k not in kept]
        return {k: reply for k, reply in used.items() if k not in left_out}, Deeds(left_out=left_out)
    for name in updates:
        stacked = torch.stack([used[k].tensors[name] for k in trained]).to(torch.float64)  # [K, ...]
        value = coordinate_median(stacked) if how.robust == "median" else trimmed_mean(stacked, how.tolerate)
        # Every client now sends the same value, so the method's weighted mean is that value, whatever the
        # weights.
        same = value.to(torch.float32)
        used = {k: _with(reply, {name: same}) if k in trained else reply for k, reply in used.items()}
    return used, Deeds()


def _clip(
    used: dict[int, Reply], messages: Mapping[int, Tensors], trained: Sequence[int], updates: Sequence[str]
) -> tuple[dict[int, Reply], Deeds]:
    """Shorten every update (reply minus message) to at most the median length, and further for very large
    clients.

    Other replies keep their bits.
    """
    norms = {k: _distance(used[k].tensors, messages[k], updates) for k in trained}
    bound = median(norms.values())
    large = _times_the_median({k: used[k] for k in trained})
    shares = {
        k: min(1.0, bound / norm if norm else 1.0) * min(1.0, PULL / large[k]) for k, norm in norms.items()
    }
    left = {k: share for k, share in shares.items() if share < 1}
    out = dict(used)
    for k, share in left.items():
        sent = {name: messages[k][name].to(torch.float64) for name in updates}
        moved = {name: sent[name] + share * (used[k].tensors[name] - sent[name]) for name in updates}
        out[k] = _with(used[k], {name: value.to(torch.float32) for name, value in moved.items()})
    return out, Deeds(clipped=left)


def _times_the_median(replies: Mapping[int, Reply]) -> dict[int, float]:
    """Client -> its size as a multiple of the median, by nodes or by training nodes, whichever is more."""
    nodes, train = (median([count(r) for r in replies.values()]) for count in (_nodes, _train))
    return {k: max(r.num_nodes / nodes, r.num_train / train) for k, r in replies.items()}


def _nodes(reply: Reply) -> int:
    return reply.num_nodes


def _train(reply: Reply) -> int:
    return reply.num_train


def coordinate_median(stacked: Tensor) -> Tensor:
    """The median over the first dimension. For an even number it is the mean of the two middle values."""
    ordered, count = stacked.sort(0).values, stacked.shape[0]
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def trimmed_mean(stacked: Tensor, cut: int) -> Tensor:
    """The mean over the first dimension, without the ``cut`` smallest and the ``cut`` largest values of
    each entry."""
    return stacked.sort(0).values[cut : stacked.shape[0] - cut].mean(0)


def multi_krum(flat: Tensor, tolerate: int) -> list[int]:
    """The rows of ``flat`` [K, n] to keep, in ascending order.

    The score of a row is the sum of squared distances to its K - tolerate - 2 nearest neighbours. The
    ``tolerate`` rows with the highest scores are dropped.
    """
    distances = torch.cdist(flat, flat, compute_mode="donot_use_mm_for_euclid_dist").square()  # [K, K]
    near = max(1, flat.shape[0] - tolerate - 2)
    scores = distances.sort(1).values[:, 1 : near + 1].sum(1)
    return sorted(scores.argsort(stable=True)[: flat.shape[0] - tolerate].tolist())


def shorten_rows(replies: dict[int, Reply], fields: Fields) -> tuple[dict[int, Reply], dict[int, int]]:
    """Shorten class rows that are longer than ``ROW_MARGIN`` times the median client's row.

    For a field of sums the length of the mean is measured.

    Choice: each client counts once, by the median of its own rows. Otherwise a client that claims every class
    would outvote the others.
    """
    out, shortened = dict(replies), dict[int, int]()
    for name, known in fields.items():
        if known.kind not in ("sum", "mean", "rows"):
            continue
        norms = {k: _row_norms(reply, name, known) for k, reply in replies.items()}
        typical = [median(each[each > 0].tolist()) for each in norms.values() if bool((each > 0).any())]
        bound = ROW_MARGIN * median(typical) if typical else 0.0
        for k, each in norms.items():
            long = each > bound
            if bool(long.any()):
                rows = replies[k].tensors[name]
                factor = torch.where(long, bound / each, 1.0).reshape(-1, *[1] * (rows.ndim - 1))
                out[k] = _with(out[k], {name: (rows * factor).to(torch.float32)})
                shortened[k] = shortened.get(k, 0) + int(long.sum())
    return out, shortened


def _row_norms(reply: Reply, name: str, known: Field) -> Tensor:
    """The length of each row of a field of class rows, float64: [rows]."""
    norms: Tensor = torch.linalg.vector_norm(reply.tensors[name].flatten(1), dim=1, dtype=torch.float64)
    return norms / reply.tensors[known.of].clamp(min=1) if known.kind == "sum" and known.of else norms


def cap_weights(replies: dict[int, Reply], fields: Fields) -> tuple[dict[int, Reply], dict[int, float]]:
    """The replies with capped sizes, counts and weights, and the share that is left of each weight that
    was capped."""
    # Clients that did not train have no weight, so they cannot raise the caps either.
    trained = [r for r in replies.values() if r.num_train > 0]
    nodes, train = int(_cap([r.num_nodes for r in trained])), int(_cap([r.num_train for r in trained]))
    said = [name for name, known in fields.items() if known.kind == "weight"]
    most = {name: _cap([float(r.tensors[name].max()) for r in trained]) for name in said}
    left: dict[int, float] = {}
    out = {}
    for k, reply in replies.items():
        if reply.num_train == 0:
            out[k] = reply
            continue
        counts = min(reply.num_nodes, nodes), min(reply.num_train, train)
        share = counts[1] / reply.num_train
        smaller = {name: reply.tensors[name].clamp(max=most[name]) for name in said}
        if share < 1:
            # Scale a sum and its count together, so that their mean stays the same.
            both = [name for name, known in fields.items() if known.kind in ("count", "sum", "votes")]
            smaller |= {name: reply.tensors[name] * share for name in both}
        out[k] = replace(_with(reply, smaller), num_nodes=counts[0], num_train=counts[1])
        weights = [
            most[name] / float(reply.tensors[name].max())
            for name in said
            if float(reply.tensors[name].max()) > most[name]
        ]
        if (part := min(share, counts[0] / reply.num_nodes, *weights)) < 1:
            left[k] = part
    return out, left


def shares(sizes: Sequence[int]) -> list[float]:
    """The share of each size that is left under the cap (``_cap``)."""
    cap = _cap(sizes)
    return [min(1.0, cap / size) if size else 1.0 for size in sizes]


def _cap(sizes: Sequence[float]) -> float:
    """The most that one of these sizes may count.

    That is ``MEDIAN_SIZES`` times the median of the sizes above 0, and at most what all others have together.
    """
    positive = sorted(n for n in sizes if n > 0)
    if len(positive) < 2:
        return max(positive, default=0)
    cap = MEDIAN_SIZES * median(positive)
    return min(cap, sum(min(n, cap) for n in positive[:-1]))


def _flat(tensors: Mapping[str, Tensor], names: Sequence[str]) -> Tensor:
    return torch.cat([tensors[name].reshape(-1) for name in names]).to(torch.float64)


def _distance(here: Tensors, there: Tensors, names: Sequence[str]) -> float:
    squares = [
        float(torch.linalg.vector_norm(here[name] - there[name], dtype=torch.float64)) ** 2 for name in names
    ]
    return math.sqrt(math.fsum(squares))


def _with(reply: Reply, tensors: Tensors) -> Reply:
    return replace(reply, tensors={**reply.tensors, **tensors})
