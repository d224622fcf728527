"""Temperatures from sums: clients send how likely their validation nodes are at each temperature of a grid.

The likelihoods of two clients' nodes add up, so the temperatures of all nodes can be found from the sum. No
client shows a node, and it need not show its own sum either (``rounds.sums``). A simulated run finds its
temperatures in the same way, so that it and a federation agree to the last bit.

Shapes: n nodes, C classes, G temperatures. A node's tier is the tier of its PREDICTED class, because its true
class is not known when the model predicts.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedepd.errors import BadMessage
from fedepd.longtail import Tiers
from fedepd.rounds.sums import CannotSum, Layout, Vector, fractions, summed, whole
from fedepd.shapes import TIERS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

COOLEST, HOTTEST = 0.05, 20.0
"""The range in which temperatures are searched."""
LOG_GRID: Floats = np.linspace(math.log(COOLEST), math.log(HOTTEST), 257)
"""The logarithms of the grid's temperatures. The middle one is 0, that is temperature 1.

Choice: steps of 0.023. The vertex of a parabola through three of them is then within 0.1 % of the best
temperature, and a step of 0.1 would be 1 % off (tests/rounds/test_calibrate.py). A vector has 774 numbers.
"""
MIN_NODES = 20
"""A tier with fewer validation nodes uses the temperature of all nodes.

If there are fewer in total, the temperature stays 1.
"""
ROWS = 4096
"""So many nodes are looked at together, to save memory."""
MOST = 2**63 - 1


def tier_of_class(tiers: Tiers, num_classes: int) -> Ints:
    """The tier of each class, 0 head, 1 medium, 2 tail: [C].

    Choice: a class that does not occur in the training data counts as tail.
    """
    out = np.full(num_classes, 2)
    for number, name in enumerate(TIERS):
        out[list(getattr(tiers, name))] = number
    return out


def grid_layout() -> Layout:
    """The parts of a client's vector: by tier the number of nodes, and their -log p at each temperature.

    The numbers of nodes are whole. The others are whole multiples of 2^-24.
    """
    return tuple((f"{tier}/{part}", (size,)) for tier in TIERS for part, size in PARTS)


PARTS = (("nodes", 1), ("nll", LOG_GRID.size))
SIZE = 1 + LOG_GRID.size
"""Numbers of one tier."""


def grid_sums(
    logits: Floats, y: Ints, tier: Ints, known: Flags | None = None, few: int = 0, clients: int = 1
) -> Vector:
    """A client's vector, from its validation nodes.

    Args:
        logits: The model's, [n, C].
        y: The nodes' classes, [n].
        tier: The tier of each class, [C], from ``tier_of_class``.
        known: The classes that the model can predict, bool [C]; all of them if None. Nodes of other classes
            have no likelihood at any temperature, and are left out. So are nodes whose class has the logit
            -inf.
        few: Where the vector is seen alone: a tier with fewer nodes than this is left out.
        clients: How many are summed at most, so that no sum can overflow.

    Returns:
        int64 [774], as ``grid_layout`` says.

    Raises:
        CannotSum: A logit is too large to be summed, or no number.
    """
    if not bool((logits < math.inf).all()):  # neither for NaN
        raise CannotSum("holds a logit that is infinite or no number; scale the features, or lower lr")
    likely = logits[np.arange(len(y)), y] > -math.inf
    chosen = likely if known is None else likely & known[y]
    logits, y = logits[chosen].astype(np.float64), y[chosen]
    own = tier[logits.argmax(1)] if len(y) else np.empty(0, dtype=np.int64)  # [n]
    out: Vector = np.zeros((len(TIERS), SIZE), dtype=np.int64)
    for number in range(len(TIERS)):
        mask = own == number
        if (count := int(mask.sum())) >= max(few, 1):
            out[number] = [count, *whole(unlikelihood(logits[mask], y[mask]), clients)]
    return out.reshape(-1)


def unlikelihood(logits: Floats, y: Ints) -> Floats:
    """The nodes' sum of -log softmax(z / T)_y at every temperature of the grid, [G]."""
    scales, out = np.exp(-LOG_GRID), np.zeros(LOG_GRID.size)
    for start in range(0, len(y), ROWS):
        rows, true = logits[start : start + ROWS], y[start : start + ROWS]
        rows = rows - rows.max(1, keepdims=True)
        own = rows[np.arange(len(true)), true].sum()
        for i, scale in enumerate(scales):
            out[i] += np.log(np.exp(scale * rows).sum(1)).sum() - scale * own
    return out


def temperatures_from(total: Vector) -> dict[str, float]:
    """Tier -> the temperature with the lowest negative log-likelihood, from the sum of all clients' vectors.

    Raises:
        BadMessage: The sum cannot be one of such vectors.
    """
    parts = _checked(total)
    counts, sums = parts[:, 0], parts[:, 1:]
    # ``all`` is not sent. Beside it, a tier that a client leaves out would be a difference.
    common = best_temperature(summed(list(sums))) if counts.sum() >= MIN_NODES else 1.0
    found = {}
    for name, count, own in zip(TIERS, counts, sums, strict=True):
        found[name] = best_temperature(own) if count >= MIN_NODES else common
    return found


def nodes_in(total: Vector) -> int:
    """The number of validation nodes behind a sum."""
    return int(_checked(total)[:, 0].sum())


def _checked(total: Vector) -> Vector:
    if total.shape != (len(TIERS) * SIZE,) or total.dtype != np.int64:
        raise BadMessage(f"the sums to calibrate by are not {len(TIERS) * SIZE} whole numbers")
    parts = total.reshape(len(TIERS), SIZE)
    if int(parts.min()) < 0 or int(parts[:, 1:].max()) > MOST // len(TIERS) or int(parts[:, 0].max()) > 2**40:
        raise BadMessage("the sums to calibrate by hold a number that no client could have sent")
    return parts


def best_temperature(sums: Vector) -> float:
    """The temperature with the smallest sum, between those of the grid.

    It is the vertex of the parabola through the smallest sum and its two neighbours. Among equal sums the one
    nearest to temperature 1 is taken, because nothing speaks for another one.
    """
    lowest = np.flatnonzero(sums == sums.min())
    at = int(lowest[np.abs(lowest - LOG_GRID.size // 2).argmin()])
    if not 0 < at < LOG_GRID.size - 1:
        return float(np.exp(LOG_GRID[at]))
    left, here, right = fractions(sums[at - 1 : at + 2] - sums[at])
    bend = left - 2 * here + right
    step = 0.5 * (left - right) / bend if bend > 0 else 0.0
    return float(np.exp(LOG_GRID[at] + step * (LOG_GRID[1] - LOG_GRID[0])))


def probabilities(logits: Floats, temperatures: dict[str, float], tier: Ints) -> Floats:
    """softmax(z / T), where T belongs to the tier of the predicted class: [n, C].

    A node has one temperature, so its likeliest class stays the same.
    """
    scale = (
        np.array([temperatures[name] for name in TIERS])[tier[logits.argmax(1)]]
        if len(logits)
        else np.empty(0)
    )
    out: Floats = softmax(logits / scale[:, None], axis=1)
    return out
