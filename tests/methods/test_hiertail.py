"""HierTail: checks 1 and 4 of docs/reading-the-rivals.md, dense counterparts, and awkward clients.

The pooled graph is held against the full square, and the U-Net against one with dense matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.hiertail import HierTail, pool, strongest
from fedepd.methods.parts.contrast import group_contrast
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import adjacency
from fedepd.network.training import Training
from fedepd.rng import seeded_numpy
from toy import assert_near, initial, make_client, make_server, run_rounds, toy_client, toy_clients


def test_depth_zero_without_contrast_is_fedavg() -> None:
    """Check 1."""
    clients = toy_clients(2)
    ours, _ = run_rounds(HierTail(depth=0, contrast=0.0), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_near(ours[-1].tensors, theirs[-1].tensors)


def test_first_size_is_nodes_per_class() -> None:
    """Check 4. k_1 = int(n / C), then halves rounded up; one node where n < C; never more than allowed."""
    assert HierTail().sizes(17, 3) == (5, 3, 2)
    assert HierTail().sizes(5, 40) == (1, 1, 1)
    assert HierTail(first_ratio=9.0).sizes(4, 2) == (4, 2, 1)
    assert HierTail(most_kept=7, depth=2).sizes(100, 2) == (7, 4)


def test_sampled_contrast_approaches_the_full_one() -> None:
    """A third of the nodes, all centres: the mean over draws is the full contrast within 5 %.

    D is a mean per class; its log is not linear, so it is consistent, not unbiased. With anchors for all it
    is the full contrast exactly.
    """
    generator = torch.Generator().manual_seed(2)
    nodes, centres = torch.rand(300, 4, generator=generator), torch.rand(3, 4, generator=generator)
    full = float(group_contrast(nodes, centres, 1.0))
    draws, method = seeded_numpy("anchors"), HierTail(anchors=100)
    chosen = [method._anchors(300, draws) for _ in range(200)]
    assert all(c is not None and len(set(c.tolist())) == 100 for c in chosen)
    assert np.mean([float(group_contrast(nodes[c], centres, 1.0)) for c in chosen]) == pytest.approx(
        full, rel=0.05
    )
    assert HierTail(anchors=300)._anchors(300, draws) is None


def test_pool_by_hand() -> None:
    """p / ‖p‖ = (0, 1): scores are the second column.

    The two largest are nodes 1 and 3, ascending, with the tanh of their scores.
    """
    x = torch.tensor([[1.0, 0.0], [1.0, 2.0], [1.0, -1.0], [0.0, 1.0]])
    keep, gate = pool(x, torch.tensor([0.0, 1.0]), 2)
    assert keep.tolist() == [1, 3]
    assert torch.allclose(gate, torch.tanh(torch.tensor([2.0, 1.0])))


def test_ties_go_to_the_lower_node() -> None:
    assert pool(torch.ones(5, 2), torch.ones(2), 3)[0].tolist() == [0, 1, 2]


def test_pooled_square_equals_the_full_square() -> None:
    """(A + I)² with its diagonal dropped, then the kept rows and columns, at both of the first two depths."""
    data = toy_client(nodes=20)
    method = HierTail(cap=0)
    prepared = method.prepare(data, Backbone(hidden=4))
    keep, deeper = torch.tensor([1, 4, 7, 8, 15]), torch.tensor([0, 2, 4])
    a = torch.tensor(adjacency(data.graph.edge_index, 20).toarray())

    def step(adj: Tensor, kept: Tensor) -> Tensor:
        loops = adj + torch.eye(adj.shape[0])
        return (loops @ loops).fill_diagonal_(0.0)[kept][:, kept]

    first = method.pooled(prepared.with_loops, keep)
    assert torch.equal(first, step(a, keep))
    assert torch.equal(method.pooled(first, deeper), step(first, deeper))
    plain = HierTail(square=False)
    assert torch.equal(plain.pooled(prepared.with_loops, keep), a[keep][:, keep])
    assert torch.equal(plain.pooled(first, deeper), first[deeper][:, deeper])


def test_the_cap_keeps_what_either_end_keeps() -> None:
    """One edge per row.

    0 keeps 1 (weight 5), 1 keeps 0, 2 keeps 1 (weight 3); 0-2 (weight 1) is nobody's strongest.
    """
    adj = torch.tensor([[0.0, 5.0, 1.0], [5.0, 0.0, 3.0], [1.0, 3.0, 0.0]])
    assert strongest(adj, 1).tolist() == [[0.0, 5.0, 0.0], [5.0, 0.0, 3.0], [0.0, 3.0, 0.0]]
    assert torch.equal(strongest(adj, 3), adj)


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
@pytest.mark.parametrize("sparse", [False, True])
def test_network_and_its_gradient_against_a_dense_u_net(sparse: bool, backbone: Any) -> None:
    """Steps 1 to 3 with dense matrices and autograd, at depth 3.

    The authors' rule for gcn has two parts. The loader gives every node a loop of weight 1. A layer gives
    weight 2 to nodes without a loop, and leaves the loops that are there. Pooling drops all loops, so layers
    on pooled graphs have 2 and those on the whole graph 1. A sage has the neighbours' means beside own rows.
    """
    data, model = toy_client(nodes=41, sparse=sparse), Backbone(backbone, hidden=4)
    method = HierTail(depth=3, cap=0)
    params = initial(method, make_server([data], model, Training()))
    leaves = {name: value.requires_grad_() for name, value in params.items()}
    a = torch.tensor(adjacency(data.graph.edge_index, 41).toarray())

    def conv(name: str, x: Tensor, adj: Tensor) -> Tensor:
        if backbone == "sage":
            read = torch.cat([adj / adj.sum(1, keepdim=True).clamp(min=1e-7) @ x, x], dim=1)
        else:
            loops = adj + 2 * torch.diag((adj.diagonal() == 0).to(adj.dtype))
            scale = loops.sum(1).rsqrt()
            read = scale[:, None] * loops * scale @ x
        return read @ leaves[f"{name}.weight"] + leaves[f"{name}.bias"]

    loaded = a if backbone == "sage" else a + torch.eye(41)
    x, adj, down = F.relu(conv("encoder", data.graph.x.to_dense(), loaded)), a, []
    for size, p in zip(method.sizes(41, 3), leaves["pool.weight"], strict=True):
        score = x @ p / p.norm()
        keep = score.argsort(descending=True, stable=True)[:size].sort().values
        down.append((x, adj, keep))
        loops = adj + torch.eye(adj.shape[0])
        adj = (loops @ loops).fill_diagonal_(0.0)[keep][:, keep]
        x = F.relu(conv("down", x[keep] * torch.tanh(score[keep])[:, None], adj))
    levels = [before for before, _, _ in down]
    for depth, (before, on, keep) in reversed(list(enumerate(down))):
        x = before.index_add(0, keep, x)
        if depth:
            x = F.relu(conv("up", x, on))
    expected = conv("classifier", x, loaded)

    client = make_client(method, data, model)
    assert torch.allclose(method.predict(client, params), expected, atol=1e-5)
    ours, last = method._network(client, params, None)
    wanted, found = (
        torch.autograd.grad(
            torch.stack([level.square().sum() for level in many]).sum(),
            list(leaves.values()),
            allow_unused=True,
        )
        for many in ([*levels, x], [*ours, last])
    )
    for name, g, h in zip(leaves, found, wanted, strict=True):
        assert (
            (g is None and h is None)
            if name.startswith("classifier.")
            else torch.allclose(g, h, rtol=1e-4, atol=1e-5)
        ), name


VARIANTS: list[dict[str, Any]] = [
    {"square": False},
    {"depth": 1, "contrast": 0.0},
    {"cap": 1, "first_ratio": 3.0, "anchors": 4},
    {"contrast": 1.0, "temperature": 0.1, "optimizer_own": True},
]
SHAPES: list[dict[str, Any]] = [
    {"edges": False},
    {"train": False},
    {"missing_class": True},
    {"one_node_class": True},
    {"sparse": True},
]


@pytest.mark.parametrize("settings", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_variants_at_awkward_clients(settings: dict[str, Any], shape: dict[str, Any]) -> None:
    """The contract battery has the default everywhere.

    These are the other branches, half of the clients at a time.
    """
    clients = [toy_client(0, nodes=16, sparse=shape.get("sparse", False)), toy_client(1, nodes=16, **shape)]
    rounds, _ = run_rounds(
        HierTail(**settings), clients, model=Backbone(hidden=4), training=Training(participation=0.5)
    )
    assert all(bool(torch.isfinite(t).all()) for t in rounds[-1].tensors.values())


@pytest.mark.parametrize(("backbone", "layer"), [("gcn", 64 + 8), ("sage", 128 + 8)])
def test_what_is_sent(backbone: Any, layer: int) -> None:
    """4 (|Θ| + 2 (h² + h) + L h) bytes each way.

    A sage layer reads 2 h columns, and so do its encoder and classifier.
    """
    clients, model = toy_clients(2), Backbone(hidden=8, backbone=backbone)
    message = initial(HierTail(), make_server(clients, model, Training()))
    answer, _ = HierTail().client_step(make_client(HierTail(), clients[0], model), message, {})
    reads = 2 if backbone == "sage" else 1
    theta = 6 * reads * 8 + 8 + 8 * reads * 3 + 3
    for tensors in (message, answer.tensors):
        assert sum(t.nbytes for t in tensors.values()) == 4 * (theta + 2 * layer + 3 * 8)


def test_every_parameter_is_reached() -> None:
    """One step with fixed pooling moves all of them, the pooling vectors through tanh."""
    data = toy_client(nodes=24)
    method = HierTail(first_ratio=2.0)
    message = initial(method, make_server([data], Backbone(hidden=8), Training()))
    answer, _ = method.client_step(
        make_client(method, data, training=Training(epochs=1, weight_decay=0.0)), message, {}
    )
    assert all(not torch.equal(answer.tensors[name], value) for name, value in message.items())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("depth", -1),
        ("contrast", float("nan")),
        ("temperature", 0.0),
        ("anchors", 0),
        ("ratio", 1.5),
        ("most_kept", 0),
    ],
)
def test_refused_settings(name: str, value: float) -> None:
    with pytest.raises(BadConfig, match=name):
        HierTail(**{name: value})  # type: ignore[arg-type]
