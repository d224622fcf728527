"""What FedProto and FedTGP share. ``tests/methods/test_fedproto.py`` has the penalty's forms by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fedepd.methods.fedproto import FedProto
from fedepd.methods.parts.prototypes import class_prototypes, nearest, no_prototypes, penalty, pulled
from fedepd.methods.steps import cross_entropy
from fedepd.network.backbones import Backbone
from fedepd.network.training import Gradient, Training, by_autograd
from fedepd.types import Tensors
from toy import make_client, make_server, toy_client, toy_clients

DRY = Backbone(hidden=8, dropout=0.0)


def test_penalty_by_hand() -> None:
    """Rows (1, 0) and (0, 2) with targets 0: mean squares 1/2 and 2, shares 1/2 each: 1.25."""
    hidden = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    assert float(penalty(hidden, torch.zeros(2, 2), torch.tensor([0.5, 0.5]))) == 1.25


def test_without_prototypes_the_loss_is_the_cross_entropy() -> None:
    """The same bits as FedAvg's. With them it is larger."""
    client = make_client(FedProto(), toy_client(), DRY)
    empty = no_prototypes(make_server(toy_clients(), DRY, Training()))
    known = {**empty, "prototype.count": torch.ones(3)}
    params = DRY.init(client.info, torch.Generator().manual_seed(1))
    losses = [pulled(client, message, lam) for message, lam in ((empty, 1.0), (known, 0.0), (known, 1.0))]
    first, second, third = (loss.of(params)[0] for loss in losses if isinstance(loss, Gradient))
    assert first == second == cross_entropy(client, client.prepared.inputs).of(params)[0] < third


@pytest.mark.parametrize("form", ["original", "openfgl"])
@pytest.mark.parametrize("classes", [3, 5, 16, 70])
@pytest.mark.parametrize("backbone", ["gcn", "sage", "mlp"])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_gradient_has_the_bits_of_autograd(form: Any, classes: int, backbone: str, sparse: bool) -> None:
    """The step as one function of all parameters, which is what it was before it got its own gradient.

    With 3, 5 and 16 classes the last layer is computed as P (H W), with 70 as (P H) W.
    """
    model, data = Backbone(backbone, hidden=32), toy_client(sparse=sparse)
    graph = replace(data.graph, num_classes=classes)
    client = make_client(FedProto(), replace(data, graph=graph), model)
    client = replace(client, info=replace(client.info, num_classes=classes))
    draws = torch.Generator().manual_seed(classes)
    params = model.init(client.info, draws)
    means, counts = torch.randn(classes, 32, generator=draws), torch.ones(classes)
    message = {"prototype.mean": means, "prototype.count": counts}
    inputs, random = client.prepared.inputs, client.draws("dropout")
    share = 1 / (len(inputs.labels) if form == "original" else client.prepared.counts[inputs.labels])

    def loss(leaves: Tensors) -> torch.Tensor:
        h, clean = model.encode(leaves, inputs, random), model.encode(leaves, inputs)
        logits = model.logits(leaves, h, inputs, train_only=True)
        gap = penalty(clean[inputs.train], means[inputs.labels], share * torch.ones(len(inputs.labels)))
        return F.cross_entropy(logits, inputs.labels) + 0.7 * gap

    expected = by_autograd(loss, list(params)).of(params)
    objective = pulled(client, message, 0.7, form)
    assert isinstance(objective, Gradient)
    found = objective.of(params)
    assert found[0] == expected[0]
    assert found[1].keys() == expected[1].keys()
    assert all(torch.equal(found[1][name], value) for name, value in expected[1].items())


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
