"""Membership inference: does the model of all clients tell its training nodes from others?

The attack is LiRA (Carlini et al., "Membership inference attacks from first principles", S&P 2022), online:
for each node, trainings with it and trainings without it give two normal distributions of the model's
confidence. The score of a node is the likelihood ratio of the confidence that the attacked model has. The
attacker knows features, edges and labels, the settings and the seed. It does not know who was trained on.

Choice: the paper looks at the confidence in the node's own class. We add the confidence in the likeliest
class. On email that changes nothing against an averaged model (area in the tail 0.91 with either), but a
distilled one, which is trained on the other nodes, shows those by it (0.78 instead of 0.72).

Shapes: S shadows, n nodes, 2 signals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedepd.datasets.facts import class_sizes
from fedepd.errors import BadConfig
from fedepd.longtail import tiers
from fedepd.metrics import wilson
from fedepd.privacy.figures import TIERS, Figure, Z
from fedepd.privacy.shadows import (
    Progress,
    Scores,
    Shadows,
    Signal,
    Trainers,
    audited,
    recipe,
    train_shadows,
)
from fedepd.rng import seeded_numpy
from fedepd.runs.experiment import Experiment
from fedepd.runs.source import Data

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

SHADOWS, LEAST_SHADOWS = 32, 4
ROUNDS = 60
"""Trainings have no more rounds than this, to save time.

On email (32 shadows, seed 100), trainings of 10, 20, 60 and 200 rounds give an area of 0.90, 0.89, 0.91 and
0.92 in the tail, and 0.64, 0.65, 0.67 and 0.68 in the head.
"""
FPR = 0.01
"""The share of other nodes that the attack may take for training nodes, where its hits are counted."""
RESAMPLES = 200
LEAST = 2
"""A node is attacked if this many other trainings have it, and as many do not."""
PRIOR = 8
FLOOR = 1e-6
"""Added to the variance: a confidence that never changes says nothing."""


def audit_membership(
    experiment: Experiment,
    data: Data,
    shadows: int = SHADOWS,
    workers: int | Trainers | None = None,
    progress: Progress | None = None,
    scores: Scores = "all",
    rounds: int = ROUNDS,
    distil: bool = False,
) -> list[Figure]:
    """Attack the model that the experiment ends with, by tier of the node's class.

    The model is the averaged one. Under the guard it is the part that is shared: the columns that an owner
    keeps for closed classes stay at home, and are not attacked.

    Choice: all trainings end with their last round. If each had its own selected round, the attacked model
    would be compared with models of other rounds. The attacker can do better, because the model card names
    the round. On email the area in the tail is 0.87 with selected rounds, and 0.91 without.

    Args:
        experiment: The run's settings.
        data: The run's data.
        shadows: How often the experiment is trained on another split.
        workers: Processes that train them, or a cluster; None: as many processes as there are cores. They
            change no bit.
        progress: Called after each training with how many are done, and how many there are.
        scores: What the attacker is told of a node: "all" probabilities, or the "top" label with its
            probability rounded to one digit.
        rounds: Trainings end after this many rounds, if the run has more.
        distil: Attack the model that is distilled from the averaged one, as ``fedepd.export`` can do.

    Returns:
        ``membership.auc`` and ``membership.tpr`` (at 1 % false positives), over all nodes and for each tier.
        Their cases are the nodes that were attacked.

    Raises:
        BadConfig: The method has no model for all clients, the run was attacked, or there are too few
            shadows.
    """
    if shadows < LEAST_SHADOWS:
        raise BadConfig(f"shadows is {shadows}; give at least {LEAST_SHADOWS}")
    least = min(experiment.protocol.rounds, rounds)
    protocol = replace(experiment.protocol, rounds=least, select="last", evaluate_every=least, adapt=False)
    simulation = audited(replace(experiment, protocol=protocol), data)
    if workers is None or isinstance(workers, int):
        seen = train_shadows(recipe(simulation, SIGNALS[scores], distil), shadows, workers, progress)
    else:
        size, done = (shadows + 1, simulation.graph.num_nodes), progress or (lambda *_: None)
        seen = workers.train(simulation.experiment, scores, distil, size, done)
    cut = tiers(class_sizes(simulation.graph).numpy())
    y = simulation.graph.y.numpy()
    ratios = likelihood_ratios(seen)
    out: list[Figure] = []
    for tier in TIERS:
        chosen = (y >= 0) if tier == "all" else np.isin(y, getattr(cut, tier))
        out += figures_of(tier, ratios[:, chosen], seen.members[:, chosen])
    return sorted(out, key=lambda figure: figure.name)


def confidence(z: Tensor, y: Tensor) -> Tensor:
    """log(p / (1 - p)) of the node's own class and of the likeliest one, from logits [n, C]: [n, 2]."""
    return torch.stack([log_odds(z, y), log_odds(z, z.argmax(1))], 1)


def log_odds(z: Tensor, c: Tensor) -> Tensor:
    """log(p_c / (1 - p_c)) = z_c - log Σ_{b ≠ c} exp z_b, of one class of each node: [n]."""
    chosen = torch.zeros_like(z, dtype=torch.bool).scatter_(1, c[:, None], True)
    return z[chosen] - torch.logsumexp(z.masked_fill(chosen, -math.inf), 1)


def told_confidence(z: Tensor, y: Tensor) -> Tensor:
    """The same, by somebody who is told the likeliest class and its probability rounded to one digit: [n, 2].

    If the likeliest class is another one, the rest is taken to be shared evenly by all others.
    """
    p, label = torch.softmax(z, 1).max(1)
    top = ((10 * p).round() / 10).clamp(0.05, 0.95)  # rounded to 0 or 1, it lies within 0.05 of it
    own = torch.where(label == y, top, (1 - top) / max(z.shape[1] - 1, 1))
    return torch.logit(torch.stack([own, top], 1))


SIGNALS: dict[Scores, Signal] = {"all": confidence, "top": told_confidence}
"""What the attack looks at, by what the attacker is told."""


def likelihood_ratios(seen: Shadows) -> Floats:
    """LiRA's score of every node in every training, against all other trainings: [S + 1, n].

    NaN where too few of the others have the node, or do not.

    Choice: every training is attacked in turn, not the run alone. A tier of few nodes has no 1 % of them
    otherwise. All trainings are draws of the same rule, so the figures tell of the run's settings.
    """
    signals, members = seen.signals, seen.members
    out = np.full(members.shape, np.nan)
    for number, attacked in enumerate(signals):
        others = np.arange(len(signals)) != number
        phi, inside = signals[others], members[others]  # [S, n, 2], [S, n]
        enough = np.minimum(inside.sum(0), (~inside).sum(0)) >= LEAST
        phi, inside, x = phi[:, enough], inside[:, enough], attacked[enough]
        mean_in, mean_out = mean_of(phi, inside), mean_of(phi, ~inside)
        spread = covariance(phi - np.where(inside[..., None], mean_in, mean_out))
        # Twice the log-likelihoods, up to what both have in common. What differs by rounding counts as equal.
        far, near = distance(x - mean_out, spread), distance(x - mean_in, spread)
        out[number, enough] = np.round((far - near) / 2, 9)
    return out


def mean_of(phi: Floats, chosen: Bools) -> Floats:
    """The mean of the chosen trainings of each node, [n, 2]."""
    mean: Floats = np.where(chosen[..., None], phi, 0.0).sum(0) / np.maximum(chosen.sum(0), 1)[:, None]
    return mean


def covariance(deviations: Floats) -> Floats:
    """One for both distributions of a node, from deviations [S, n, 2]: [n, 2, 2].

    Choice: there are few trainings of either kind. So both kinds share it, and it is drawn towards the mean
    over all nodes as if that were ``PRIOR`` trainings more.
    """
    products: Floats = np.einsum("snd,sne->nde", deviations, deviations)
    freedom = max(len(deviations) - 2, 1)
    usual = products.mean(0) / freedom if len(products) else np.zeros((2, 2))
    return (products + PRIOR * usual) / (freedom + PRIOR) + FLOOR * np.eye(products.shape[1])


def distance(deviations: Floats, spread: Floats) -> Floats:
    """Mahalanobis' squared distance, [n], under covariances [n, 2, 2]."""
    out: Floats = (deviations * np.linalg.solve(spread, deviations[..., None])[..., 0]).sum(1)
    return out


def figures_of(tier: str, ratios: Floats, members: Bools) -> Iterator[Figure]:
    """Area and hits of the attack on the nodes of a tier, with 95 % intervals.

    Choice: intervals are percentiles over resamples of the nodes. A node's trainings are not independent, so
    it is drawn with all of them.
    """
    attacked = np.isfinite(ratios)
    nodes = np.flatnonzero(attacked.any(0))
    place, of_node = np.nonzero(attacked[:, nodes])
    score, inside = ratios[:, nodes][place, of_node], members[:, nodes][place, of_node]
    levels = np.unique(-score, return_inverse=True)[1]  # 0 is the highest score
    found = curve(levels, inside, np.ones(len(levels)))
    draws = seeded_numpy("membership", tier, len(nodes))
    again = []
    for _ in range(RESAMPLES if len(nodes) else 0):
        times = np.bincount(draws.integers(len(nodes), size=len(nodes)), minlength=len(nodes))
        again.append(curve(levels, inside, times[of_node].astype(np.float64)))
    for number, (name, chance) in enumerate((("auc", 0.5), ("tpr", FPR))):
        low, high = interval(found[number], [each[number] for each in again], len(nodes))
        yield Figure(f"membership.{name}", tier, found[number], low, high, len(nodes), chance)


def curve(levels: NDArray[np.int64], inside: Bools, weight: Floats) -> tuple[float, float]:
    """Area under the ROC curve, and the share of members found at ``FPR``; NaN without either kind.

    ``levels``: 0 is the highest score. Cases of one level are found together, or not at all.
    """
    hits = np.cumsum(np.bincount(levels, weight * inside))
    alarms = np.cumsum(np.bincount(levels, weight * ~inside))
    if not len(hits) or hits[-1] == 0 or alarms[-1] == 0:
        return math.nan, math.nan
    hits, alarms = hits / hits[-1], alarms / alarms[-1]
    area = float(np.trapezoid(np.r_[0.0, hits], np.r_[0.0, alarms]))
    return area, float(hits[alarms <= FPR].max(initial=0.0))


def interval(value: float, again: list[float], nodes: int) -> tuple[float, float]:
    """The middle 95 % of the resamples. If they never vary, Wilson's interval over the nodes."""
    known = [each for each in again if not math.isnan(each)]
    if not known:
        return math.nan, math.nan
    low, high = np.percentile(known, (2.5, 97.5))
    if low == high and value in (0.0, 1.0):
        low, high = wilson(np.array(value * nodes), np.array(nodes), Z)
    return float(low), float(high)
