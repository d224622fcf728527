"""Columns of closed classes are fitted to the received encoder; nothing else moves."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from fedepd.methods import METHODS, make_method
from fedepd.methods.fedavg import FedAvg
from fedepd.methods.fedgta import FedGTA
from fedepd.methods.fedproto import FedProto
from fedepd.methods.steps import renamed
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.home import refitted
from fedepd.types import Tensors
from toy import initial, make_client, make_server, toy_client

MODEL = Backbone(hidden=8)


def test_only_closed_columns_move_and_the_loss_falls() -> None:
    data = toy_client(0, 40)
    client = make_client(FedAvg(), data, MODEL)
    message = initial(FedAvg(), make_server([data], MODEL, Training()))
    closed = torch.tensor([False, False, True])
    found = refitted(FedAvg(), client, message, closed)
    for name, value in message.items():
        if name.startswith("classifier."):
            assert torch.equal(found[name][..., :2], value[..., :2])
            assert not torch.equal(found[name][..., 2], value[..., 2])
        else:
            assert torch.equal(found[name], value)

    def loss(tensors: Tensors) -> float:
        rows, labels = MODEL.training_rows(tensors, client.prepared)
        return float(F.cross_entropy(MODEL.classify(tensors, rows), labels))

    assert loss(found) < loss(message)


def test_without_closed_classes_the_message_is_as_it_was() -> None:
    data = toy_client(0)
    client = make_client(FedAvg(), data, MODEL)
    message = initial(FedAvg(), make_server([data], MODEL, Training()))
    assert refitted(FedAvg(), client, message, torch.zeros(3, dtype=torch.bool)) is message


def test_a_method_whose_models_stay_at_home_is_left_alone() -> None:
    """FedProto's message holds prototypes and no network, which once broke a guarded evaluation."""
    data = toy_client(0)
    client = make_client(FedProto(), data, MODEL)
    message = initial(FedProto(), make_server([data], MODEL, Training()))
    assert refitted(FedProto(), client, message, torch.tensor([True, False, False])) is message


def test_a_fit_depends_on_nothing_but_its_input() -> None:
    data = toy_client(0)
    client = make_client(FedGTA(), data, MODEL)
    message = initial(FedGTA(), make_server([data], MODEL, Training()))
    closed = torch.tensor([True, False, False])
    once, again = (refitted(FedGTA(), client, message, closed) for _ in range(2))
    assert all(torch.equal(once[name], again[name]) for name in message)


@pytest.mark.parametrize("backbone", ["gcn", "sage", "mlp"])
@pytest.mark.parametrize("name", METHODS)
def test_what_a_last_layer_is_said_to_read_gives_the_methods_own_predictions(
    name: str, backbone: str
) -> None:
    """Otherwise columns would be fitted to rows that the method never classifies.

    The scales of LWS are 1 at the start. FedGAC and Balanced Experts say that they have no such rows, and
    methods without a common model are sent no layer.
    """
    method, model, data = make_method(name), Backbone(backbone, hidden=8), toy_client(0, 40)
    client = make_client(method, data, model)
    message = method.message(initial(method, make_server([data], model, Training())), 0)
    layer = renamed(message, f"{method.last_layer}.", "classifier.")
    reads = method.classifier_reads(client, message) if layer else None
    sent_none = ("fedproto", "fedper", "fedrep", "fedtgp", "fedspray", "isolated", "centralised")
    assert (reads is None) == (name in ("fedgac", "balanced_experts", *sent_none))
    if reads is not None:
        rows, labels, _ = reads
        assert torch.equal(labels, data.graph.y[data.train_mask])
        found, told = model.classify(layer, rows), method.predict(client, message)[data.train_mask]
        torch.testing.assert_close(found, told, atol=1e-5, rtol=1e-5)


def test_creff_predicts_closed_classes_by_its_head() -> None:
    """CReFF predicts by ``head``, so that is what is fitted."""
    method, data = make_method("creff"), toy_client(0, 40)
    client = make_client(method, data, MODEL)
    message = method.message(initial(method, make_server([data], MODEL, Training())), 0)
    found = refitted(method, client, message, torch.tensor([False, False, True]))
    assert not torch.equal(found["head.weight"][:, 2], message["head.weight"][:, 2])
    assert torch.equal(found["head.weight"][:, :2], message["head.weight"][:, :2])
    assert torch.equal(found["classifier.weight"], message["classifier.weight"])
