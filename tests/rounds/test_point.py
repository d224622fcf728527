"""Thresholds from counts by score, against the thresholds from the scores themselves."""

from __future__ import annotations

import numpy as np
import pytest

from fedepd.errors import BadConfig, BadMessage, UnknownName
from fedepd.rng import seeded_numpy
from fedepd.rounds.point import (
    BINS,
    EDGES,
    NEVER,
    Goal,
    choose,
    choose_all,
    coarse,
    goals_of,
    histograms,
    names_of,
    point_layout,
    rules_of,
)

NAMES = ("clean", "mule", "takeover")
RECALL = goals_of("recall takeover=0.8")


def nodes(count: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities [n, 3] of nodes whose class they tell roughly, and the classes."""
    draws = seeded_numpy("scores", count)
    y = draws.choice(3, size=count, p=[0.9, 0.07, 0.03])
    z = draws.normal(size=(count, 3)) + 3.0 * np.eye(3)[y] + np.array([3.0, 0.0, 0.0])
    p = np.exp(z)
    return p / p.sum(1, keepdims=True), y


def test_an_aim_is_read() -> None:
    assert goals_of("") == []
    assert goals_of("recall mule=0.5, takeover=1") == [
        Goal("recall", "mule", 0.5),
        Goal("recall", "takeover", 1.0),
    ]
    assert goals_of("alerts a=b=50/4000") == [Goal("alerts", "a=b", 50.0, 4000.0)]
    assert goals_of("cost 1000:20") == [Goal("cost", "", 1000.0, 20.0)]
    assert rules_of(goals_of("cost 1000:20"), NAMES, 0) == [(1, 2)]
    assert rules_of(goals_of("recall takeover=0.8, mule=0.5"), NAMES, 0) == [(2,), (1,)]
    assert names_of((), 3) == ("0", "1", "2")


@pytest.mark.hostile
@pytest.mark.parametrize(
    "text",
    [
        "recall", "recall ", "recall 0.8", "recall x=", "recall x=0", "recall x=1.1", "recall x=nan",
        "recall =0.5", "alerts x=50", "alerts x=0/10", "alerts x=11/10", "alerts x=5/inf", "cost x=5",
        "cost x=0:5", "cost x=5:-1", "cost x=nan:1", "other x=1", "recall x=0.5, x=0.6",
        "alerts 5/10, x=5/10", "recall " + ",".join(f"c{i}=0.5" for i in range(21)),
    ],
)  # fmt: skip
def test_an_aim_that_is_none_is_one_sentence(text: str) -> None:
    with pytest.raises(BadConfig, match=r"^aim "):
        goals_of(text)


def test_classes_that_cannot_be_watched_are_named() -> None:
    with pytest.raises(UnknownName, match="burglar"):
        rules_of(goals_of("recall burglar=0.5"), NAMES, 0)
    with pytest.raises(BadConfig, match="names every class"):
        rules_of(goals_of("recall clean=0.5, mule=0.5, takeover=0.5"), NAMES, 0)


def test_every_node_is_in_one_bin_and_a_node_at_an_edge_is_above_it() -> None:
    p, y = nodes(500)
    p[0, 2] = EDGES[100]
    vector = histograms(p, y, [(2,)], RECALL)
    assert sum(size for _, (size,) in point_layout(RECALL)) == len(vector) == 2 * BINS
    of, others = vector.reshape(2, BINS)
    assert (of.sum(), others.sum()) == ((y == 2).sum(), (y != 2).sum())
    for at in (0, 100, 240):
        assert vector.reshape(2, BINS)[:, at + 1 :].sum() == (p[:, 2] >= EDGES[at]).sum()


def test_the_sum_over_clients_is_that_of_all_nodes() -> None:
    p, y = nodes()
    parts = [histograms(p[i::3], y[i::3], [(2,)], RECALL) for i in range(3)]
    assert np.array_equal(sum(parts), histograms(p, y, [(2,)], RECALL))


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
def test_a_recall_is_reached_and_by_one_bin_at_most_exceeded(share: float) -> None:
    """The exact threshold is the score of the node that completes the share. Ours is the edge below it."""
    p, y = nodes()
    own = np.sort(p[y == 2, 2])[::-1]
    exact = own[int(np.ceil(share * len(own))) - 1]
    (found,) = choose_all(histograms(p, y, [(2,)], RECALL), goals_of(f"recall takeover={share}"), len(y))
    at = int(np.searchsorted(EDGES, exact, side="right")) - 1
    assert found.threshold == (EDGES[at] if at >= 0 else 0.0)
    assert found.found == (own >= found.threshold).sum() >= share * len(own)
    assert found.false_alarms == (p[y != 2, 2] >= found.threshold).sum()
    assert (found.cases, found.nodes) == (len(own), len(y))


def test_alerts_are_not_more_than_allowed() -> None:
    p, y = nodes()
    goals = goals_of("alerts 50/1000")
    (found,) = choose_all(histograms(p, y, [(1, 2)], goals), goals, len(y))
    scores = p[:, 1] + p[:, 2]
    assert (scores >= found.threshold).sum() == found.found + found.false_alarms <= 150
    below = EDGES[np.searchsorted(EDGES, found.threshold) - 1]
    assert (scores >= below).sum() > 150  # the next lower edge is too low


def test_costs_are_the_lowest_of_all_edges() -> None:
    p, y = nodes()
    goals = goals_of("cost takeover=100:3")
    (found,) = choose_all(histograms(p, y, [(2,)], goals), goals, len(y))
    alerted = p[:, [2]] >= EDGES
    costs = 100 * (~alerted & (y == 2)[:, None]).sum(0) + 3 * (alerted & (y != 2)[:, None]).sum(0)
    assert found.threshold == EDGES[costs.argmin()]


@pytest.mark.parametrize(
    ("text", "of", "others", "reason"),
    [
        ("recall takeover=0.8", [], [1, 2, 3], "no validation node of the class"),
        ("alerts takeover=1/1000", [240], [240, 240], "too few for so few"),
        ("cost takeover=1:1000", [100], [240] * 9, "if nobody is alerted"),
    ],
)
def test_a_threshold_that_cannot_be_chosen_says_why(
    text: str, of: list[int], others: list[int], reason: str
) -> None:
    (goal,) = goals_of(text)
    found = choose(goal, np.bincount(of, minlength=BINS), np.bincount(others, minlength=BINS))
    assert found.threshold == NEVER
    assert reason in found.reason


@pytest.mark.parametrize("upwards", [False, True])
def test_a_vector_that_is_seen_alone_shows_no_score_of_few_nodes(upwards: bool) -> None:
    """17 nodes in groups of 5: three groups, and the last has 7. Each stands at one of its own nodes."""
    bins = seeded_numpy("bins").integers(BINS, size=17)
    ordered, counts = np.sort(bins)[::-1], coarse(bins, 5, upwards)
    assert counts.sum() == 17
    assert counts[counts > 0].min() >= 5
    places = [ordered[start] if upwards else ordered[end] for start, end in ((0, 4), (5, 9), (10, 16))]
    assert sorted(np.flatnonzero(counts)) == sorted(set(places))
    exact, shown = (np.cumsum(each[::-1]) for each in (coarse(bins, 0, upwards), counts))
    assert ((shown >= exact) if upwards else (shown <= exact)).all()
    assert not coarse(bins[:4], 5, upwards).any()
    assert np.array_equal(coarse(bins, 1, upwards), np.bincount(bins, minlength=BINS))


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v[:-1], "are not 484 whole numbers"),
        (lambda v: v.astype(float), "are not 484 whole numbers"),
        (lambda v: v.reshape(2, -1), "are not 484 whole numbers"),
        (lambda v: v - 1, "hold a negative number"),
        (lambda v: v + 1, "are of 984 nodes, but there are 500 validation nodes; find who"),
        (lambda v: np.full_like(v, 2**62), "500 validation nodes; find who"),  # overflows an int64
    ],
)
def test_a_sum_that_cannot_be_is_refused(change: object, said: str) -> None:
    """2 x 242 numbers; one more in each of them are 484 nodes too many."""
    p, y = nodes(500)
    vector = histograms(p, y, [(2,)], RECALL)
    with pytest.raises(BadMessage, match=said):
        choose_all(change(vector), RECALL, 500)  # type: ignore[operator]
