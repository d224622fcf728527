"""The attacks name the node that is behind, and nothing where nothing was sent."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from fedepd.privacy.figures import Figure
from fedepd.privacy.reidentify import Guess, best_pair, rank_of, ranked, reidentify_figures
from fedepd.privacy.view import watch
from fedepd.rounds.guard import Privacy
from fedepd.runs.simulation import Simulation, build
from fedepd.types import ClientData

Four = Callable[..., Simulation]


def figures(simulation: Simulation, privacy: Privacy, rounds: int = 3) -> dict[str, Figure]:
    return {f.name: f for f in reidentify_figures(watch(simulation, privacy, rounds)) if f.tier == "all"}


def test_a_row_of_one_node_names_it_and_one_of_two_names_both(four: Four) -> None:
    """Client 0 has one training node of class 2 among 20 nodes; client 1 has two of class 1 among 24."""
    found = figures(four(), Privacy())
    assert (found["reidentified.rank1"].value, found["reidentified.rank1"].cases) == (1.0, 1)
    assert found["reidentified.rank1"].chance == 1 / 20
    assert found["reidentified.top5"].chance == 5 / 20
    assert (found["pairs.resolved"].value, found["pairs.resolved"].cases) == (1.0, 1)
    assert found["pairs.resolved"].chance == 1 / (24 * 23 / 2)
    assert found["members.rank1"].cases == 11


def test_a_gradient_of_one_node_names_it(four: Four) -> None:
    found = figures(four("creff"), Privacy())
    assert (found["reidentified.rank1"].value, found["reidentified.rank1"].cases) == (1.0, 1)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_column_names_the_only_node_without_any_prototype(four: Four, seed: int) -> None:
    """By guessing it would be one of 20 each time. A network that keeps a node's own features apart tells."""
    found = figures(four("fedavg", seed=seed, backbone="sage", hidden=64), Privacy())
    assert found["reidentified.rank1"].cases == found["members.rank1"].cases == 0
    assert (found["columns.rank1"].value, found["columns.rank1"].cases) == (1.0, 1)


def test_with_guard_and_sums_there_is_no_row_or_column_of_one_node(four: Four) -> None:
    found = figures(four(), Privacy(guard=True, secure=True))
    for name in ("reidentified.rank1", "reidentified.top5_no_edges", "pairs.resolved", "columns.rank1"):
        assert math.isnan(found[name].value)
        assert found[name].cases == 0
    assert found["members.rank1"].cases == 3  # the rows of the sum are attacked all the same
    assert found["model.rank1"].cases == 1  # and the model is there


def test_a_column_that_came_back_as_it_was_is_no_case(four: Four) -> None:
    """Over all clients, class 2 has one training node if only client 0 has it; the guard closes it."""
    simulation = four("fedavg")
    clients = [c if c.client_id == 0 else without(c, 2) for c in simulation.clients]
    alone = build(simulation.experiment, clients)
    assert figures(alone, Privacy(guard=True, secure=True))["columns.rank1"].cases == 0
    assert figures(alone, Privacy())["columns.rank1"].cases == 1
    # Without the guard the column of the sum is that of its only holder.
    assert figures(alone, Privacy(secure=True))["columns.rank1"].cases == 1


def without(client: ClientData, label: int) -> ClientData:
    """The client, with this class not trained on."""
    return replace(client, train_mask=client.train_mask & (client.graph.y != label))


def test_a_private_model_names_less_than_a_known_one(four: Four) -> None:
    """FedProto's server has no model, so it guesses with the initial one. It still counts the case."""
    found = figures(four("fedproto"), Privacy())
    assert found["reidentified.rank1"].cases == 1
    assert found["model.rank1"].cases == found["columns.rank1"].cases == 0


def test_ranks() -> None:
    scores = torch.tensor([0.5, 0.9, 0.9, 0.1])
    assert [rank_of(scores, torch.tensor([k])) for k in range(4)] == [2, 0, 1, 3]
    assert rank_of(scores, torch.tensor([0, 3])) == 2


def test_ranked_shares_and_chance_by_tier(four: Four) -> None:
    """Two guesses of class 2 (tail) among 10 and 20 nodes: chance (1/10 + 2/20) / 2."""
    view = watch(four(), Privacy(), 1)
    found = [Guess(2, 0, 1, 10), Guess(2, 1, 2, 20), Guess(0, 0, 1, 4)]
    by_tier = {f.tier: f for f in ranked(view, "x", found, 1)}
    assert (by_tier["tail"].value, by_tier["tail"].cases) == (0.5, 2)
    assert by_tier["tail"].chance == pytest.approx(0.1)
    assert (by_tier["head"].value, by_tier["medium"].cases) == (1.0, 0)
    assert by_tier["medium"].chance is None
    assert ranked(view, "x", found, 2)[0].value == 1.0


def test_the_best_pair_over_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = torch.randn(30, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    for block in (1000, 7):
        monkeypatch.setattr("fedepd.privacy.reidentify.BLOCK", block)
        fit, pair = best_pair(candidates[4] + candidates[23], candidates)
        assert pair == (4, 23)
        assert fit == pytest.approx(1)
