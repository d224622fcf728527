"""Calibration of probabilities: one temperature per tier, calibration error and Brier score with intervals.

Temperatures are found in ``rounds.calibrate``. Shapes: n nodes, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from fedepd.longtail import Tiers
from fedepd.rng import seeded_numpy
from fedepd.rounds.calibrate import nodes_in, probabilities, temperatures_from, tier_of_class
from fedepd.rounds.sums import Vector
from fedepd.shapes import TIERS

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BINS = 15
"""The number of bins of a reliability diagram. Each holds the same number of nodes, up to rounding."""
RESAMPLES = 1000


def calibrate(total: Vector, test: tuple[Floats, Ints], tiers: Tiers) -> dict[str, Any]:
    """Find temperatures and measure their effect on the test nodes, given as (logits [n, C], classes [n]).

    ``total``: the sum of what ``grid_sums`` makes of each client's validation nodes.
    """
    logits, y = test
    tier, found = tier_of_class(tiers, logits.shape[1]), temperatures_from(total)
    scored = {"before": softmax(logits, axis=1), "after": probabilities(logits, found, tier)}
    tier_of_node = tier[logits.argmax(1)] if len(logits) else np.empty(0, dtype=np.int64)
    out: dict[str, Any] = {
        "temperatures": found,
        "validation_nodes": nodes_in(total),
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
