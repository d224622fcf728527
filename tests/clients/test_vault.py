from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepd.clients.partition import PartitionConfig, partition
from fedepd.clients.split import SplitConfig, make_clients
from fedepd.clients.vault import known_labels, too_small, vault
from fedepd.datasets import synthetic
from fedepd.types import HIDDEN, ClientData, Graph, Partition

GRAPH = synthetic()


def graph_of(labels: list[int]) -> Graph:
    n = len(labels)
    no_edges = torch.zeros(2, 0, dtype=torch.int64)
    return Graph(torch.ones(n, 1), no_edges, torch.tensor(labels, dtype=torch.int64), num_classes=4)


def used(clients: list[ClientData]) -> torch.Tensor:
    """The global numbers of all nodes in any mask."""
    return torch.cat([c.global_ids[c.train_mask | c.val_mask | c.test_mask] for c in clients])


@given(
    st.lists(st.integers(-1, 3), min_size=4, max_size=60),
    st.floats(0, 0.9),
    st.integers(1, 4),
    st.lists(st.integers(0, 10**6), min_size=2, max_size=3),
)
def test_a_vault_node_is_in_no_mask_for_any_seed_or_cut(
    labels: list[int], share: float, clients: int, seeds: list[int]
) -> None:
    """The cut differs for every seed here, and so do the masks. The vault is the same set of nodes."""
    graph = graph_of(labels)
    aside = vault(graph, share)
    for seed in seeds:
        owner = (torch.arange(len(labels)) * (1 + seed % 3)) % clients
        for score in ("test", "vault") if share else ("test",):
            config = SplitConfig(vault=share, score_on=score)
            made = make_clients(graph, Partition(owner, clients, "owner"), config, seed)
            trained = torch.cat([c.global_ids[c.train_mask | c.val_mask] for c in made])
            tested = torch.cat([c.global_ids[c.test_mask] for c in made])
            assert not bool(aside[trained].any())
            if score == "vault":
                assert torch.equal(tested.sort().values, torch.nonzero(aside).reshape(-1))
            else:
                assert not bool(aside[tested].any())
                rest = (graph.y != HIDDEN) & ~aside
                assert torch.equal(used(made).sort().values, torch.nonzero(rest).reshape(-1))


@given(st.lists(st.integers(-1, 3), min_size=1, max_size=80), st.floats(0, 0.99))
def test_each_class_gives_its_share_rounded_down(labels: list[int], share: float) -> None:
    aside, y = vault(graph_of(labels), share), torch.tensor(labels)
    for label in range(4):
        assert int(aside[y == label].sum()) == int(share * labels.count(label))
    assert not bool(aside[y == HIDDEN].any())


def test_the_vault_is_pinned() -> None:
    """Else a change of the hash would open the vault of every study made before."""
    assert torch.nonzero(vault(graph_of([0] * 10 + [1] * 9), 0.2)).reshape(-1).tolist() == [0, 6, 17]


def test_the_vault_depends_on_edges_and_labels_but_not_on_features() -> None:
    aside = vault(GRAPH, 0.2)
    assert torch.equal(aside, vault(replace(GRAPH, x=GRAPH.x * 2, name="other"), 0.2))
    assert not torch.equal(aside, vault(replace(GRAPH, edge_index=GRAPH.edge_index[:, 1:]), 0.2))


def test_a_smaller_vault_lies_in_a_larger_one() -> None:
    """So a study with a larger vault keeps closed what an earlier one had closed."""
    assert not bool((vault(GRAPH, 0.1) & ~vault(GRAPH, 0.3)).any())


@settings(max_examples=5)
@given(st.integers(0, 1000), st.sampled_from(["openfgl", "dirichlet", "balanced"]))
def test_labels_of_the_vault_are_not_at_the_clients(seed: int, rule: str) -> None:
    """Not even code that reads all labels of a client can score on them."""
    aside = vault(GRAPH, 0.2)
    part = partition(GRAPH, PartitionConfig(clients=4, partition=rule, shuffle_nodes=True), seed)
    made = make_clients(GRAPH, part, SplitConfig(vault=0.2), seed)
    for client in made:
        assert bool((client.graph.y[aside[client.global_ids]] == HIDDEN).all())
    known = known_labels(GRAPH, made)
    assert torch.equal(known.y, torch.where(aside, HIDDEN, GRAPH.y))


def test_without_a_vault_nothing_changes() -> None:
    part = partition(GRAPH, PartitionConfig(clients=4), 0)
    usual = make_clients(GRAPH, part, SplitConfig(), 3)
    assert torch.equal(used(usual).sort().values, torch.nonzero(GRAPH.y != HIDDEN).reshape(-1))
    assert torch.equal(known_labels(GRAPH, usual).y, GRAPH.y)


@pytest.mark.parametrize(
    ("labels", "share", "said"),
    [
        ([0] * 10 + [1] * 4, 0.2, "2 nodes are in the vault (vault = 0.2); 1 of 2 classes are too small"),
        ([0] * 10 + [1] * 5, 0.2, "3 nodes are in the vault (vault = 0.2), and every class has some there"),
        ([0] * 10, 0.0, ""),
    ],
)
def test_classes_that_are_too_small_are_said(labels: list[int], share: float, said: str) -> None:
    assert too_small(graph_of(labels), share).startswith(said)
