"""Noise on sums: whole numbers, the right distribution, and a bound on what one client can change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import chi2, norm

import fedepd
from fedepd.errors import BadConfig
from fedepd.methods import make_method
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.privacy.secure_sum import threshold
from fedepd.rounds import noise
from fedepd.rounds.budget import Budget, delta_of
from fedepd.rounds.guard import Privacy
from fedepd.rounds.noise import ONE, deviation, normal, shares, shortened, step_of, whole_noise
from fedepd.rounds.participant import Participant
from fedepd.rounds.sums import CannotSum, Vector
from fedepd.types import ClientData, TaskInfo, Tensors
from toy import CLASSES, initial, make_server, toy_client, toy_clients

NOISY = Privacy(secure=True, dp_epsilon=8.0, dp_clip=0.5)
BUDGET = Budget(8.0, 1e-5, 0.5, 3)
Floats = NDArray[np.float64]


# --- the drawn numbers --------------------------------------------------------------------------------------


def test_drawn_numbers_are_normal() -> None:
    """Chi-square over 50 cells of equal chance. A right sampler fails once in a billion runs."""
    count, cells = 400_000, 50
    drawn = normal(count)
    found = np.bincount((norm.cdf(drawn) * cells).astype(int).clip(0, cells - 1), minlength=cells)
    assert ((found - count / cells) ** 2 / (count / cells)).sum() < chi2.ppf(1 - 1e-9, cells - 1)


def test_drawn_numbers_reach_far_out() -> None:
    """Beyond 4 deviations lie 6.3e-5 of them: 253 of 4 million, with a deviation of 16. Six of these either
    way."""
    far = int((np.abs(normal(4_000_000)) > 4).sum())
    assert 253 - 6 * 16 < far < 253 + 6 * 16


def test_whole_noise_has_the_moments_that_were_asked_for() -> None:
    """The mean of N numbers has deviation s / sqrt(N), their variance s^2 sqrt(2 / N). Six of these either
    way: once in half a billion."""
    count, s = 200_000, 3e7
    drawn = whole_noise(count, s, step_of(s)).astype(np.float64)
    assert abs(drawn.mean()) < 6 * s / math.sqrt(count)
    assert abs(drawn.var() / s**2 - 1) < 6 * math.sqrt(2 / count)


@pytest.mark.parametrize("s", [16.0, 70_000.0, 3e7, 1e12])
def test_noise_is_a_multiple_of_a_step_that_is_far_smaller(s: float) -> None:
    step = step_of(s)
    assert step & (step - 1) == 0
    assert step == 1 or noise.STEPS <= s / step < 2 * noise.STEPS
    assert not (whole_noise(1000, s, step) % step).any()


def test_noise_does_not_come_from_a_seed() -> None:
    torch.manual_seed(0)
    np.random.seed(0)
    first = whole_noise(10, 1e6, 1)
    torch.manual_seed(0)
    np.random.seed(0)
    assert (first != whole_noise(10, 1e6, 1)).any()


# --- why the exact formula holds for rounded numbers --------------------------------------------------------


def chances(s: float) -> Floats:
    """The chance of every whole number from -n to n as a rounded normal number, n = 14 deviations.

    Each is taken on the side where both ends are small, so that no digits are lost.
    """
    ends = np.arange(0, math.ceil(14 * s) + 1) + 0.5
    positive = norm.sf(ends - 1, scale=s) - norm.sf(ends, scale=s)
    middle = 1 - 2 * norm.sf(0.5, scale=s)
    out: Floats = np.concatenate([positive[:0:-1], [middle], positive[1:]])
    return out


@pytest.mark.parametrize("clients", [1, 2, 7])
@pytest.mark.parametrize("shift", [1, 16, 60])
def test_a_sum_of_rounded_numbers_gives_away_no_more_than_a_normal_one(clients: int, shift: int) -> None:
    """The exact delta of two neighbouring sums is at most that of the formula, at the coarsest step allowed.

    It is computed from the chances of every sum, so it owes nothing to the argument in ``noise``. 1e-13 is
    for rounding: 7 convolutions of numbers that are right to 1e-16.
    """
    s = float(noise.FEWEST_STEPS)
    one = chances(s)
    summed = one
    for _ in range(clients - 1):
        summed = np.convolve(summed, one)
    padded = np.concatenate([np.zeros(shift), summed])
    moved = np.concatenate([summed, np.zeros(shift)])
    for epsilon in (0.0, 0.1, 1.0, 3.0):
        exact = float(np.maximum(0, padded - math.exp(epsilon) * moved).sum())
        assert exact <= delta_of(shift / (s * math.sqrt(clients)), epsilon) + 1e-13
    assert float(np.maximum(0, padded - moved).sum()) > 0.9 * delta_of(shift / (s * math.sqrt(clients)), 0)


# --- what one client can change -----------------------------------------------------------------------------


def exact_norm_squared(vector: Vector) -> int:
    return sum(int(each) ** 2 for each in vector)


@pytest.mark.parametrize("size", [1, 2, 1000, 100_000])
@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e5, 1e30])
@pytest.mark.parametrize("clip", [1e-3, 0.3, 1.0, 100.0])
def test_no_update_is_longer_than_the_clip_not_even_by_rounding(size: int, scale: float, clip: float) -> None:
    """In whole numbers, without rounding: the sum of squares is at most (clip 2^24)^2."""
    draws = np.random.default_rng(size)
    for values in (
        draws.normal(size=size) * scale,
        np.full(size, clip / math.sqrt(size)),
        np.full(size, scale),
    ):
        for step in (1, 2**10):
            cut = shortened(values, clip, step)
            assert exact_norm_squared(cut) <= (clip * ONE) ** 2
            assert not (cut % step).any()


def test_a_short_update_loses_less_than_a_step_and_a_long_one_keeps_its_direction() -> None:
    values = np.random.default_rng(0).normal(size=500) * 1e-3
    assert float(np.abs(shortened(values, 1.0, 64) - values * ONE).max()) < 64
    long = shortened(values * 1e6, 1.0, 1)
    assert exact_norm_squared(long) > (0.999 * ONE) ** 2
    assert np.corrcoef(long, values)[0, 1] > 1 - 1e-9


def test_an_update_of_just_the_clip_is_shortened_by_the_slack() -> None:
    """2^24 (1 - 2^-26), cut to a whole number, is 2^24 - 1."""
    assert shortened(np.array([1.0]), 1.0, 1).tolist() == [ONE - 1]


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_an_update_that_is_no_number_counts_as_none(wrong: float) -> None:
    assert not shortened(np.array([1.0, wrong]), 1.0, 1).any()


def participants(
    name: str, clients: list[ClientData], shows_test: bool = True
) -> tuple[list[Participant], Tensors]:
    method, model, training = make_method(name), Backbone(hidden=16), Training(epochs=1, lr=0.1)
    server = make_server(clients, model, training)
    info = TaskInfo(server.info.num_features, CLASSES, len(clients))
    made = [Participant(method, c, info, model, training, 0, 3, NOISY, shows_test) for c in clients]
    return made, method.message(initial(method, server), 0)


@pytest.mark.parametrize("name", ["fedepd", "fedavg", "fedlc"])
def test_clients_differ_by_their_shortened_updates_and_by_nothing_else(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its noise, the vector of any client is the one of a client that changed nothing, plus at most
    the clip.

    The clients have other nodes, sizes and classes; one has no training node at all. The learning rate makes
    all updates of the others longer than the clip.
    """
    monkeypatch.setattr(noise, "whole_noise", lambda count, *_: np.zeros(count, dtype=np.int64))
    empty = toy_client(3, 9)
    none = torch.zeros_like(empty.train_mask)
    clients = [*toy_clients(2), toy_client(2, 24, one_node_class=True)]
    clients.append(ClientData(3, empty.graph, none, empty.val_mask, empty.test_mask, empty.global_ids))
    made, message = participants(name, clients)
    vectors = [p.step_vector(1, message) for p in made]
    idle = vectors[-1]
    lengths = [exact_norm_squared(v - idle) / (0.5 * ONE) ** 2 for v in vectors]
    assert all(0.99 < each <= 1 for each in lengths[:-1])
    assert made[0].sizes.num_nodes == made[2].sizes.num_nodes == 1
    assert not any(p.sizes.train.any() for p in made)


def test_without_a_training_node_the_update_is_zero() -> None:
    """So the vector of the last test's idle client is what all clients have in common."""
    data = toy_client(0, 9)
    none = torch.zeros_like(data.train_mask)
    clients = [
        ClientData(0, data.graph, none, data.val_mask, data.test_mask, data.global_ids),
        *toy_clients(3)[1:],
    ]
    (first, *_), message = participants("fedavg", clients)
    reply = first.step(1, message)
    assert all(torch.equal(reply.tensors[name], message[name]) for name in message)


def test_the_same_client_never_sends_the_same_vector() -> None:
    """Also not in a round that is repeated: so a repetition is one more sum of the budget."""
    (first, *_), message = participants("fedavg", toy_clients(3))
    (again, *_), _ = participants("fedavg", toy_clients(3))
    vectors = [each.step_vector(1, message) for each in (first, again)]
    parameters = sum(value.numel() for value in message.values())
    assert int((vectors[0] != vectors[1]).sum()) > 0.99 * parameters


def test_the_noise_in_a_clients_vector_is_its_share() -> None:
    """3 clients: two shares are enough, each of variance (multiplier * clip)^2 / 2. Six deviations either
    way."""
    (first, *_), message = participants("fedavg", toy_clients(3))
    (again, *_), _ = participants("fedavg", toy_clients(3))
    change = (first.step_vector(1, message) - again.step_vector(1, message)).astype(np.float64)
    change = change[change != 0]  # constants differ by 0
    wanted = 2 * (BUDGET.multiplier * BUDGET.clip * ONE) ** 2 / 2
    assert abs((change**2).mean() / wanted - 1) < 6 * math.sqrt(2 / len(change))


# --- shares, and what a site keeps --------------------------------------------------------------------------


def test_the_noise_is_enough_for_one_client_fewer_than_finish_a_sum() -> None:
    for clients in range(3, 1001):
        assert shares(clients) == threshold(clients) - 1
        whole = deviation(BUDGET, clients) ** 2 * shares(clients)
        assert whole == pytest.approx((BUDGET.multiplier * BUDGET.clip * ONE) ** 2)


def test_a_site_sends_no_scores_and_no_sizes() -> None:
    (site, *_), message = participants("fedavg", toy_clients(3), shows_test=False)
    assert not site.matrices_vector(1, message).any()
    assert site.evaluate(1, message)["global_test"].any()  # it has them itself
    assert site.sizes_vector().tolist() == [0] * (4 * CLASSES) + [1, 1, 1]


def test_a_client_stops_by_itself_when_its_budget_is_spent() -> None:
    """Three rounds are three sums. A server that asks for a fourth, of whatever number, gets none."""
    (first, *_), message = participants("fedavg", toy_clients(3))
    for number in (1, 1, 2):
        first.step_vector(number, message)
    with pytest.raises(BadConfig, match="the privacy budget is spent: 3 of 3"):
        first.step_vector(3, message)


def test_noise_that_no_sum_can_hold_is_refused() -> None:
    (first, *_), message = participants("fedavg", toy_clients(3))
    first.privacy = Privacy(secure=True, dp_epsilon=0.01, dp_delta=1e-15, dp_clip=100.0)
    first.last_round = 10**14
    with pytest.raises(CannotSum, match="has noise that is too large to be summed; lower dp_clip"):
        first.step_vector(1, message)


# --- refusals -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"secure": False}, "without secure, but noise is shared among the clients of a sum"),
        ({"guard": True}, "with guard, but the guard counts nodes and holders without noise"),
        ({"dp_epsilon": 0}, "dp_epsilon is 0; give a number from 0.01 to 1000"),
        ({"dp_epsilon": 1e4}, "dp_epsilon is 10000; give"),
        ({"dp_delta": 0.5}, "dp_delta is 0.5; give"),
        ({"dp_clip": 0.0}, "dp_clip is 0; give"),
        ({"dp_delta": 0.1, "clients": 10}, "dp_delta is 0.1 with 10 clients in a round"),
        (
            {"select": "val_acc"},
            "select is val_acc, and validation scores of single rounds are not in the budget",
        ),
        ({"backbone": "auto"}, "it is chosen by counts of training labels, which the budget"),
        ({"clients": 10, "participation": 0.2}, "it needs 3"),
        ({"method": "centralised"}, "1 clients take part in a round"),
        ({"method": "isolated"}, "the clients of Isolated send no model"),
        ({"method": "fedproto"}, "FedProto cannot do without prototype.count, which is not sent"),
        ({"method": "creff"}, "CReFF cannot do without gradient.bias"),
        ({"method": "fedspray"}, "FedSpray cannot do without proxy."),
        ({"method": "lws"}, "cannot do without owned"),
    ],
)
def test_what_noise_cannot_cover_is_refused_in_one_sentence(settings: dict[str, Any], reason: str) -> None:
    usual = {"method": "fedavg", "rounds": 2, "secure": True, "dp_epsilon": 8, "select": "last", "clients": 4}
    with pytest.raises(BadConfig, match=reason):
        fedepd.run("synthetic", **{**usual, **settings})


def test_a_clip_too_small_for_whole_numbers_is_refused() -> None:
    """A deviation of 16 of the smallest whole numbers is the least: 0.02 * 0.001 * 2^24 / sqrt(666) = 13."""
    budget = Budget(1000.0, 0.0009, 1e-3, 1)
    tensors = {"encoder.weight": torch.zeros(2, 2)}
    fields = fedepd.types.same_fields(tensors)
    with pytest.raises(BadConfig, match=r"dp_clip is 0\.001, which is too little for whole numbers"):
        noise.check_noise(budget, make_method("fedavg"), fields, tensors, 1000, "last")


@pytest.mark.parametrize("name", ["dp_delta", "dp_clip"])
def test_settings_of_noise_are_idle_without_it(name: str) -> None:
    settings: dict[str, Any] = {"secure": True, name: 0.01}
    with pytest.raises(BadConfig, match=f"{name} is 0.01, but with dp_epsilon = None it changes nothing"):
        fedepd.Experiment.make("fedavg", **settings)
