"""From scores to chances: the line that validation nodes say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, logit

from fedepd.model.chances import AS_SCORED, SLOPES, Chance, fitted_chance, log_odds


def test_chances_by_hand() -> None:
    """A score of 0.8 has odds of 4. With a slope of 2 and an intercept of -log 4 the odds are 16 / 4 = 4, and
    with an intercept of -log 16 they are 1."""
    scores = np.array([0.8])
    assert Chance(2, -np.log(4)).of(scores) == pytest.approx([0.8])
    assert Chance(2, -np.log(16)).of(scores) == pytest.approx([0.5])
    assert AS_SCORED.of(np.array([0.0, 0.3, 1.0])) == pytest.approx([0, 0.3, 1], abs=1e-9)


def test_the_line_is_found_again() -> None:
    """Scores whose log-odds are too high by 3, as balanced training makes them: slope 1, intercept -3.

    The standard errors by 20,000 nodes are below 0.05.
    """
    draw = np.random.default_rng(0)
    z = draw.normal(-2, 2, 20_000)
    cases = draw.random(z.size) < expit(z)
    found = fitted_chance(expit(z + 3), cases)
    assert found.slope == pytest.approx(1, abs=0.1)
    assert found.intercept == pytest.approx(-3, abs=0.2)


def test_one_kind_of_nodes_says_nothing() -> None:
    scores = np.array([0.1, 0.9])
    assert fitted_chance(scores, np.array([True, True])) == AS_SCORED
    assert fitted_chance(scores, np.array([False, False])) == AS_SCORED
    assert fitted_chance(scores[:0], np.array([], dtype=bool)) == AS_SCORED


def test_perfect_scores_stay_finite_and_useless_ones_keep_their_order() -> None:
    """Platt's targets: of 3 cases each counts as 4/5, so no chance comes near 1."""
    scores = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    right = fitted_chance(scores, scores > 0.5)
    assert right.is_usable
    assert right.of(scores) == pytest.approx([0.2, 0.2, 0.2, 0.8, 0.8, 0.8], abs=1e-3)
    wrong = fitted_chance(scores, scores < 0.5)
    assert wrong.slope == SLOPES[0]


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=40))
def test_a_larger_score_is_never_a_smaller_chance(nodes: list[tuple[float, bool]]) -> None:
    scores, cases = np.array([s for s, _ in nodes]), np.array([c for _, c in nodes])
    found = fitted_chance(scores, cases)
    assert found.is_usable
    chances = found.of(np.sort(scores))
    assert (np.diff(chances) >= 0).all()
    assert ((chances >= 0) & (chances <= 1)).all()


def test_log_odds_are_finite_everywhere() -> None:
    scores = np.array([0.0, 1e-300, 0.25, 1 - 1e-16, 1.0, 1.0 + 1e-15])
    found = log_odds(scores)
    assert np.isfinite(found).all()
    assert (np.diff(found) >= 0).all()
    assert found[2] == pytest.approx(logit(0.25))


@pytest.mark.parametrize(
    "chance", [Chance(0.0), Chance(-1.0), Chance(1e9), Chance(float("nan")), Chance(1.0, float("inf"))]
)
def test_lines_that_nobody_would_have_fitted(chance: Chance) -> None:
    assert not chance.is_usable
