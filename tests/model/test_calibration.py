"""Temperatures that are known, errors worked out by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import softmax

from fedepd.longtail import Tiers
from fedepd.model import calibration
from fedepd.model.calibration import (
    bin_starts,
    calibrate,
    calibration_error,
    measured,
)
from fedepd.rounds.calibrate import grid_sums, probabilities, tier_of_class
from fedepd.shapes import TIERS

THREE = Tiers((0,), (1,), (2,))
OF_THREE = tier_of_class(THREE, 3)


def drawn(n: int, heat: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Logits of three classes, and classes drawn from softmax(logits / heat): ``heat`` is the right
    temperature."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((n, 3))
    p = softmax(logits / heat, axis=1)
    return logits, (rng.random((n, 1)) > p.cumsum(1)).sum(1).clip(max=2)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.tuples(*[st.floats(0.05, 20)] * 3))
def test_temperatures_change_no_label(seed: int, heats: tuple[float, float, float]) -> None:
    logits = np.random.default_rng(seed).standard_normal((20, 3))
    p = probabilities(logits, dict(zip(TIERS, heats, strict=True)), OF_THREE)
    assert_allclose(p.sum(1), 1)
    assert np.array_equal(p.argmax(1), logits.argmax(1))


def test_calibration_error_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two bins of two: accuracies 1/2 and 1, confidences 0.45 and 0.85; half of 0.05 plus half of 0.15 is
    0.1."""
    monkeypatch.setattr(calibration, "BINS", 2)
    assert calibration_error(np.array([0.4, 0.5, 0.8, 0.9]), np.array([0.0, 1.0, 1.0, 1.0])) == pytest.approx(
        0.1
    )


@settings(max_examples=50)
@given(st.integers(1, 100), st.integers(0, 2**32 - 1))
def test_calibration_error_equals_a_plain_loop(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    confidence, correct = np.sort(rng.random(n)), (rng.random(n) < 0.5).astype(float)
    starts = [*bin_starts(n).tolist(), n]
    assert len(starts) == min(15, n) + 1
    assert max(np.diff(starts)) - min(np.diff(starts)) <= 1
    total = 0.0
    for a, b in pairwise(starts):
        total += (b - a) / n * abs(correct[a:b].mean() - confidence[a:b].mean())
    assert calibration_error(confidence, correct) == pytest.approx(total)


def test_brier_by_hand() -> None:
    """(0.7, 0.2, 0.1) of class 0: 0.09 + 0.04 + 0.01 = 0.14; of class 1: 0.49 + 0.64 + 0.01 = 1.14; their
    mean 0.64."""
    p = np.array([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1]])
    out = measured(p, np.array([0, 1]), "all")
    assert out["brier"][0] == pytest.approx(0.64)
    assert out["accuracy"] == 0.5
    assert out["confidence"] == pytest.approx(0.7)
    assert [b["nodes"] for b in out["reliability"]] == [1, 1]


def test_intervals_hold_their_value_and_are_the_same_again() -> None:
    logits, y = drawn(400, 1.0)
    one, two = (measured(softmax(logits, axis=1), y, "head") for _ in range(2))
    assert one == two
    value, low, high = one["brier"]
    assert low < value < high
    assert high - low < 0.2
    assert one["ece"][1] < one["ece"][2]


def test_calibration_mends_what_is_overconfident() -> None:
    """Drawn at temperature 3: the softmax itself is far too sure of itself, and the fitted one is not."""
    out = calibrate(grid_sums(*drawn(4000, 3.0, 0), OF_THREE), drawn(4000, 3.0, 1), THREE)
    for tier in ("all", "head", "medium", "tail"):
        assert out["before"][tier]["ece"][1] > 0.15
        assert out["after"][tier]["ece"][0] < 0.05
        assert out["after"][tier]["brier"][0] < out["before"][tier]["brier"][0]
    assert sum(out["after"][tier]["nodes"] for tier in TIERS) == out["after"]["all"]["nodes"] == 4000


def test_no_nodes_at_all() -> None:
    nothing = np.empty((0, 3)), np.empty(0, dtype=np.int64)
    out = calibrate(grid_sums(*nothing, OF_THREE), nothing, THREE)
    assert out["temperatures"] == {"head": 1.0, "medium": 1.0, "tail": 1.0}
    assert out["after"]["tail"]["ece"] is None
