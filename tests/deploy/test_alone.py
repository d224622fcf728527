"""A site's own model: the method's own training on its data alone, with the run's budget."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from deploy.test_sums import make_task
from fedepd.deploy.alone import trained_alone
from fedepd.longtail import Tiers
from fedepd.methods import METHODS
from toy import run_rounds, toy_client

TIERS = Tiers((0,), (1,), (2,))
SEVERAL = [name for name, method in METHODS.items() if not method.merges_clients]


@pytest.mark.parametrize("method", SEVERAL)
def test_every_method_trains_alone_and_always_the_same(method: str) -> None:
    secure = not METHODS[method]().needs_single_replies
    task, rounds = make_task(method, sites=3, secure=secure), []
    first = trained_alone(task, toy_client(2), TIERS, lambda: rounds.append(1))
    again = trained_alone(task, toy_client(2), TIERS)
    assert torch.equal(first.predicted, again.predicted)
    assert first.selected == again.selected
    assert len(rounds) == 3
    assert first.predicted.shape == (24,)


@pytest.mark.parametrize("method", ["fedepd", "fedproto"])
def test_it_is_a_run_with_one_client(method: str) -> None:
    """The last round is taken, so that it can be compared with plain rounds of the method."""
    task = make_task(method, sites=3, select="last")
    e, data = task.experiment(), toy_client(0)
    rounds, exchange = run_rounds(e.method, [data], 3, e.protocol.seed, e.model, e.training)
    message = e.method.message(rounds[-1].tensors, 0)
    kind = "global" if e.method.has_global else "personal"
    expected = exchange.participants[0].predictions(3, message)[kind].argmax(1)
    alone = trained_alone(task, data, TIERS)
    assert alone.selected == 3
    assert torch.equal(alone.predicted, expected)


def test_without_validation_nodes_the_last_round_is_taken() -> None:
    from dataclasses import replace

    data = toy_client(0)
    blind = replace(data, val_mask=torch.zeros_like(data.val_mask))
    assert trained_alone(make_task(sites=3), blind, TIERS).selected == 3
