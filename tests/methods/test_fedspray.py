from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedspray import FedSpray, decayed, encode, head
from fedepd.methods.isolated import Isolated
from fedepd.methods.steps import model_part
from fedepd.network.backbones import Backbone
from fedepd.network.training import Gradient, Training
from fedepd.types import Reply, Tensors
from toy import (
    CLASSES,
    assert_same,
    initial,
    make_client,
    make_server,
    relabelled,
    run_rounds,
    toy_client,
    toy_clients,
)

TWO = Backbone(hidden=2)


def ready(method: FedSpray, training: Training | None = None, **kind: Any) -> tuple[Client[Any], Tensors]:
    """A client and the server's first message."""
    client = make_client(method, toy_client(**kind), training=training)
    return client, initial(method, make_server([toy_client(**kind)], client.model, Training()))


def test_without_soft_targets_it_is_isolated_training() -> None:
    _, mine = run_rounds(FedSpray(lam=0.0), toy_clients())
    _, alone = run_rounds(Isolated(), toy_clients())
    for k in range(3):
        assert_same(model_part(mine.participants[k].state), model_part(alone.participants[k].state))


def test_without_soft_targets_and_with_a_shared_network_it_is_fedavg() -> None:
    mine, _ = run_rounds(FedSpray(lam=0.0, share_gnn=True), toy_clients())
    theirs, _ = run_rounds(FedAvg(), toy_clients())
    for ours, reference in zip(mine, theirs, strict=True):
        assert_same(model_part(ours.tensors), reference.tensors)


def test_one_client_of_one_class_sets_the_classs_proxy() -> None:
    """All training nodes are of class 0, so its global proxy is the mean of theirs.

    The other classes keep 0.1.
    """
    data = toy_client()
    rounds, exchange = run_rounds(FedSpray(), [relabelled(data, torch.zeros_like(data.graph.y))], rounds=2)
    proxy = rounds[-1].tensors["proxy.class"]
    assert torch.allclose(proxy[0], exchange.participants[0].state["proxy.train"].mean(0), atol=1e-6)
    assert torch.equal(proxy[1:], torch.full((2, 8), 0.1))


def distance(target: Tensor, logits: Tensor) -> Tensor:
    """Mean KL(softmax target ‖ softmax logits) over the rows."""
    return F.kl_div(logits.log_softmax(1), target.log_softmax(1), reduction="batchmean", log_target=True)


def test_decay_is_the_gradient_of_half_the_square() -> None:
    """d/dp (p³ + 0.1 · p² / 2) = 3 p² + 0.1 p: 12.2 at 2."""
    p = torch.tensor([2.0]).requires_grad_()
    (grad,) = torch.autograd.grad(decayed(p, 0.1).pow(3).sum(), p)
    assert float(grad) == pytest.approx(12.2)


def test_soft_targets_by_hand() -> None:
    """Training nodes keep their proxies.

    Others mix the class proxies by what the proxy-free head believes of them.
    """
    method = FedSpray(threshold=0.0)
    client, message = ready(method)
    message = {**message, "proxy.class": torch.arange(24.0).reshape(3, 8) / 10}
    train, n = client.prepared.inputs.train, client.data.graph.num_nodes
    proxies = torch.full((train.shape[0], 8), 0.5)
    logits, reliable = method._soft_targets(client, message, proxies)
    assert torch.equal(reliable, torch.arange(n))
    x = client.data.graph.x
    for i in range(n):
        phi = torch.relu(x[i] @ message["mlp.encoder.weight"] + message["mlp.encoder.bias"])
        belief = (phi @ message["mlp.plain.weight"] + message["mlp.plain.bias"]).softmax(0)
        s = (
            torch.full((8,), 0.5)
            if i in train
            else sum(belief[c] * message["proxy.class"][c] for c in range(CLASSES))
        )
        assert torch.allclose(
            logits[i], (phi + s) @ message["mlp.joint.weight"] + message["mlp.joint.bias"], atol=1e-5
        )


def test_at_threshold_one_only_training_nodes_are_reliable() -> None:
    method = FedSpray(threshold=1.0)
    client, message = ready(method)
    train = client.prepared.inputs.train
    _, reliable = method._soft_targets(client, message, torch.zeros(train.shape[0], 8))
    assert torch.equal(reliable, train)


@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_the_networks_loss_is_cross_entropy_plus_the_distance_to_the_targets(threshold: float) -> None:
    """Without dropout, over all nodes (threshold 0) or over the training nodes (threshold 1)."""
    method, model = FedSpray(lam=3.0, threshold=threshold), Backbone(hidden=8, dropout=0.0)
    client = make_client(method, toy_client(), model)
    message, params = ready(method)[1], model.init(client.info, client.torch_draws("test"))
    inputs, proxies = client.prepared.inputs, torch.zeros(client.prepared.inputs.train.shape[0], 8)
    logits = model.predict(params, inputs)
    targets, reliable = method._soft_targets(client, message, proxies)
    expected = F.cross_entropy(logits[inputs.train], inputs.labels) + 3.0 * distance(
        targets, logits[reliable]
    )
    loss = method._network_loss(client, message, proxies)
    assert not isinstance(loss, Gradient)
    assert torch.allclose(loss(params), expected)


@pytest.mark.parametrize("lr", [0.01, 0.005])
def test_proxies_move_at_their_own_rate(lr: float) -> None:
    """Adam's first step moves every coordinate with a gradient by its learning rate.

    The proxies move by 0.02, the MLP by lr.
    """
    method = FedSpray(lam=0.0)
    client, message = ready(method, Training(epochs=1, lr=lr, weight_decay=0.0))
    answered, state = method.client_step(client, message, {})
    moved = (state["proxy.train"] - 0.1).abs()
    assert torch.allclose(moved, torch.full_like(moved, 0.02), rtol=1e-2)
    assert float((answered.tensors["mlp.joint.bias"]).abs().max()) == pytest.approx(lr, rel=1e-3)


def test_proxies_move_at_their_own_rate_under_sgd() -> None:
    """One plain step is rate times gradient: halving proxy_lr halves the way, whatever the run's own rate."""
    moved = {}
    for rate, lr in ((0.02, 0.01), (0.01, 0.01), (0.02, 0.3)):
        method = FedSpray(lam=0.0, proxy_lr=rate, share_gnn=True)
        client, message = ready(method, Training(epochs=1, optimizer="sgd", lr=lr, weight_decay=0.0))
        proxies = torch.full((client.prepared.inputs.train.shape[0], 8), 0.1)
        _, after, _ = method._fit_mlp(client, message, {}, model_part(message), proxies)
        moved[rate, lr] = after - 0.1
    assert torch.allclose(moved[0.02, 0.01], 2 * moved[0.01, 0.01], atol=1e-6)
    assert torch.allclose(moved[0.02, 0.01], moved[0.02, 0.3], atol=1e-6)
    assert bool(moved[0.02, 0.01].any())


def test_weight_decay_reaches_the_mlp_as_in_the_optimiser_but_not_the_proxies() -> None:
    """One SGD step with decay w from the same point differs from one without by -lr · w · parameter.

    The proxies differ by nothing.
    """
    steps = {}
    for decay in (0.0, 0.1):
        method = FedSpray(share_gnn=True)
        client, message = ready(method, Training(epochs=1, optimizer="sgd", lr=0.5, weight_decay=decay))
        proxies = torch.full((client.prepared.inputs.train.shape[0], 8), 0.1)
        steps[decay] = method._fit_mlp(client, message, {}, model_part(message), proxies)[:2]
    start = message["mlp.encoder.weight"]
    difference = steps[0.1][0]["mlp.encoder.weight"] - steps[0.0][0]["mlp.encoder.weight"]
    assert torch.allclose(difference, -0.5 * 0.1 * start, atol=1e-6)
    assert torch.equal(steps[0.1][1], steps[0.0][1])


def test_where_training_proxies_start() -> None:
    """Paper: from the class's global proxy, every round. Code: at 0.1, then kept."""
    client, message = ready(FedSpray())
    labels = client.prepared.inputs.labels
    message = {**message, "proxy.class": torch.arange(3.0)[:, None].repeat(1, 8)}
    kept = torch.full((labels.shape[0], 8), 7.0)
    assert torch.equal(
        FedSpray()._train_proxies(client, message, {"proxy.train": kept})[:, 0], labels.to(torch.float32)
    )
    code = FedSpray(train_proxies="kept")
    assert torch.equal(code._train_proxies(client, message, {}), torch.full_like(kept, 0.1))
    assert torch.equal(code._train_proxies(client, message, {"proxy.train": kept}), kept)


@pytest.mark.parametrize(
    ("weights", "expected"), [("counts", (1 * 1 + 9 * 3) / 10), ("shares", (0.5 * 1 + 0.9 * 3) / 1.4)]
)
def test_global_proxies_by_hand(weights: Any, expected: float) -> None:
    """Class 0 has proxies 1 and 3; 1 of 2 and 9 of 10 training nodes.

    The MLP counts by training nodes: (2·0 + 10·6) / 12 = 5.
    """
    method = FedSpray(proxy_weights=weights)
    server = make_server(toy_clients(), TWO, Training())
    old = {**initial(method, server), "proxy.class": torch.full((3, 2), 4.0)}

    def answer(proxy: float, counts: list[float], value: float) -> Reply:
        mlp = {
            name: torch.full_like(tensor, value) for name, tensor in old.items() if name.startswith("mlp.")
        }
        tensors = {**mlp, "proxy.class": torch.full((3, 2), proxy), "proxy.count": torch.tensor(counts)}
        return Reply(tensors, 20, int(sum(counts)))

    out = method.server_step(server, old, {0: answer(1.0, [1, 1, 0], 0.0), 1: answer(3.0, [9, 1, 0], 6.0)})
    assert torch.allclose(out["proxy.class"][0], torch.full((2,), expected))
    assert torch.equal(out["proxy.class"][2], torch.full((2,), 4.0))  # nobody's class
    assert torch.allclose(out["mlp.encoder.weight"], torch.tensor(5.0))


def test_first_class_proxies() -> None:
    server = make_server(toy_clients(), TWO, Training())
    assert torch.equal(initial(FedSpray(), server)["proxy.class"], torch.full((3, 2), 0.1))
    assert torch.allclose(
        initial(FedSpray(index_start=True), server)["proxy.class"][:, 1], torch.tensor([0.0, 0.01, 0.02])
    )


def test_the_second_head_may_start_from_the_first() -> None:
    """Without a single step (a client without training nodes) the answer shows the start."""
    for second, name in (("own", "plain"), ("first", "joint")):
        method = FedSpray(second_head=second)  # type: ignore[arg-type]
        client, message = ready(method, train=False)
        answered, _ = method.client_step(client, message, {})
        assert torch.equal(answered.tensors["mlp.plain.weight"], message[f"mlp.{name}.weight"])


def test_sparse_and_dense_features_give_the_same_mlp() -> None:
    _, message = ready(FedSpray())
    data = toy_client(sparse=True)
    client = make_client(FedSpray(), data)
    dense = data.graph.x.to_dense()
    assert torch.allclose(encode(message, client.prepared.features), encode(message, dense), atol=1e-6)
    assert torch.allclose(
        encode(message, client.prepared.train_features), encode(message, dense[data.train_mask]), atol=1e-6
    )
    assert head(message, "plain", encode(message, dense)).shape == (24, 3)


@pytest.mark.parametrize(("share", "extra"), [(False, 0), (True, 83)])
def test_bytes_are_those_of_the_docstring(share: bool, extra: int) -> None:
    """d = 6, h = 8, C = 3: 6·8 + 8 + 2 (24 + 3) + 24 = 134 numbers down, 3 counts more up.

    |Θ| = 83 where the network is shared.
    """
    rounds, _ = run_rounds(FedSpray(share_gnn=share), toy_clients())
    assert sum(rounds[0].bytes_down.values()) == 3 * 4 * (134 + extra)
    assert sum(rounds[0].bytes_up.values()) == 3 * 4 * (137 + extra)


@pytest.mark.parametrize("settings", [*FedSpray.presets.values(), {"share_gnn": True}])
def test_awkward_federations(settings: dict[str, Any]) -> None:
    clients = [
        toy_client(k, sparse=True, **kind)
        for k, kind in enumerate(({"train": False}, {"edges": False}, {"missing_class": True}))
    ]
    rounds, _ = run_rounds(FedSpray(**settings), clients, 4, training=Training(participation=0.5))
    assert all(bool(value.isfinite().all()) for r in rounds for value in r.tensors.values())
    assert not any(r.refused for r in rounds)


def test_it_learns() -> None:
    """Twice the rounds of isolated training: the targets come from an MLP that is itself still learning."""
    rounds, _ = run_rounds(FedSpray(), [toy_client(k, nodes=60, edges=False) for k in range(2)], rounds=40)
    right = [
        float(c["personal_test"].trace() / c["personal_test"].sum())
        for c in (rounds[-1].confusions or {}).values()
    ]
    assert min(right) > 0.8


@pytest.mark.parametrize("wrong", [{"lam": -1.0}, {"proxy_lr": 0.0}])
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(wrong))):
        FedSpray(**wrong)
