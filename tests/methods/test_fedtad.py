from __future__ import annotations

from math import exp, sqrt
from typing import Any

import pytest
import torch

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedtad import (
    LINKS,
    FedTAD,
    dealt,
    generated,
    likeness,
    node_weights,
    pseudo_graph,
    reliance,
)
from fedepd.methods.steps import class_counts, model_part, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.sparse import to_scipy
from fedepd.network.training import Training
from fedepd.types import Reply, Tensors
from toy import assert_same, initial, make_client, make_server, run_rounds, toy_client, toy_clients

LEAN = Backbone(hidden=4)


def test_without_server_epochs_it_is_fedavg_bit_for_bit() -> None:
    mine, exchange = run_rounds(FedTAD(server_epochs=0), toy_clients(), model=LEAN)
    theirs, other = run_rounds(FedAvg(), toy_clients(), model=LEAN)
    assert_same(model_part(mine[-1].tensors), theirs[-1].tensors)
    for k in range(3):
        assert_same(exchange.participants[k].state, other.participants[k].state)


def test_one_teacher_teaches_nothing_new() -> None:
    """Student and teacher are the same bits, sign(0) = 0, and Adam makes no step of zero gradients."""
    mine, _ = run_rounds(FedTAD(), [toy_client()], model=LEAN)
    theirs, _ = run_rounds(FedAvg(), [toy_client()], model=LEAN)
    assert_same(model_part(mine[-1].tensors), theirs[-1].tensors)


def test_several_teachers_move_the_classifier_alone() -> None:
    """25 steps of Adam, rate 1e-3: no weight moves by more than .025, and a bit for Adam's first steps."""
    clients = toy_clients()
    mine, _ = run_rounds(FedTAD(), clients, rounds=1, model=LEAN)
    theirs, _ = run_rounds(FedAvg(), clients, rounds=1, model=LEAN)
    found, average = mine[0].tensors, theirs[0].tensors
    assert torch.equal(found["encoder.weight"], average["encoder.weight"])
    moved = (found["classifier.weight"] - average["classifier.weight"]).abs()
    assert 1e-3 < float(moved.max()) < 0.026


def teaching(phi: list[list[float]], logits: list[float], **settings: Any) -> tuple[Tensors, Tensors]:
    """The server's tensors before and after a round with teachers that say constant logits.

    All weights are 0, so that logits are biases.
    """
    data, method = toy_clients(len(phi)), FedTAD(**settings)
    server = make_server(data, LEAN, Training())
    start = initial(method, server)
    model = {name: torch.zeros_like(value) for name, value in model_part(start).items()}
    replies = {
        k: Reply(
            {**model, "classifier.bias": torch.full((3,), bias), "reliability": torch.tensor(trust)}, 1, 1
        )
        for k, (trust, bias) in enumerate(zip(phi, logits, strict=True))
    }
    return start, method.server_step(server, start, replies)


def test_a_class_listens_to_who_is_reliable_for_it() -> None:
    """The average bias is 0, teachers say -1 and 1, and one of them alone is reliable.

    The student goes to that one: 25 steps of about 1e-3, with both distances.
    """
    for distance in ("l1", "l2"):
        for phi, sign in (([[1.0] * 3, [0.0] * 3], -1), ([[0.0] * 3, [1.0] * 3], 1)):
            _, after = teaching(phi, [-1.0, 1.0], distance=distance)
            assert (sign * after["classifier.bias"]).tolist() == pytest.approx([0.025] * 3, abs=3e-3)


def test_nobody_is_reliable() -> None:
    """Then nothing is distilled, and the generator stays as it is."""
    start, after = teaching([[0.0] * 3] * 2, [-1.0, 1.0])
    assert after["classifier.bias"].tolist() == [0.0] * 3
    assert_same(with_prefix(after, "generator."), with_prefix(start, "generator."))


def test_a_class_that_nobody_has_is_left_out() -> None:
    """No pseudo node, no NaN; its weights get no gradient but through the others' nodes."""
    _, after = teaching([[1.0, 1.0, 0.0], [1.0, 3.0, 0.0]], [-1.0, 1.0])
    assert all(bool(value.isfinite().all()) for value in after.values())


def test_shares_over_clients() -> None:
    """φ = 5/3 and 1/3: β = 5/6 and 1/6. Nobody has class 1."""
    found = reliance(torch.tensor([[5 / 3, 0.0], [1 / 3, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([[5 / 6, 0.0], [1 / 6, 0.0]]))


def test_pseudo_labels_are_dealt_in_turn() -> None:
    """100 nodes of 40 classes: the first 20 three times. 167 classes: 334 nodes, two each."""
    assert torch.bincount(dealt(torch.arange(40))).tolist() == [3] * 20 + [2] * 20
    assert torch.bincount(dealt(torch.arange(167))).tolist() == [2] * 167
    assert sorted(set(dealt(torch.tensor([1, 3])).tolist())) == [1, 3]


def test_distances_by_hand() -> None:
    """β = (1, 0), the student 1 above teacher 1 everywhere: L_D = 1, and 1 for each of two classes."""
    method, labels = FedTAD(), torch.tensor([0, 0, 1])
    weights = node_weights(torch.tensor([[1.0, 0.0], [0.0, 0.0]]), labels)
    taught = torch.stack([torch.zeros(3, 2), torch.full((3, 2), 9.0)]).requires_grad_()
    loss = method._apart(torch.ones(3, 2), taught, weights)
    assert float(loss.detach()) == pytest.approx(1.0)
    assert not bool(torch.autograd.grad(loss, taught)[0][1].any())
    both = node_weights(torch.tensor([[1.0, 1.0], [0.0, 0.0]]), labels)
    assert float(method._apart(torch.ones(3, 2), taught.detach(), both)) == pytest.approx(2.0)


def test_likeness_by_hand() -> None:
    """|z_i - z_j|² / 32 = 1 and |g_i - g_j|₁ / h = 2 for one pair, which counts twice of four: exp(-1)."""
    noise = torch.zeros(2, 32)
    noise[1, 0] = sqrt(32)
    rows = torch.tensor([[0.0, 0.0], [3.0, 1.0]])
    assert float(likeness(noise, rows)) == pytest.approx(exp(-1), abs=1e-6)
    assert float(likeness(noise, torch.ones(2, 2))) == 1.0


def test_pseudo_nodes_are_linked_to_those_like_them() -> None:
    """Two groups of six nodes at right angles: no link between them, and four others each."""
    rows = torch.cat([torch.tensor([[1.0, 0.0]]).repeat(6, 1), torch.tensor([[0.0, 1.0]]).repeat(6, 1)])
    operator = to_scipy(pseudo_graph(LEAN, rows, 3).operator.matrix).tocoo()
    assert bool((operator.row // 6 == operator.col // 6).all())
    assert int((operator.tocsr() > 0).sum(1).min()) >= LINKS


def test_the_generator_learns_its_classes() -> None:
    """With the teachers' loss alone, their cross-entropy on the pseudo nodes falls."""
    method = FedTAD(server_epochs=60, diverse=0.0, student_steps=0, generator_lr=0.01)
    clients = toy_clients(2)
    server = make_server(clients, LEAN, Training())
    start = initial(method, server)
    head = {**model_part(start), "classifier.weight": torch.eye(4)[:, :3].contiguous()}
    reply = Reply({**head, "reliability": torch.ones(3)}, 1, 1)
    after = method.server_step(server, start, {0: reply, 1: reply})
    labels, noise = torch.arange(30) % 3, torch.randn(30, 32, generator=torch.Generator().manual_seed(0))
    right = []
    for tensors in (start, after):
        rows = generated(tensors, noise, labels)
        inputs = pseudo_graph(LEAN, rows, 3)
        right.append(float((LEAN.logits(head, rows, inputs).argmax(1) == labels).float().mean()))
    assert right[1] > 0.9 > right[0]


def test_what_is_sent() -> None:
    method, data = FedTAD(reliable_by="counts"), toy_client()
    client = make_client(method, data, LEAN)
    answer, _ = method.client_step(client, client.model.initial(client.info, 0), {})
    assert torch.equal(answer.tensors["reliability"], class_counts(data.hidden()).float())
    assert not torch.equal(
        make_client(FedTAD(), data, LEAN).prepared.reliability, answer.tensors["reliability"]
    )


@pytest.mark.parametrize("wrong", [{"server_epochs": -1}, {"student_lr": 0.0}, {"diverse": float("nan")}])
def test_impossible_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(BadConfig, match=next(iter(wrong))):
        FedTAD(**wrong)
