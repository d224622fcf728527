from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from fedepd.errors import BadConfig
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.lws import LWS, balanced_loss
from fedepd.methods.steps import class_counts, class_mean, model_part
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from toy import assert_same, make_client, run_rounds, toy_client, toy_clients


@pytest.mark.parametrize(
    ("share", "last_round", "stage_one"),
    [
        (0.05, 200, 190),
        (0.05, 100, 95),
        (0.05, 10, 9),
        (0.05, 2, 1),
        (0.05, 1, 1),
        (0.5, 7, 3),
        (0.99, 3, 1),
        (0.0, 50, 50),
    ],
)
def test_the_last_rounds_learn_the_scales(share: float, last_round: int, stage_one: int) -> None:
    """5 % of 200 is 10; of 10 it is a half, but one round at least.

    Stage one keeps one round. A run of one round has no stage two.
    """
    assert LWS(stage_two=share).stage_one_rounds(last_round) == stage_one


@pytest.mark.parametrize("sparse", [False, True])
def test_without_a_second_stage_it_is_fedavg(sparse: bool) -> None:
    clients = toy_clients(sparse=sparse)
    ours, ours_exchange = run_rounds(LWS(stage_two=0.0), clients, rounds=4)
    theirs, theirs_exchange = run_rounds(FedAvg(), clients, rounds=4)
    assert_same(model_part(ours[-1].tensors), theirs[-1].tensors)
    assert ours[-1].tensors["scale"].tolist() == [1.0, 1.0, 1.0]
    for k, participant in theirs_exchange.participants.items():
        assert_same(model_part(ours_exchange.participants[k].state), model_part(participant.state))
    by_ours, by_theirs = ours[-1].confusions, theirs[-1].confusions
    assert by_ours is not None
    assert by_theirs is not None
    for ours_client, theirs_client in zip(by_ours.values(), by_theirs.values(), strict=True):
        assert_same(ours_client, theirs_client)


def test_the_second_stage_leaves_the_model_alone() -> None:
    """6 rounds, half of them stage two: from round 3 on only the scales move, weight decay or not."""
    for method in (LWS(stage_two=0.5), LWS(stage_two=0.5, optimizer_own=True)):
        rounds, exchange = run_rounds(method, toy_clients(), rounds=6)
        for each in rounds[3:]:
            assert_same(model_part(each.tensors), model_part(rounds[2].tensors))
        scales = [each.tensors["scale"] for each in rounds[2:]]
        assert scales[0].tolist() == [1.0, 1.0, 1.0]
        assert all(not torch.equal(a, b) for a, b in pairwise(scales))
        # A personal model of stage two is the averaged model with the client's own scales.
        for participant in exchange.participants.values():
            assert not model_part(participant.state)
            assert participant.state["scale"].shape == (3,)


def test_balanced_counts_give_plain_cross_entropy() -> None:
    z, y = torch.randn(12, 3, generator=torch.Generator().manual_seed(3)), torch.arange(12) % 3
    loss = balanced_loss(torch.ones(3), z, y, torch.tensor([4, 4, 4]))
    assert float(loss) == pytest.approx(float(F.cross_entropy(z, y)), abs=1e-6)


@given(st.lists(st.integers(0, 2), min_size=1, max_size=12), st.integers(0, 10**6))
def test_every_present_class_weighs_the_same(labels: list[int], seed: int) -> None:
    """L = 1/|P| Σ_{c in P} (mean cross-entropy of the nodes of c), written out class by class."""
    y = torch.tensor(labels)
    z = torch.randn(len(labels), 3, generator=torch.Generator().manual_seed(seed))
    scale = torch.tensor([0.5, 1.0, 2.0])
    means = [F.cross_entropy(scale * z[y == c], y[y == c]) for c in range(3) if bool((y == c).any())]
    loss = balanced_loss(scale, z, y, torch.bincount(y, minlength=3))
    assert float(loss) == pytest.approx(float(torch.stack(means).mean()), rel=1e-4, abs=1e-5)


def test_gradient_by_hand() -> None:
    """One node of each class, z = (1, -1) for both, p_0 = e / (e + 1/e) = .8808.

    dL/df_0 = ½ (p_0 - 1) + ½ p_0 = p_0 - ½ = .3808.
    """
    scale = torch.ones(2, requires_grad=True)
    z = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    (grad,) = torch.autograd.grad(balanced_loss(scale, z, torch.tensor([0, 1]), torch.tensor([1, 1])), scale)
    assert float(grad[0]) == pytest.approx(0.3808, abs=1e-4)
    assert float(grad[0]) == pytest.approx(math.e / (math.e + 1 / math.e) - 0.5, abs=1e-6)


def test_the_scale_of_an_absent_class_stays() -> None:
    scale = torch.ones(3, requires_grad=True)
    z = torch.tensor([[1.0, -1.0, 5.0], [0.5, 2.0, 4.0]])
    (grad,) = torch.autograd.grad(
        balanced_loss(scale, z, torch.tensor([0, 1]), torch.tensor([1, 1, 0])), scale
    )
    assert float(grad[2]) == 0.0
    assert float(grad[:2].abs().min()) > 0
    rounds, exchange = run_rounds(
        LWS(stage_two=0.5), [toy_client(0, missing_class=True), toy_client(1)], rounds=4
    )
    assert float(exchange.participants[0].state["scale"][2]) == float(rounds[2].tensors["scale"][2])


def test_first_scale_step_by_hand() -> None:
    """Adam's first step moves every scale by lr against the sign of its gradient: 1 ± .01.

    Nothing else is sent.
    """
    data, model, method = toy_client(), Backbone(hidden=8), LWS()
    client = make_client(method, data, model, Training(epochs=1), round=3, last_round=3)
    message = {**model.init(client.info, torch.Generator().manual_seed(0)), "scale": torch.ones(3)}
    reply, _ = method.client_step(client, message, {})
    scale = torch.ones(3, requires_grad=True)
    z = model.predict(message, client.prepared)[data.train_mask]
    loss = balanced_loss(scale, z, data.graph.y[data.train_mask], class_counts(data))
    (grad,) = torch.autograd.grad(loss, scale)
    assert set(reply.tensors) == {"scale", "owned"}
    assert reply.scalars["loss"] == pytest.approx(float(loss.detach()), abs=1e-6)
    torch.testing.assert_close(reply.tensors["scale"], 1 - 0.01 * grad.sign(), rtol=0, atol=1e-5)
    assert torch.equal(reply.tensors["owned"], class_counts(data).to(torch.float32))


def test_own_optimizer_decays_by_half_a_cosine() -> None:
    """Stage two of 2 rounds: rates .2 (1 + cos 0)/2 = .2 and .2 (1 + cos π/2)/2 = .1.

    One SGD step: f - rate (gradient + 5e-4 f).
    """
    data, model, method = (
        toy_client(),
        Backbone(hidden=8),
        LWS(stage_two=0.5, optimizer_own=True, nonnegative=False),
    )
    for number, rate in ((3, 0.2), (4, 0.1)):
        client = make_client(method, data, model, Training(epochs=1), round=number, last_round=4)
        message = {**model.init(client.info, torch.Generator().manual_seed(0)), "scale": torch.ones(3)}
        reply, _ = method.client_step(client, message, {})
        scale = torch.ones(3, requires_grad=True)
        z = model.predict(message, client.prepared)[data.train_mask]
        (grad,) = torch.autograd.grad(
            balanced_loss(scale, z, data.graph.y[data.train_mask], class_counts(data)), scale
        )
        torch.testing.assert_close(reply.tensors["scale"], 1 - rate * (grad + 5e-4), rtol=0, atol=1e-6)


def test_scales_stay_nonnegative_on_request() -> None:
    clients, training = toy_clients(), Training(lr=2.0)
    kept, _ = run_rounds(LWS(stage_two=0.5), clients, rounds=6, training=training)
    free, _ = run_rounds(LWS(stage_two=0.5, nonnegative=False), clients, rounds=6, training=training)
    assert min(float(r.tensors["scale"].min()) for r in kept) >= 0
    assert min(float(r.tensors["scale"].min()) for r in free) < 0


def test_class_mean_by_hand() -> None:
    """Class 0: (1·2 + 3·4)/4 = 3.5.

    Class 1: only the second client has it, 6. Class 2: nobody, the old 9 stays.
    """
    old = torch.tensor([7.0, 8.0, 9.0])
    pairs = [
        (torch.tensor([2.0, 5.0, 1.0]), torch.tensor([1.0, 0.0, 0.0])),
        (torch.tensor([4.0, 6.0, 1.0]), torch.tensor([3.0, 2.0, 0.0])),
    ]
    assert class_mean(old, pairs).tolist() == [3.5, 6.0, 9.0]
    stacked = class_mean(old[:, None].expand(3, 2), [(v[:, None].expand(3, 2), w) for v, w in pairs])
    assert stacked.tolist() == [[3.5, 3.5], [6.0, 6.0], [9.0, 9.0]]


@pytest.mark.parametrize(
    ("averaging", "fields"),
    [("counts", {"scale", "owned"}), ("uniform", {"scale", "owned"}), ("naive", {"scale"})],
)
def test_what_crosses(averaging: Any, fields: set[str]) -> None:
    """C = 3, three clients: up 3·4·|Θ|, then 3·8·C (3·4·C naive); down always 3·4·(|Θ| + C)."""
    rounds, _ = run_rounds(LWS(averaging=averaging), toy_clients(), rounds=2)
    model_bytes = 4 * (6 * 8 + 8 + 8 * 3 + 3)
    assert sum(rounds[0].bytes_up.values()) == 3 * model_bytes
    assert set(rounds[1].bytes_up) == fields
    assert sum(rounds[1].bytes_up.values()) == 3 * 4 * 3 * len(fields)
    assert all(sum(r.bytes_down.values()) == 3 * (model_bytes + 12) for r in rounds)
    assert not rounds[0].refused + rounds[1].refused


def test_a_class_that_nobody_has_keeps_scale_one() -> None:
    for averaging in ("counts", "uniform", "naive"):
        rounds, _ = run_rounds(
            LWS(stage_two=0.5, averaging=averaging), toy_clients(missing_class=True), rounds=4
        )
        assert float(rounds[-1].tensors["scale"][2]) == 1.0


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    "awkward", [{"train": False}, {"edges": False}, {"missing_class": True}, {"one_node_class": True}]
)
@pytest.mark.parametrize("participation", [0.5, 1.0])
def test_awkward_clients(awkward: dict[str, Any], sparse: bool, participation: float) -> None:
    """Half the clients a round: one may meet stage two without a round of stage one."""
    clients = [
        toy_client(0, sparse=sparse, **awkward),
        toy_client(1, sparse=sparse),
        toy_client(2, sparse=sparse, missing_class=True),
    ]
    rounds, _ = run_rounds(
        LWS(stage_two=0.6), clients, rounds=5, training=Training(participation=participation)
    )
    assert not any(each.refused for each in rounds)
    assert all(bool(value.isfinite().all()) for value in rounds[-1].tensors.values())


@pytest.mark.parametrize(
    "model", [Backbone(dropout=0.0, backbone="sage"), Backbone(dropout=0.0, head="linear")]
)
def test_both_stages_learn_with_every_backbone(model: Backbone) -> None:
    """Without the toy's random edges, which hide the classes.

    Both losses fall within their stage of 12 rounds.
    """
    rounds, _ = run_rounds(LWS(stage_two=0.5), toy_clients(edges=False), rounds=24, model=model)
    assert rounds[11].loss < 0.5 * rounds[0].loss
    assert rounds[-1].loss < rounds[12].loss


def test_bad_share_is_refused() -> None:
    with pytest.raises(BadConfig, match="stage_two is 1"):
        LWS(stage_two=1.0)
