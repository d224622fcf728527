from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedepd.errors import BadConfig
from fedepd.methods.base import Client
from fedepd.methods.fedproto import FedProto
from fedepd.methods.isolated import Isolated
from fedepd.methods.parts.prototypes import penalty, pulled
from fedepd.methods.steps import class_mean, model_part, own_model
from fedepd.network.backbones import Backbone
from fedepd.network.training import Gradient, Training
from fedepd.types import Reply, Tensors
from toy import CLASSES, assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients

DRY = Backbone(hidden=8, dropout=0.0)


def answer(mean: list[list[float]], count: list[float], nodes: int = 10) -> Reply:
    return Reply(
        {"prototype.mean": torch.tensor(mean), "prototype.count": torch.tensor(count)}, nodes, int(sum(count))
    )


def merged(method: FedProto, replies: dict[int, Reply], old: Tensors) -> Tensors:
    server = make_server(toy_clients(), Backbone(hidden=2), Training())
    return method.server_step(server, old, replies)


def empty(classes: int = 2) -> Tensors:
    return {"prototype.mean": torch.zeros(classes, 2), "prototype.count": torch.zeros(classes)}


def test_without_the_penalty_it_is_isolated_training() -> None:
    _, mine = run_rounds(FedProto(lam=0.0), toy_clients())
    _, alone = run_rounds(Isolated(), toy_clients())
    for k in range(3):
        assert_same(mine.participants[k].state, alone.participants[k].state)


def test_the_penalty_acts_from_the_second_round_on() -> None:
    """Round 1 has no prototypes, so it is isolated training; round 2 differs."""
    for rounds, same in ((1, True), (2, False)):
        _, mine = run_rounds(FedProto(), toy_clients(), rounds)
        _, alone = run_rounds(Isolated(), toy_clients(), rounds)
        ours, theirs = (e.participants[0].state["encoder.weight"] for e in (mine, alone))
        assert torch.equal(ours, theirs) is same


@pytest.mark.parametrize(("weights", "expected"), [("owners", 2.0), ("counts", 2.5), ("zeros", 4 / 3)])
def test_global_prototypes_by_hand(weights: Any, expected: float) -> None:
    """Clients own class 0 with means (1, 0) and (3, 0), from 1 and 3 training nodes.

    A third, of equal size, lacks it.

    Mean over the owners: (1 + 3) / 2 = 2.
    By training nodes: (1·1 + 3·3) / 4 = 2.5.
    Over all with a zero: (1 + 3 + 0) / 3 = 4/3.
    """
    replies = {
        0: answer([[1.0, 0.0], [0.0, 0.0]], [1.0, 0.0]),
        1: answer([[3.0, 0.0], [0.0, 0.0]], [3.0, 0.0]),
        2: answer([[0.0, 0.0], [5.0, 6.0]], [0.0, 2.0]),
    }
    out = merged(FedProto(class_weights=weights), replies, empty())
    assert torch.allclose(out["prototype.mean"][0], torch.tensor([expected, 0.0]))
    assert torch.equal(out["prototype.count"], torch.tensor([4.0, 2.0]))


@pytest.mark.parametrize("weights", ["owners", "counts", "zeros"])
def test_a_class_nobody_renews_keeps_its_prototype(weights: Any) -> None:
    old = {
        "prototype.mean": torch.tensor([[7.0, 8.0], [0.0, 0.0]]),
        "prototype.count": torch.tensor([3.0, 0.0]),
    }
    out = merged(FedProto(class_weights=weights), {1: answer([[0.0, 0.0], [1.0, 1.0]], [0.0, 2.0])}, old)
    assert torch.equal(out["prototype.mean"], torch.tensor([[7.0, 8.0], [1.0, 1.0]]))
    assert torch.equal(out["prototype.count"], torch.tensor([3.0, 2.0]))


def test_a_class_without_any_owner_has_no_prototype() -> None:
    rounds, _ = run_rounds(FedProto(class_weights="zeros"), toy_clients(missing_class=True))
    assert float(rounds[-1].tensors["prototype.count"][2]) == 0
    assert not bool(rounds[-1].tensors["prototype.mean"][2].any())


def test_no_penalty_and_no_gradient_at_the_prototype() -> None:
    hidden = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    value = penalty(hidden, hidden.detach().clone(), torch.tensor([0.5, 0.5]))
    (gradient,) = torch.autograd.grad(value, hidden)
    assert float(value.detach()) == 0
    assert not bool(gradient.any())


def loss_of(method: FedProto, client: Client[Any], message: Tensors, params: Tensors) -> Tensor:
    loss = pulled(client, message, method.lam, method.form, method.embedding)
    return torch.tensor(loss.of(params)[0]) if isinstance(loss, Gradient) else loss(params)


@pytest.mark.parametrize("form", ["original", "openfgl"])
def test_the_two_forms_of_the_penalty(form: Any) -> None:
    """Prototypes at the origin, class 2 unknown, no dropout.

    The penalty is the mean of h² over nodes and coordinates, unknown ones counting 0; or the sum over the
    known classes of their nodes' mean.
    """
    client = make_client(FedProto(), toy_client(), DRY)
    inputs, params = client.prepared.inputs, own_model(client, {})
    message = {"prototype.mean": torch.zeros(CLASSES, 8), "prototype.count": torch.tensor([5.0, 5.0, 0.0])}
    hidden = DRY.encode(params, inputs)
    supervised = F.cross_entropy(DRY.logits(params, hidden, inputs, train_only=True), inputs.labels)
    size = hidden[inputs.train].square().mean(1)
    classes = [size[inputs.labels == c] for c in (0, 1)]
    expected = torch.cat(classes).sum() / len(size) if form == "original" else sum(c.mean() for c in classes)
    got = loss_of(FedProto(lam=2.0, form=form), client, message, params)
    assert torch.allclose(got, supervised + 2.0 * expected, rtol=1e-5)


def test_with_dropout_the_clean_embedding_is_not_the_dropped_one() -> None:
    message = {"prototype.mean": torch.zeros(CLASSES, 8), "prototype.count": torch.ones(CLASSES)}
    client = make_client(FedProto(), toy_client())
    params = own_model(client, {})
    clean, dropped = (loss_of(FedProto(embedding=e), client, message, params) for e in ("clean", "dropped"))
    assert float(clean) != float(dropped)


def test_clients_send_the_class_means_of_their_training_nodes() -> None:
    method = FedProto()
    client = make_client(method, toy_client(missing_class=True))
    answered, state = method.client_step(
        client, initial(method, make_server([toy_client()], client.model, Training())), {}
    )
    hidden = client.model.encode(model_part(state), client.prepared.inputs)
    y = client.data.graph.y
    for c in (0, 1):
        assert torch.allclose(answered.tensors["prototype.mean"][c], hidden[y == c].mean(0), atol=1e-6)
        assert float(answered.tensors["prototype.count"][c]) == int((y == c).sum())
    assert not bool(answered.tensors["prototype.mean"][2].any())


def test_bytes_are_those_of_the_docstring() -> None:
    """4 (C·h + C) = 4 (3·8 + 3) = 108 each way per client, three clients."""
    rounds, _ = run_rounds(FedProto(), toy_clients())
    assert sum(rounds[0].bytes_up.values()) == sum(rounds[0].bytes_down.values()) == 3 * 108


def test_prediction_by_the_nearest_prototype_among_local_classes() -> None:
    """Class 2 is missing at the client, so it is never predicted.

    Its prototype is nearest to node 0 all the same.
    """
    method = FedProto(predict_by="prototypes")
    client = make_client(method, toy_client(missing_class=True))
    params = own_model(client, {})
    hidden = client.model.encode(params, client.prepared.inputs)
    means = torch.stack([hidden[5], hidden[6], hidden[0]])
    logits = method.predict(client, {**params, "prototype.mean": means, "prototype.count": torch.ones(3)})
    expected = torch.stack([(hidden - means[c]).norm(dim=1) for c in (0, 1)]).argmin(0)
    assert torch.equal(logits.argmax(1), expected)
    unknown = method.predict(
        client, {**params, "prototype.mean": means, "prototype.count": torch.tensor([1.0, 0.0, 1.0])}
    )
    assert set(unknown.argmax(1).tolist()) == {0}


def test_without_any_candidate_the_classifier_decides() -> None:
    method = FedProto(predict_by="prototypes")
    client = make_client(method, toy_client(train=False))
    tensors = {"prototype.mean": torch.zeros(3, 8), "prototype.count": torch.ones(3)}
    assert torch.equal(method.predict(client, tensors), FedProto().predict(client, tensors))


def test_clients_may_start_apart() -> None:
    method = FedProto(common_start=False, lam=0.0)
    starts = [method._own(make_client(method, toy_client(k)), {})["encoder.weight"] for k in (0, 1)]
    assert not torch.equal(*starts)


@pytest.mark.parametrize("preset", FedProto.presets)
@pytest.mark.parametrize("predict_by", ["logits", "prototypes"])
def test_awkward_federations(preset: str, predict_by: Any) -> None:
    """A client without training nodes, one without edges, one with a one-node class.

    Half of them take part per round. Features are sparse.
    """
    clients = [
        toy_client(k, sparse=True, **kind)
        for k, kind in enumerate(({"train": False}, {"edges": False}, {"one_node_class": True}))
    ]
    rounds, _ = run_rounds(
        FedProto(**FedProto.presets[preset], predict_by=predict_by),
        clients,
        4,
        training=Training(participation=0.5),
    )
    assert all(bool(value.isfinite().all()) for r in rounds for value in r.tensors.values())
    assert not any(r.refused for r in rounds)


@pytest.mark.parametrize("predict_by", ["logits", "prototypes"])
def test_it_learns(predict_by: Any) -> None:
    rounds, _ = run_rounds(
        FedProto(predict_by=predict_by), [toy_client(k, nodes=60, edges=False) for k in range(2)], rounds=20
    )
    right = [
        float(c["personal_test"].trace() / c["personal_test"].sum())
        for c in (rounds[-1].confusions or {}).values()
    ]
    assert min(right) > 0.8


def test_a_negative_weight_is_refused() -> None:
    with pytest.raises(BadConfig, match="lam"):
        FedProto(lam=-1.0)


@given(st.integers(0, 10**6))
def test_class_mean_equals_the_loop(seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    rows, old = torch.rand(4, 3, 2, generator=draws), torch.rand(3, 2, generator=draws)
    weights = torch.randint(0, 3, (4, 3), generator=draws).to(torch.float32)
    expected: list[Tensor] = []
    for c in range(3):
        total = weights[:, c].sum()
        expected.append(sum(weights[k, c] * rows[k, c] for k in range(4)) / total if total > 0 else old[c])
    assert torch.allclose(class_mean(old, zip(rows, weights, strict=True)), torch.stack(expected))
