from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedsage import CENTRES, FedSagePlus, Lost, greedy
from fedepd.methods.steps import model_part, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import Tensors
from toy import assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients

MODEL = Backbone(hidden=8)


def started(method: FedSagePlus) -> Tensors:
    return initial(method, make_server([toy_client()], MODEL, Training()))


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("settings", [{"slots": 0}, {"generator_rounds": 0}])
def test_without_generated_neighbours_it_is_fedavg(settings: dict[str, Any], sparse: bool) -> None:
    clients = toy_clients(sparse=sparse)
    ours, _ = run_rounds(FedSagePlus(**settings), clients)
    theirs, _ = run_rounds(FedAvg(), clients)
    assert_same(ours[-1].tensors, theirs[-1].tensors)


def test_a_generator_that_misses_nobody_changes_nothing() -> None:
    """softplus(-100) = 0 neighbours: the step of round 3 is FedAvg's, and so are the predictions."""
    method, data = FedSagePlus(), toy_client()
    message = {**started(method), "generator.number.bias": torch.full((1,), -100.0), "mending": torch.ones(1)}
    client = make_client(method, data, MODEL, round=3)
    reply, _ = method.client_step(client, message, {})
    plain, _ = FedAvg().client_step(make_client(FedAvg(), data, MODEL, round=3), model_part(message), {})
    assert_same(reply.tensors, plain.tensors)
    assert torch.equal(method.predict(client, message), MODEL.predict(message, client.prepared.inputs))


def test_a_generator_that_misses_many_mends_every_node() -> None:
    """softplus(1) = 1.31 is one neighbour each, so that training and predictions are others."""
    method, data = FedSagePlus(), toy_client()
    message = {
        **started(method),
        "generator.number.weight": torch.zeros(8, 1),
        "generator.number.bias": torch.ones(1),
        "mending": torch.ones(1),
    }
    client = make_client(method, data, MODEL, round=3)
    inputs = method._inputs(client, message)
    assert inputs.operator.shape == (48, 48)
    assert method._inputs(client, dict(message)) is inputs  # the same generator mends the graph once
    assert method.predict(client, message).shape == (24, 3)
    assert not torch.equal(method.predict(client, message), MODEL.predict(message, client.prepared.inputs))
    rows, labels, _ = method.classifier_reads(client, message)
    told = method.predict(client, message)[data.train_mask]
    torch.testing.assert_close(MODEL.classify(message, rows), told, atol=1e-5, rtol=1e-5)
    assert torch.equal(labels, data.graph.y[data.train_mask])
    off = {**message, "mending": torch.zeros(1)}
    assert method._inputs(client, off) is client.prepared.inputs


def test_the_greedy_distance_by_hand() -> None:
    """Slot 0 with true neighbours 1 and 3: 1. Slot 2.9: .01. Both: .505. No slot: 0."""
    wanted = torch.tensor([[[1.0], [3.0]]])
    assert float(greedy(torch.tensor([[0.0]]), wanted)) == pytest.approx(1.0)
    assert float(greedy(torch.tensor([[2.9]]), wanted)) == pytest.approx(0.01, abs=1e-6)
    both = greedy(torch.tensor([[0.0], [2.9]]), wanted.repeat(2, 1, 1))
    assert float(both) == pytest.approx(0.505, abs=1e-6)
    assert float(greedy(torch.empty(0, 1), torch.empty(0, 2, 1))) == 0.0


def lost(number: float) -> Lost:
    """One training node with so many hidden neighbours, of which none is looked at."""
    one = torch.tensor([0])
    return Lost(
        torch.zeros(1, 2), torch.tensor([number]), one, one, torch.zeros(1, 1, dtype=torch.int64),
        torch.tensor([False]), torch.zeros(1, 2),
    )  # fmt: skip


@pytest.mark.parametrize(("said", "true", "loss"), [(0.5, 0.0, 0.125), (3.0, 1.0, 1.5)])
def test_the_loss_of_the_number_by_hand(said: float, true: float, loss: float) -> None:
    """Smooth L1: ½ · .5² and 2 - ½. Centres (1, 1) and (3, 3) add the mean square of the nearer: 1."""
    method: Any = FedSagePlus(slots=1)
    params = {
        "generator.in": torch.zeros(2, 3),
        "generator.number.weight": torch.zeros(3, 1),
        "generator.number.bias": torch.tensor([math.log(math.expm1(said))]),
        "generator.out": torch.zeros(3, 2),
    }
    assert float(method._generator_loss(lost(true), [])(params)) == pytest.approx(loss, abs=1e-5)
    centres = [torch.tensor([[1.0, 1.0], [3.0, 3.0]])]
    assert float(method._generator_loss(lost(true), centres)(params)) == pytest.approx(loss + 1, abs=1e-5)
    twice = method._generator_loss(lost(true), [*centres, torch.full((2, 2), 3.0)])
    assert float(twice(params)) == pytest.approx(loss + (1 + 9) / 2, abs=1e-5)


@pytest.mark.parametrize("hide", ["val", "unlabelled"])
def test_hidden_neighbours_are_those_of_nodes_that_do_not_train(hide: Any) -> None:
    """All of them are hidden: what a training node misses is its neighbours among them."""
    method, data = FedSagePlus(hidden_share=1.0, hide=hide, slots=3), toy_client()
    client = make_client(method, data, MODEL)
    found = method._lost(client)
    hidden = data.val_mask if hide == "val" else ~data.train_mask
    adj = torch.from_numpy(client.prepared.adj.toarray())
    number = adj[data.train_mask] @ hidden.to(torch.float32)
    assert torch.equal(found.number, number)
    train = data.train_mask.nonzero().reshape(-1)
    for place in range(len(found.node)):
        node = int(found.node[place])
        true = set((adj[train[node]].bool() & hidden).nonzero().reshape(-1).tolist())
        assert bool(found.found[place]) == bool(true)
        if true:
            told = set(found.candidates[place].tolist())
            assert told <= true
            assert len(told) == min(len(true), 3)
    slots = torch.bincount(found.node, minlength=len(train))
    assert slots.tolist() == number.clamp(1, 3).to(torch.int64).tolist()
    lonely = FedSagePlus(hidden_share=0.01)._lost(client)
    assert not bool(lonely.found.any())


def test_the_generator_learns() -> None:
    method, data = FedSagePlus(hide="unlabelled", cross="none"), toy_client(nodes=60)
    client = make_client(method, data, MODEL, Training(epochs=40, lr=0.02), last_round=20)
    message = started(method)
    loss: Any = method._generator_loss(method._lost(client), [])
    reply, _ = method.client_step(client, message, {})
    after = with_prefix(reply.tensors, "generator.")
    assert float(loss(after)) < 0.8 * float(loss(message))


def test_centres_go_to_all_others_while_the_generator_trains() -> None:
    """10 rounds: the generator trains in the first 5. Nobody is sent its own centres."""
    method, clients = FedSagePlus(), toy_clients()
    rounds, _ = run_rounds(method, clients, rounds=10)
    names = [sorted(with_prefix(each.tensors, "centre.")) for each in rounds]
    assert names == [["centre.0", "centre.1", "centre.2"]] * 4 + [[]] * 6
    assert sorted(with_prefix(method.message(rounds[0].tensors, 1), "centre.")) == ["centre.0", "centre.2"]
    assert rounds[0].tensors["centre.0"].shape == (CENTRES, 6)
    assert [float(each.tensors["mending"]) for each in rounds] == [0.0] * 4 + [1.0] * 6
    for each in rounds[5:]:
        assert_same(with_prefix(each.tensors, "generator."), with_prefix(rounds[4].tensors, "generator."))
    assert method.complete_from(10) == 6
    quiet, _ = run_rounds(FedSagePlus(cross="none"), clients)
    assert not with_prefix(quiet[0].tensors, "centre.")
    assert "hands each client's centres" in method.needs_single_replies
    assert FedSagePlus(cross="none").needs_single_replies == ""


def test_other_nodes_are_hidden_in_each_round() -> None:
    method, data = FedSagePlus(hide="unlabelled"), toy_client(nodes=60)
    client = make_client(method, data, MODEL)
    first, again, later = (
        method._lost(each).number.numpy() for each in (client, client, replace(client, round=2))
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, later)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"slots": -1}, "generator_rounds is 10 and slots is -1; give 0 or more"),
        ({"hidden_share": 0.0}, "hidden_share is 0.0; it must lie in"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadConfig, match=reason):
        FedSagePlus(**settings)
