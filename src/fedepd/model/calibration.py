"""Calibration of probabilities: one temperature per tier, calibration error and Brier score with intervals.

Shapes: n nodes, C classes. A node's tier is the tier of its PREDICTED class, because its true class is not
known when the model predicts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from fedepd.longtail import Tiers
from fedepd.rng import seeded_numpy

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TIERS = ("head", "medium", "tail")
BINS = 15
"""The number of bins of a reliability diagram. Each holds the same number of nodes, up to rounding."""
RESAMPLES = 1000
MIN_NODES = 20
"""A tier with fewer validation nodes uses the temperature of all nodes.

A run with fewer validation nodes in total keeps temperature 1.
"""
RANGE = (0.05, 20.0)
"""The range in which temperatures are searched."""


def calibrate(val: tuple[Floats, Ints], test: tuple[Floats, Ints], tiers: Tiers) -> dict[str, Any]:
    """Fit temperatures on the validation nodes and measure their effect on the test nodes.

    Both splits are given as (logits [n, C], classes [n]).
    """
    tier = tier_of_class(tiers, val[0].shape[1])
    found = temperatures(*val, tier)
    logits, y = test
    scored = {"before": softmax(logits, axis=1), "after": probabilities(logits, found, tier)}
    tier_of_node = tier[logits.argmax(1)] if len(logits) else np.empty(0, dtype=np.int64)
    out: dict[str, Any] = {
        "temperatures": found,
        "validation_nodes": len(val[1]),
        "bins": BINS,
        "resamples": RESAMPLES,
    }
    for when, p in scored.items():
        masks = {
            "all": np.ones(len(y), dtype=bool),
            **{name: tier_of_node == i for i, name in enumerate(TIERS)},
        }
        out[when] = {name: measured(p[mask], y[mask], name) for name, mask in masks.items()}
    return out


def tier_of_class(tiers: Tiers, num_classes: int) -> Ints:
    """The tier of each class, 0 head, 1 medium, 2 tail: [C].

    Choice: a class that does not occur in the training data counts as tail.
    """
    out = np.full(num_classes, 2)
    for number, name in enumerate(TIERS):
        out[list(getattr(tiers, name))] = number
    return out


def temperatures(logits: Floats, y: Ints, tier: Ints) -> dict[str, float]:
    """Tier -> the temperature with the lowest negative log-likelihood."""
    common = temperature(logits, y) if len(y) >= MIN_NODES else 1.0
    own = tier[logits.argmax(1)] if len(y) else np.empty(0, dtype=np.int64)  # [n]
    masks = {name: own == number for number, name in enumerate(TIERS)}
    return {
        name: temperature(logits[mask], y[mask]) if mask.sum() >= MIN_NODES else common
        for name, mask in masks.items()
    }


def temperature(logits: Floats, y: Ints) -> float:
    true = logits[np.arange(len(y)), y]

    def loss(log_t: float) -> float:
        scale = np.exp(-log_t)
        return float((logsumexp(scale * logits, axis=1) - scale * true).mean())

    return float(
        np.exp(minimize_scalar(loss, bounds=np.log(RANGE), method="bounded", options={"xatol": 1e-4}).x)
    )


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


def measured(p: Floats, y: Ints, name: str) -> dict[str, Any]:
    """Number of nodes, accuracy, mean confidence, calibration error, Brier score, and the bins of a
    reliability diagram.

    Calibration error and Brier score come with 95 % intervals.
    """
    n = len(y)
    if n == 0:
        return {
            "nodes": 0,
            "accuracy": None,
            "confidence": None,
            "ece": None,
            "brier": None,
            "reliability": [],
        }
    order = np.argsort(p.max(1), kind="stable")
    p, y = p[order], y[order]
    confidence, correct = p.max(1), (p.argmax(1) == y).astype(np.float64)
    squared = (p**2).sum(1) - 2 * p[np.arange(n), y] + 1  # Σ_c (p_c - [c = y])²
    # Choice: percentile intervals that treat nodes as independent. Neighbours are not quite independent, so
    # the intervals are a little too narrow.
    draws, again = seeded_numpy("calibration", name, n), np.empty((RESAMPLES, 2))
    for i in range(RESAMPLES):
        chosen = np.sort(draws.integers(n, size=n))  # sorted, because the confidences must ascend
        again[i] = calibration_error(confidence[chosen], correct[chosen]), squared[chosen].mean()
    low, high = np.percentile(again, (2.5, 97.5), axis=0)
    return {
        "nodes": n,
        "accuracy": float(correct.mean()),
        "confidence": float(confidence.mean()),
        "ece": [calibration_error(confidence, correct), float(low[0]), float(high[0])],
        "brier": [float(squared.mean()), float(low[1]), float(high[1])],
        "reliability": [
            {"nodes": len(c), "confidence": float(c.mean()), "accuracy": float(a.mean())}
            for c, a in zip(
                np.split(confidence, bin_starts(n)[1:]), np.split(correct, bin_starts(n)[1:]), strict=True
            )
        ],
    }


def calibration_error(confidence: Floats, correct: Floats) -> float:
    """Σ_b (n_b / n) |accuracy_b - confidence_b| over bins with equally many nodes.

    Both arguments are [n], sorted so that ``confidence`` ascends.
    """
    return float(
        np.abs(np.add.reduceat(correct - confidence, bin_starts(len(confidence)))).sum() / len(confidence)
    )


def bin_starts(n: int) -> Ints:
    """The index at which each bin begins. There are ``BINS`` bins, or fewer if there are fewer nodes."""
    bins = min(BINS, n)
    return np.arange(bins) * n // bins
