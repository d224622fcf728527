"""Temperatures from sums against the exact optimum, and what a client adds to a sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

from fedepd.errors import BadMessage
from fedepd.longtail import Tiers
from fedepd.rounds.calibrate import (
    LOG_GRID,
    SIZE,
    best_temperature,
    grid_layout,
    grid_sums,
    nodes_in,
    temperatures_from,
    tier_of_class,
    unlikelihood,
)
from fedepd.rounds.sums import CannotSum, summed, whole

THREE = tier_of_class(Tiers((0,), (1,), (2,)), 3)


def drawn(n: int, heat: float, seed: int = 0, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Logits, and classes drawn from softmax(logits / heat): ``heat`` is the right temperature."""
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((n, classes))
    p = softmax(logits / heat, axis=1)
    return logits, (rng.random((n, 1)) > p.cumsum(1)).sum(1).clip(max=classes - 1)


def unlikely(logits: np.ndarray, y: np.ndarray, heat: float) -> float:
    """The mean negative log-likelihood, by its definition."""
    return -float(log_softmax(logits / heat, axis=1)[np.arange(len(y)), y].mean())


def exact(logits: np.ndarray, y: np.ndarray) -> float:
    """The best temperature, to 1e-8."""
    found = minimize_scalar(
        lambda u: unlikely(logits, y, math.exp(u)),
        bounds=(math.log(0.05), math.log(20)),
        method="bounded",
        options={"xatol": 1e-8},
    )
    return math.exp(found.x)


def common(logits: np.ndarray, y: np.ndarray) -> float:
    """One temperature for all nodes, from the grid."""
    return best_temperature(whole(unlikelihood(logits, y), 1))


@pytest.mark.parametrize("heat", [0.5, 1.0, 3.0])
def test_the_right_temperature_is_found(heat: float) -> None:
    assert common(*drawn(20_000, heat)) == pytest.approx(heat, rel=0.05)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.2, 5), st.integers(2, 12), st.integers(20, 400))
def test_the_grid_finds_the_exact_optimum(seed: int, heat: float, classes: int, n: int) -> None:
    """Within 0.1 % of it, and 1e-6 in the likelihood, wherever the optimum is inside the range.

    The vertex of a parabola through points at distance h is off by about h² |f'''| / (6 |f''|) in log T.
    With h = 0.0234 that is 0.0001 times a ratio of some units.
    """
    logits, y = drawn(n, heat, seed, classes)
    best, ours = exact(logits, y), common(logits, y)
    assert unlikely(logits, y, ours) == pytest.approx(unlikely(logits, y, best), abs=1e-6)
    if 0.06 < best < 18:
        assert ours == pytest.approx(best, rel=1e-3)


def test_ends_of_the_range_and_ties() -> None:
    """Right with certainty: the cooler, the likelier. Always wrong: the hotter, the likelier. Where all
    logits are equal, every temperature is as good, and it stays 1.

    With logits 0 and 40, -log p is e^-40/T, which rounds to 0 for all T up to 40 / (25 ln 2) = 2.3. The
    nearest to 1 is 1 itself.
    """
    right, zero = np.array([[1.0, 0.0]] * 20), np.zeros(20, dtype=np.int64)
    assert common(right, zero) == pytest.approx(0.05, rel=0.2)
    assert common(right, zero + 1) == pytest.approx(20)
    assert common(0 * right, zero) == 1.0
    assert common(40 * right, zero) == 1.0


def test_each_tier_has_its_own_and_few_nodes_take_the_common_one() -> None:
    """Nodes predicted 0 are drawn at temperature 1, those predicted 1 at 3; of those predicted 2 only 19
    are left."""
    parts = [drawn(6000, 1.0, 0), drawn(6000, 3.0, 1), drawn(600, 1.0, 2)]
    kept = [(z[z.argmax(1) == c], y[z.argmax(1) == c]) for c, (z, y) in enumerate(parts)]
    kept[2] = kept[2][0][:19], kept[2][1][:19]
    logits, y = np.concatenate([z for z, _ in kept]), np.concatenate([y for _, y in kept])
    found = temperatures_from(grid_sums(logits, y, THREE))
    assert found["head"] == pytest.approx(1.0, rel=0.15)
    assert found["medium"] == pytest.approx(3.0, rel=0.15)
    assert found["tail"] == pytest.approx(common(logits, y), rel=1e-6)
    few = grid_sums(logits[:19], y[:19], THREE)
    assert temperatures_from(few) == {"head": 1.0, "medium": 1.0, "tail": 1.0}


def test_the_sum_of_parts_is_as_good_as_the_whole() -> None:
    """MIN_NODES counts all clients: none of them has 20 nodes, and together they have 600."""
    logits, y = drawn(600, 2.0)
    cuts = [slice(start, start + 12) for start in range(0, 600, 12)]
    total = summed([grid_sums(logits[cut], y[cut], THREE) for cut in cuts])
    together = grid_sums(logits, y, THREE)
    assert nodes_in(total) == nodes_in(together) == 600
    for tier, heat in temperatures_from(total).items():
        assert heat == pytest.approx(temperatures_from(together)[tier], rel=1e-6)
        assert heat != 1.0
    # Whole numbers: any order gives the same bits.
    again = summed([grid_sums(logits[cut], y[cut], THREE) for cut in reversed(cuts)])
    assert_array_equal(total, again)


def test_the_layout_fits_the_vector() -> None:
    """Three tiers of one count and 257 temperatures. Temperature 1 is in the middle: at equal logits of three
    classes -log p is log 3 at any."""
    assert sum(shape[0] for _, shape in grid_layout()) == 3 * (1 + 257) == 774
    assert LOG_GRID[128] == 0
    vector = grid_sums(np.zeros((2, 3)), np.array([0, 2]), THREE)
    assert vector[0] == 2  # argmax of equal logits is class 0, which is head
    assert set(vector[1:SIZE].tolist()) == {round(2 * math.log(3) * 2**24)}
    assert not vector[SIZE:].any()


def test_a_tier_of_few_nodes_is_left_out_where_a_vector_is_seen_alone() -> None:
    """Three nodes are predicted head and two tail. With few = 3 the tail's part is zero, and no sum over all
    tiers is there from which it could be computed."""
    logits = np.eye(3)[[0, 0, 0, 2, 2]]
    y = logits.argmax(1)
    shown, hidden = (grid_sums(logits, y, THREE, few=few).reshape(3, SIZE) for few in (2, 3))
    assert shown[:, 0].tolist() == [3, 0, 2]
    assert hidden[:, 0].tolist() == [3, 0, 0]
    assert_array_equal(shown[0], hidden[0])
    assert not hidden[2].any()


def test_nodes_of_classes_that_are_never_predicted_are_left_out() -> None:
    """A bias of -10000 makes a class impossible. Its nodes would draw every temperature to the hottest."""
    logits, y = drawn(3000, 2.0)
    logits[:, 2] -= 1e4
    known = np.array([True, True, False])
    closed = temperatures_from(grid_sums(logits, y, THREE, known))
    without = temperatures_from(grid_sums(logits[y != 2], y[y != 2], THREE))
    assert closed == without
    assert temperatures_from(grid_sums(logits, y, THREE))["head"] == pytest.approx(20)
    assert closed["head"] < 5


def test_classes_without_nodes_count_as_tail() -> None:
    assert tier_of_class(Tiers((3,), (1,), (0,)), 5).tolist() == [2, 1, 2, 0, 2]


@pytest.mark.parametrize("bad", [math.inf, math.nan, 3e38])
def test_what_cannot_be_summed_is_refused(bad: float) -> None:
    logits = np.zeros((2, 3))
    logits[0, 1] = bad
    with pytest.raises(CannotSum, match=r"too large to be summed|infinite or no number"):
        grid_sums(logits, np.array([0, 0]), THREE)


def test_a_logit_may_be_minus_infinity() -> None:
    """FedProto gives it to classes that it does not choose from. A node of such a class does not count, and
    the others' probabilities are those of two classes: -log p is log 2."""
    logits = np.zeros((3, 3))
    logits[:, 1] = -math.inf
    vector = grid_sums(logits, np.array([0, 1, 2]), THREE)
    assert vector[0] == 2
    assert set(vector[1:SIZE].tolist()) == {round(2 * math.log(2) * 2**24)}


@pytest.mark.hostile
@pytest.mark.parametrize(
    "total",
    [
        np.zeros(3 * SIZE - 1, dtype=np.int64),
        np.zeros((3, SIZE), dtype=np.int64),
        np.zeros(3 * SIZE),
        np.full(3 * SIZE, -1),
        np.full(3 * SIZE, 2**62),
        np.full(3 * SIZE, 2**45),
    ],
    ids=["short", "matrix", "fractions", "negative", "overflow", "more nodes than there are"],
)
def test_a_foreign_sum_is_refused(total: np.ndarray) -> None:
    with pytest.raises(BadMessage, match="the sums to calibrate by"):
        temperatures_from(total)


def test_many_nodes_are_summed_in_pieces() -> None:
    """5000 nodes are two pieces, of 4096 and 904."""
    logits, y = drawn(5000, 1.0)
    for at in (0, 128, 256):
        own = 5000 * unlikely(logits, y, float(np.exp(LOG_GRID[at])))
        assert unlikelihood(logits, y)[at] == pytest.approx(own, rel=1e-12)
