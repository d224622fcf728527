"""Link stealing: pairs and tiers by hand, a model that gives edges away, and one that cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.privacy.links import Nodes, all_nodes, audit_links, of_tier, similarity, top_only, unconnected
from fedepd.runs.experiment import Experiment
from fedepd.runs.run import run
from fedepd.types import ClientData, Graph

ENDS = {"head": 1, "medium": 2, "tail": 4}
"""Of four classes by size, the largest is head, the next medium, two are tail."""


def pairs_graph(pairs: int = 60) -> Graph:
    """Nodes in pairs: an edge joins two nodes with random features, and there is no other edge."""
    draws = np.random.default_rng(3)
    x = torch.tensor(draws.standard_normal((2 * pairs, 6)), dtype=torch.float32)
    edges = torch.arange(2 * pairs).reshape(pairs, 2).T
    y = torch.tensor(np.sort(draws.choice(3, size=2 * pairs, p=(0.6, 0.3, 0.1))))
    return Graph.make(x, edges, y, 3, name="pairs", owner=(torch.arange(2 * pairs) // 2) % 2)


def quick(**settings: Any) -> Experiment:
    usual: dict[str, Any] = {"rounds": 2, "hidden": 8, "partition": "owner"}
    return Experiment.make("fedavg", **{**usual, **settings})


def test_similarity_is_the_correlation() -> None:
    """(.5, .5, 0) and (1, 0, 0), less 1/3: (1, 1, -2) / 6 and (2, -1, -1) / 3. Product 3 / 18, lengths √6 / 6
    and √6 / 3, so 3 / 6.

    A row without any preference is similar to none.
    """
    told = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    pairs = np.array([[0, 0, 0], [0, 1, 2]])
    assert similarity(told, pairs) == pytest.approx([1.0, 0.5, 0.0])


def test_top_only_tells_the_label_and_one_digit() -> None:
    assert top_only(np.array([[0.62, 0.37, 0.01]])) == pytest.approx(np.array([[0.6, 0.2, 0.2]]))


def test_the_tier_of_a_pair_is_that_of_its_rarer_class() -> None:
    rarer = np.array([0, 1, 2, 3])
    assert of_tier(rarer, "head", ENDS).tolist() == [True, False, False, False]
    assert of_tier(rarer, "medium", ENDS).tolist() == [False, True, False, False]
    assert of_tier(rarer, "tail", ENDS).tolist() == [False, False, True, True]
    assert of_tier(rarer, "all", ENDS).all()


def test_edges_of_all_clients_under_their_numbers_in_the_whole_graph() -> None:
    """Both directions of an edge are one pair, and a loop is none."""
    y = torch.tensor([0, -1, 1])
    local = Graph.make(torch.eye(3), torch.tensor([[0, 1], [1, 2]]), y, 2, part=True)
    none = torch.zeros(3, dtype=torch.bool)
    clients = [
        ClientData(k, local, none, none, none, ids)
        for k, ids in enumerate((torch.tensor([5, 0, 2]), torch.tensor([1, 3, 4])))
    ]
    nodes = all_nodes(clients, np.array([1, 0]))
    assert nodes.edges.T.tolist() == [[0, 2], [0, 5], [1, 3], [3, 4]]
    assert nodes.owner.tolist() == [0, 1, 0, 1, 1, 0]
    assert nodes.rank.tolist() == [-1, 1, 0, -1, 0, 1]  # class 1 is the larger one


def test_strangers_are_no_neighbours() -> None:
    """Four labelled nodes of two clients, one edge: 5 pairs are left, of which 1 lies within a client."""
    nodes = Nodes(np.array([0, 0, 1, 1, 1]), np.array([0, 2, 1, 1, -1]), np.array([[0], [1]]))
    wanted = {"all": 9, "tail": 9}
    found = unconnected(nodes, wanted, ENDS, False, np.random.default_rng(0))
    assert sorted(found["all"].T.tolist()) == [[0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert sorted(found["tail"].T.tolist()) == [[1, 2], [1, 3]]
    inside = unconnected(nodes, {"all": 9}, ENDS, True, np.random.default_rng(0))
    assert inside["all"].T.tolist() == [[2, 3]]
    assert unconnected(nodes, {"all": 2}, ENDS, False, np.random.default_rng(0))["all"].shape == (2, 2)


def test_neighbours_with_one_mean_are_found_out() -> None:
    """GCN gives both ends of a lone edge the mean of the two, so that their probabilities are equal.

    An MLP does not look at edges, and the features are drawn without them.
    """
    graph = pairs_graph()
    figures = audit_links(quick(head="linear"), graph)
    assert [(figure.name, figure.tier) for figure in figures] == [
        (name, tier)
        for name in ("links.auc", "links.auc_within")
        for tier in ("all", "head", "medium", "tail")
    ]
    assert figures[0].value > 0.99
    assert figures[0].cases == 120
    blind = audit_links(quick(backbone="mlp"), graph)[0]
    assert blind.low < 0.5 < blind.high


def test_a_model_at_hand_is_not_trained_again() -> None:
    graph = pairs_graph()
    result = run(graph, "fedavg", rounds=2, hidden=8, partition="owner")
    ours = audit_links(quick(), graph, result.tensors)
    assert repr(ours) == repr(audit_links(quick(), graph))
    assert repr(ours) != repr(audit_links(quick(), graph, result.tensors, "top"))


def test_a_method_without_a_common_model_is_refused() -> None:
    with pytest.raises(BadConfig, match="nothing to audit"):
        audit_links(Experiment.make("isolated"), pairs_graph())
