"""GraphSMOTE: methods.md section 4 (h), the enlarged graph against a dense one, and awkward clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods import graphsmote
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.graphsmote import (
    GraphSMOTE,
    Links,
    candidate_pairs,
    edge_scores,
    nearest_members,
    reconstruction,
    smooth_enlarged,
)
from fedepd.methods.steps import model_part
from fedepd.models import Backbone
from fedepd.rng import seeded_numpy
from fedepd.sparse import adjacency, neighbour_mean, normalised
from fedepd.training import Training
from fedepd.types import ClientData, Graph
from toy import assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients


def labelled(y: list[int], edges: list[tuple[int, int]], num_classes: int = 3) -> ClientData:
    """A client whose nodes are all training nodes."""
    n = len(y)
    graph = Graph.make(torch.eye(n), torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t(), torch.tensor(y), num_classes)
    none = torch.zeros(n, dtype=torch.bool)
    return ClientData(0, graph, ~none, none, none, torch.arange(n))


def test_without_a_minority_and_reconstruction_it_is_fedavg() -> None:
    """(h1) Two classes of equal size have no class below the average; with lambda 0 nothing is left but the cross-entropy."""
    clients = []
    for data in toy_clients(2):
        y = torch.arange(data.graph.num_nodes) % 2
        train = torch.arange(data.graph.num_nodes) < 12  # six of each class
        clients.append(replace(data, graph=replace(data.graph, y=y), train_mask=train, val_mask=~train, test_mask=torch.zeros_like(train)))
    ours, _ = run_rounds(GraphSMOTE(rec_weight=0.0), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same(model_part(ours[-1].tensors), theirs[-1].tensors)


def test_it_differs_from_fedavg_where_there_is_a_minority() -> None:
    clients = toy_clients(2, one_node_class=True)
    ours, _ = run_rounds(GraphSMOTE(rec_weight=0.0), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert not torch.equal(ours[-1].tensors["encoder.weight"], theirs[-1].tensors["encoder.weight"])


def test_interpolation_of_two_nodes() -> None:
    """(h2) Embeddings (0,0) and (2,0), delta 1/4: each is the other's nearest, so (0.5, 0) and (1.5, 0)."""
    data = labelled([0, 0, 1, 1, 1, 1, 2, 2, 2, 2], [])  # average 10/3, class 0 has two: floor(5/3) = 1 pass
    model = Backbone(hidden=2, head="linear")
    method = GraphSMOTE()
    client = make_client(method, data, model)
    hidden = torch.zeros(10, 2)
    hidden[1, 0] = 2.0

    class Quarter:
        def random(self, size: int, dtype: Any) -> Any:
            return np.full(size, 0.25, dtype)

    rows = method._enlarged(client, {}, hidden, Quarter())  # type: ignore[arg-type]
    assert client.prepared.parents.tolist() == [0, 1]
    assert rows[10:].tolist() == [[0.5, 0.0], [1.5, 0.0]]


def test_the_plan_counts() -> None:
    """Counts 1, 2, 9 of three present classes (of five): average 4. Class 0: floor(4/1) = 4 passes of 1; class 1: floor(4/2) = 2 passes
    of 2. With up_scale 1 one synthetic node per node. Passes are numbered apart, so one delta per pass is one number per group."""
    data = labelled([0, 1, 1] + [2] * 9, [], num_classes=5)
    prepared = GraphSMOTE().prepare(data, Backbone(hidden=4))
    assert prepared.parents.tolist() == [0, 0, 0, 0, 1, 2, 1, 2]
    assert prepared.labels[12:].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    groups = prepared.passes.tolist()
    assert len(set(groups)) == 6
    assert groups[4] == groups[5] != groups[6] == groups[7]
    assert GraphSMOTE(up_scale=1.0).prepare(data, Backbone(hidden=4)).parents.tolist() == [0, 1, 2]


def test_nearest_member_by_chunks_equals_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    members = (torch.arange(0, 30), torch.arange(30, 31), torch.arange(31, 50))
    distance = torch.cdist(rows, rows).fill_diagonal_(float("inf"))
    expected = torch.arange(50)
    for nodes in members:
        if len(nodes) > 1:
            expected[nodes] = nodes[distance[nodes][:, nodes].argmin(1)]
    monkeypatch.setattr(graphsmote, "_CHUNK", 7)
    assert torch.equal(nearest_members(rows, members), expected)


def full_reconstruction(projected: Tensor, edges: Tensor) -> Tensor:
    """b.4 with the whole matrix."""
    a = torch.tensor(adjacency(edges, projected.shape[0]).toarray())
    b = torch.sigmoid(projected @ projected.t())
    omega = a.sum() / (a.numel() - a.sum())
    return (torch.where(a > 0, 1.0, omega) * (b - a) ** 2).sum()


class AllPairs:
    """Stands in for a generator: call by call every ordered pair of six nodes, once each."""

    def __init__(self) -> None:
        self.left = np.stack(np.meshgrid(np.arange(6), np.arange(6))).reshape(2, 36)

    def integers(self, n: int, size: tuple[int, int]) -> Any:
        drawn, self.left = self.left[:, : size[1]], self.left[:, size[1] :]
        return drawn


def test_sampled_reconstruction_is_unbiased() -> None:
    """(h3) Nine edges, so nine pairs a call: four calls see each of the 36 pairs once, and as every pair is equally likely their mean is
    the expectation: exactly the full sum, and so its gradient. The mean over real draws comes within 1 %."""
    edges = torch.tensor([[0, 0, 0, 0, 1, 1, 2, 3, 4], [1, 2, 3, 5, 2, 4, 5, 4, 5]])
    projected = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    full = full_reconstruction(projected, edges)
    pairs: Any = AllPairs()
    mean = torch.stack([reconstruction(projected, edges, pairs) for _ in range(4)]).mean()
    assert float(mean.detach()) == pytest.approx(float(full.detach()), rel=1e-5)
    (ours,), (theirs,) = torch.autograd.grad(mean, projected), torch.autograd.grad(full, projected)
    assert torch.allclose(ours, theirs, atol=1e-4)
    draws = seeded_numpy("unbiased")
    with torch.no_grad():
        drawn = [float(reconstruction(projected, edges, draws)) for _ in range(3000)]
    assert np.mean(drawn) == pytest.approx(float(full.detach()), rel=0.01)
    assert np.std(drawn) > 0


def test_a_zero_decoder_keeps_every_candidate() -> None:
    """(h4) S = 0: B = 1/2 everywhere, which reaches the threshold: every neighbour of parent or partner, once each."""
    data = labelled([0, 0, 1, 1, 1, 1], [(0, 2), (0, 3), (1, 3), (1, 4)])
    adj = adjacency(data.graph.edge_index, 6)
    pairs = candidate_pairs(adj, torch.tensor([0, 1]), torch.tensor([1, 1]))
    assert pairs.tolist() == [[0, 0, 0, 1, 1], [2, 3, 4, 3, 4]]
    links = GraphSMOTE()._wire(torch.zeros(2, 2), torch.ones(6, 2), torch.ones(2, 2), pairs)
    assert links.pairs.tolist() == pairs.tolist()
    assert links.weights.tolist() == [1.0] * 5
    negative = GraphSMOTE()._wire(torch.eye(2), torch.ones(6, 2), -torch.ones(2, 2), pairs)  # B = sigma(-2) < 1/2
    assert negative.pairs.shape == (2, 0)


@pytest.mark.parametrize("backbone", ["gcn", "sage"])
@pytest.mark.parametrize("soft", [False, True])
def test_enlarged_graph_against_the_dense_matrix(backbone: Any, soft: bool) -> None:
    """S of the enlarged graph equals the operator of [[A, Rᵀ], [R, 0]] built densely; with soft wiring the gradient too."""
    data = toy_client(nodes=12).hidden()
    model = Backbone(hidden=4, backbone=backbone)
    prepared = GraphSMOTE().prepare(data, model)
    generator = torch.Generator().manual_seed(3)
    hidden, synthetic = torch.rand(12, 4, generator=generator), torch.rand(2, 4, generator=generator)
    pairs = torch.tensor([[0, 0, 1], [3, 5, 5]])
    weights = torch.tensor([0.2, 0.7, 0.4]) if soft else torch.ones(3)

    def dense(w: Tensor) -> Tensor:
        r = torch.zeros(2, 12).index_put((pairs[0], pairs[1]), w)
        a = torch.tensor(prepared.adj.toarray())
        big = torch.cat([torch.cat([a, r.t()], 1), torch.cat([r, torch.zeros(2, 2)], 1)])
        rows = torch.cat([prepared.inputs.train, torch.tensor([12, 13])])
        everything = torch.cat([hidden, synthetic])
        if backbone == "gcn":
            scale = (big.sum(1) + 1).rsqrt()
            return (scale[:, None] * (big + torch.eye(14)) * scale @ everything)[rows]
        return torch.cat([big / big.sum(1, keepdim=True).clamp(min=1e-6) @ everything, everything], 1)[rows]

    ours, theirs = weights.clone().requires_grad_(soft), weights.clone().requires_grad_(soft)
    s = smooth_enlarged(model, prepared, hidden, synthetic, Links.make(pairs, ours, hidden, synthetic))
    expected = dense(theirs)
    assert torch.allclose(s, expected, atol=1e-5)
    reference = normalised(prepared.adj) if backbone == "gcn" else neighbour_mean(prepared.adj)
    far = ~torch.isin(prepared.inputs.train, torch.tensor([3, 5]))
    touched = sp.csr_matrix(prepared.adj)[prepared.inputs.train.numpy()][:, [3, 5]].sum(1).A1 > 0
    untouched = far & ~torch.from_numpy(touched) if backbone == "gcn" else far
    plain = torch.tensor(reference.toarray(), dtype=torch.float32)[prepared.inputs.train] @ hidden
    assert torch.allclose(s[: len(far)][untouched, :4], plain[untouched], atol=1e-5)  # rows that no synthetic node reaches
    if soft:
        probe = torch.rand(s.shape, generator=generator)
        (g,) = torch.autograd.grad((s * probe).sum(), ours)
        (h,) = torch.autograd.grad((expected * probe).sum(), theirs)
        assert torch.allclose(g, h, atol=1e-4)


def test_edge_scores_and_their_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the same written with plain indexing; a repeated pair counts twice; chunks do not matter."""
    monkeypatch.setattr(graphsmote, "_PAIRS", 2)
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(4, 3, generator=generator).requires_grad_(), torch.randn(5, 3, generator=generator).requires_grad_()
    pairs = torch.tensor([[0, 1, 1, 3, 3], [4, 0, 0, 2, 1]])
    ours = edge_scores(left, right, pairs)
    plain = torch.sigmoid((left[pairs[0]] * right[pairs[1]]).sum(1))
    assert torch.allclose(ours, plain)
    probe = torch.rand(5, generator=generator)
    for a, b in zip(
        torch.autograd.grad((ours * probe).sum(), [left, right]), torch.autograd.grad((plain * probe).sum(), [left, right]), strict=True
    ):
        assert torch.allclose(a, b, atol=1e-6)


VARIANTS: list[dict[str, Any]] = [
    {"wiring": "soft"},
    {"up_scale": 1.0, "interpolate": "pass"},
    {"pretrain_rounds": 1},
    {"optimizer_own": True, "rec_weight": 0.0},
]
SHAPES: list[dict[str, Any]] = [{"edges": False}, {"train": False}, {"missing_class": True}, {"one_node_class": True}, {"sparse": True}]


@pytest.mark.parametrize("settings", VARIANTS)
@pytest.mark.parametrize("shape", SHAPES)
def test_variants_at_awkward_clients(settings: dict[str, Any], shape: dict[str, Any]) -> None:
    """The contract battery has the default everywhere; these are the other branches, half of the clients at a time."""
    clients = [toy_client(0, nodes=16, sparse=shape.get("sparse", False)), toy_client(1, nodes=16, **shape)]
    rounds, _ = run_rounds(GraphSMOTE(**settings), clients, model=Backbone(hidden=4), training=Training(participation=0.5))
    assert all(bool(torch.isfinite(t).all()) for t in rounds[-1].tensors.values())


def test_pretraining_leaves_the_classifier_alone() -> None:
    data = toy_client(one_node_class=True)
    method = GraphSMOTE(pretrain_rounds=1)
    message = initial(method, make_server([data], Backbone(hidden=8), Training()))
    answer, _ = method.client_step(make_client(method, data), message, {})
    moved = {name for name, value in answer.tensors.items() if not torch.equal(value, message[name])}
    assert moved == {"encoder.weight", "encoder.bias", "decoder.weight"}


def test_what_is_sent() -> None:
    """4 (|Θ| + h²) bytes each way."""
    clients, model = toy_clients(2), Backbone(hidden=8)
    message = initial(GraphSMOTE(), make_server(clients, model, Training()))
    answer, _ = GraphSMOTE().client_step(make_client(GraphSMOTE(), clients[0], model), message, {})
    for tensors in (message, answer.tensors):
        assert sum(t.nbytes for t in tensors.values()) == 4 * (6 * 8 + 8 + 8 * 3 + 3 + 64)


@pytest.mark.parametrize(
    ("name", "value"), [("up_scale", -1.0), ("up_scale", float("nan")), ("rec_weight", -1.0), ("threshold", 1.0), ("pretrain_rounds", -1)]
)
def test_refused_settings(name: str, value: float) -> None:
    with pytest.raises(BadConfig, match=name):
        GraphSMOTE(**{name: value})  # type: ignore[arg-type]
