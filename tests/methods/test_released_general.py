"""General rivals against numbers that released programs gave: FedPer, FedRep and losses by class counts.

As in test_released.py: nothing of the programs is here, and a deviation is stated with its size.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fedepd.methods.base import Client, Method
from fedepd.methods.fedper import FedPer
from fedepd.methods.fedrep import FedRep
from fedepd.methods.logit_adjustment import COUNT, LogitAdjustment
from fedepd.methods.steps import with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.types import Reply, Tensors
from released import client_data, near, numbers, tensors
from toy import make_client, make_server

GCN = Backbone(hidden=5, dropout=0.0)
PLAIN = Training(epochs=3, optimizer="sgd", lr=0.2, weight_decay=0.0, weighting="train")


@pytest.mark.parametrize(("name", "method"), [("fedper", FedPer()), ("fedrep", FedRep(head_epochs=4))])
def test_personal_classifiers_are_fl_benchs(name: str, method: Method[Any]) -> None:
    """After rounds 1 and 3: the average, what every client sent, and the classifier that it kept.

    FedRep's own program gives the same numbers for both, but for the momentum of its optimiser. Dropout is
    off, so that ours of fixed rows is theirs.
    """
    found, graphs = numbers("personal"), numbers("openfgl")
    data = [client_data(each, k) for k, each in enumerate(graphs["clients"])]
    start = tensors(graphs["start"])
    server, held = make_server(data, GCN, PLAIN), with_prefix(start, "encoder.")
    states = [with_prefix(start, "classifier.") for _ in data]
    for number in range(1, 4):
        replies: dict[int, Reply] = {}
        for k, each in enumerate(data):
            client = make_client(method, each, GCN, PLAIN, round=number)
            replies[k], states[k] = method.client_step(client, method.message(held, k), states[k])
        held = method.server_step(server, held, replies)
        if number != 2:
            theirs = found[name][number // 2]
            all_near(held, theirs["encoder"])
            for k in range(3):
                all_near(replies[k].tensors, theirs["sent"][k])
                all_near(with_prefix(states[k], "classifier."), theirs["classifiers"][k])


def all_near(ours: Tensors, theirs: dict[str, Any]) -> None:
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        near(ours[name], value)


def adjusted(counts: str, method: LogitAdjustment) -> tuple[Client[Any], Tensors]:
    """A client whose logits are x times weight plus bias: an MLP whose first layer is the identity."""
    found = numbers("logit_losses")
    graph = {"x": found["x"], "edges": [[0], [1]], "y": found["y"], "train": found["train"][counts]}
    client = make_client(method, client_data(graph, classes=4), Backbone("mlp", hidden=3, dropout=0.0))
    params = {
        "encoder.weight": torch.eye(3), "encoder.bias": torch.zeros(3),
        "classifier.weight": torch.tensor(found["weight"]), "classifier.bias": torch.tensor(found["bias"]),
        COUNT: torch.tensor(found["counts"][counts], dtype=torch.float32),
    }  # fmt: skip
    return client, params


def of_loss(counts: str, method: LogitAdjustment) -> tuple[float, Tensors]:
    client, params = adjusted(counts, method)
    model = {name: value for name, value in params.items() if name != COUNT}
    return method._loss(client, params).of(model)


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("counts", ["own", "everybody"])
def test_logit_adjustment_is_its_authors(counts: str, tau: float) -> None:
    """The loss and its gradient. Theirs adds 1e-12 to a share, which no digit shows here."""
    (theirs,) = [each for each in numbers("logit_losses")["adjusted"] if of(each) == (counts, tau)]
    loss, grads = of_loss(counts, LogitAdjustment(tau=tau))
    assert loss == pytest.approx(theirs["loss"], rel=1e-5)
    near(grads["classifier.weight"], theirs["weight"])
    near(grads["classifier.bias"], theirs["bias"])


def of(case: dict[str, Any]) -> tuple[str, float]:
    return case["counts"], case["tau"]


@pytest.mark.parametrize("tau", [0.5, 1.0, 2.0])
def test_post_hoc_adjustment_is_its_authors(tau: float) -> None:
    """Ours leaves out a number that all classes share."""
    (theirs,) = [each for each in numbers("logit_losses")["adjusted"] if of(each) == ("everybody", tau)]
    method = LogitAdjustment(tau=tau, form="post_hoc")
    client, params = adjusted("everybody", method)
    logits = method.predict(client, params)[torch.tensor(numbers("logit_losses")["train"]["everybody"])]
    near(logits.log_softmax(1), torch.tensor(theirs["post hoc"]).log_softmax(1))


def test_balanced_softmax_is_its_authors() -> None:
    """With a client's own counts, which is the preset, and with those of all clients."""
    preset = LogitAdjustment(**LogitAdjustment.presets["balanced_softmax"])
    cases = {each["counts"]: each for each in numbers("logit_losses")["balanced"]}
    for counts, method in (("own", preset), ("everybody", LogitAdjustment(tau=1.0))):
        loss, grads = of_loss(counts, method)
        assert loss == pytest.approx(cases[counts]["loss"], rel=1e-5)
        near(grads["classifier.weight"], cases[counts]["weight"])


def test_a_class_without_training_nodes_is_not_taken_out() -> None:
    """Theirs takes it out of the softmax: it counts 1e-12, or 0. Ours counts it as one node.

    With share p of that class at a node, our loss is larger by -log(1 - p), on average by .175.
    """
    cases = {
        "adjusted": next(c for c in numbers("logit_losses")["adjusted"] if of(c) == ("absent", 1.0)),
        "balanced": next(c for c in numbers("logit_losses")["balanced"] if c["counts"] == "absent"),
    }
    client, params = adjusted("absent", LogitAdjustment(tau=1.0))
    rows, _ = client.model.training_rows(params, client.prepared.inputs)
    logits = client.model.classify(params, rows) + torch.tensor([3.0, 2.0, 1.0, 1.0]).log()
    share = logits.softmax(1)[:, 3]
    loss, grads = of_loss("absent", LogitAdjustment(tau=1.0))
    for theirs in cases.values():
        assert loss - theirs["loss"] == pytest.approx(float(-(1 - share).log().mean()), abs=1e-5)
        assert loss - theirs["loss"] == pytest.approx(0.1752, abs=1e-4)
        assert theirs["bias"][3] == pytest.approx(0, abs=1e-6)
    assert float(grads["classifier.bias"][3]) == pytest.approx(float(share.mean()), abs=1e-6)
