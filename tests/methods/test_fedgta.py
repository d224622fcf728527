from __future__ import annotations

import math
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import fedepd
from fedepd.errors import BadConfig
from fedepd.methods import fedgta
from fedepd.methods.fedgta import FedGTA, confidence, moments_of, sharing
from fedepd.methods.isolated import Isolated
from fedepd.methods.steps import model_part
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import ClientData, Graph, Reply
from toy import assert_same, make_client, make_server, run_rounds, toy_client, toy_clients


def answer(moments: list[float], trust: float, weight: float = 0.0, nodes: int = 1, train: int = 1) -> Reply:
    tensors = {
        "moments": torch.tensor(moments),
        "confidence": torch.tensor([trust]),
        "encoder.weight": torch.full((2, 2), weight),
    }
    return Reply(tensors, nodes, train)


def pair() -> ClientData:
    """Two nodes joined by an edge; node 0 is a training node of class 0."""
    graph = Graph.make(torch.eye(2), torch.tensor([[0], [1]]), torch.tensor([0, 1]), 2)
    train = torch.tensor([True, False])
    return ClientData(0, graph, train, ~train, ~train, torch.arange(2))


def test_when_all_look_alike_everyone_gets_the_plain_mean() -> None:
    """epsilon = -1 and equal confidences: (0 + 1 + 5) / 3 = 2 for all."""
    replies = {k: answer([1.0, float(k)], 3.0, weight) for k, weight in enumerate((0.0, 1.0, 5.0))}
    out = FedGTA(epsilon=-1.0).server_step(make_server(toy_clients(), Backbone(), Training()), {}, replies)
    for k in replies:
        assert torch.allclose(out[f"client{k}.encoder.weight"], torch.full((2, 2), 2.0))


def test_epsilon_one_is_isolated_training() -> None:
    """No cosine is above 1, and a client accepts itself: every average is the client's own model."""
    _, mine = run_rounds(FedGTA(epsilon=1.0, score="trained"), toy_clients())
    _, alone = run_rounds(Isolated(), toy_clients())
    for k in range(3):
        assert_same(mine.participants[k].state, alone.participants[k].state)


def test_what_is_scored() -> None:
    """By default the average that the server made now, as by its authors; by OpenFGL the trained model.

    The training itself is the same: the server has the same tensors, bit for bit.
    """
    clients = toy_clients()
    default, mine = run_rounds(FedGTA(), clients)
    trained, theirs = run_rounds(FedGTA(score="trained"), clients)
    assert_same(default[-1].tensors, trained[-1].tensors)
    for k in range(3):
        averaged = FedGTA().message(default[-1].tensors, k)
        assert not model_part(mine.participants[k].state)
        assert_same(model_part(mine.participants[k].own), averaged)  # what is saved as the client's model
        own = model_part(theirs.participants[k].own)
        assert own.keys() == averaged.keys()
        assert not torch.equal(own["encoder.weight"], averaged["encoder.weight"])


def test_confidence_by_hand() -> None:
    """Two joined nodes (degree 1 each), C = 2.

    Certain rows have entropy 0: 2 · 2/e. Uniform rows: 2 (2/e - log 2).
    """
    degrees = torch.ones(2, dtype=torch.float64)
    assert float(confidence(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), degrees)) == pytest.approx(
        4 / math.e, abs=1e-6
    )
    assert float(confidence(torch.full((2, 2), 0.5), degrees)) == pytest.approx(
        2 * (2 / math.e - math.log(2)), abs=1e-6
    )


@given(st.integers(0, 10**6), st.integers(2, 40))
def test_confidence_is_never_negative(seed: int, classes: int) -> None:
    soft = (5 * torch.randn(6, classes, generator=torch.Generator().manual_seed(seed))).softmax(1)
    assert float(confidence(soft, torch.ones(6, dtype=torch.float64))) >= 0


def test_clients_send_their_confidence_per_node() -> None:
    """Of the two joined nodes one is labelled; with temperature 1e9 the other's row is uniform.

    (2/e + 2/e - log 2) / 2 nodes.
    """
    method = FedGTA(temperature=1e9)
    client = make_client(method, pair())
    params = client.model.init(client.info, client.torch_draws("test"))
    answered, _ = method.client_step(client, params, {})
    assert float(answered.tensors["confidence"]) == pytest.approx((4 / math.e - math.log(2)) / 2, abs=1e-6)


def test_moments_by_hand() -> None:
    """One column, rows 0, 1, 1, 0 of mean 1/2. Raw: 1/2, 1/2, 1/2. Central, deviations ±1/2: 0, 1/4, 0."""
    rows = torch.tensor([[0.0], [1.0], [1.0], [0.0]])
    assert moments_of(rows, 3, "raw").tolist() == [0.5, 0.5, 0.5]
    assert moments_of(rows, 3, "central").tolist() == [0.0, 0.25, 0.0]
    assert moments_of(rows, 3, "hybrid").tolist() == [0.5, 0.5, 0.5, 0.0, 0.25, 0.0]


def test_official_propagation_by_hand() -> None:
    """Ã of two joined nodes is 1/2 everywhere.

    Y⁰ = (1, 0) at the training node, P = (.2, .8) at the other, alpha = 1/2; one step.
    Both get ½ · ½ ((1, 0) + (.2, .8)) = (.3, .2).
    Node 0: + ½ (1, 0) + (1, 0) = (1.8, .2).
    Node 1: + ½ (.2, .8) = (.4, .6).
    """
    method = FedGTA(steps=1)
    client = make_client(method, pair())
    got = method._propagate(client.prepared, torch.tensor([[0.6, 0.4], [0.2, 0.8]]))
    assert torch.allclose(got, torch.tensor([[1.8, 0.2], [0.4, 0.6]]))


def test_openfgl_propagation_by_hand() -> None:
    """Ã of two joined nodes without loops swaps them.

    Y⁰ = P = (.6, .4) at the training node, 0 at the other; two steps with alpha = ½.
    Node 0: ½ (.6, .4), then ½ · ½ (.6, .4) + ½ (.6, .4) = (.45, .3).
    Node 1: ½ (.6, .4), then ½ · ½ (.6, .4) = (.15, .1).
    """
    method = FedGTA(propagation="openfgl", steps=2)
    got = method._propagate(make_client(method, pair()).prepared, torch.tensor([[0.6, 0.4], [0.2, 0.8]]))
    assert torch.allclose(got, torch.tensor([[0.45, 0.3], [0.15, 0.1]]))


@pytest.mark.slow
def test_openfgl_propagation_is_that_of_torch_geometric() -> None:
    models = pytest.importorskip("torch_geometric.nn.models", reason="torch_geometric is not installed")
    method, data = FedGTA(propagation="openfgl"), toy_client()
    client = make_client(method, data)
    soft = torch.rand(data.graph.num_nodes, 3, generator=torch.Generator().manual_seed(0)).softmax(1)
    both = torch.cat([data.graph.edge_index, data.graph.edge_index.flip(0)], dim=1)
    expected = models.LabelPropagation(num_layers=5, alpha=0.5)(soft, both, mask=data.train_mask)
    assert torch.allclose(method._propagate(client.prepared, soft), expected, atol=1e-6)


def test_sage_propagates_over_the_same_operator_as_gcn() -> None:
    gcn, sage = (
        make_client(FedGTA(), toy_client(), Backbone(kind, hidden=8)).prepared.spread
        for kind in ("gcn", "sage")
    )
    assert torch.equal(gcn.matrix.to_dense(), sage.matrix.to_dense())


def reference_sharing(replies: dict[int, Reply], epsilon: float) -> Tensor:
    """The server's rule, one pair of clients after the other."""
    ids = sorted(replies)
    rows = []
    for k in ids:
        moments = {j: replies[j].tensors["moments"].to(torch.float64) for j in ids}
        alike = [
            j == k or float(torch.cosine_similarity(moments[k], moments[j], dim=0)) > epsilon for j in ids
        ]
        heard = [float(a and replies[j].num_train > 0) for j, a in zip(ids, alike, strict=True)]
        say = [
            h * float(replies[j].tensors["confidence"]) * replies[j].num_nodes
            for j, h in zip(ids, heard, strict=True)
        ]
        if sum(say) == 0:
            say = heard
        if sum(say) == 0:
            say = [float(j == k) for j in ids]
        rows.append([s / sum(say) for s in say])
    return torch.tensor(rows, dtype=torch.float64)


@given(st.integers(0, 10**6), st.floats(-1, 1))
def test_sharing_equals_the_loop(seed: int, epsilon: float) -> None:
    draws = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, 3, (5, 2), generator=draws).tolist()
    moments = torch.randn(5, 4, generator=draws)
    replies = {
        10 - k: answer(moments[k].tolist(), float(trust), nodes=7 + k, train=train)
        for k, (trust, train) in enumerate(numbers)
    }
    assert torch.allclose(sharing(replies, epsilon), reference_sharing(replies, epsilon))


def test_who_has_a_say() -> None:
    """Confidences 1 and 3 per node and 1 node each: 1/4, 3/4.

    A client without training nodes receives but has no say. Without any confidence (no edges) the accepted
    count alike. Without any training node a client keeps its own.
    """
    alike = [1.0, 0.0]
    full = {0: answer(alike, 1.0), 1: answer(alike, 3.0), 2: answer(alike, 9.0, train=0)}
    assert torch.allclose(sharing(full, 0.5), torch.tensor([[0.25, 0.75, 0.0]] * 3, dtype=torch.float64))
    edgeless = {0: answer(alike, 0.0), 1: answer(alike, 0.0), 2: answer(alike, 0.0, train=0)}
    assert torch.equal(sharing(edgeless, 0.5), torch.tensor([[0.5, 0.5, 0.0]] * 3, dtype=torch.float64))
    untrained = {k: replace(r, num_train=0) for k, r in full.items()}
    assert torch.equal(sharing(untrained, 0.5), torch.eye(3, dtype=torch.float64))


def test_unlike_clients_do_not_share() -> None:
    """Moments at right angles have cosine 0, below 0.5; those at 45 degrees 0.707, above."""
    replies = {0: answer([1.0, 0.0], 1.0), 1: answer([0.0, 1.0], 1.0), 2: answer([1.0, 1.0], 1.0)}
    expected = [[1 / 2, 0, 1 / 2], [0, 1 / 2, 1 / 2], [1 / 3, 1 / 3, 1 / 3]]
    assert torch.allclose(sharing(replies, 0.5), torch.tensor(expected, dtype=torch.float64))


def test_epsilon_accepts_few_on_email_and_both_propagations_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten clients: each accepts itself, and 14 of the 90 other pairs have a cosine above 0.5.

    Both propagations leave 60 % one-hot rows and flatten the rest, so that they give the same weights.
    """
    folder = Path(os.environ.get("FEDEPD_DATA") or Path(__file__).parents[2] / "../shared/data")
    if not (folder / "graphs" / "email.npz").is_file():
        pytest.skip(f"no email.npz in {folder}; set FEDEPD_DATA to the folder that holds graphs/")
    seen: list[Tensor] = []

    def watched(replies: Any, epsilon: float) -> Tensor:
        seen.append(sharing(replies, epsilon))
        return seen[-1]

    monkeypatch.setattr(fedgta, "sharing", watched)
    for propagation in ("official", "openfgl"):
        fedepd.run("email", "fedgta", propagation=propagation, rounds=1, data_dir=folder)
    first, second = seen
    assert int((first > 0).sum()) == 10 + 14
    assert torch.equal(first > 0, second > 0)
    assert float((first - second).abs().max()) < 1e-6


def test_every_client_is_sent_its_own_model() -> None:
    method = FedGTA()
    tensors = {
        "encoder.weight": torch.zeros(1),
        "client1.encoder.weight": torch.ones(1),
        "client10.encoder.weight": torch.full((1,), 10.0),
    }
    assert {k: float(method.message(tensors, k)["encoder.weight"]) for k in (1, 2, 10)} == {
        1: 1.0,
        2: 0.0,
        10: 10.0,
    }


def test_absent_clients_keep_their_model() -> None:
    """Half of two clients take part.

    The other one's model stays as it was after its last round, or initial.
    """
    rounds, _ = run_rounds(FedGTA(), toy_clients(2), rounds=4, training=Training(participation=0.5))
    for before, after in pairwise(rounds):
        absent = 1 - after.clients[0]
        assert_same(FedGTA().message(before.tensors, absent), FedGTA().message(after.tensors, absent))


def test_bytes_are_those_of_the_docstring() -> None:
    """|Θ| = 6·8 + 8 + 8·3 + 3 = 83 numbers; the moments 2·10·3 = 60, the confidence 1. Three clients."""
    rounds, _ = run_rounds(FedGTA(), toy_clients())
    for each in rounds:
        assert sum(each.bytes_down.values()) == 3 * 4 * 83
        assert sum(each.bytes_up.values()) == 3 * 4 * (83 + 60 + 1)


@pytest.mark.parametrize("preset", FedGTA.presets)
@pytest.mark.parametrize("moments", ["hybrid", "raw", "central"])
def test_awkward_federations(preset: str, moments: Any) -> None:
    clients = [
        toy_client(k, sparse=True, **kind)
        for k, kind in enumerate(({"train": False}, {"edges": False}, {"missing_class": True}))
    ]
    rounds, _ = run_rounds(FedGTA(**FedGTA.presets[preset], moments=moments, orders=3), clients, 3)
    assert all(bool(value.isfinite().all()) for r in rounds for value in r.tensors.values())
    assert not any(r.refused for r in rounds)


def test_it_learns() -> None:
    rounds, exchange = run_rounds(
        FedGTA(score="trained"), [toy_client(k, nodes=60, edges=False) for k in range(2)], rounds=20
    )
    right = [
        float(c["personal_test"].trace() / c["personal_test"].sum())
        for c in (rounds[-1].confusions or {}).values()
    ]
    assert min(right) > 0.8
    assert not torch.equal(*(model_part(exchange.participants[k].state)["encoder.weight"] for k in (0, 1)))


@pytest.mark.parametrize("wrong", [{"alpha": 2.0}, {"temperature": 0.0}, {"orders": 0}, {"steps": -1}])
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(wrong))):
        FedGTA(**wrong)
