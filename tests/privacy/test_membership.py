"""LiRA: score and curve by hand, and the two ends: a model that memorises, and one that cannot."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.privacy import membership
from fedepd.privacy.membership import audit_membership, confidence, curve, likelihood_ratios, told_confidence
from fedepd.privacy.shadows import Scores, Shadows
from fedepd.runs.experiment import Experiment
from fedepd.types import Graph


def by_heart(nodes: int = 60) -> Graph:
    """Every node has a feature of its own, and its class is drawn: nothing can be learned but by heart."""
    draws = np.random.default_rng(7)
    y = np.sort(draws.choice(3, size=nodes, p=(0.6, 0.3, 0.1)))
    edges = torch.empty((2, 0), dtype=torch.int64)
    owner = torch.arange(nodes) % 2
    return Graph.make(torch.eye(nodes), edges, torch.tensor(y), 3, name="by heart", owner=owner)


def quick(**settings: Any) -> Experiment:
    usual: dict[str, Any] = {
        "backbone": "mlp",
        "hidden": 8,
        "rounds": 4,
        "partition": "owner",
        "dropout": 0.0,
        "lr": 0.05,
    }
    return Experiment.make("fedavg", **{**usual, **settings})


def test_confidence_is_the_log_of_odds() -> None:
    """Logits log 6, log 3, log 1 are probabilities .6, .3, .1; of class 1 the odds are .3 / .7."""
    z = torch.log(torch.tensor([[6.0, 3.0, 1.0]], dtype=torch.float64))
    own, top = confidence(z, torch.tensor([1]))[0].tolist()
    assert own == pytest.approx(math.log(3 / 7))
    assert top == pytest.approx(math.log(6 / 4))


def test_told_confidence_knows_the_label_and_one_digit() -> None:
    """.62 is told as .6. If the node has another class, that has half of .4 among two others: odds .2 / .8.

    .99 is told as 1, which is anything from .95 on.
    """
    z = torch.log(torch.tensor([[0.62, 0.37, 0.01], [0.62, 0.37, 0.01], [0.99, 0.005, 0.005]]))
    own, top = told_confidence(z.to(torch.float64), torch.tensor([0, 1, 0])).T.tolist()
    assert own == pytest.approx([math.log(6 / 4), math.log(2 / 8), math.log(95 / 5)])
    assert top == pytest.approx([math.log(6 / 4), math.log(6 / 4), math.log(95 / 5)])


def seen_by(members: list[bool], signals: list[float]) -> Shadows:
    """One node. Its second signal never changes, and says nothing."""
    return Shadows(np.array(members)[:, None], np.c_[signals, np.zeros(len(signals))][:, None])


def test_the_score_of_a_node_by_hand() -> None:
    """Trainings with the node have 3 and 5, those without it -1 and 1: means 4 and 0.

    The squared deviations are 2 and 2, over 4 - 2 degrees of freedom: variance 2. A confidence x then scores
    (x² - (x - 4)²) / 4 = 2x - 4.
    """
    for x, score in ((4.0, 4.0), (2.0, 0.0), (0.0, -4.0)):
        seen = seen_by([True, True, True, False, False], [x, 3.0, 5.0, -1.0, 1.0])
        assert likelihood_ratios(seen)[0, 0] == pytest.approx(score, abs=1e-5)


def test_a_covariance_is_drawn_towards_that_of_all_nodes() -> None:
    """Two nodes in 4 trainings, so 2 degrees of freedom. Sums of products: 4 and 0, on average 2 / 2 = 1.

    With 8 trainings more of the average, (4 + 8) / 10 and (0 + 8) / 10.
    """
    deviations = np.zeros((4, 2, 2))
    deviations[:, 0, 0] = (1.0, -1.0, 1.0, -1.0)
    found = membership.covariance(deviations)
    assert found[:, 0, 0] == pytest.approx([1.2, 0.8], abs=1e-5)
    assert found[:, 1, 1] == pytest.approx([0.0, 0.0], abs=1e-5)


def test_the_second_signal_counts_too() -> None:
    """The first signal is the same everywhere, the second tells trainings with the node from others."""
    members = np.array([[True], [True], [True], [False], [False], [False]])
    signals = np.zeros((6, 1, 2))
    signals[:, 0, 1] = (4.0, 3.0, 5.0, 0.0, -1.0, 1.0)
    ratios = likelihood_ratios(Shadows(members, signals))
    assert (ratios[:3] > 0).all()
    assert (ratios[3:] < 0).all()


def test_a_node_that_is_always_in_is_not_attacked() -> None:
    assert np.isnan(likelihood_ratios(seen_by([True] * 5, [0.0, 1.0, 2.0, 3.0, 4.0]))).all()


def test_the_curve_by_hand() -> None:
    """Members at levels 0, 0, 2, others at 1 and 2.

    Pairs won: the two at level 0 beat both others, the one at level 2 ties with one: (4 + 1/2) / 6. Before
    the first other come two of three members.
    """
    levels, inside = np.array([0, 0, 1, 2, 2]), np.array([True, True, False, True, False])
    assert curve(levels, inside, np.ones(5)) == pytest.approx((4.5 / 6, 2 / 3))
    # The case at level 1 counts twice: the two beat three each, and the tie stays.
    assert curve(levels, inside, np.array([1.0, 1, 2, 1, 1])) == pytest.approx((6.5 / 9, 2 / 3))
    assert all(map(math.isnan, curve(levels, np.ones(5, dtype=bool), np.ones(5))))


def test_one_false_alarm_in_a_hundred_is_allowed() -> None:
    """Of 100 others one scores highest: the threshold goes below it, and finds the member below it."""
    levels = np.r_[0, 1, np.full(99, 2)]
    inside = np.r_[False, True, np.zeros(99, dtype=bool)]
    assert curve(levels, inside, np.ones(101))[1] == 1.0
    assert curve(np.r_[0, 0, 1, np.full(98, 2)], np.r_[0, 0, 1, np.zeros(98)] == 1, np.ones(101))[1] == 0.0


@pytest.mark.heavy
def test_a_model_that_learns_by_heart_is_found_out() -> None:
    """And the figures do not depend on the number of processes."""
    seen: list[tuple[int, int]] = []
    one = audit_membership(quick(), by_heart(), 8, 1, lambda done, all: seen.append((done, all)))
    assert seen == [(number, 9) for number in range(1, 10)]
    assert [(figure.name, figure.tier) for figure in one] == [
        (f"membership.{name}", tier) for name in ("auc", "tpr") for tier in ("all", "head", "medium", "tail")
    ]
    everyone = one[0]
    assert everyone.value > 0.97
    assert everyone.low <= everyone.value <= everyone.high
    assert everyone.chance == 0.5
    assert one[4].value > 0.8
    assert repr(audit_membership(quick(), by_heart(), 8, 2)) == repr(one)


@pytest.mark.parametrize("scores", ["all", "top"])
def test_a_model_that_never_learns_says_nothing(scores: Scores) -> None:
    figures = audit_membership(quick(epochs=0), by_heart(), 6, 1, scores=scores)
    assert {figure.value for figure in figures if figure.name == "membership.auc" and figure.cases} == {0.5}
    assert {figure.value for figure in figures if figure.name == "membership.tpr" and figure.cases} == {0.0}


@pytest.mark.heavy
def test_trainings_have_no_more_rounds_than_they_are_given() -> None:
    """A run of 4 rounds whose trainings are cut at 2 gives the figures of a run of 2."""
    cut = audit_membership(quick(), by_heart(), 4, 1, rounds=2)
    assert repr(cut) == repr(audit_membership(quick(rounds=2), by_heart(), 4, 1))
    assert repr(cut) != repr(audit_membership(quick(), by_heart(), 4, 1))


def test_what_is_refused() -> None:
    with pytest.raises(BadConfig, match="one model per client and no common one"):
        audit_membership(Experiment.make("isolated"), by_heart(), 8, 1)
    with pytest.raises(BadConfig, match="shadows is 3; give at least 4"):
        audit_membership(quick(), by_heart(), 3, 1)
    with pytest.raises(BadConfig, match="workers is 0"):
        audit_membership(quick(), by_heart(), 8, 0)
    with pytest.raises(BadConfig, match="honest clients"):
        audit_membership(quick(attack="sign-flip", attackers=1), by_heart(), 8, 1)
