"""Whether one model is better than another on the same nodes, from counts that clients can add up.

Only nodes that the two models classify differently speak for either. They are counted by what the first model
says, what the second says, and who is right. The gain in a score and its interval follow from these counts,
so a server needs no single node and no single client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

FIRST, SECOND, NEITHER = range(3)
"""Who is right about a node: the first model, the second, or neither."""
Z = 1.96
"""Standard errors on each side of a gain: its 95 % interval.

Choice: both sides, although only a loss would be a mistake. The best of ten candidates looks better than it
is, and the wider interval makes up for some of that.
"""


@dataclass(frozen=True)
class Gain:
    """How much better the second model is, as a share, and half of the interval's width."""

    value: float
    half: float

    @property
    def sure(self) -> bool:
        """Whether the whole interval lies above 0."""
        return self.value > self.half


def gain(first: Counts, changed: Counts, metric: str) -> Gain:
    """The gain in ``acc`` or ``macro_f1``, and its interval.

    Args:
        first: The first model's confusion matrix [C, C].
        changed: [3, C, C]: the nodes about which the models differ, by who is right (``FIRST``, ...), by what
            the first model says and by what the second says.
        metric: The score.

    With T right nodes of a class, D nodes that belong to it or were taken for it, and F = 2 T / D, it holds
    exactly that F₂ - F₁ = (2 (T₂ - T₁) - F̄ (D₂ - D₁)) / D̄, where F̄ and D̄ are the means of both models. Both
    differences are sums over the nodes that changed. So the gain is a sum of one term per node, and a node
    that did not change has the term 0.

    Choice: the variance is that of such a sum, Σ t² - (Σ t)² / n. For accuracy it is McNemar's. No node is
    drawn again, so it needs no bootstrap: on 2,748 validation nodes of amazon_computers both intervals are
    1.2 points. On 182 nodes of email, with 42 classes, this one is wider (7.5 against 5.9 points), which is
    the safe side. Resamples with known seeds would also tell a server the class of single nodes.
    """
    nodes = int(first.sum())
    if nodes == 0:
        return Gain(0.0, 0.0)
    right, cost = _prices(first, changed, metric, nodes)
    of_second = right * np.array([0, 1, 0])[:, None, None] - cost  # by what the second says, [3, 1, C]
    of_first = (right * np.array([1, 0, 0])[:, None, None] - cost).transpose(0, 2, 1)
    terms = of_second - of_first  # [3, C, C]
    value = float((changed * terms).sum())
    variance = float((changed * terms**2).sum()) - value**2 / nodes
    return Gain(value, Z * max(variance, 0.0) ** 0.5)


def _prices(
    first: Counts, changed: Counts, metric: str, nodes: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What the score gains by a right answer of each class, and loses by any answer of it: [C] each."""
    if metric == "acc":
        return np.full(len(first), 1 / nodes), np.zeros(len(first))
    belong, flow = first.sum(1), changed.sum(0)
    taken = first.sum(0), first.sum(0) - flow.sum(1) + flow.sum(0)
    hits = (
        first.diagonal(),
        first.diagonal() - changed[FIRST].sum(1) + changed[SECOND].sum(0),
    )
    sizes = [np.maximum(belong + each, 1) for each in taken]  # D
    f1 = sum(2 * hit / size for hit, size in zip(hits, sizes, strict=True)) / 2
    # A class that does not occur is no term of the mean.
    share = np.where(belong > 0, 1 / max(int((belong > 0).sum()), 1), 0.0) / (sum(sizes) / 2)
    return 2 * share, f1 * share


def best(first: Counts, changed: Sequence[Counts], metric: str) -> tuple[int, Gain]:
    """The second model with the largest gain, by its number, and its gain. The earliest wins a tie."""
    gains = [gain(first, each, metric) for each in changed]
    number = int(np.argmax([each.value for each in gains]))
    return number, gains[number]
