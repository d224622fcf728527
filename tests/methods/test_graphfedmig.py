"""GraphFedMig: its checks in docs/reading-the-rivals.md, and clusters.

The idealised logits are held against those of replaced features.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.graphfedmig import (
    GraphFedMig,
    clustered,
    column_means,
    divergence,
    imitation,
    judged,
    mean_judgement,
    mutual_information,
)
from fedepd.methods.steps import fit, model_part, renamed, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import Sparse, to_scipy
from fedepd.network.training import Training
from fedepd.types import Reply, Tensors
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
PLAIN: dict[str, Any] = {"gan_weight": 0.0, "warm_up": 0}
both_features = pytest.mark.parametrize("sparse", [False, True])


def same_size(count: int = 3, **more: Any) -> list[Any]:
    return [toy_client(k, nodes=24, **more) for k in range(count)]


def start(**settings: Any) -> tuple[Any, Tensors]:
    server = make_server(toy_clients(), Backbone(hidden=8), Training())
    return server, initial(GraphFedMig(**settings), server)


def replies_at(
    tensors: Tensors, values: dict[int, float], information: dict[int, float], **more: torch.Tensor
) -> dict[int, Reply]:
    """Replies whose every tensor is a constant."""
    out = {}
    for k, value in values.items():
        sent = {n: torch.full_like(t, value) for n, t in tensors.items() if n != "cluster.size"}
        out[k] = Reply({**sent, **more, "information": torch.tensor([information[k]])}, 10, 5)
    return out


def test_uniform_weights_alone_are_uniform_fedavg() -> None:
    """Check 1. Same draws, same loss, weight 1 each: bit for bit FedAvg over equally large clients."""
    clients = same_size()
    ours, _ = run_rounds(GraphFedMig(mi="official", **PLAIN), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same(model_part(ours[-1].tensors), theirs[-1].tensors)


def test_a_threshold_above_1_is_isolated_training() -> None:
    """Check 4. Three singleton clusters: a client's model is FedAvg's of that client alone, bit for bit."""
    clients = toy_clients()
    ours, _ = run_rounds(GraphFedMig(threshold=2.0, **PLAIN), clients)
    for client in clients:
        alone, _ = run_rounds(FedAvg(), [client])
        mine = model_part(renamed(ours[-1].tensors, f"client.{client.client_id}.", ""))
        assert_same(mine, alone[-1].tensors)


def test_mutual_information_by_hand() -> None:
    """Check 2. A perfect predictor of two equal classes has log 2.

    A constant one has 0, an independent one too, and so has none at all.
    """
    labels = torch.tensor([0, 0, 1, 1])
    assert float(mutual_information(labels, labels, 3)) == pytest.approx(np.log(2))
    assert float(mutual_information(1 - labels, labels, 3)) == pytest.approx(np.log(2))
    assert float(mutual_information(torch.zeros(4, dtype=torch.int64), labels, 3)) == 0
    assert float(mutual_information(torch.tensor([0, 1, 0, 1]), labels, 3)) == 0
    assert float(mutual_information(labels[:0], labels[:0], 3)) == 0


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40))
@settings(max_examples=30)
def test_mutual_information_is_what_entropies_say(pairs: list[tuple[int, int]]) -> None:
    """I = H(a) + H(b) - H(a, b)."""

    def entropy(values: list[Any]) -> float:
        shares = np.array([values.count(v) for v in set(values)]) / len(values)
        return float(-(shares * np.log(shares)).sum())

    predicted, labels = (list(side) for side in zip(*pairs, strict=True))
    expected = entropy(predicted) + entropy(labels) - entropy(pairs)
    assert float(mutual_information(torch.tensor(predicted), torch.tensor(labels), 5)) == pytest.approx(
        expected, abs=1e-6
    )


@pytest.mark.parametrize("classes", [5, 40, 70])
def test_the_programs_score_is_always_log_c(classes: int) -> None:
    """Check 3. The program scores a logit vector against D's output, and takes each number for a label.

    C distinct numbers are C labels of one node each, on both sides. I = C · 1/C log((1/C) / (1/C²)) = log C,
    whatever they are. So the weights of ``official`` are uniform.
    """
    rng = np.random.default_rng(classes)
    codes = [torch.tensor(np.unique(rng.standard_normal(classes), return_inverse=True)[1]) for _ in range(2)]
    assert float(mutual_information(codes[0], codes[1], classes)) == pytest.approx(np.log(classes), rel=1e-6)


def test_models_are_weighted_by_information() -> None:
    """Constants 1 and 4 with MI .25 and .75 (+ 1e-6): 3.25; `official`: 2.5.

    A client without training nodes has no say. D and p̄ are weighted by sizes, equal here: 2.5.
    """
    server, tensors = start()
    replies = replies_at(tensors, {0: 1.0, 1: 4.0}, {0: 0.25, 1: 0.75})
    replies[2] = replace(replies_at(tensors, {2: 99.0}, {2: 9.0})[2], num_train=0)
    by_information = GraphFedMig().server_step(server, tensors, replies)
    assert torch.allclose(by_information["encoder.weight"], torch.tensor(3.25), atol=1e-4)
    assert torch.allclose(
        GraphFedMig(mi="official").server_step(server, tensors, replies)["encoder.weight"], torch.tensor(2.5)
    )
    for name in ("discriminator.1.weight", "judged.mean"):
        assert torch.allclose(by_information[name], torch.tensor(2.5)), name
    assert by_information["cluster.size"].tolist() == [2]
    assert_same(GraphFedMig().server_step(server, tensors, {2: replies[2]}), tensors)


def test_nobody_informative_is_a_plain_mean() -> None:
    """MI = 0 everywhere: the 1e-6 makes the weights equal instead of undefined."""
    server, tensors = start()
    out = GraphFedMig().server_step(server, tensors, replies_at(tensors, {0: 1.0, 1: 4.0}, {0: 0.0, 1: 0.0}))
    assert torch.allclose(out["encoder.weight"], torch.tensor(2.5))


@pytest.mark.parametrize("model", BACKBONES, ids=lambda m: f"{m.backbone}-{m.head}")
@both_features
def test_idealised_logits_are_those_of_replaced_features(model: Backbone, sparse: bool) -> None:
    """Without noise: the network's own logits on a graph of other features.

    Its training nodes carry their class's mean features, others their own.
    """
    data, method = toy_client(sparse=sparse), GraphFedMig(noise=0.0)
    client = make_client(method, data, model)
    params = model_part(initial(method, make_server([data], model, Training())))
    x = (data.graph.x.to_dense() if sparse else data.graph.x).clone()
    original = x.clone()
    for c in range(CLASSES):
        members = data.train_mask & (data.graph.y == c)
        x[members] = original[members].mean(0)
    changed = model.inputs(replace(data, graph=replace(data.graph, x=x)))
    with torch.no_grad():
        expected = model.logits(params, model.encode(params, changed), changed, train_only=True)
        own, idealised = method._own_and_idealised_logits(client, params)
        assert torch.allclose(idealised, expected, atol=1e-5)
        assert torch.allclose(own, model.predict(params, client.prepared.inputs)[data.train_mask], atol=1e-5)
        noisy = GraphFedMig(noise=0.5)._own_and_idealised_logits(client, params)[1]
    assert not torch.allclose(noisy, expected, atol=1e-3)


def test_divergence_by_hand() -> None:
    """p = (1/2, 1/2), p̄ = (1/4, 3/4), m = (3/8, 5/8): KL(m||p) / C = (3/8 log 3/4 + 5/8 log 5/4) / 2.

    m is detached, so the gradient is (p - m) / C = (1/8, -1/8) / 2. With a gradient through m it would be
    another one. At p = p̄ it is 0 with gradient 0; a zero in p̄ stays finite.
    """
    logit = torch.zeros(2, requires_grad=True)
    value = divergence(logit, torch.tensor([0.25, 0.75]))
    assert value.item() == pytest.approx((0.375 * np.log(0.75) + 0.625 * np.log(1.25)) / 2, rel=1e-5)
    assert torch.autograd.grad(value, logit)[0].tolist() == pytest.approx([1 / 16, -1 / 16])
    logit = torch.tensor([0.3, -1.0, 2.0], requires_grad=True)
    value = divergence(logit, torch.softmax(logit.detach(), 0))
    assert value.item() == pytest.approx(0, abs=1e-6)
    assert torch.allclose(torch.autograd.grad(value, logit)[0], torch.zeros(3), atol=1e-6)
    assert torch.isfinite(divergence(torch.tensor([200.0, -200.0]), torch.tensor([0.0, 1.0])))


def test_the_discriminator_learns_to_imitate() -> None:
    """Steps on cross-entropy against softmax(real) over classes.

    Its minimum is the entropy of the target.
    """
    data = toy_client()
    judge = with_prefix(start()[1], "discriminator.")
    draws = torch.Generator().manual_seed(0)
    fake, real = torch.randn(12, 3, generator=draws), torch.randn(12, 3, generator=draws)
    loss = imitation(fake, real)
    trained, _, _ = fit(make_client(GraphFedMig(), data), judge, {}, loss, epochs=60, stage="judge")
    target = torch.softmax(real, 1)
    entropy = float(-(target * target.log()).sum(1).mean())
    assert float(loss(judge)) > float(loss(trained)) >= entropy - 1e-5
    expected = F.softmax(judged(trained, fake), 1).mean(0)
    assert torch.allclose(mean_judgement(trained, fake, torch.zeros(3)), expected)
    assert float(expected.sum()) == pytest.approx(1, abs=1e-5)
    assert torch.equal(mean_judgement(trained, fake[:0], torch.ones(3)), torch.ones(3))


def test_the_divergence_acts_from_round_2_on() -> None:
    """There is no mean judgement in round 1; from round 2 on a large weight changes what is learnt."""
    clients = toy_clients()
    light, heavy = (
        run_rounds(GraphFedMig(gan_weight=w, warm_up=0), clients, rounds=2)[0] for w in (0.0, 10.0)
    )
    assert_same(model_part(light[0].tensors), model_part(heavy[0].tensors))
    assert not torch.equal(light[1].tensors["encoder.weight"], heavy[1].tensors["encoder.weight"])


def test_the_warm_up_is_in_round_1_only() -> None:
    data, method = toy_client(), GraphFedMig(warm_up=4)
    tensors = initial(method, make_server([data], Backbone(hidden=8), Training()))
    _, state = method.client_step(make_client(method, data, round=1), tensors, {})
    assert float(state["fit.moments.step"]) == 3 + 4
    _, state = method.client_step(make_client(method, data, round=2), tensors, state)
    assert float(state["fit.moments.step"]) == 3 + 4 + 3
    assert float(state["judge.moments.step"]) == 2 * 5


def test_clusters_by_hand() -> None:
    """Directions 0°, 20° and 90°: at cos 30° the first two merge (their mean is at 10°).

    cos 80° = .17 joins all at threshold .1.
    """
    at = {
        k: torch.tensor([np.cos(np.radians(a)), np.sin(np.radians(a))]) for k, a in ((0, 0), (1, 90), (2, 20))
    }
    assert clustered(at, float(np.cos(np.radians(30)))) == [[0, 2], [1]]
    assert clustered(at, 0.1) == [[0, 1, 2]]
    assert clustered(at, 0.99) == [[0], [1], [2]]
    assert clustered({4: torch.zeros(2)}, 0.5) == [[4]]


def test_each_cluster_has_its_own_tensors() -> None:
    """Clients 0 and 2 point one way, 1 another.

    0 and 2 receive their mean, 1 its own; one who never answered the initial tensors.
    """
    server, tensors = start(threshold=0.5)
    method = GraphFedMig(threshold=0.5, mi="official")
    ways = {0: [1.0, 0, 0, 0, 0, 0], 1: [0, 1.0, 0, 0, 0, 0], 2: [1.0, 0.1, 0, 0, 0, 0]}
    replies = {}
    for k, value in ((0, 1.0), (1, 7.0), (2, 3.0)):
        replies.update(replies_at(tensors, {k: value}, {k: 0.5}, **{"feature.mean": torch.tensor(ways[k])}))
    out = method.server_step(server, tensors, replies)
    got = {k: float(method.message(out, k)["encoder.bias"][0]) for k in range(3)}
    assert got == {0: 2.0, 1: 7.0, 2: 2.0}
    assert [float(method.message(out, k)["cluster.size"]) for k in range(3)] == [2, 1, 2]
    assert_same(method.message(out, 3), tensors)
    assert (
        float(method.message(method.server_step(server, out, {1: replies[1]}), 0)["encoder.bias"][0]) == 2.0
    )


def test_column_means() -> None:
    data = toy_client(sparse=True)
    assert torch.allclose(
        column_means(Sparse.of(to_scipy(data.graph.x))), data.graph.x.to_dense().mean(0), atol=1e-6
    )


AWKWARD: list[dict[str, Any]] = [
    {"edges": False},
    {"train": False},
    {"missing_class": True},
    {"one_node_class": True},
]


@pytest.mark.parametrize("awkward", AWKWARD, ids=lambda a: next(iter(a)))
@pytest.mark.parametrize("threshold", [-100.0, 0.9, 2.0])
@pytest.mark.parametrize("model", [BACKBONES[0], BACKBONES[3]], ids=lambda m: f"{m.backbone}-{m.head}")
def test_awkward_clients(awkward: dict[str, Any], threshold: float, model: Backbone) -> None:
    clients = [toy_client(0), toy_client(1, **awkward), toy_client(2)]
    method = GraphFedMig(threshold=threshold, warm_up=1)
    rounds, _ = run_rounds(method, clients, rounds=3, model=model, training=Training(participation=0.7))
    assert all(bool(torch.isfinite(v).all()) for v in rounds[-1].tensors.values())


@both_features
def test_it_learns_with_the_bytes_it_states(sparse: bool) -> None:
    """|Θ| = 83, |D| = 385·3 + 33,152 = 34,307, C + 1 = 4.

    4 · 34,394 each way for each of 3 clients; 4 d more with a threshold.
    Without edges, where the features alone name the class.
    """
    rounds, _ = run_rounds(
        GraphFedMig(warm_up=0, discriminator_steps=1),
        toy_clients(sparse=sparse, edges=False),
        rounds=8,
        training=Training(lr=0.05),
    )
    assert rounds[-1].loss < 0.5 * rounds[0].loss
    assert sum(rounds[-1].bytes_down.values()) == sum(rounds[-1].bytes_up.values()) == 3 * 4 * 34394
    rounds, _ = run_rounds(GraphFedMig(warm_up=0, threshold=0.5), toy_clients(sparse=sparse), rounds=1)
    assert sum(rounds[-1].bytes_up.values()) == 3 * 4 * (34394 + FEATURES)


def test_partial_participation_and_same_bits() -> None:
    training = Training(participation=0.5)
    runs = [
        run_rounds(GraphFedMig(warm_up=1), toy_clients(), rounds=4, training=training, workers=w)[0]
        for w in (1, 2)
    ]
    assert_same(runs[0][-1].tensors, runs[1][-1].tensors)


def test_hidden_labels_have_no_influence() -> None:
    clients = toy_clients()
    scrambled = [
        relabelled(c, torch.where(c.train_mask, c.graph.y, (c.graph.y + 1) % CLASSES)) for c in clients
    ]
    a, b = (
        run_rounds(GraphFedMig(warm_up=1), some, rounds=2)[0][-1].tensors for some in (clients, scrambled)
    )
    assert_same(a, b)


def test_uniform_initial_weights() -> None:
    """The program's U(0, 1), in matrices alone; biases stay 0."""
    _, tensors = start(initial="uniform")
    for name, value in model_part(tensors).items():
        if value.ndim == 2:
            assert 0 <= float(value.min()) < float(value.max()) <= 1, name
        else:
            assert not value.any(), name


@pytest.mark.parametrize(
    "bad", [{"warm_up": -1}, {"gan_weight": -1.0}, {"noise": -1.0}, {"discriminator_steps": -1}]
)
def test_bad_settings_are_named(bad: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(bad))):
        GraphFedMig(**bad)
