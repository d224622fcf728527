"""Every metric, computed from confusion matrices alone.

A confusion matrix is int64 [C, C]; rows are true classes, columns are predicted classes. A class "occurs" if
it has true nodes in the matrix. A metric that cannot be measured is NaN, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from fedepd.errors import BadData
from fedepd.longtail import Tiers

METRICS = ("acc", "bacc", "macro_f1", "head_acc", "medium_acc", "tail_acc")

Array = npt.NDArray[Any] | Tensor
Floats = npt.NDArray[np.float64]


def confusion_matrix(y_true: Array, y_pred: Array, num_classes: int) -> npt.NDArray[np.int64]:
    """Count the nodes of true class i predicted as j: [C, C]."""
    true, predicted = np.asarray(y_true, dtype=np.int64), np.asarray(y_pred, dtype=np.int64)
    if true.ndim != 1 or true.shape != predicted.shape:
        raise BadData(
            f"y_true has shape {list(true.shape)} and y_pred {list(predicted.shape)}; "
            f"give one class per node in both"
        )
    for name, labels in (("y_true", true), ("y_pred", predicted)):
        if labels.size and not 0 <= labels.min() <= labels.max() < num_classes:
            raise BadData(f"{name} holds classes outside 0..{num_classes - 1}; score labelled nodes only")
    return (
        np.bincount(true * num_classes + predicted, minlength=num_classes**2)
        .reshape(num_classes, num_classes)
        .astype(np.int64)
    )


def scores(confusion: Array, tiers: Tiers) -> dict[str, float]:
    """All of ``METRICS`` of one matrix, as fractions.

    ``bacc`` and ``macro_f1`` are means over the classes that occur. A class that is only predicted lowers the
    precision of the others, but is not a term of the mean. (scikit-learn's f1_score counts it as a zero
    unless it gets the labels.) Choice: a tier's accuracy is the plain mean of its classes' accuracies, as the
    paper averages classes inside its bins.
    """
    counts = _checked(confusion, ndim=2)
    recall = class_accuracy(counts)  # [C]
    support, predicted = counts.sum(1), counts.sum(0)  # [C], [C]
    f1 = _ratio(2 * counts.diagonal(), np.where(support > 0, support + predicted, 0))  # [C]
    return {
        "acc": float(_ratio(counts.trace(), counts.sum())),
        "bacc": _mean(recall),
        "macro_f1": _mean(f1),
        "head_acc": _mean(recall[list(tiers.head)]),
        "medium_acc": _mean(recall[list(tiers.medium)]),
        "tail_acc": _mean(recall[list(tiers.tail)]),
    }


def pooled(confusions: Array, tiers: Tiers, shares: Sequence[float] | None = None) -> dict[str, float]:
    """The scores of all clients' nodes taken together, from confusions [K, C, C].

    ``shares`` says for each client which share of its nodes counts.
    """
    counts = _checked(confusions, ndim=3)
    if shares is None:
        return scores(counts.sum(0), tiers)
    return scores(np.tensordot(np.asarray(shares, dtype=np.float64), counts, 1), tiers)


def client_mean(confusions: Array, tiers: Tiers) -> dict[str, float]:
    """The mean of the clients' own scores, weighted by their numbers of scored nodes: confusions [K, C, C].

    A client without such nodes does not count. A client without a tier is left out of that tier's mean only.
    """
    counts = _checked(confusions, ndim=3)
    clients = [scores(c, tiers) for c in counts]
    nodes = counts.sum((1, 2))  # [K]
    return {name: _mean(np.array([c[name] for c in clients]), nodes) for name in METRICS}


def class_accuracy(confusion: Array) -> Floats:
    """The share of each class's nodes that are predicted right (its recall), [C]; NaN for absent classes."""
    counts = _checked(confusion, ndim=2)
    return _ratio(counts.diagonal(), counts.sum(1))


def wilson(successes: Array, trials: Array, z: float = 1.96) -> tuple[Floats, Floats]:
    """Wilson's score interval of a share, elementwise;

    NaN where there were no trials. z = 1.96 gives 95 %.
    """
    n = np.asarray(trials, dtype=np.float64)
    share, shrink = _ratio(successes, n), _ratio(z * z, n)
    centre = (share + shrink / 2) / (1 + shrink)
    half = np.sqrt(share * (1 - share) * shrink + shrink**2 / 4) / (1 + shrink)
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


def _checked(confusion: Array, ndim: int) -> npt.NDArray[Any]:
    counts = np.asarray(confusion)
    counts = counts if counts.dtype == np.float64 else counts.astype(np.int64, copy=False)
    if counts.ndim != ndim or counts.shape[-1] != counts.shape[-2]:
        wanted = "[C, C]" if ndim == 2 else "[K, C, C]"
        raise BadData(f"a confusion array has shape {list(counts.shape)}; it must be {wanted}")
    return counts


def _ratio(top: Any, bottom: Any) -> Floats:
    """``top / bottom``, NaN where ``bottom`` is 0."""
    numerator, denominator = np.broadcast_arrays(
        np.asarray(top, dtype=np.float64), np.asarray(bottom, dtype=np.float64)
    )
    result: Floats = np.full(denominator.shape, np.nan)
    np.divide(numerator, denominator, out=result, where=denominator > 0)
    return result


def _mean(values: Floats, weights: npt.NDArray[np.int64] | None = None) -> float:
    """The weighted mean of the values that are not NaN; NaN if there are none."""
    known = ~np.isnan(values)
    used = np.ones(values.shape) if weights is None else weights
    return float(_ratio((values[known] * used[known]).sum(), used[known].sum()))
