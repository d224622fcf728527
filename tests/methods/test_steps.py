"""Steps that methods share, by hand."""

from __future__ import annotations

import math
from typing import Any

import torch

from fedepd.methods.base import weight_of
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.steps import (
    class_counts,
    class_mean,
    class_sums,
    cross_entropy,
    fit,
    held_near,
    log_prior,
    model_part,
    of_logits,
    own_classifier,
    own_mean,
    own_means,
    renamed,
    reply,
    summed_counts,
    weighted_mean,
    with_prefix,
)
from fedepd.network.backbones import Backbone
from fedepd.network.training import Gradient
from fedepd.types import Reply, TaskInfo
from toy import assert_near, assert_same, make_client, toy_client


def test_names_are_chosen_and_changed_by_their_beginning() -> None:
    one = torch.ones(1)
    tensors = {
        "encoder.weight": one,
        "classifier.bias": one,
        "prototypes": one,
        "fit.moments.encoder.weight": one,
    }
    assert list(model_part(tensors)) == ["encoder.weight", "classifier.bias"]
    assert list(renamed(tensors, "fit.moments.", "")) == ["encoder.weight"]


def test_sums_and_counts_by_class() -> None:
    rows = torch.tensor([[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]])
    assert class_sums(rows, torch.tensor([2, 0, 2]), 3).tolist() == [[10, 20], [0, 0], [101, 202]]
    data = toy_client()
    assert int(class_counts(data).sum()) == int(data.train_mask.sum())


def test_a_mean_by_class_keeps_what_nobody_holds() -> None:
    """Class 0: (1 * 2 + 3 * 6) / (1 + 3) = 5. Class 1 has no weight."""
    old = torch.tensor([7.0, 7.0])
    pairs = [
        (torch.tensor([2.0, 9.0]), torch.tensor([1, 0])),
        (torch.tensor([6.0, 9.0]), torch.tensor([3, 0])),
    ]
    assert class_mean(old, pairs).tolist() == [5.0, 7.0]


def test_counts_are_added_up_and_kept_for_who_is_absent() -> None:
    """Class 0: 3 + 1. Nobody of this round has class 1, whose 7 nodes are known from before."""
    replies = {k: Reply({"count": torch.tensor([n, 0.0])}, 9, 9) for k, n in ((0, 3.0), (2, 1.0))}
    assert summed_counts(torch.tensor([9.0, 7.0]), replies).tolist() == [4.0, 7.0]


def test_the_prior_of_classes_by_hand() -> None:
    """Counts (5, 5) and the client's own (3, 0): .9 * .5 + .1 * (1, 0) = (.55, .45).

    Of 10 nodes an absent class counts as half a one: 1 / 20.
    """

    def shares(*given: Any) -> list[float]:
        found = log_prior(*given)
        assert found is not None
        return [round(value, 6) for value in found.exp().tolist()]

    assert shares(torch.tensor([5.0, 5.0])) == [0.5, 0.5]
    assert shares(torch.tensor([5.0, 5.0]), torch.tensor([3, 0]), 0.1) == [0.55, 0.45]
    assert shares(torch.tensor([10.0, 0.0])) == [1.0, 0.05]
    assert shares(torch.tensor([10.0, 0.0]), torch.tensor([0, 0]), 1.0) == [1.0, 0.05]
    assert log_prior(torch.zeros(2), torch.tensor([3, 0]), 0.1) is None


def test_a_weighted_mean_is_over_those_who_answered() -> None:
    """(1 * 4 + 3 * 8) / 4 = 7; the client without an answer has no part in it."""
    replies = {k: Reply({"a": torch.tensor([v])}, 1, 1) for k, v in ((0, 4.0), (2, 8.0))}
    tensors = {"a": torch.tensor([0.0])}
    assert weighted_mean(tensors, replies, {0: 1.0, 1: 50.0, 2: 3.0})["a"].tolist() == [7.0]
    assert weighted_mean(tensors, replies, {0: 0.0, 2: 0.0}) is tensors


def test_a_client_s_say() -> None:
    by_nodes, by_train = TaskInfo(1, 2, 1, "nodes"), TaskInfo(1, 2, 1, "train")
    assert (weight_of(by_nodes, Reply({}, 10, 4)), weight_of(by_train, Reply({}, 10, 4))) == (10.0, 4.0)
    assert weight_of(by_nodes, Reply({}, 10, 0)) == 0.0


def test_a_reply_leaves_out_what_is_not_a_number() -> None:
    client = make_client(FedAvg(), toy_client(), round=3)
    sent = reply(client, {}, loss=math.nan, norm=2.0)
    assert (dict(sent.scalars), sent.round, sent.num_nodes) == ({"norm": 2.0}, 3, client.data.graph.num_nodes)


def test_a_criterion_of_logits_is_the_loss_with_its_gradient_written_by_hand() -> None:
    client = make_client(FedAvg(), toy_client())
    params = client.model.initial(client.info, 0)
    ours, _, loss = fit(client, params, {}, cross_entropy(client, client.prepared))
    theirs, _, other = fit(
        client, params, {}, of_logits(client, client.prepared, torch.nn.functional.cross_entropy)
    )
    assert_near(ours, theirs)
    assert math.isclose(loss, other, rel_tol=1e-5)


def test_without_training_nodes_nothing_moves() -> None:
    client = make_client(FedAvg(), toy_client(train=False), Backbone(hidden=8))
    params = client.model.initial(client.info, 0)
    out, state, loss = fit(client, params, {"a": torch.ones(1)}, cross_entropy(client, client.prepared))
    assert out is params
    assert list(state) == ["a"]
    assert math.isnan(loss)


def test_a_mean_of_its_own_for_every_client() -> None:
    """Models 1 and 3 of clients 2 and 5; rows (¾, ¼) and (0, 1): 1.5 and 3. Others get the common model."""
    models = {
        k: Reply({"encoder.weight": torch.full((2,), value)}, 1, 1) for k, value in ((5, 3.0), (2, 1.0))
    }
    held = own_means(models, torch.tensor([[0.75, 0.25], [0.0, 1.0]], dtype=torch.float64))
    held["encoder.weight"] = torch.zeros(2)
    found = {k: own_mean(held, k)["encoder.weight"].tolist() for k in (2, 5, 25)}
    assert found == {2: [1.5, 1.5], 5: [3.0, 3.0], 25: [0.0, 0.0]}


def test_held_near_adds_the_penalty_and_its_gradient() -> None:
    """Loss w²/2 at w = 3, drawn to 1 with strength 4: 4.5 + 2 · 2² = 12.5, gradient 3 + 4 · 2 = 11.

    A parameter without a gradient of its own has the penalty's: 4 · (5 - 7) = -8, and the loss 2 · 2² more.
    """
    plain = Gradient(lambda params: (float(params["w"]) ** 2 / 2, {"w": params["w"].clone()}))
    params = {"w": torch.tensor(3.0), "unused": torch.tensor(5.0)}
    loss, grads = held_near(plain, {"w": torch.tensor(1.0), "unused": torch.tensor(7.0)}, 4.0).of(params)
    assert loss == 20.5
    assert {name: float(value) for name, value in grads.items()} == {"w": 11.0, "unused": -8.0}
    assert float(params["w"]) == 3.0
    assert held_near(plain, params, 0.0) is plain


def test_a_client_without_a_classifier_has_the_initial_one() -> None:
    client = make_client(FedAvg(), toy_client())
    start = client.model.initial(client.info, client.seed)
    assert_same(own_classifier(client, {}), with_prefix(start, "classifier."))
    own = {"classifier.bias": torch.ones(3), "encoder.bias": torch.ones(8)}
    assert own_classifier(client, own).keys() == {"classifier.bias"}
