from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.creff import GUARD, CReFF, Wanted, head_gradients, mismatch, owner_mean
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import model_part, renamed
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import ClientData, Reply, Tensors
from toy import assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients

QUICK: dict[str, Any] = {"match_steps": 10, "retrain_epochs": 20}


def feature_gradients(
    features: Tensor, classes: Tensor, weight: Tensor, bias: Tensor
) -> tuple[Tensor, Tensor]:
    """The gradients of synthetic features [p, m, w] of the given classes in the head.

    Their shapes are [p, C, w] and [p, C].
    """
    error = (features @ weight + bias).softmax(2)  # [p, m, C]
    error = error - F.one_hot(classes, weight.shape[1])[:, None]
    return error.transpose(1, 2) @ features / features.shape[1], error.mean(1)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Along the last axis."""
    out: Tensor = (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1) + GUARD)
    return out


def matching_loss(
    features: Tensor, classes: Tensor, head: tuple[Tensor, Tensor], real: tuple[Tensor, Tensor]
) -> Tensor:
    weight, bias = feature_gradients(features, classes, *head)
    return (1 - cosine(weight, real[0])).sum() + (1 - cosine(bias, real[1])).sum()


def received(method: CReFF, data: ClientData, model: Backbone) -> Tensors:
    server = make_server([data], model, Training())
    tensors = method.message(initial(method, server), 0)
    return {**tensors, "head.bias": torch.tensor([0.3, -0.2, 0.1])}


@pytest.mark.parametrize("sparse", [False, True])
def test_training_is_untouched_by_the_head(sparse: bool) -> None:
    """The retrained head only replaces FedAvg's in predictions.

    Model and clients' states are FedAvg's bit for bit.
    """
    clients = toy_clients(sparse=sparse)
    ours, ours_exchange = run_rounds(CReFF(refresh=2, **QUICK), clients, rounds=5)
    theirs, theirs_exchange = run_rounds(FedAvg(), clients, rounds=5)
    for mine, other in zip(ours, theirs, strict=True):
        assert_same(model_part(mine.tensors), other.tensors)
        assert mine.confusions is not None
        assert other.confusions is not None
        for k in mine.confusions:
            assert torch.equal(mine.confusions[k]["personal_test"], other.confusions[k]["personal_test"])
    for k, participant in theirs_exchange.participants.items():
        assert_same(model_part(ours_exchange.participants[k].state), model_part(participant.state))


@pytest.mark.parametrize(
    "model", [Backbone(hidden=8), Backbone(hidden=8, backbone="sage"), Backbone(hidden=8, head="linear")]
)
def test_client_gradients_are_autograd_s(model: Backbone) -> None:
    """Each class's row is the gradient of its training nodes' mean cross-entropy in the head.

    Extractor and dropout are fixed.
    """
    method, data = CReFF(), toy_client(one_node_class=True)
    client, message = make_client(method, data, model), received(CReFF(), data, model)
    sent = head_gradients(client, message)
    s = model.smooth(message, model.encode(message, client.prepared), client.prepared)
    weight, bias = (
        message["head.weight"].clone().requires_grad_(),
        message["head.bias"].clone().requires_grad_(),
    )
    for c in range(3):
        chosen = data.train_mask & (data.graph.y == c)
        grads = torch.autograd.grad(
            F.cross_entropy(s[chosen] @ weight + bias, data.graph.y[chosen]), [weight, bias]
        )
        torch.testing.assert_close(sent["gradient.weight"][c], grads[0].t(), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(sent["gradient.bias"][c], grads[1], rtol=1e-4, atol=1e-6)
    assert sent["gradient.present"].tolist() == [1.0, 1.0, 1.0]


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5))
def test_synthetic_gradients_are_autograd_s(seed: int, per_class: int, width: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    features = torch.randn(2, per_class, width, generator=draws)
    weight, bias = (
        torch.randn(width, 3, generator=draws).requires_grad_(),
        torch.randn(3, generator=draws).requires_grad_(),
    )
    classes = torch.tensor([2, 0])
    closed = feature_gradients(features, classes, weight.detach(), bias.detach())
    for row, c in enumerate(classes.tolist()):
        loss = F.cross_entropy(features[row] @ weight + bias, torch.full((per_class,), c))
        grads = torch.autograd.grad(loss, [weight, bias])
        torch.testing.assert_close(closed[0][row], grads[0].t(), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(closed[1][row], grads[1], rtol=1e-4, atol=1e-5)


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 5))
def test_mismatch_and_its_gradient_are_the_plain_ones(seed: int, per_class: int, width: int) -> None:
    """Against whole gradients and their cosines, differentiated by autograd; one wanted row is zero."""
    draws = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draws, dtype=torch.float64)

    features, head, real, classes = (
        normal(2, per_class, width),
        (normal(width, 3), normal(3)),
        (normal(2, 3, width), normal(2, 3)),
        [2, 0],
    )
    real[0][0, 1] = 0
    ours, theirs = features.clone().requires_grad_(), features.clone().requires_grad_()
    a = mismatch(ours, Wanted.of(torch.tensor(classes), *head, *real))
    b = matching_loss(theirs, torch.tensor(classes), head, real)
    torch.testing.assert_close(a, b)
    torch.testing.assert_close(
        torch.autograd.grad(a, ours), torch.autograd.grad(b, theirs), rtol=1e-5, atol=1e-8
    )


def test_real_features_match_themselves() -> None:
    """The same features in another order have the same mean gradients.

    Every cosine is 1 but for the guard. Others do not match.
    """
    draws = torch.Generator().manual_seed(0)
    features, head = (
        torch.rand(3, 5, 4, generator=draws) + 0.1,
        (torch.randn(4, 3, generator=draws), torch.zeros(3)),
    )
    classes = torch.arange(3)
    real = feature_gradients(features.flip(1), classes, *head)
    assert float(matching_loss(features, classes, head, real)) == pytest.approx(0.0, abs=1e-3)
    assert float(matching_loss(-features, classes, head, real)) > 1.0


def test_matching_makes_gradients_agree() -> None:
    """The server's features before and after one refresh, against the clients' mean gradients."""
    model, clients, method = Backbone(hidden=8), toy_clients(), CReFF(refresh=1)
    server = make_server(clients, model, Training(), rounds=1)
    start = initial(method, server)
    message = method.message(start, 0)
    replies = {
        c.client_id: Reply(head_gradients(make_client(method, c, model), message), 1, 1) for c in clients
    }
    real = (owner_mean("weight", replies), owner_mean("bias", replies))
    head = (start["head.weight"], start["head.bias"])
    after, _ = run_rounds(method, clients, rounds=1, model=model)
    before_loss = matching_loss(start["feature.value"], torch.arange(3), head, real)
    after_loss = matching_loss(after[0].tensors["feature.value"], torch.arange(3), head, real)
    assert float(after_loss) < 0.1 * float(before_loss)


def test_mean_over_the_owners_by_hand() -> None:
    """Class 0 at both clients: (1 + 3)/2 = 2; class 1 at nobody: 0; class 2 at the second only: 5."""

    def answer(present: list[float], rows: list[float]) -> Reply:
        weight = torch.tensor(rows)[:, None, None].expand(-1, 3, 2).contiguous()
        return Reply(
            {
                "gradient.present": torch.tensor(present),
                "gradient.weight": weight,
                "gradient.bias": weight[:, :, 0],
            },
            9,
            9,
        )

    replies = {0: answer([1.0, 0.0, 0.0], [1.0]), 1: answer([1.0, 0.0, 1.0], [3.0, 5.0])}
    assert owner_mean("weight", replies)[:, 0, 0].tolist() == [2.0, 0.0, 5.0]
    assert owner_mean("bias", replies)[:, 2].tolist() == [2.0, 0.0, 5.0]


@pytest.mark.parametrize(
    "how", [{}, {"retrain_batch": 4}, {"retrain_batch": 4, "server_optimizer": "sgd", "retrain_lr": 0.1}]
)
def test_the_fresh_head_predicts_every_class_alike(how: dict[str, Any]) -> None:
    """Separable features, 10 a class: the retrained head gives each class its own 10.

    So predicted frequencies are uniform.
    """
    method, model = CReFF(**how), Backbone(hidden=8)
    server = make_server(toy_clients(), model, Training())
    tensors = initial(method, server)
    tensors["feature.value"] = 0.1 * tensors["feature.value"] + 2 * torch.eye(3, 8)[:, None]
    tensors["feature.known"] = torch.ones(3)
    head = method._retrain(server, tensors)
    predicted = (tensors["feature.value"] @ head["head.weight"] + head["head.bias"]).argmax(2)
    assert torch.equal(predicted, torch.arange(3)[:, None].expand(3, 10))


def test_predictions_use_the_averaged_extractor_and_the_retrained_head() -> None:
    model, clients, method = Backbone(hidden=8), toy_clients(), CReFF(refresh=1, **QUICK)
    rounds, _ = run_rounds(method, clients, rounds=2, model=model)
    client, tensors = make_client(method, clients[0], model), rounds[-1].tensors
    s = model.smooth(tensors, model.encode(tensors, client.prepared), client.prepared)
    torch.testing.assert_close(
        method.predict(client, tensors),
        s @ tensors["head.weight"] + tensors["head.bias"],
        rtol=1e-4,
        atol=1e-5,
    )
    assert not torch.equal(tensors["head.weight"], tensors["classifier.weight"])


def test_refresh_rounds() -> None:
    """7 rounds, refresh 3: before round 3 the head is FedAvg's.

    It changes in rounds 3, 6 and 7 alone, and only then gradients cross.
    """
    rounds, _ = run_rounds(CReFF(refresh=3, **QUICK), toy_clients(), rounds=7)
    for each in rounds[:2]:
        assert_same(renamed(each.tensors, "head.", ""), renamed(each.tensors, "classifier.", ""))
    heads = [each.tensors["head.weight"] for each in rounds]
    assert [n + 1 for n in range(1, 7) if not torch.equal(heads[n], heads[n - 1])] == [2, 3, 6, 7]
    assert [each.number for each in rounds if "gradient.weight" in each.bytes_up] == [3, 6, 7]


def test_what_crosses() -> None:
    """C = 3, w = 8; client 0 has 2 classes, clients 1 and 2 have 3.

    Up 4 (3 |Θ| + 3 C + 8·C·(w + 1)); down 3·4 (|Θ| + w·C + C).
    """
    clients = [toy_client(0, missing_class=True), toy_client(1), toy_client(2)]
    rounds, _ = run_rounds(CReFF(refresh=2, **QUICK), clients, rounds=2)
    theta = 6 * 8 + 8 + 8 * 3 + 3
    assert sum(rounds[0].bytes_up.values()) == 4 * 3 * theta
    assert sum(rounds[1].bytes_up.values()) == 4 * (3 * theta + 3 * 3 + 8 * 3 * 9)
    assert all(sum(each.bytes_down.values()) == 3 * 4 * (theta + 8 * 3 + 3) for each in rounds)
    assert not rounds[0].refused + rounds[1].refused


def test_a_class_that_nobody_has_stays_out_of_retraining() -> None:
    """Its features stay the first noise, its weights are 0, its bias is the smallest of all."""
    clients = toy_clients(missing_class=True)
    rounds, _ = run_rounds(CReFF(refresh=1, **QUICK), clients, rounds=2)
    tensors = rounds[-1].tensors
    assert tensors["feature.known"].tolist() == [1.0, 1.0, 0.0]
    assert torch.equal(tensors["head.weight"][:, 2], torch.zeros(8))
    assert float(tensors["head.bias"][2]) == float(tensors["head.bias"][:2].min())
    assert torch.equal(tensors["feature.value"][2], rounds[0].tensors["feature.value"][2])


def test_nobody_has_training_nodes() -> None:
    rounds, _ = run_rounds(CReFF(refresh=1, **QUICK), toy_clients(train=False), rounds=2)
    assert_same(renamed(rounds[-1].tensors, "head.", ""), renamed(rounds[-1].tensors, "classifier.", ""))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "awkward", [{"train": False}, {"edges": False}, {"missing_class": True}, {"one_node_class": True}]
)
@pytest.mark.parametrize("participation", [0.5, 1.0])
def test_awkward_clients(awkward: dict[str, Any], sparse: bool, participation: float) -> None:
    clients = [
        toy_client(0, sparse=sparse, **awkward),
        toy_client(1, sparse=sparse),
        toy_client(2, sparse=sparse, missing_class=True),
    ]
    rounds, _ = run_rounds(
        CReFF(refresh=2, **QUICK), clients, rounds=5, training=Training(participation=participation)
    )
    assert not any(each.refused for each in rounds)
    assert all(bool(value.isfinite().all()) for value in rounds[-1].tensors.values())


def test_a_known_class_survives_rounds_without_its_owners() -> None:
    """Only client 1 has class 2.

    A refresh without it leaves the class's features alone and keeps the class in the head.
    """
    clients = [toy_client(0, missing_class=True), toy_client(1), toy_client(2, missing_class=True)]
    rounds, _ = run_rounds(
        CReFF(refresh=1, **QUICK), clients, rounds=8, training=Training(participation=0.34)
    )
    seen = next(n for n, each in enumerate(rounds) if each.clients == (1,))
    later = [n for n in range(seen + 1, 8) if rounds[n].clients != (1,)]
    assert later
    for n in later:
        assert torch.equal(rounds[n].tensors["feature.value"][2], rounds[n - 1].tensors["feature.value"][2])
        assert float(rounds[n].tensors["head.weight"][:, 2].abs().sum()) > 0


@pytest.mark.parametrize(
    "model",
    [Backbone(dropout=0.0), Backbone(dropout=0.0, backbone="sage"), Backbone(dropout=0.0, head="linear")],
)
def test_the_retrained_head_classifies_real_nodes(model: Backbone) -> None:
    """A head that has never seen a node gets most nodes right.

    The synthetic features stand for the real ones (toy without its edges).
    """
    method, clients = CReFF(), toy_clients(edges=False)
    rounds, _ = run_rounds(method, clients, rounds=10, model=model)
    right = [
        method.predict(make_client(method, c, model), rounds[-1].tensors).argmax(1) == c.graph.y
        for c in clients
    ]
    assert float(torch.cat(right).float().mean()) > 0.85


def test_official_values_run() -> None:
    rounds, _ = run_rounds(
        CReFF(**{**CReFF.presets["authors_values"], "retrain_epochs": 3}), toy_clients(), rounds=2
    )
    assert all(bool(value.isfinite().all()) for value in rounds[-1].tensors.values())


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"refresh": 0}, "refresh is 0"), ({"retrain_epochs": 0}, "at least 1"),
        ({"match_steps": -1}, "match_steps is -1"), ({"match_lr": 0.0}, "positive"),
    ],
)  # fmt: skip
def test_bad_settings_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(BadConfig, match=message):
        CReFF(**setting)
