"""What FedProto and FedTGP share. ``tests/methods/test_fedproto.py`` has the penalty's forms by hand."""

from __future__ import annotations

import pytest
import torch

from fedepd.methods.fedproto import FedProto
from fedepd.methods.parts.prototypes import class_prototypes, nearest, no_prototypes, penalty, pulled
from fedepd.network.backbones import Backbone
from fedepd.network.training import Gradient, Training
from toy import make_client, make_server, toy_client, toy_clients

DRY = Backbone(hidden=8, dropout=0.0)


def test_penalty_by_hand() -> None:
    """Rows (1, 0) and (0, 2) with targets 0: mean squares 1/2 and 2, shares 1/2 each: 1.25."""
    hidden = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert float(penalty(hidden, torch.zeros(2, 2), torch.tensor([0.5, 0.5]))) == 1.25


def test_without_prototypes_the_loss_is_the_cross_entropy() -> None:
    """Which brings its own gradient. With them it is a function for autograd."""
    client = make_client(FedProto(), toy_client(), DRY)
    empty = no_prototypes(make_server(toy_clients(), DRY, Training()))
    assert isinstance(pulled(client, empty, 1.0), Gradient)
    known = {**empty, "prototype.count": torch.ones(3)}
    assert isinstance(pulled(client, known, 0.0), Gradient)
    assert not isinstance(pulled(client, known, 1.0), Gradient)


def test_prototypes_are_class_means_of_training_nodes() -> None:
    data = toy_client(missing_class=True)
    client = make_client(FedProto(), data, DRY)
    params = DRY.init(client.info, torch.Generator().manual_seed(1))
    hidden, found = DRY.encode(params, client.prepared.inputs), class_prototypes(client, params)
    for c, count in enumerate(found["prototype.count"].tolist()):
        rows = hidden[data.train_mask & (data.graph.y == c)]
        assert len(rows) == count
        expected = rows.mean(0) if count else torch.zeros(8)
        torch.testing.assert_close(found["prototype.mean"][c], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("candidates", [[True, True, False], [False, False, False]])
def test_only_candidates_are_predicted(candidates: list[bool]) -> None:
    client = make_client(FedProto(), toy_client(), DRY)
    params = DRY.init(client.info, torch.Generator().manual_seed(1))
    logits = nearest(client, params, class_prototypes(client, params), torch.tensor(candidates))
    if any(candidates):
        assert int(logits.argmax(1).max()) <= 1
    else:
        assert torch.equal(logits, DRY.predict(params, client.prepared.inputs))
