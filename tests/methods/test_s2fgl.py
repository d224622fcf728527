from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.s2fgl import (
    S2FGL,
    Agreement,
    Spectrum,
    ends_of_spectrum,
    importance,
    representatives,
)
from fedepd.methods.steps import cross_entropy
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import adjacency
from fedepd.network.training import by_autograd
from fedepd.types import Reply
from toy import assert_same, make_client, run_rounds, toy_client, toy_clients


@pytest.mark.parametrize("sparse", [False, True])
def test_without_penalties_it_is_fedavg(sparse: bool) -> None:
    clients = toy_clients(sparse=sparse)
    ours, _ = run_rounds(S2FGL(spatial=0.0, spectral=0.0), clients)
    assert_same(ours[-1].tensors, run_rounds(FedAvg(), clients)[0][-1].tensors)


def test_the_first_round_is_fedavg() -> None:
    clients = toy_clients()
    ours, _ = run_rounds(S2FGL(), clients, rounds=1)
    theirs, _ = run_rounds(FedAvg(), clients, rounds=1)
    assert_same({n: ours[-1].tensors[n] for n in theirs[-1].tensors}, theirs[-1].tensors)


def test_the_first_step_of_a_round_is_fedavg() -> None:
    """Without dropout the model is the received one: both penalties are 0, and so are their gradients."""
    data, model, method = toy_client(), Backbone(hidden=8, dropout=0.0), S2FGL()
    client = make_client(method, data, model, round=2)
    params = model.initial(client.info, 0)
    table = torch.randn(12, 8, generator=torch.Generator().manual_seed(0))
    loss = method._loss(client, {**params, "table": table, "table.known": torch.ones(12)})
    assert callable(loss)
    found, grads = by_autograd(loss, sorted(params)).of(params)
    expected, wanted = cross_entropy(client, client.prepared.inputs).of(params)
    assert found == pytest.approx(expected, abs=1e-5)
    for name, value in wanted.items():
        torch.testing.assert_close(grads[name], value, rtol=1e-4, atol=1e-5)


def test_importance_by_hand() -> None:
    """One edge: P ≈ [[1.0225, .15], [.15, 1.0225]].

    Both labelled: 1.0225 + .85 (1.0225 + .15) = 2.0191. One labelled: 1.0225 * 1.85 = 1.8916. In a path of
    three, an end returns by the middle with probability 1/2: 1.01125.
    """
    edge = adjacency(torch.tensor([[0], [1]]), 2)
    assert importance(edge, np.array([True, True])).tolist() == pytest.approx([2.019125] * 2)
    assert importance(edge, np.array([False, True])).tolist() == pytest.approx([1.0225 * 1.85])
    path = adjacency(torch.tensor([[0, 1], [1, 2]]), 3)
    assert importance(path, np.array([True, False, False])).tolist() == pytest.approx([1.01125 * 1.85])
    assert importance(path, np.array([False, True, False])).tolist() == pytest.approx([1.0225 * 1.85])
    assert importance(adjacency(torch.empty(2, 0, dtype=torch.int64), 1), np.array([True])) == [1.85]


def test_the_series_is_near_the_inverse() -> None:
    data = toy_client(nodes=40)
    adj = adjacency(data.graph.edge_index, 40)
    walk, t = adj.toarray() / np.maximum(adj.sum(1), 1), data.train_mask.numpy()
    p = np.linalg.inv(np.eye(40) - 0.15 * np.asarray(walk))
    exact = ((p * t).max(1) + 0.85 * p @ t)[t]
    assert np.abs(importance(adj, t) - exact).max() < 0.008  # .004 in either term


def test_important_nodes_are_training_nodes() -> None:
    """24 nodes: the 8 best of 15 training nodes make representatives, the 4 best are compared."""
    client = make_client(S2FGL(), toy_client())
    assert client.prepared.represented.shape == (8,)
    assert torch.equal(client.prepared.compared, client.prepared.represented[:4])
    assert sorted(client.prepared.ranked.tolist()) == list(range(15))


def test_the_spatial_penalty_by_hand() -> None:
    """Cosines (1, 0) wanted and (0, 1) found: p = e/(1+e), KL = p - (1 - p) = (e-1)/(e+1) = .46212."""
    table = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
    agree = Agreement.with_model(torch.tensor([[5.0, 0.0]]), table, None, 1.0)
    assert float(agree.penalty(torch.tensor([[0.0, 7.0]]))) == pytest.approx(0.46212, abs=1e-5)
    assert float(agree.penalty(torch.tensor([[1.0, 0.0]]))) == pytest.approx(0.0, abs=1e-6)


def test_the_table_by_hand() -> None:
    """Sums (2, 0) of one node and (0, 4) of three: (.5, 1) of both, (2, 0) of the first alone.

    Nobody has class 1, which keeps its row and stays unknown.
    """

    def sent(total: list[float], count: float) -> Reply:
        tensors = {"sum": torch.tensor([total, [0.0, 0.0]]), "count": torch.tensor([count, 0.0])}
        return Reply(tensors, 9, 9)

    first, second = sent([2.0, 0.0], 1.0), sent([0.0, 4.0], 3.0)
    new = representatives(torch.full((4, 2), 7.0), torch.zeros(4), [[first, second], [first]])
    assert new["table"].tolist() == [[0.5, 1.0], [7.0, 7.0], [2.0, 0.0], [7.0, 7.0]]
    assert new["table.known"].tolist() == [1.0, 0.0, 1.0, 0.0]


def test_the_spectral_penalty_is_that_of_the_projections() -> None:
    """It is the mean square of V Vᵀ (f - f^g), also the sum of those of v vᵀ (f - f^g) over the vectors, and
    no other basis of the same space changes it."""
    draws = torch.Generator().manual_seed(0)
    wanted, found = torch.randn(60, 4, generator=draws), torch.randn(60, 4, generator=draws)
    v = ends_of_spectrum(wanted)
    assert 20 <= v.shape[1] < 60
    torch.testing.assert_close(v.t() @ v, torch.eye(v.shape[1]), rtol=0, atol=1e-5)
    places = torch.arange(60)
    penalty = float(Spectrum(places, wanted, v).penalty(found))
    change = found - wanted
    assert penalty == pytest.approx(float((v @ v.t() @ change).square().mean()), rel=1e-4)
    each = sum(float((u[:, None] @ u[None] @ change).square().mean()) for u in v.t())
    assert penalty == pytest.approx(each, rel=1e-4)
    turned = v @ torch.linalg.qr(torch.randn(v.shape[1], v.shape[1], generator=draws))[0]
    assert penalty == pytest.approx(float(Spectrum(places, wanted, turned).penalty(found)), rel=1e-4)


def test_a_frequency_is_not_cut_in_two() -> None:
    """15 groups of 4 rows that point the same way, each joined within: 0 is there 15 times, and 4 45 times.

    So all 60 vectors are taken, and the projection is the identity. Of one row there is one vector.
    """
    rows = F.one_hot(torch.arange(60) // 4).float()
    v = ends_of_spectrum(rows)
    torch.testing.assert_close(v @ v.t(), torch.eye(60), rtol=0, atol=1e-5)
    assert ends_of_spectrum(torch.ones(1, 3)).shape == (1, 1)


def test_settings() -> None:
    assert "compares" in S2FGL().needs_single_replies
    assert not S2FGL(spatial=0.0).needs_single_replies
    assert S2FGL(spatial=0.0).idle() == {"temperature": "spatial"}
    rounds, _ = run_rounds(S2FGL(optimizer_own=True), toy_clients(), rounds=2)
    assert all(bool(value.isfinite().all()) for value in rounds[-1].tensors.values())


def test_large_clients_draw_a_sample(monkeypatch: Any) -> None:
    """More than 4 * 5 nodes: 5 of them. More than 3 rows: 3 of them. Other rounds have others."""
    monkeypatch.setattr("fedepd.methods.s2fgl.MOST_NODES", 5)
    monkeypatch.setattr("fedepd.methods.s2fgl.MOST_ROWS", 3)
    method = S2FGL()
    client = make_client(method, toy_client(), round=2)
    params = client.model.initial(client.info, 0)
    message = {**params, "table": torch.ones(12, 8), "table.known": torch.ones(12)}
    agree = method._spatial(client, message)
    assert agree is not None
    assert agree.wanted.shape == (5, 12)
    assert method._spectrum(client, message).rows.shape == (3,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"spatial": -1.0}, "spatial is -1"),
        ({"spectral": float("inf")}, "spectral is inf"),
        ({"temperature": 0.0}, "temperature is 0"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        S2FGL(**settings)
