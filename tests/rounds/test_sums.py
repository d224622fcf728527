"""One reply that stands for all leads a method's server where the single replies would lead it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedepd.methods import METHODS, make_method
from fedepd.methods.base import Method
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.sums import (
    FRACTION_BITS,
    CannotSum,
    fractions,
    largest,
    layout,
    reply_of,
    summed,
    vector_of,
    whole,
)
from fedepd.types import ClientData, Reply, Tensors
from toy import initial, make_client, make_server, toy_client

MODEL = Backbone(hidden=4)
SINGLE: dict[str, dict[str, Any]] = {
    "fedgta": {},
    "fedgac": {},
    "fedpub": {},
    "fedtad": {},
    "fedtgp": {},
    "fedlf": {},
    "s2fgl": {},
    "fedsage": {},
    "graphfedmig": {"threshold": 0.5},
    "balanced_experts": {"expert_phase": 0.4},
}
ADDITIVE = [name for name in METHODS if SINGLE.get(name) != {} and name not in ("centralised", "isolated")]
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in ADDITIVE),
    ("fedproto", {"class_weights": "counts"}),
    ("fedproto", {"class_weights": "zeros"}),
    ("fedproto", {"widths": "2-4-6"}),
    ("fedspray", {"proxy_weights": "shares"}),
    ("fedsage", {"cross": "none"}),
    ("lws", {"averaging": "counts"}),
    ("lws", {"averaging": "naive"}),
    ("fedepd", {"consensus_by": "injection"}),
    ("fedepd", {"holders": 0.5}),
    ("fedepd", {"holders": 1.0}),
]


def awkward_clients() -> list[ClientData]:
    """Three clients: one without class 2, one with a single node of it, and one without training nodes."""
    return [
        toy_client(0, 20, missing_class=True),
        toy_client(1, 24, one_node_class=True),
        toy_client(2, 28),
        toy_client(3, 16, train=False),
    ]


def rounds_of(method: Method[Any], clients: list[ClientData], pool: bool) -> list[Tensors]:
    """The server's tensors of three rounds, from single replies or from their sum."""
    server = make_server(clients, MODEL, Training(epochs=1), rounds=3)
    tensors, out = initial(method, server), []
    states: list[Tensors] = [{} for _ in clients]
    prepared = [make_client(method, data, MODEL, Training(epochs=1)) for data in clients]
    for number in (1, 2, 3):
        here, replies = replace(server, round=number), dict[int, Reply]()
        for k, client in enumerate(prepared):
            now = replace(client, round=number, last_round=3)
            replies[k], states[k] = method.client_step(now, method.message(tensors, k), states[k])
        fields = method.reply_fields(here, tensors)
        if pool:
            vectors = [
                vector_of(method, server.info, fields, reply, len(clients)) for reply in replies.values()
            ]
            parts = layout(method, server.info, fields)
            assert {len(v) for v in vectors} == {sum(int(np.prod(shape)) for _, shape in parts)}
            everyone = reply_of(fields, parts, summed(vectors), number)
            everyone = replace(everyone, members=tuple(replies))  # as rounds.pooled does
            assert everyone.clients == 3  # the fourth has no training node
            assert everyone.num_nodes == sum(r.num_nodes for r in replies.values())
            replies = {0: everyone}
        tensors = method.server_step(here, tensors, replies)
        out.append(tensors)
    return out


@pytest.mark.parametrize(("name", "settings"), VARIANTS, ids=str)
def test_a_sum_leads_where_single_replies_lead(name: str, settings: dict[str, Any]) -> None:
    """The mean is right to 2^-25. CReFF trains a head at the server, which carries that further: 1e-4."""
    method = make_method(name, settings=settings)
    assert method.needs_single_replies == ""
    for single, pooled in zip(
        *(rounds_of(method, awkward_clients(), pool) for pool in (False, True)), strict=True
    ):
        assert single.keys() == pooled.keys()
        for key in single:
            torch.testing.assert_close(pooled[key], single[key], atol=1e-4, rtol=1e-4, msg=key)


@pytest.mark.parametrize("name", SINGLE)
def test_methods_that_compare_clients_say_so(name: str) -> None:
    assert (
        "compares" in (said := make_method(name, settings=SINGLE[name]).needs_single_replies)
        or "weighs" in said
        or "single client" in said
        or "hands" in said
    )


def test_whole_numbers_add_up_in_any_order() -> None:
    vectors = [whole(np.random.default_rng(k).standard_normal(50), 7) for k in range(7)]
    assert summed(vectors).tolist() == summed(vectors[::-1]).tolist()


def test_numbers_come_back_within_half_a_step() -> None:
    values = np.array([0.1, -3.75, 1e6, -1e-9, 0.0])
    assert np.abs(fractions(whole(values, 10)) - values).max() <= 2.0 ** -(FRACTION_BITS + 1)
    assert whole(np.array([3.0]), 3).tolist() == [3 * 2**24]  # counts are exact


@pytest.mark.hostile
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2.0**40, -(2.0**40)])
def test_what_cannot_be_summed_is_refused(value: float) -> None:
    with pytest.raises(CannotSum, match="infinite, or too large"):
        whole(np.array([value]), 3)


def test_as_many_as_there_are_clients_do_not_overflow() -> None:
    assert 3 * largest(3) <= 2**63 - 1 < 3 * (largest(3) + 1)
