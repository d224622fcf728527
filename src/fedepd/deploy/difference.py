"""Scores of models on a site's own test nodes, with intervals, and whether two models can be told apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fedepd.longtail import Tiers
from fedepd.metrics import class_accuracy, confusion_matrix, scores, wilson
from fedepd.report.numbers import mean_accuracy

Ints = npt.NDArray[np.int64]
Z = 1.96
"""Half the width of a 95 % interval, in standard errors."""


@dataclass(frozen=True)
class Measured:
    """A share, or a difference of shares, with its 95 % interval. NaN if there is nothing to measure."""

    value: float
    low: float
    high: float
    nodes: int
    """Over how many test nodes."""


def measured(y: Ints, predicted: Ints, tiers: Tiers, num_classes: int) -> dict[str, Measured]:
    """Balanced accuracy ("bacc"), macro-F1 ("macro_f1"), and accuracy by tier ("head_acc", ...).

    Args:
        y: The classes of the test nodes, [n].
        predicted: What the model says, [n].
        tiers: The classes of each tier.
        num_classes: The number of classes.

    The intervals of means of classes are those of the report (``report.numbers.mean_accuracy``).
    """
    counts = confusion_matrix(y, predicted, num_classes)
    found, belong = scores(counts, tiers), counts.sum(1)
    out = {}
    for name in ("head", "medium", "tail"):
        classes = getattr(tiers, name)
        low, high = mean_accuracy(counts, classes)[1:]
        out[f"{name}_acc"] = Measured(found[f"{name}_acc"], low, high, int(belong[list(classes)].sum()))
    every = mean_accuracy(counts, range(num_classes))
    balanced = Measured(*every, len(y))
    return {"bacc": balanced, "macro_f1": macro_f1(counts), **out}


def macro_f1(counts: Ints) -> Measured:
    """Macro-F1 and its interval, from a confusion matrix [C, C].

    Choice: of the nodes that belong to a class or were taken for it, the share J that is right has Wilson's
    interval, and F1 is 2 J / (1 + J). The half-widths of the classes are added in quadrature, as those of
    accuracies are. So a class with one test node has an interval, which a bootstrap would not give it.
    """
    belong, right = counts.sum(1), counts.diagonal()
    union = belong + counts.sum(0) - right  # [C]
    occurs = belong > 0
    if not occurs.any():
        return Measured(math.nan, math.nan, math.nan, 0)
    share = right[occurs] / union[occurs]
    value, low, high = (2 * j / (1 + j) for j in (share, *wilson(right[occurs], union[occurs])))
    below, above = (math.sqrt(float((end**2).sum())) / len(share) for end in (value - low, high - value))
    mean = float(value.mean())
    return Measured(mean, mean - below, mean + above, int(counts.sum()))


def difference(y: Ints, first: Ints, second: Ints, classes: Sequence[int]) -> Measured:
    """How much more the second model finds of each of the classes, in the mean over those that occur.

    Over all classes that is the difference of balanced accuracies.

    Args:
        y: The classes of the test nodes, [n].
        first: What the first model says, [n].
        second: What the second model says, [n].
        classes: Whose nodes count.

    Only nodes about which one model is right and the other is wrong speak for either. Such a node moves the
    difference by 1 / (classes x nodes of its class). So the difference is a sum of one term per node.

    Choice: the interval is McNemar's: 1.96 sqrt(Σ t²), with two terms of the mean size more, because few
    nodes that differ prove little. In one class it then says the same as McNemar's exact test, but for 16 of
    780 pairs of wins and losses below 40, where the test has p from 0.050 to 0.064. Its coverage, simulated
    over nine mixtures of class sizes from one class of 20 nodes to 20 classes of one node, is 94 to 99 %. A
    paired bootstrap inside the classes covers 17 to 97 %: it takes a class with one test node as known
    exactly.

    Choice: without a node that differs, the interval is as wide as the share of nodes that may still differ,
    which no more than one sample in twenty would hide.
    """
    chosen = np.isin(y, list(classes))
    y, first, second = y[chosen], first[chosen], second[chosen]
    n = len(y)
    if not n:
        return Measured(math.nan, math.nan, math.nan, 0)
    sizes = np.bincount(y)
    gained = (second == y).astype(np.int64) - (first == y).astype(np.int64)  # [n]: 1, 0 or -1
    terms = gained / (sizes[y] * (sizes > 0).sum())
    value, differ = float(terms.sum()), int((gained != 0).sum())
    half = Z * math.sqrt(float((terms**2).sum()) * (1 + 2 / differ)) if differ else 1 - 0.05 ** (1 / n)
    return Measured(value, max(value - half, -1.0), min(value + half, 1.0), n)


def found(y: Ints, predicted: Ints, num_classes: int) -> npt.NDArray[np.float64]:
    """The share of each class's test nodes that a model finds, [C]; NaN for a class without any."""
    return class_accuracy(confusion_matrix(y, predicted, num_classes))
