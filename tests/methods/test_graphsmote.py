"""GraphSMOTE: its checks in docs/reading-the-rivals.md, and awkward clients."""

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
    in_batches,
    member_places,
    nearest,
    reconstruction,
)
from fedepd.methods.steps import model_part
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import adjacency, csr_tensor, to_scipy
from fedepd.network.training import Training
from fedepd.rng import seeded_numpy
from fedepd.types import ClientData, Graph
from toy import assert_near, initial, make_client, make_server, run_rounds, toy_client, toy_clients


def labelled(y: list[int], edges: list[tuple[int, int]], num_classes: int = 3) -> ClientData:
    """A client whose nodes are all training nodes."""
    n = len(y)
    graph = Graph.make(
        torch.eye(n), torch.tensor(edges, dtype=torch.int64).reshape(-1, 2).t(), torch.tensor(y), num_classes
    )
    none = torch.zeros(n, dtype=torch.bool)
    return ClientData(0, graph, ~none, none, none, torch.arange(n))


def test_without_a_minority_and_reconstruction_it_is_fedavg() -> None:
    """Check 1. Two classes of equal size have no class below the average.

    With lambda 0 nothing is left but the cross-entropy.
    """
    clients = []
    for data in toy_clients(2):
        y = torch.arange(data.graph.num_nodes) % 2
        train = torch.arange(data.graph.num_nodes) < 12  # six of each class
        clients.append(
            replace(
                data,
                graph=replace(data.graph, y=y),
                train_mask=train,
                val_mask=~train,
                test_mask=torch.zeros_like(train),
            )
        )
    ours, _ = run_rounds(GraphSMOTE(rec_weight=0.0, pretrain_rounds=0), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_near(model_part(ours[-1].tensors), theirs[-1].tensors)


def test_it_differs_from_fedavg_where_there_is_a_minority() -> None:
    clients = toy_clients(2, one_node_class=True)
    ours, _ = run_rounds(GraphSMOTE(rec_weight=0.0, pretrain_rounds=0), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert not torch.equal(ours[-1].tensors["encoder.weight"], theirs[-1].tensors["encoder.weight"])


def test_interpolation_of_two_nodes() -> None:
    """Check 2. Embeddings (0,0) and (2,0), delta 1/4: each is the other's nearest.

    So the rows are (0.5, 0) and (1.5, 0).
    """
    data = labelled([0, 0, 1, 1, 1, 1, 2, 2, 2, 2], [])  # average 10/3, class 0 has two: floor(5/3) = 1 pass
    model = Backbone(hidden=2, head="linear")
    method = GraphSMOTE()
    client = make_client(method, data, model)
    hidden = torch.zeros(10, 2)
    hidden[1, 0] = 2.0

    class Quarter:
        def random(self, size: int, dtype: Any) -> Any:
            return np.full(size, 0.25, dtype)

    rows = method._enlarged(client, {}, hidden, hidden, Quarter())  # type: ignore[arg-type]
    assert client.prepared.parents.tolist() == [0, 1]
    assert rows[10:].tolist() == [[0.5, 0.0], [1.5, 0.0]]


def test_the_plan_counts() -> None:
    """Counts 1, 2, 9 of three present classes (of five): average 4.

    Class 0: floor(4/1) = 4 passes of 1; class 1: floor(4/2) = 2 passes of 2.
    With up_scale 1 one synthetic node per node.
    Passes are numbered apart, so one delta per pass is one number per group.
    """
    data = labelled([0, 1, 1] + [2] * 9, [], num_classes=5)
    prepared = GraphSMOTE().prepare(data, Backbone(hidden=4))
    assert prepared.parents.tolist() == [0, 0, 0, 0, 1, 2, 1, 2]
    assert prepared.labels[12:].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    groups = prepared.passes.tolist()
    assert len(set(groups)) == 6
    assert groups[4] == groups[5] != groups[6] == groups[7]
    assert GraphSMOTE(up_scale=1.0).prepare(data, Backbone(hidden=4)).parents.tolist() == [0, 1, 2]


@pytest.mark.parametrize(("chunk", "batch"), [(1024, 1 << 18), (7, 1 << 18), (1024, 500), (7, 1)])
def test_nearest_member_by_chunks_and_batches_equals_all_at_once(
    chunk: int, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    members = (torch.arange(0, 20), torch.arange(20, 21), torch.arange(21, 40), torch.arange(40, 50))
    distance = torch.cdist(rows, rows).fill_diagonal_(float("inf"))
    expected = torch.arange(50)
    for nodes in members:
        if len(nodes) > 1:
            expected[nodes] = nodes[distance[nodes][:, nodes].argmin(1)]
    monkeypatch.setattr(graphsmote, "_CHUNK", chunk)
    monkeypatch.setattr(graphsmote, "_BATCH", batch)
    rivals = in_batches(members)
    assert torch.equal(nearest(rows, rivals)[member_places(rivals, 50)], expected)


def full_reconstruction(projected: Tensor, edges: Tensor) -> Tensor:
    """Step 4 with the whole matrix."""
    a = torch.tensor(adjacency(edges, projected.shape[0]).toarray())
    b = torch.sigmoid(projected @ projected.t())
    omega = a.sum() / (a.numel() - a.sum())
    return (torch.where(a > 0, 1.0, omega) * (b - a) ** 2).sum()


class AllShifts:
    """Stands in for a generator: call by call every shift of six nodes, once each."""

    def __init__(self) -> None:
        self.left = np.arange(6)

    def integers(self, n: int, size: int) -> Any:
        drawn, self.left = self.left[:size], self.left[size:]
        return drawn


def test_sampled_reconstruction_is_unbiased() -> None:
    """Check 3. Nine edges of six nodes, so two shifts a call: three calls see each of the 36 pairs twice.

    Every shift is equally likely, so their mean is the expectation: exactly the full sum, and so its
    gradient. 3,000 draws (standard error 0.7 %) come within 3 %.
    """
    edges = torch.tensor([[0, 0, 0, 0, 1, 1, 2, 3, 4], [1, 2, 3, 5, 2, 4, 5, 4, 5]])
    projected = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    full = full_reconstruction(projected, edges)
    shifts, pattern = AllShifts(), csr_tensor(adjacency(edges, 6), np.int32)
    mean = torch.stack([reconstruction(projected, pattern, shifts) for _ in range(3)]).mean()  # type: ignore[arg-type]
    assert float(mean.detach()) == pytest.approx(float(full.detach()), rel=1e-5)
    (ours,), (theirs,) = torch.autograd.grad(mean, projected), torch.autograd.grad(full, projected)
    assert torch.allclose(ours, theirs, atol=1e-4)
    draws = seeded_numpy("unbiased")
    with torch.no_grad():
        drawn = [float(reconstruction(projected, pattern, draws)) for _ in range(3000)]
    assert np.mean(drawn) == pytest.approx(float(full.detach()), rel=0.03)
    assert np.std(drawn) > 0


def test_a_zero_decoder_keeps_every_candidate() -> None:
    """Check 4. S = 0: B = 1/2 everywhere, which reaches the threshold.

    So every neighbour of parent or partner is kept, once each.
    """
    data = labelled([0, 0, 1, 1, 1, 1], [(0, 2), (0, 3), (1, 3), (1, 4)])
    adj = adjacency(data.graph.edge_index, 6)
    union = adj[[0, 1]] + adj[[1, 1]]  # parents 0 and 1, partner 1 for both
    candidates = csr_tensor(union, np.int32)

    def wired(decoder: Tensor, synthetic: Tensor) -> sp.coo_matrix:
        projected = torch.ones(6, 2) @ decoder.t()
        return to_scipy(
            GraphSMOTE()._wire({"decoder.weight": decoder}, projected, synthetic, candidates).matrix.matrix
        ).tocoo()

    every = wired(torch.zeros(2, 2), torch.ones(2, 2))
    assert (every.row.tolist(), every.col.tolist()) == ([0, 0, 0, 1, 1], [2, 3, 4, 3, 4])
    assert every.data.tolist() == [1.0] * 5
    assert wired(torch.eye(2), -torch.ones(2, 2)).nnz == 0  # B = sigma(-2) < 1/2
    one = wired(torch.eye(2), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]))
    assert (one.row.tolist(), one.col.tolist()) == ([1, 1], [3, 4])


VARIANTS: list[dict[str, Any]] = [
    {"wiring": "soft"},
    {"up_scale": 1.0, "interpolate": "pass"},
    {"pretrain_rounds": 0},
    {"dropout_own": True},
    {"optimizer_own": True, "rec_weight": 0.0},
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
        GraphSMOTE(**settings), clients, model=Backbone(hidden=4), training=Training(participation=0.5)
    )
    assert all(bool(torch.isfinite(t).all()) for t in rounds[-1].tensors.values())


def test_pretraining_leaves_the_classifier_alone() -> None:
    data = toy_client(one_node_class=True)
    method = GraphSMOTE(pretrain_rounds=1)
    message = initial(method, make_server([data], Backbone(hidden=8), Training()))
    answer, _ = method.client_step(make_client(method, data), message, {})
    moved = {name for name, value in answer.tensors.items() if not torch.equal(value, message[name])}
    assert moved == {"encoder.weight", "encoder.bias", "decoder.weight"}


def test_pretraining_takes_at_most_half_of_the_rounds() -> None:
    """The authors' two stages are equally long. Rounds of the first one are never selected."""
    method = GraphSMOTE(pretrain_rounds=10)
    assert [method.pretraining(rounds) for rounds in (1, 6, 20, 200)] == [0, 3, 10, 10]
    assert [method.complete_from(rounds) for rounds in (1, 6, 20, 200)] == [1, 4, 11, 11]


def test_the_authors_dropout_takes_the_place_of_the_runs() -> None:
    """Dropout .1 by ``dropout_own`` is dropout .1 of the run, bit for bit; .5 is another training."""
    data, wanted = toy_client(one_node_class=True), Backbone(hidden=8, dropout=0.1)
    message = initial(GraphSMOTE(), make_server([data], wanted, Training()))

    def trained(method: GraphSMOTE, model: Backbone) -> Tensor:
        client = make_client(method, data, model, round=2)
        return method.client_step(client, message, {})[0].tensors["encoder.weight"]

    usual, own = Backbone(hidden=8), GraphSMOTE(dropout_own=True)
    assert torch.equal(trained(own, usual), trained(GraphSMOTE(), wanted))
    assert not torch.equal(trained(own, usual), trained(GraphSMOTE(), usual))


def test_what_is_sent() -> None:
    """4 (|Θ| + h²) bytes each way."""
    clients, model = toy_clients(2), Backbone(hidden=8)
    message = initial(GraphSMOTE(), make_server(clients, model, Training()))
    answer, _ = GraphSMOTE().client_step(make_client(GraphSMOTE(), clients[0], model), message, {})
    for tensors in (message, answer.tensors):
        assert sum(t.nbytes for t in tensors.values()) == 4 * (6 * 8 + 8 + 8 * 3 + 3 + 64)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("up_scale", -1.0),
        ("up_scale", float("nan")),
        ("rec_weight", -1.0),
        ("threshold", 1.0),
        ("pretrain_rounds", -1),
    ],
)
def test_refused_settings(name: str, value: float) -> None:
    with pytest.raises(BadConfig, match=name):
        GraphSMOTE(**{name: value})  # type: ignore[arg-type]
