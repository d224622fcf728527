"""The bytes that every method's docstring (and docs/methods.md) states are the bytes that the loop counts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fedepd.methods import METHODS, make_method
from fedepd.methods.steps import class_counts
from fedepd.network.backbones import Backbone
from toy import CLASSES, FEATURES, run_rounds, toy_client, toy_clients

HIDDEN = 8
C, D, H, W = CLASSES, FEATURES, HIDDEN, HIDDEN
MODEL = D * H + H + H * C + C  # |Θ|
DISCRIMINATOR = 385 * C + 33_152
GENERATOR = D * H + H + 1 + 5 * D * H
TAIL_GNN = MODEL + 2 * (4 * H * H + H) + C * H + 2 * H

Stated = Callable[[int, int], tuple[float, float]]
"""(round of 3, classes of the client) -> numbers down, numbers up."""

STATED: dict[str, Stated] = {
    "fedavg": lambda number, p: (MODEL, MODEL),
    "fedepd": lambda number, p: (MODEL + C * H + C + 2, MODEL + C * H + C + (2 if number == 1 else 0)),
    "fedproto": lambda number, p: (C * H + C,) * 2,
    "fedgta": lambda number, p: (MODEL, MODEL + 2 * 10 * C + 1),
    "graphsmote": lambda number, p: (MODEL + H * H,) * 2,
    "hiertail": lambda number, p: (MODEL + 2 * (H * H + H) + 3 * H,) * 2,
    "lws": lambda number, p: (MODEL + C, MODEL if number < 3 else 2 * C),
    "fedlc": lambda number, p: (MODEL, MODEL),
    "fedgac": lambda number, p: (MODEL + 16 * D + 32, MODEL + 16 * D + 32 + C),
    "creff": lambda number, p: (MODEL + W * C + C, MODEL if number < 3 else MODEL + C + p * C * (W + 1)),
    "fedspray": lambda number, p: (
        D * H + H + 2 * (H * C + C) + C * H,
        D * H + H + 2 * (H * C + C) + C * H + C,
    ),
    "graphfedmig": lambda number, p: (MODEL + DISCRIMINATOR + C + 1,) * 2,
    "fedpub": lambda number, p: (MODEL, MODEL + C),
    "fedtad": lambda number, p: (MODEL, MODEL + C),
    "fedyoyo": lambda number, p: (MODEL + C, MODEL + C),
    "tailgnn": lambda number, p: (TAIL_GNN, TAIL_GNN + 1),
    "fedprox": lambda number, p: (MODEL, MODEL),
    "logit_adjustment": lambda number, p: (MODEL + C,) * 2,
    "scaffold": lambda number, p: (2 * MODEL,) * 2,
    "moon": lambda number, p: (MODEL, MODEL),
    "fedper": lambda number, p: (D * H + H,) * 2,
    "fedrep": lambda number, p: (D * H + H,) * 2,
    "fedtgp": lambda number, p: (C * H + C,) * 2,
    "feddc": lambda number, p: (2 * MODEL,) * 2,
    "balanced_experts": lambda number, p: (MODEL + 2 * (W + 1) * C + C,) * 2,
    "fedgrab": lambda number, p: (MODEL + C, MODEL + C),
    "fedlf": lambda number, p: (MODEL + C * W + C,) * 2,
    "s2fgl": lambda number, p: (MODEL + 4 * C * W + 4 * C, MODEL + C * W + C),
    "lte4g": lambda number, p: (
        MODEL + 4 * W * C + 5 * C + 1,
        MODEL + C if number == 1 else 2 * W * C + 3 * C,
    ),
    "adafgl": lambda number, p: (MODEL, MODEL if number < 3 else 0),
    "fedsage": lambda number, p: (
        MODEL + GENERATOR + 1,
        MODEL + GENERATOR + 32 * D if number == 1 else MODEL,
    ),
    "isolated": lambda number, p: (0, 0),
    "centralised": lambda number, p: (0, 0),
}


def test_every_method_states_its_bytes() -> None:
    assert STATED.keys() == METHODS.keys()


@pytest.mark.parametrize("name", sorted(STATED))
@pytest.mark.parametrize("missing_class", [False, True])
def test_counted_bytes_are_the_stated_ones(name: str, missing_class: bool) -> None:
    """3 rounds, one client: the loop's count is that client's.

    LWS is in its second stage and CReFF refreshes in round 3. LTE4G trains experts in round 2 and students in
    round 3, and makes prototypes in both. FedSage+ trains its generator in round 1.
    """
    client = toy_client(missing_class=missing_class)
    present = int((class_counts(client) > 0).sum())
    rounds, _ = run_rounds(make_method(name), [client], model=Backbone(hidden=HIDDEN))
    for each in rounds:
        down, up = STATED[name](each.number, present)
        assert sum(each.bytes_down.values()) == 4 * down
        assert sum(each.bytes_up.values()) == 4 * up


def test_bytes_add_up_over_clients() -> None:
    rounds, _ = run_rounds(make_method("fedavg"), toy_clients(3), rounds=1, model=Backbone(hidden=HIDDEN))
    assert sum(rounds[0].bytes_up.values()) == 3 * 4 * MODEL
