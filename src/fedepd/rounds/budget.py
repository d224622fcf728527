"""What noise promises and what it costs: the privacy budget of a run.

Noise of deviation z times the largest norm of one client's update, added to each of T sums, is one Gaussian
mechanism of signal a = sqrt(T) / z. Its epsilon and delta are known exactly:

    delta = Phi(a/2 - epsilon/a) - exp(epsilon) Phi(-a/2 - epsilon/a).

Balle and Wang, "Improving the Gaussian Mechanism for Differential Privacy", ICML 2018, arXiv 1805.06530,
Theorem 8. Releases that depend on earlier ones compose in the same way: Dong, Roth and Su, "Gaussian
Differential Privacy", arXiv 1905.02383, Corollary 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from scipy.special import log_ndtr

from fedepd.errors import BadConfig


def delta_of(signal: float, epsilon: float) -> float:
    """The exact delta of a Gaussian mechanism. ``signal``: the sensitivity over the noise's deviation."""
    if signal <= 0:
        return 0.0
    above = float(log_ndtr(signal / 2 - epsilon / signal))
    below = epsilon + float(log_ndtr(-signal / 2 - epsilon / signal))
    # exp(above) - exp(below), without the loss of digits where both are nearly the same.
    return max(0.0, -math.exp(above) * math.expm1(min(0.0, below - above)))


def crossing(too_much: Callable[[float], bool], low: float, high: float) -> float:
    """Where ``too_much`` becomes true between ``low`` and ``high``, to the last digits; on the side where it
    is not."""
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if too_much(middle) else (middle, high)
    return low


def noise_multiplier(epsilon: float, delta: float, releases: int) -> float:
    """The smallest noise that keeps ``releases`` sums within (epsilon, delta), in norms of one update."""
    # At a signal of 2 sqrt(2 epsilon) + 80 delta is 1 to the last digit, so that the crossing is below it.
    signal = crossing(lambda a: delta_of(a, epsilon) > delta, 0.0, 2 * math.sqrt(2 * epsilon) + 80)
    return math.sqrt(releases) / signal


def epsilon_spent(multiplier: float, delta: float, releases: int) -> float:
    """The epsilon of ``releases`` sums under this noise, at this delta."""
    signal = math.sqrt(releases) / multiplier
    if delta_of(signal, 0.0) <= delta:
        return 0.0
    # The root of the bound of zero-concentrated privacy is above the exact one.
    most = signal**2 / 2 + signal * math.sqrt(2 * math.log(1 / delta))
    return -crossing(lambda e: delta_of(signal, -e) > delta, -most - 1, 0.0)


@dataclass(frozen=True)
class Measured:
    """What noise did to balanced accuracy on the built-in graph, in percent: means of seeds 0 and 1.

    fedepd run fedepd --data synthetic --secure --select last --clients SITES --rounds ROUNDS --seed SEED
    --dp-epsilon EPSILON, and the same without --dp-epsilon. Noise is not drawn from the seed, so that a
    repetition differs by some points.
    """

    sites: int
    rounds: int
    epsilon: float
    without: float
    under_noise: float


MEASURED = (
    Measured(10, 200, 8.0, 73.8, 22.7),
    Measured(10, 20, 8.0, 73.7, 23.1),
    Measured(10, 200, 1.0, 73.8, 12.7),
    Measured(10, 200, 1000.0, 73.8, 66.0),
    Measured(50, 40, 8.0, 54.3, 25.8),
    Measured(50, 10, 8.0, 49.1, 15.7),
    Measured(50, 40, 1.0, 54.3, 11.2),
    Measured(50, 40, 1000.0, 54.3, 31.6),
    Measured(100, 20, 8.0, 43.7, 15.8),
    Measured(100, 5, 8.0, 29.6, 12.8),
)


def cost_in_words(sites: int, rounds: int, epsilon: float, delta: float = 1e-5) -> str:
    """What noise will cost, before anybody pays for it.

    Args:
        sites: How many take part in a round.
        rounds: How many sums there will be.
        epsilon: The budget.
        delta: The chance that its promise fails.

    Returns:
        One line without a full stop. The nearest settings that were measured stand for those that were not.
    """

    def distance(each: Measured) -> float:
        pairs = ((each.sites, sites), (each.rounds, rounds), (each.epsilon, epsilon))
        return sum(abs(math.log(known / wanted)) for known, wanted in pairs)

    near = min(MEASURED, key=distance)
    asked = f"{sites} sites, {rounds} rounds, epsilon {epsilon:g} at delta {delta:g}"
    noise = f"noise {noise_multiplier(epsilon, delta, rounds):.1f} times the largest update"
    took = f"took balanced accuracy from {near.without:.1f} to {near.under_noise:.1f}"
    if (near.sites, near.rounds, near.epsilon) == (sites, rounds, epsilon):
        return f"{asked}: {noise}; on the built-in graph that {took}"
    other = f"{near.sites} sites, {near.rounds} rounds and epsilon {near.epsilon:g}"
    return f"{asked}: {noise}; not measured, but on the built-in graph {other} {took}"


@dataclass(frozen=True)
class Budget:
    """What a run may spend: so many sums, each under the same noise."""

    epsilon: float
    delta: float
    clip: float
    """The largest norm of one client's update."""
    releases: int
    """How many sums there may be. A round that is repeated after a crash is one more."""

    @cached_property
    def multiplier(self) -> float:
        """The noise in the sum, in clips."""
        return noise_multiplier(self.epsilon, self.delta, self.releases)

    def spent(self, made: int) -> dict[str, Any]:
        """What ``made`` releases have spent, as every round's line and the summary say it."""
        return {
            "epsilon_spent": epsilon_spent(self.multiplier, self.delta, made),
            "delta": self.delta,
            "multiplier": self.multiplier,
            "clip": self.clip,
            "releases": made,
        }

    def check_left(self, made: int) -> None:
        """Refuse a release that is not in the budget."""
        if made >= self.releases:
            raise BadConfig(
                f"the privacy budget is spent: {made} of {self.releases} sums were made, which is epsilon "
                f"{self.epsilon:g} at delta {self.delta:g}; start another run, with a budget of its own"
            )

    def sentence(self) -> str:
        """The budget in words, as it stands with every number."""
        return (
            f"experiment with noise, client-level differential privacy of the {self.releases} sums: epsilon "
            f"{self.epsilon:g} at delta {self.delta:g}, updates shortened to {self.clip:g}, noise "
            f"{self.multiplier:.2f} times that; class rows and sizes are not sent; scores are not covered"
        )
