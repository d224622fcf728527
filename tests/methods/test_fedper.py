from __future__ import annotations

from typing import Any

import pytest
import torch

from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedper import FedPer
from fedepd.methods.steps import with_prefix
from fedepd.network.backbones import Backbone
from toy import assert_same, run_rounds, toy_client, toy_clients


def test_one_client_is_fedavg_bit_for_bit() -> None:
    """Nobody's classifier is averaged with it in either."""
    ours, exchange = run_rounds(FedPer(), [toy_client()])
    theirs, _ = run_rounds(FedAvg(), [toy_client()])
    head = with_prefix(exchange.participants[0].state, "classifier.")
    assert_same({**ours[-1].tensors, **head}, theirs[-1].tensors)


def test_its_first_round_is_fedavgs_but_for_the_classifiers() -> None:
    """Encoders are averaged as FedAvg's. Every client has the classifier that it would have sent."""
    ours, mine = run_rounds(FedPer(), toy_clients(), rounds=1)
    theirs, sent = run_rounds(FedAvg(), toy_clients(), rounds=1)
    assert_same(ours[-1].tensors, with_prefix(theirs[-1].tensors, "encoder."))
    heads = [with_prefix(mine.participants[k].state, "classifier.") for k in range(3)]
    for k, head in enumerate(heads):
        assert_same(head, with_prefix(sent.participants[k].state, "classifier."))
    assert not torch.equal(heads[0]["classifier.weight"], heads[1]["classifier.weight"])


@pytest.mark.parametrize("score", ["aggregated", "trained"])
def test_what_is_scored(score: Any) -> None:
    """The averaged encoder with the client's classifier, or the client's own encoder; trained alike."""
    rounds, exchange = run_rounds(FedPer(score=score), toy_clients())
    site, model = exchange.participants[0], Backbone(hidden=8)
    held = {**rounds[-1].tensors, **with_prefix(site.state, "encoder.", "classifier.")}
    assert ("encoder.weight" in site.state) is (score == "trained")
    client = site._client(3)
    assert torch.equal(
        site.predictions(3, rounds[-1].tensors)["personal"], model.predict(held, client.prepared)
    )
    assert_same(rounds[-1].tensors, run_rounds(FedPer(), toy_clients())[0][-1].tensors)


def test_before_its_first_round_a_client_has_the_initial_classifier() -> None:
    _, exchange = run_rounds(FedPer(), toy_clients(), rounds=1)
    site, method = exchange.participants[0], FedPer()
    start = Backbone(hidden=8).initial(site.info, 0)
    logits = method.predict(site._client(1), with_prefix(start, "encoder."))
    assert torch.equal(logits, Backbone(hidden=8).predict(start, site._client(1).prepared))
