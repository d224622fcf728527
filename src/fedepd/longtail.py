"""The imbalance of classes, and which of them are head, medium and tail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedepd.errors import BadConfig, BadData

if TYPE_CHECKING:
    from torch import Tensor

ClassSizes: TypeAlias = "Sequence[int] | npt.NDArray[Any] | Tensor"
"""Number of nodes per class, [C]."""


@dataclass(frozen=True)
class Tiers:
    """The classes of each tier, in descending size. Classes without nodes are in no tier."""

    head: tuple[int, ...]
    medium: tuple[int, ...]
    tail: tuple[int, ...]


def imbalance_ratio(class_sizes: ClassSizes) -> float:
    """Size of the largest class divided by the size of the smallest, among the classes that occur."""
    sizes = _sizes(class_sizes)
    sizes = sizes[_occurring(sizes)]
    return float(sizes[0] / sizes[-1])  # Eq. 17


def class_order(class_sizes: ClassSizes) -> list[int]:
    """All classes in descending size. Classes of equal size are in the order of their numbers."""
    order: list[int] = np.argsort(-_sizes(class_sizes), kind="stable").tolist()
    return order


def tiers(class_sizes: ClassSizes, head_share: float = 0.5, tail_share: float = 0.3) -> Tiers:
    """The tiers of the classes.

    The head is the fewest classes that hold ``head_share`` of the nodes. The tail is the last ``tail_share``
    of the classes. Medium is the rest.

    Choice: the paper draws the tiers in its figures without a rule. Its tail is "the last three bins" of ten,
    hence 0.3. Choice: classes that do not occur are left out, because nothing can be measured on them in the
    tail.

    With few classes, the head is filled first. The tail has at least one class, and its size is rounded as
    Python rounds (half to even). So one class is all head, two classes are head and tail, and the medium tier
    may be empty.
    """
    for name, share in (("head_share", head_share), ("tail_share", tail_share)):
        if not 0 < share < 1:
            raise BadConfig(f"{name} is {share}; it is a share and must lie between 0 and 1")
    sizes = _sizes(class_sizes)
    order = _occurring(sizes)
    held = np.cumsum(sizes[order])
    head_end = int(np.searchsorted(held, head_share * held[-1])) + 1
    tail_start = max(head_end, len(order) - max(1, round(tail_share * len(order))))
    return Tiers(tuple(order[:head_end]), tuple(order[head_end:tail_start]), tuple(order[tail_start:]))


def bins(class_sizes: ClassSizes, count: int = 10) -> list[list[int]]:
    """The classes that occur, in descending size, cut into ``count`` bins.

    The lengths of the bins differ by at most one, and the longer bins come first. Fewer classes than
    ``count`` give one bin per class.
    """
    if count < 1:
        raise BadConfig(f"the number of bins is {count}; it must be at least 1")
    order = _occurring(_sizes(class_sizes))
    return [part.tolist() for part in np.array_split(order, min(count, len(order)))]


def _sizes(class_sizes: ClassSizes) -> npt.NDArray[np.int64]:
    sizes = np.asarray(class_sizes, dtype=np.int64)
    if sizes.ndim != 1 or not (sizes >= 0).all() or not sizes.any():
        raise BadData(
            f"class sizes {sizes.tolist()} must be one count >= 0 per class with at least one labelled node"
        )
    return sizes


def _occurring(sizes: npt.NDArray[np.int64]) -> list[int]:
    return [c for c in class_order(sizes) if sizes[c]]


def label_divergence(own: ClassSizes, whole: ClassSizes) -> float | None:
    """Jensen-Shannon divergence of two counts of classes [C], to base 2.

    It is 0 for the same shares, and 1 without a class in common. None where one of them counts nothing.
    """
    counts = np.stack([np.asarray(each, dtype=np.float64) for each in (own, whole)])
    if not (counts.sum(1) > 0).all():
        return None
    shares = counts / counts.sum(1, keepdims=True)  # [2, C]
    middle = np.broadcast_to(shares.mean(0), shares.shape)
    held = shares > 0
    return float((shares[held] * np.log2(shares[held] / middle[held])).sum() / 2)
