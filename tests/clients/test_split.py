from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedepd.clients.client_file import ClientFile
from fedepd.clients.split import SplitConfig, make_clients, split
from fedepd.errors import BadConfig, UnknownName
from fedepd.rng import seeded_numpy
from fedepd.types import HIDDEN, Graph, Partition


def graph_of(labels: list[int]) -> Graph:
    n = len(labels)
    x, no_edges = torch.arange(n, dtype=torch.float32)[:, None], torch.zeros(2, 0, dtype=torch.int64)
    return Graph(x=x, edge_index=no_edges, y=torch.tensor(labels, dtype=torch.int64), num_classes=4)


def sizes(labels: list[int], config: SplitConfig, seed: int = 0) -> tuple[int, ...]:
    return tuple(int(mask.sum()) for mask in split(graph_of(labels), config, seeded_numpy(seed, "split", 0)))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (1, (0, 0, 1)),
        (2, (1, 0, 1)),
        (3, (1, 1, 1)),
        (4, (2, 1, 1)),
        (5, (3, 1, 1)),
        (6, (3, 1, 2)),
        (10, (6, 2, 2)),
    ],
)
def test_floor_rule_by_hand(nodes: int, expected: tuple[int, ...]) -> None:
    """int(0.6 n) train, up to int(0.8 n) validate, the rest is tested.

    n = 6 gives int(3.6) = 3, int(4.8) - 3 = 1, 6 - 4 = 2.
    """
    assert sizes([2] * nodes, SplitConfig()) == expected


def test_floor_rule_is_pythons_floating_point() -> None:
    """0.7 + 0.1 is 0.7999... in binary, so ten nodes give int(7.999...) = 7.

    The split is 7 / 0 / 3, as OpenFGL computes it.
    """
    assert int((0.7 + 0.1) * 10) == 7
    assert sizes([0] * 10, SplitConfig(train_share=0.7, val_share=0.1)) == (7, 0, 3)


def test_keep_one_changes_only_classes_that_would_not_train() -> None:
    assert sizes([0], SplitConfig(split="keep_one")) == (1, 0, 0)
    for n in range(2, 30):
        assert sizes([0] * n, SplitConfig(split="keep_one")) == sizes([0] * n, SplitConfig())
    assert sizes([0, 0], SplitConfig(split="floor", train_share=0.2, val_share=0.4)) == (0, 1, 1)
    assert sizes([0, 0], SplitConfig(split="keep_one", train_share=0.2, val_share=0.4)) == (1, 0, 1)


@given(
    st.lists(st.integers(-1, 3), min_size=1, max_size=60),
    st.sampled_from(["floor", "keep_one"]),
    st.integers(0, 5),
)
def test_masks_divide_each_class_by_the_rule(labels: list[int], rule: str, seed: int) -> None:
    graph = graph_of(labels)
    masks = torch.stack(split(graph, SplitConfig(split=rule), seeded_numpy(seed, "split", 0)))  # type: ignore[arg-type]
    assert torch.equal(masks.sum(0), (graph.y != HIDDEN).long()), (
        "every labelled node in exactly one mask, no other in any"
    )
    for label in set(labels) - {HIDDEN}:
        n = labels.count(label)
        train = max(int(0.6 * n), 1) if rule == "keep_one" else int(0.6 * n)
        val = max(int((0.6 + 0.2) * n) - train, 0)
        assert masks[:, graph.y == label].sum(1).tolist() == [train, val, n - train - val]


def test_the_split_depends_on_the_seed_alone() -> None:
    graph = graph_of([0] * 20 + [1] * 20)
    first, again, other = (split(graph, SplitConfig(), seeded_numpy(s, "split", 0))[0] for s in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_every_node_of_a_class_can_land_in_every_mask() -> None:
    graph = graph_of([0] * 5)
    seen = torch.stack(
        [torch.stack(split(graph, SplitConfig(), np.random.default_rng(s))) for s in range(60)]
    ).any(0)
    assert bool(seen.all())


def test_make_clients_keeps_true_labels_and_its_own_streams() -> None:
    """Two clients with the same forty labels, interleaved.

    Each has its own nodes, and its own random stream splits them differently.
    """
    graph = graph_of([c for c in (0, 1) for _ in range(40)])
    owner = torch.arange(80) % 2
    clients = make_clients(graph, Partition(owner, 2, "owner"), SplitConfig(), seed=3)
    assert [c.client_id for c in clients] == [0, 1]
    for client in clients:
        assert torch.equal(client.global_ids, torch.nonzero(owner == client.client_id).reshape(-1))
        assert torch.equal(client.graph.y, graph.y[client.global_ids])
        expected = split(client.graph, SplitConfig(), seeded_numpy(3, "split", client.client_id))
        assert all(
            torch.equal(a, b)
            for a, b in zip((client.train_mask, client.val_mask, client.test_mask), expected, strict=True)
        )
    assert not torch.equal(clients[0].train_mask, clients[1].train_mask)


def test_bad_settings_are_refused() -> None:
    with pytest.raises(UnknownName, match="did you mean 'floor'"):
        SplitConfig(split="flor")  # type: ignore[arg-type]
    for train, val in ((0.0, 0.2), (0.8, 0.2), (0.6, -0.1), (math.nan, 0.2)):
        with pytest.raises(BadConfig, match=f"train_share={train}"):
            SplitConfig(train_share=train, val_share=val)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"vault": 1.0}, "vault is 1.0; give a share from 0 to below 1"),
        ({"vault": -0.1}, "vault is -0.1; give a share"),
        ({"vault": math.nan}, "vault is nan; give a share"),
        ({"score_on": "vault"}, "score_on is vault, but no node is set aside; give a vault too"),
        ({"vault": 0.2, "score_on": "vaul"}, "unknown value of score_on 'vaul'; did you mean 'vault'"),
    ],
)
def test_a_vault_that_cannot_be(settings: dict[str, Any], says: str) -> None:
    with pytest.raises(BadConfig, match=re.escape(says)):
        SplitConfig(**settings)


def test_a_single_client_cannot_tell_the_vault() -> None:
    """It is known where all nodes of a class are counted."""
    with pytest.raises(BadConfig, match="one client alone cannot tell it"):
        ClientFile(graph_of([0, 1]), None, torch.arange(2)).client(0, SplitConfig(vault=0.2), 0)
