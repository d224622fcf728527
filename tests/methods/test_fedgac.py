"""FedGAC (our reading): its checks in docs/reading-the-rivals.md, its two optimisers, its traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.fedgac import (
    FedGACReading,
    Known,
    agreement_weights,
    directions,
    effective_weights,
    elu,
    product,
)
from fedepd.methods.steps import average
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import csr_tensor, to_scipy
from fedepd.network.training import Training
from fedepd.types import ClientData, Graph, Reply, Tensors
from toy import (
    CLASSES,
    FEATURES,
    assert_same,
    initial,
    make_client,
    make_server,
    relabelled,
    run_rounds,
    toy_client,
    toy_clients,
)

BACKBONES = [Backbone(b, 8, 0.5, h) for b in ("gcn", "sage") for h in ("gcn", "linear")]
both_features = pytest.mark.parametrize("sparse", [False, True])


def path_graph() -> Graph:
    """0 - 1 - 2, and 3 alone."""
    return Graph.make(torch.eye(4), torch.tensor([[0, 1], [1, 2]]), torch.tensor([0, 1, 0, 1]))


def reply_of(tensors: Tensors, counts: list[float], nodes: int = 10) -> Reply:
    return Reply({**tensors, "class.count": torch.tensor(counts)}, nodes, int(sum(counts)))


def start(clients: list[ClientData], method: FedGACReading | None = None) -> tuple[Any, Tensors]:
    server = make_server(clients, Backbone(hidden=8), Training())
    return server, initial(method or FedGACReading(), server)


def moved(tensors: Tensors, by: float, scale: Tensors) -> Tensors:
    return {name: value + by * scale[name] for name, value in tensors.items()}


def random_like(tensors: Tensors, seed: int) -> Tensors:
    draws = torch.Generator().manual_seed(seed)
    return {name: torch.randn(value.shape, generator=draws) for name, value in tensors.items()}


def test_elu_and_its_gradient() -> None:
    """Against torch's own, then times the mask; far below 0 as well."""
    x = torch.cat([torch.linspace(-4, 4, 40), torch.tensor([0.0, -300.0])])
    mask = (torch.arange(42) % 3).to(torch.float32)
    for given in (None, mask):
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        a, b = elu(ours, given), F.elu(theirs) if given is None else F.elu(theirs) * given
        assert torch.allclose(a, b, atol=1e-6)
        found, expected = (torch.autograd.grad(y.sum(), z)[0] for y, z in ((a, ours), (b, theirs)))
        assert torch.allclose(found, expected, atol=1e-6)


@both_features
def test_known_products_change_nothing(sparse: bool) -> None:
    """The same loss and the same gradients.

    It does not matter whether the two products with the features are computed anew or were known.
    """
    data, method, model = toy_client(sparse=sparse), FedGACReading(), Backbone(hidden=8, dropout=0.0)
    client = make_client(method, data, model)
    params = {name: value.requires_grad_() for name, value in start([data])[1].items()}
    features, loss = client.prepared.features, method._loss(client, "x", None)
    with torch.no_grad():
        pair = product(features, directions(params))
        known = Known(product(features, params["encoder.weight"]), pair)
    anew, again = (
        torch.autograd.grad(loss(params, known=k), list(params.values())) for k in (Known(), known)
    )
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(anew, again, strict=True))


@pytest.mark.parametrize("model", BACKBONES, ids=lambda m: f"{m.backbone}-{m.head}")
@both_features
def test_without_attention_vectors_a_layer_is_the_plain_mean(model: Backbone, sparse: bool) -> None:
    """Check 2. a = 0: every score is 0, so α_ij = 1 / (degree + 1).

    The network is the one with M = D̃^-1 (A + I) written out.
    """
    data, method = toy_client(sparse=sparse), FedGACReading()
    client = make_client(method, data, model)
    params = initial(method, make_server([data], model, Training()))
    params["attention.pair"] = torch.zeros_like(params["attention.pair"])
    n = data.graph.num_nodes
    mean = torch.eye(n)
    mean[tuple(data.graph.edge_index)] = mean[tuple(data.graph.edge_index.flip(0))] = 1.0
    mean = mean / mean.sum(1, keepdim=True)
    x = data.graph.x.to_dense() if sparse else data.graph.x

    def layer(h: Tensor, name: str) -> Tensor:
        wide = mean @ h if model.backbone == "gcn" else torch.cat([mean @ h, h], dim=1)
        return wide @ params[f"{name}.weight"] + params[f"{name}.bias"]

    h = F.elu(layer(x, "encoder"))
    if model.head == "gcn":
        expected = layer(h, "classifier")
    else:
        expected = F.elu(layer(h, "encoder.second")) @ params["classifier.weight"] + params["classifier.bias"]
    assert torch.allclose(method.predict(client, params), expected, atol=1e-5)


def test_scores_by_hand() -> None:
    """x = one-hot, U = diag, a1 = (1, 0), a2 = (0, 1).

    Node i gives its target part U_i0 and its source part U_i1.
    U = [[1, 2], [3, -9], [0, 0], [0, 0]].
    Edge 1 -> 0 scores 1 - 9 = -8, leaky 0.2: -1.6; edge 0 -> 1: 3 + 2 = 5; loop 0: 3.
    """
    graph = path_graph()
    train, val, test = (torch.tensor([c in part for c in "abcd"]) for part in ("ab", "c", "d"))
    data = ClientData(0, graph, train, val, test, torch.arange(4))
    method = FedGACReading(attention_width=2)
    params = {
        "attention.project": torch.tensor([[1.0, 2.0], [3.0, -9.0], [0.0, 0.0], [0.0, 0.0]]),
        "attention.pair": torch.eye(2),
    }
    scores = method.scores(params, method.prepare(data.hidden(), Backbone(hidden=8)))
    assert torch.allclose(scores[:3], torch.tensor([3.0, -1.6, 5.0]))


@both_features
def test_scores_do_not_depend_on_the_length_of_rows(sparse: bool) -> None:
    """Features times 10: the same scores with rows that sum to 1, ten times the scores with raw rows.

    A row of zeros scores 0.
    """
    data = toy_client(sparse=sparse)
    x = data.graph.x.to_dense().clone()
    x[0] = 0.0

    def scores(rows: Any, factor: float) -> Tensor:
        method = FedGACReading(score_rows=rows)
        scaled = csr_tensor(sp.csr_matrix((x * factor).numpy())) if sparse else x * factor
        prepared = method.prepare(replace(data, graph=replace(data.graph, x=scaled)), Backbone(hidden=8))
        return method.scores(start([data])[1], prepared)

    assert torch.allclose(scores("sum1", 10.0), scores("sum1", 1.0), atol=1e-5)
    assert torch.allclose(scores("raw", 10.0), 10 * scores("raw", 1.0), atol=1e-5)
    assert float(scores("sum1", 1.0)[0]) == 0


def test_class_weights() -> None:
    """Check 4. β = 0: ones. β = 1: 1/N. β = .5, N = 2: .5 / .75 = 2/3.

    A class without training nodes weighs nothing.
    """
    counts = torch.tensor([1, 2, 0, 8])
    assert effective_weights(counts, 0.0).tolist() == [1, 1, 0, 1]
    assert effective_weights(counts, 1.0).tolist() == [1, 0.5, 0, 0.125]
    assert effective_weights(counts, 0.5)[1] == pytest.approx(2 / 3)
    assert effective_weights(counts, 0.999999)[3] == pytest.approx(0.125, rel=1e-4)


def test_beta_0_trains_attention_on_plain_cross_entropy() -> None:
    """Check 4. With ω = 1 the balanced loss of the same logits is F.cross_entropy.

    With β = 1 it is the mean of the class means.
    """
    data = toy_client()
    params = initial(FedGACReading(), make_server([data], Backbone(hidden=8, dropout=0.0), Training()))
    values = {}
    for beta in (0.0, 1.0):
        client = make_client(FedGACReading(beta=beta), data, Backbone(hidden=8, dropout=0.0))
        values[beta] = float(
            FedGACReading(beta=beta)._loss(client, "x", client.prepared.class_weights)(params)
        )
    logits = FedGACReading().predict(client, params)[client.prepared.train]
    labels = client.prepared.labels
    each = F.cross_entropy(logits, labels, reduction="none")
    assert values[0.0] == pytest.approx(float(each.mean()), rel=1e-5)
    assert values[1.0] == pytest.approx(
        float(torch.stack([each[labels == c].mean() for c in range(CLASSES)]).mean()), rel=1e-5
    )


def test_values_and_attention_take_turns() -> None:
    """Every epoch makes one step of each.

    3 epochs leave two optimisers with 3 steps; neither holds the other's moments.
    """
    data, method = toy_client(), FedGACReading()
    _, state = method.client_step(make_client(method, data), start([data])[1], {})
    assert float(state["values.moments.step"]) == float(state["attention.moments.step"]) == 3
    assert "values.moments.first.encoder.weight" in state
    assert "attention.moments.first.attention.pair" in state
    assert "values.moments.first.attention.pair" not in state
    assert "attention.moments.first.encoder.weight" not in state


def test_moments_last_a_round_whether_or_not_they_are_kept_between_rounds() -> None:
    """The first round starts without moments either way, and leaves some only where they are kept."""
    both = [
        run_rounds(FedGACReading(), toy_clients(2), 1, training=Training(keep_moments=keep))
        for keep in (True, False)
    ]
    assert_same(both[0][0][-1].tensors, both[1][0][-1].tensors)
    left = [any(".moments." in name for name in exchange.participants[0].state) for _, exchange in both]
    assert left == [True, False]


def test_parallel_updates_and_equal_counts_are_fedavg() -> None:
    """Check 1. κ = 0, equal counts, Δ_k = s_k V: every cosine is 1, so q ∝ w.

    The classifier's mean over equal counts is FedAvg's too, because the clients are equally large.
    """
    server, tensors = start(toy_clients(2), FedGACReading(kappa=0.0))
    direction = random_like(tensors, 0)
    replies = {k: reply_of(moved(tensors, 0.1 * (k + 1), direction), [2, 2, 2]) for k in range(2)}
    ours = FedGACReading(kappa=0.0).server_step(server, tensors, replies)
    theirs = average(server.info, tensors, replies)
    for name in tensors:
        assert torch.allclose(ours[name], theirs[name], atol=1e-6), name


def test_agreement_by_hand() -> None:
    """Δ = (3, 0), (0, 1), weights 1/2 each: Δ̄ = (1.5, .5), cosines 3/√10 and 1/√10.

    The says are 3 : 1 without floor. An update against the mean, Δ = (-1, 0) beside (3, 0), keeps only the
    floor.
    """
    tensors = {"encoder.weight": torch.zeros(2)}

    def says(first: list[float], second: list[float], floor: float) -> dict[int, float]:
        replies = {k: Reply({"encoder.weight": torch.tensor(v)}, 1, 1) for k, v in enumerate((first, second))}
        return agreement_weights(tensors, replies, {0: 5.0, 1: 5.0}, floor)

    q = says([3, 0], [0, 1], 0.0)
    assert q[0] / q[1] == pytest.approx(3, rel=1e-5)
    q = says([3, 0], [-1, 0], 1e-3)
    assert q[1] / q[0] == pytest.approx(1e-3 / 1.001, rel=1e-5)
    assert says([1, 0], [-1, 0], 1e-3) == {0: 5.0, 1: 5.0}  # Δ̄ = 0: no cosine is positive


def test_a_class_of_one_client_takes_its_column() -> None:
    """Check 3. κ = 0: class 2 is client 1's alone, so its column is client 1's.

    Class 0 has (3·1 + 1·2)/4. Class 1 is nobody's.
    """
    server, tensors = start(toy_clients(2), FedGACReading(kappa=0.0))
    ones = {name: torch.ones_like(value) for name, value in tensors.items()}
    replies = {
        0: reply_of(moved(tensors, 1.0, ones), [3, 0, 0]),
        1: reply_of(moved(tensors, 2.0, ones), [1, 0, 4]),
    }
    out = FedGACReading(kappa=0.0).server_step(server, tensors, replies)
    for name in ("classifier.weight", "classifier.bias"):
        step = out[name] - tensors[name]
        assert torch.allclose(step[..., 0], torch.tensor(1.25)), name
        assert torch.equal(out[name][..., 1], tensors[name][..., 1]), name
        assert torch.equal(out[name][..., 2], replies[1].tensors[name][..., 2]), name


def test_rare_classes_step_further() -> None:
    """N = (16, 1, 8192): steps are cut to 4, and the largest steps once.

    κ = .25: (8192/16)^.25 = 4.76, cut to 4; (8192/1)^.25 = 9.5, cut to 4.
    κ = .1, N = 16: 512^.1 = 1.866.
    """
    server, tensors = start(toy_clients(1))
    ones = {name: torch.ones_like(value) for name, value in tensors.items()}
    replies = {0: reply_of(moved(tensors, 1.0, ones), [16, 1, 8192])}
    out = FedGACReading().server_step(server, tensors, replies)
    assert torch.allclose(out["classifier.bias"] - tensors["classifier.bias"], torch.tensor([4.0, 4.0, 1.0]))
    out = FedGACReading(kappa=0.1).server_step(server, tensors, replies)
    assert float((out["classifier.bias"] - tensors["classifier.bias"])[0]) == pytest.approx(
        512**0.1, rel=1e-5
    )


def test_a_client_without_training_nodes_has_no_say() -> None:
    server, tensors = start(toy_clients(2))
    noisy = {
        0: reply_of(moved(tensors, 1.0, random_like(tensors, 1)), [2, 2, 2]),
        1: reply_of(random_like(tensors, 2), [0, 0, 0]),
    }
    alone = FedGACReading().server_step(server, tensors, {0: noisy[0]})
    both = FedGACReading().server_step(server, tensors, noisy)
    for name in tensors:
        assert torch.allclose(alone[name], both[name], atol=1e-6), name
    nobody = FedGACReading().server_step(server, tensors, {1: noisy[1]})
    assert_same(nobody, tensors)


def test_dense_and_sparse_features_agree() -> None:
    dense_from = [toy_client(k, sparse=True) for k in range(2)]
    dense = [replace(c, graph=replace(c.graph, x=c.graph.x.to_dense())) for c in dense_from]
    for c in dense_from:  # the same numbers
        assert torch.equal(csr_tensor(to_scipy(c.graph.x)).to_dense(), c.graph.x.to_dense())
    a, b = (run_rounds(FedGACReading(), clients, rounds=2)[0][-1].tensors for clients in (dense_from, dense))
    for name in a:
        assert torch.allclose(a[name], b[name], atol=1e-3), name


AWKWARD: list[dict[str, Any]] = [
    {"edges": False},
    {"train": False},
    {"missing_class": True},
    {"one_node_class": True},
]


@pytest.mark.parametrize("awkward", AWKWARD, ids=lambda a: next(iter(a)))
@pytest.mark.parametrize("model", BACKBONES, ids=lambda m: f"{m.backbone}-{m.head}")
def test_awkward_clients(awkward: dict[str, Any], model: Backbone) -> None:
    clients = [toy_client(0), toy_client(1, **awkward), toy_client(2, sparse=False)]
    rounds, _ = run_rounds(
        FedGACReading(), clients, rounds=2, model=model, training=Training(participation=0.7)
    )
    assert all(bool(torch.isfinite(v).all()) for v in rounds[-1].tensors.values())


@both_features
def test_it_learns_with_the_bytes_it_states(sparse: bool) -> None:
    """|Θ| = 6·8 + 8 + 8·3 + 3 = 83; attention 6·16 + 32 = 128; counts 3.

    4 · 211 down and 4 · 214 up for each of 3 clients.

    Without edges, where the features alone name the class. The toy's edges join classes at random, and s_ij
    ranks the neighbours of all nodes alike, so it cannot learn to look at the node itself alone.
    """
    rounds, _ = run_rounds(
        FedGACReading(), toy_clients(sparse=sparse, edges=False), rounds=8, training=Training(lr=0.05)
    )
    assert rounds[-1].loss < 0.5 * rounds[0].loss
    assert FEATURES * 8 + 8 + 8 * CLASSES + CLASSES == 83
    assert sum(rounds[-1].bytes_down.values()) == 3 * 4 * 211
    assert sum(rounds[-1].bytes_up.values()) == 3 * 4 * 214


def test_partial_participation_and_same_bits() -> None:
    runs = [
        run_rounds(FedGACReading(), toy_clients(), rounds=4, training=Training(participation=0.5), workers=w)[
            0
        ]
        for w in (1, 2)
    ]
    assert_same(runs[0][-1].tensors, runs[1][-1].tensors)
    assert {r.clients for r in runs[0]} != {(0, 1, 2)}


def test_hidden_labels_have_no_influence() -> None:
    clients = toy_clients()
    scrambled = [
        relabelled(c, torch.where(c.train_mask, c.graph.y, (c.graph.y + 1) % CLASSES)) for c in clients
    ]
    a, b = (run_rounds(FedGACReading(), some, rounds=2)[0][-1].tensors for some in (clients, scrambled))
    assert_same(a, b)


@pytest.mark.parametrize(
    "bad", [{"attention_width": 0}, {"beta": 1.5}, {"kappa": -1.0}, {"longest_step": 0.5}, {"floor": -1.0}]
)
def test_bad_settings_are_named(bad: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(bad))):
        FedGACReading(**bad)
