"""Which classes a client has: told outright, told by an update, and not told by a sum."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from fedepd.privacy.classes import bias_scores, class_figures, first_update, majority, shown_classes
from fedepd.privacy.figures import Figure
from fedepd.privacy.view import View, watch
from fedepd.rounds.guard import Privacy
from fedepd.runs.simulation import Simulation

Four = Callable[..., Simulation]


def figures(view: View) -> dict[str, Figure]:
    return {f.name: f for f in class_figures(view) if f.tier == "all"}


def test_one_step_raises_the_bias_of_the_classes_that_are_there(four: Four) -> None:
    """One step of gradient descent: an absent class only loses, as softmax probabilities are positive.

    A class that is there may lose too if it is rare, so the area is what tells client 3 from the others.
    """
    view = watch(four("fedavg", optimizer="sgd", epochs=1, dropout=0, weight_decay=0), Privacy(), 1)
    scores = bias_scores(view)
    assert scores is not None
    assert bool(scores[3, 2] < 0)
    assert scores[3, 2] == scores[:, 2].min()
    found = figures(view)
    assert (found["classes.auc"].value, found["classes.auc"].cases) == (1.0, 4)
    right = int(((scores > 0) == torch.tensor([[1, 1, 1]] * 3 + [[1, 1, 0]], dtype=torch.bool)).sum())
    assert found["classes.accuracy"].value == right / 12


def test_sums_tell_nothing_of_one_client(four: Four) -> None:
    """The server has one score for all, so no client ranks above another."""
    found = figures(watch(four(), Privacy(guard=True, secure=True), 2))
    auc = found["classes.auc"]
    assert (auc.value, auc.low, auc.high) == (0.5, 0.5, 0.5)
    assert found["classes.shown"].value == 0
    assert found["classes.accuracy"].value <= float(found["classes.accuracy"].chance or 0)


def test_counts_and_sizes_show_all_classes_without_protection(four: Four) -> None:
    found = figures(watch(four("isolated"), Privacy(), 1))
    assert (found["classes.shown"].value, found["classes.shown"].cases) == (1.0, 11)
    assert math.isnan(found["classes.auc"].value)  # nothing but the declared sizes is sent
    assert found["classes.accuracy"].cases == 0


def test_the_guard_alone_hides_small_classes_in_counts_and_in_columns(four: Four) -> None:
    """Client 0 has one node of class 2, and client 3 has none: both send the column back as it came.

    At least two training nodes and two holders open class 2, of which clients 1 and 2 have five and four.
    """
    privacy = Privacy(guard=True, min_count=2, min_holders=2)
    view = watch(four("fedavg"), privacy, 1)
    assert shown_classes(view).tolist() == [[True, True, False], [True] * 3, [True] * 3, [True, True, False]]
    for client in (0, 3):
        moved = first_update(view, client)
        assert moved is not None
        assert (float(moved[2]), bool((moved[:2] != 0).all())) == (0.0, True)
    scores = bias_scores(view)
    assert scores is not None
    assert scores[0, 2] == scores[3, 2]


@pytest.mark.parametrize(
    ("held", "right"), [([[1, 0], [1, 0]], 1.0), ([[1, 0], [0, 1]], 0.5), ([[1, 1], [1, 0], [1, 0]], 5 / 6)]
)
def test_who_knows_only_how_many_have_a_class(held: list[list[int]], right: float) -> None:
    assert majority(torch.tensor(held).bool()) == pytest.approx(right)
    assert majority(torch.empty(3, 0, dtype=torch.bool)) is None
