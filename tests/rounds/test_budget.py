"""The privacy budget: exact numbers, checked against published ones and against Google's accountant."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from fedepd.errors import BadConfig
from fedepd.rounds.budget import MEASURED, Budget, cost_in_words, delta_of, epsilon_spent, noise_multiplier

TABLE = {
    (8.0, 1): 0.6002,
    (8.0, 5): 1.3422,
    (8.0, 10): 1.8981,
    (8.0, 200): 8.4885,
    (1.0, 1): 3.7306,
    (1.0, 200): 52.76,
}
"""Noise by epsilon and sums, at delta 1e-5. The numbers were found before this program, by another one."""


@pytest.mark.parametrize(("epsilon", "releases"), TABLE)
def test_the_noise_is_that_of_the_table(epsilon: float, releases: int) -> None:
    assert noise_multiplier(epsilon, 1e-5, releases) == pytest.approx(TABLE[epsilon, releases], rel=1e-4)


def test_delta_is_the_formula_written_out() -> None:
    """a = 2, epsilon = 1: Phi(1 - 1/2) - e Phi(-1 - 1/2) = 0.691462 - 2.718282 * 0.066807 = 0.509861."""
    assert delta_of(2.0, 1.0) == pytest.approx(0.509861, abs=2e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 8.0, 60.0, 1000.0])
@pytest.mark.parametrize("delta", [1e-15, 1e-5, 0.1])
@pytest.mark.parametrize("releases", [1, 200, 100_000])
def test_spending_is_the_inverse_of_the_noise_and_never_below_it(
    epsilon: float, delta: float, releases: int
) -> None:
    """The root is on the safe side: its delta is at most the wanted one, and no number close by is better."""
    z = noise_multiplier(epsilon, delta, releases)
    assert delta_of(math.sqrt(releases) / z, epsilon) <= delta * (1 + 1e-9)
    assert delta_of(math.sqrt(releases) / (z * (1 - 1e-6)), epsilon) > delta
    assert epsilon_spent(z, delta, releases) == pytest.approx(epsilon, rel=1e-6)


def test_no_sum_spends_nothing_and_each_more_spends_more() -> None:
    z = noise_multiplier(8.0, 1e-5, 20)
    spent = [epsilon_spent(z, 1e-5, made) for made in range(22)]
    assert spent[0] == 0
    assert all(less < more for less, more in pairwise(spent))
    assert spent[20] == pytest.approx(8.0)
    assert spent[21] > 8.0


def test_very_large_noise_spends_nothing_at_this_delta() -> None:
    """The chance that the sums of neighbours differ at all is 2 Phi(a/2) - 1 = 4e-7 at a = 1e-6."""
    assert epsilon_spent(1e6, 1e-5, 1) == 0


@pytest.mark.parametrize(("epsilon", "releases"), TABLE)
def test_googles_accountant_agrees(epsilon: float, releases: int) -> None:
    """Its closed form to nine digits. Its privacy loss distributions, which know no closed form and round
    upwards, to 1e-3."""
    accounting = pytest.importorskip("dp_accounting", reason="needs the extra 'dev'")
    pld = pytest.importorskip("dp_accounting.pld")
    z = noise_multiplier(epsilon, 1e-5, releases)
    assert accounting.get_sigma_gaussian(epsilon, 1e-5) * math.sqrt(releases) == pytest.approx(z, rel=1e-9)
    made = pld.PLDAccountant()
    made.compose(accounting.GaussianDpEvent(z), releases)
    assert epsilon <= made.get_epsilon(1e-5) + 1e-9 <= epsilon + 1e-3


def test_the_last_sum_of_the_budget_is_made_and_none_after_it() -> None:
    budget = Budget(8.0, 1e-5, 1.0, releases=3)
    budget.check_left(2)
    with pytest.raises(BadConfig, match="3 of 3 sums were made, which is epsilon 8 at delta 1e-05; start"):
        budget.check_left(3)


def test_what_was_spent_names_all_that_the_promise_needs() -> None:
    budget = Budget(8.0, 1e-5, 0.5, releases=10)
    half = budget.spent(5)
    assert half.keys() == {"epsilon_spent", "delta", "multiplier", "clip", "releases"}
    assert half["multiplier"] == pytest.approx(1.8981, abs=1e-4)
    assert half["epsilon_spent"] == epsilon_spent(budget.multiplier, 1e-5, 5) < 8
    assert "epsilon 8 at delta 1e-05" in budget.sentence()
    assert "scores are not covered" in budget.sentence()


def test_the_price_is_told_beforehand() -> None:
    known = MEASURED[0]
    assert (known.sites, known.rounds, known.epsilon) == (10, 200, 8)
    assert cost_in_words(10, 200, 8.0) == (
        "10 sites, 200 rounds, epsilon 8 at delta 1e-05: noise 8.5 times the largest update; on the built-in "
        f"graph that took balanced accuracy from {known.without:.1f} to {known.under_noise:.1f}"
    )


def test_what_was_not_measured_is_not_passed_off_as_measured() -> None:
    told = cost_in_words(11, 190, 7.5, 1e-6)
    assert told.startswith("11 sites, 190 rounds, epsilon 7.5 at delta 1e-06: noise 9.")
    assert "not measured, but on the built-in graph 10 sites, 200 rounds and epsilon 8 took" in told


def test_the_measured_figures_are_percent_and_noise_never_helped() -> None:
    assert len({(each.sites, each.rounds, each.epsilon) for each in MEASURED}) == len(MEASURED)
    for each in MEASURED:
        assert each.sites >= 3
        assert 0 < each.under_noise < each.without < 100
