"""Every metric, computed from confusion matrices alone.

A confusion matrix is int64 [C, C]; rows are true classes, columns are predicted classes. A class "occurs" if
it has true nodes in the matrix. A metric that cannot be measured is NaN, never 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from fedepd.errors import BadData
from fedepd.longtail import Tiers
from fedepd.shown import shown

if TYPE_CHECKING:
    from torch import Tensor

METRICS = ("acc", "bacc", "macro_f1", "head_acc", "medium_acc", "tail_acc")
OF_A_CLASS = ("precision", "recall", "f1")
FEW_ROWS = 32
"""Up to so many rows, means are taken one by one. To sort rows by what they lack takes longer."""
FOUND_AT_MOST = 0.05
"""A class of which at most this share is found counts as never said."""

Array: TypeAlias = "npt.NDArray[Any] | Tensor"
Floats = npt.NDArray[np.float64]
Margins = tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[Any]]
Interval = tuple[Floats, Floats, Floats]
"""Values, and both ends of their 95 % intervals."""


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
    found = _scores_of_each(_margins(counts[None]), counts.sum()[None], tiers)
    return {name: float(values[0]) for name, values in found.items()}


def _scores_of_each(margins: Margins, nodes: npt.NDArray[Any], tiers: Tiers) -> dict[str, Floats]:
    """``scores`` of many matrices, [K] each, from their margins [K, C] and their numbers of nodes [K]."""
    right, support, predicted = margins
    recall = _ratio(right, support)
    f1 = _ratio(2 * right, np.where(support > 0, support + predicted, 0))
    return {
        "acc": _ratio(right.sum(1), nodes),
        "bacc": _means(recall),
        "macro_f1": _means(f1),
        "head_acc": _means(recall[:, list(tiers.head)]),
        "medium_acc": _means(recall[:, list(tiers.medium)]),
        "tail_acc": _means(recall[:, list(tiers.tail)]),
    }


def _margins(counts: npt.NDArray[Any]) -> Margins:
    """Of matrices [..., C, C]: nodes that are right, nodes of each class, and nodes that are said to be."""
    return counts.diagonal(axis1=-2, axis2=-1), counts.sum(-1), counts.sum(-2)


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
    nodes = counts.sum((1, 2))  # [K]
    found = _scores_of_each(_margins(counts), nodes, tiers)
    return {name: _mean(values, nodes) for name, values in found.items()}


def by_average(confusions: Sequence[Array], tiers: Tiers) -> list[dict[str, dict[str, float]]]:
    """``pooled`` and ``client_mean`` of several confusions [K, C, C], by their names.

    Each array is summed once, and all rows are scored together.
    """
    every = [_margins(_checked(each, ndim=3)) for each in confusions]
    with_sums = [np.concatenate([part, part.sum(0)[None]]) for margins in every for part in margins]
    right, support, predicted = (np.concatenate(with_sums[part::3]) for part in range(3))
    nodes = support.sum(1)
    scored = _scores_of_each((right, support, predicted), nodes, tiers)
    found, end = [], 0
    for support_of_clients in (margins[1] for margins in every):
        begin, end = end, end + len(support_of_clients) + 1
        own = {name: values[begin : end - 1] for name, values in scored.items()}
        found.append(
            {
                "pooled": {name: float(values[end - 1]) for name, values in scored.items()},
                "client_mean": {name: _mean(values, nodes[begin : end - 1]) for name, values in own.items()},
            }
        )
    return found


def class_accuracy(confusion: Array) -> Floats:
    """The share of each class's nodes that are predicted right (its recall), [C]; NaN for absent classes."""
    counts = _checked(confusion, ndim=2)
    return _ratio(counts.diagonal(), counts.sum(1))


def class_scores(confusion: Array, seeds: int = 1) -> dict[str, Interval]:
    """Precision, recall and F1 of each class with 95 % intervals: three arrays [C] each.

    Precision is NaN for a class that is never predicted, the others for a class that does not occur.
    ``seeds``: how many runs the counts are the sum of. The intervals are those of an average run, because
    seeds test overlapping nodes of one graph.

    Choice: all three are Wilson's. F1 is no share of nodes, but F* = TP / (TP + FP + FN) is one, and
    F1 = 2 F* / (1 + F*) rises with it (Hand, Christen & Kirielle 2021). So F1 has the interval of F*,
    mapped in the same way.
    """
    right, support, predicted = _margins(_checked(confusion, ndim=2))  # [C] each
    either = np.where(support > 0, support + predicted - right, 0)
    precision, recall, star = (
        (_ratio(right, trials), *wilson(right / seeds, trials / seeds))
        for trials in (predicted, support, either)
    )
    low, value, high = (2 * part / (1 + part) for part in (star[1], star[0], star[2]))
    return {"precision": precision, "recall": recall, "f1": (value, low, high)}


def mean_with_interval(values: Interval, classes: Sequence[int]) -> tuple[float, float, float]:
    """The mean over those of some classes that have a value, and both ends of its 95 % interval.

    Choice: the interval of the mean adds the classes' half-widths in quadrature, on each side (MOVER, Zou &
    Donner 2008). For one class that is its own interval.
    """
    value, low, high = values
    known = [c for c in classes if not np.isnan(value[c])]
    if not known:
        return float("nan"), float("nan"), float("nan")
    mean = float(value[known].mean())
    below = np.sqrt(((value - low)[known] ** 2).sum()) / len(known)
    above = np.sqrt(((high - value)[known] ** 2).sum()) / len(known)
    return mean, max(0.0, mean - float(below)), min(1.0, mean + float(above))  # but for rounding


def class_numbers(confusions: Array, tiers: Tiers, by_client: bool = True) -> dict[str, Any]:
    """What a decision needs beside ``scores``, from confusions [K, C, C]: by class, by tier and by client.

    A value has three numbers, itself and its 95 % interval, or is None if it cannot be measured. A client has
    the plain means over the classes that occur at it; a class that it never predicts has precision 0 there.
    ``by_client``: False where the matrices are no client's own.
    """
    counts = _checked(confusions, ndim=3)
    total = counts.sum(0)
    found = class_scores(total)
    nodes, predicted = total.sum(1).tolist(), total.sum(0).tolist()
    classes = [
        {
            "class": c,
            "nodes": nodes[c],
            "predicted": predicted[c],
            **{name: _triple([float(part[c]) for part in found[name]]) for name in OF_A_CLASS},
        }
        for c in range(len(total))
    ]
    cut = {"head": tiers.head, "medium": tiers.medium, "tail": tiers.tail}
    by_tier = {
        tier: {name: _triple(mean_with_interval(found[name], members)) for name in OF_A_CLASS}
        for tier, members in cut.items()
    }
    return {"by_class": classes, "by_tier": by_tier, "by_client": _of_clients(counts) if by_client else []}


def _of_clients(counts: npt.NDArray[Any]) -> list[dict[str, Any]]:
    right, support, predicted = _margins(counts)  # [K, C] each
    star = _ratio(right, np.where(support > 0, support + predicted - right, 0))
    values = {
        "precision": np.where(predicted > 0, _ratio(right, predicted), 0.0),
        "recall": _ratio(right, support),
        "f1": 2 * star / (1 + star),
    }
    means = {name: _means(np.where(support > 0, value, np.nan)).tolist() for name, value in values.items()}
    return [
        {"client": k, "nodes": nodes, **{name: None if (v := means[name][k]) != v else v for name in means}}
        for k, nodes in enumerate(counts.sum((1, 2)).tolist())
    ]


def _triple(values: Sequence[float]) -> list[float] | None:
    return None if np.isnan(values[0]) else list(values)


def one_class(confusion: Array) -> int | None:
    """The class that a model says for everything. None if it tells classes apart, or only one occurs.

    Choice: a model counts as such if it finds at most 5 % of every other class. A model that says "clean" for
    all but three of 10,000 nodes is no better than one that says it for all.
    """
    counts = _checked(confusion, ndim=2)
    if not counts.sum() or (counts.sum(1) > 0).sum() < 2:
        return None
    said = int(counts.sum(0).argmax())
    others = np.delete(class_accuracy(counts), said)
    return None if bool((others[~np.isnan(others)] > FOUND_AT_MOST).any()) else said


def one_class_notice(confusion: Array, names: Sequence[str] = ()) -> list[str]:
    """A sentence about a model that says one class for everything; empty if it does not.

    ``names``: what the classes are called, if that is known.
    """
    said = one_class(confusion)
    if said is None:
        return []
    counts = np.asarray(confusion)
    name, others = shown(names[said] if names else said), np.delete(class_accuracy(counts), said)
    best, share = float(np.nanmax(others)), float(counts.sum(0)[said] / counts.sum())
    if share == 1:
        return [f"the model says '{name}' for every test node; its accuracy is the share of that class"]
    return [
        f"the model says '{name}' for {100 * share:.2f} % of the test nodes and finds at most "
        f"{100 * best:.1f} % of any other class; its accuracy is little more than the share of '{name}'"
    ]


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


def _means(values: Floats) -> Floats:
    """The mean of what is not NaN in each row [K, n]: [K]; NaN if there is nothing.

    Rows that lack the same values are summed together. So each sum has the order, and the bits, of its own.
    """
    known, out = ~np.isnan(values), np.full(len(values), np.nan)
    if not values.size:
        return out
    if len(values) <= FEW_ROWS:
        for row, own in enumerate(known):
            if own.any():
                out[row] = values[row, own].sum() / own.sum()
        return out
    kinds, kind_of = np.unique(known, axis=0, return_inverse=True)
    by_kind = np.argsort(kind_of.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(kind_of.reshape(-1), minlength=len(kinds)))
    for kind, rows in zip(kinds, np.split(by_kind, ends[:-1]), strict=True):
        if kind.any():
            out[rows] = np.ascontiguousarray(values[rows][:, kind]).sum(1) / kind.sum()
    return out


def _mean(values: Floats, weights: npt.NDArray[np.int64]) -> float:
    """The weighted mean of the values that are not NaN; NaN if there are none."""
    known = ~np.isnan(values)
    return float(_ratio((values[known] * weights[known]).sum(), weights[known].sum()))
