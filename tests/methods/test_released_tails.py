"""Long-tail systems of the related work against numbers that their authors' released programs gave.

As in test_released.py: nothing of the programs is here, and a deviation is stated with its size.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedepd.methods.balanced_experts import BalancedExperts, by_frequency, groups
from fedepd.methods.base import Client
from fedepd.methods.fedlf import FedLF, agreement
from fedepd.methods.fedyoyo import FedYoYo, distilled, two_views
from fedepd.methods.lte4g import LTE4G
from fedepd.methods.parts.groups import curriculum, distance, group_loss, head_classes, similarity
from fedepd.methods.steps import class_mean, model_part, with_prefix
from fedepd.network.backbones import Backbone
from fedepd.network.training import Gradient, by_autograd
from fedepd.types import Tensors
from released import client_data, near, numbers, tensors, wave
from toy import make_client


def lte4g() -> tuple[dict[str, Any], LTE4G, Client[Any], Tensors]:
    """A client whose classifier reads the fixture's embedding: an MLP whose first layer is the identity."""
    found, method = numbers("lte4g"), LTE4G()
    graph = {"x": found["embedding"], "edges": found["edges"], "y": found["labels"], "train": found["train"]}
    client = make_client(method, client_data(graph, classes=4), Backbone("mlp", hidden=3, dropout=0.0))
    encoder = {"encoder.weight": torch.eye(3), "encoder.bias": torch.zeros(3)}
    heads = {**tensors(found["classifier"]), **tensors(found["heads_of"])}
    return found, method, client, {**encoder, **heads, "class.count": torch.tensor([5.0, 3.0, 2.0, 2.0])}


def test_lte4gs_experts_are_its_authors() -> None:
    """Head classes of six rankings, the four parts of the training nodes, and each expert's loss."""
    found, _, client, params = lte4g()
    for counts, heads in zip(found["splits"], found["heads"], strict=True):
        assert head_classes(torch.tensor(counts)).tolist() == [c < heads for c in range(len(counts))]
    groups, train, labels = head_classes(params["class.count"]), *of_training(client)
    rows = torch.tensor(found["embedding"])[train]
    for degree, head, chosen in (("H", "high", client.prepared.high), ("T", "low", ~client.prepared.high)):
        for group, inside in (("H", groups[labels]), ("T", ~groups[labels])):
            who = chosen & inside
            assert train[who].tolist() == sorted(found["parts"][group + degree])
            loss = group_loss(params, head, rows[who], labels[who], groups)
            assert float(loss) == pytest.approx(found["experts"][group + degree], rel=1e-5)


def of_training(client: Client[Any]) -> tuple[Tensor, Tensor]:
    return client.prepared.inputs.train, client.prepared.inputs.labels


def test_lte4gs_losses_are_its_authors() -> None:
    """Stage one with class weights and without, and the students' three terms; gradients of both."""
    found, _, client, params = lte4g()
    train, labels = of_training(client)
    rows, groups = torch.tensor(found["embedding"])[train], head_classes(params["class.count"])
    for name, method in (("weighted", LTE4G()), ("plain", LTE4G(class_weight=False, gamma=2.0))):
        objective = method._base_loss(client, params)
        assert isinstance(objective, Gradient)
        loss, grads = objective.of(model_part(params))
        assert loss == pytest.approx(found["base"][name]["loss"], rel=1e-5)
        near(grads["classifier.weight"], found["base"][name]["gradient"])
    weight = curriculum(2, 5)
    assert weight == pytest.approx(found["weight"])
    high, both = client.prepared.high, list(found["students"].values())

    def loss_of(own: Tensors) -> Tensor:
        total = group_loss(own, "student", rows, labels, groups)
        for head, who, share in (("high", high, weight), ("low", ~high, 1 - weight)):
            term = distance(params, head, own, rows[who], labels[who], groups)
            assert float(term.detach()) == pytest.approx(sum(each[head] for each in both), rel=1e-5)
            total = total + share * term
        return total

    student = with_prefix(params, "student.")
    loss, grads = by_autograd(loss_of, sorted(student)).of(student)
    assert loss == pytest.approx(sum(each["all"] for each in both), rel=1e-5)
    near(grads["student.weight"], found["student gradient"])


def test_lte4gs_prototypes_and_inference_are_its_authors() -> None:
    """Prototypes, similarities and who answers; all other classes lie far below.

    The authors fill class 3 up with a training node of another class. Ours takes the best node without a
    label, so that its prototype differs by up to .59.
    """
    found, method, client, params = lte4g()
    made = method._prototypes(client, params)
    near(made["prototype.mean"][:3], found["prototypes"][:3])
    gap = made["prototype.mean"][3] - torch.tensor(found["prototypes"][3])
    assert float(gap.abs().max()) == pytest.approx(0.5943, abs=1e-4)
    means, known = torch.tensor(found["prototypes"]), torch.ones(4, dtype=torch.bool)
    near(similarity(torch.tensor(found["embedding"]), means, known), found["similarity"])
    told = {"prototype.mean": means, "prototype.count": torch.ones(4), "stage": torch.tensor([3.0])}
    ours, theirs = method.predict(client, {**params, **told}), torch.tensor(found["prediction"])
    answered = theirs > -1e5
    assert answered.sum(1).tolist() == [2] * 18
    near(ours[answered], theirs[answered])
    assert torch.equal(ours.argmax(1), theirs.argmax(1))


WIDE = 256
"""Columns that FedLF's program demands. The fixture keeps the first 8 of them, and sums over all."""


def fedlf(**settings: float) -> tuple[dict[str, Any], FedLF, Client[Any], Tensors]:
    found, method = numbers("fedlf"), FedLF(**settings)  # type: ignore[arg-type]
    graph = {"x": found["x"], "edges": [[0], [1]], "y": found["y"], "train": list(range(9))}
    client = make_client(method, client_data(graph), Backbone("mlp", hidden=WIDE, dropout=0.0))
    layers = {"encoder.weight": wave((4, WIDE), 0.6, 1), "encoder.bias": wave((WIDE,), 0.2, 5)}
    return (
        found,
        method,
        client,
        {
            **layers,
            "classifier.weight": wave((WIDE, 3), 0.3, 9),
            "classifier.bias": torch.zeros(3),
            "centre": wave((3, WIDE), 1.0, 77).abs(),
            "centre.known": torch.tensor([1.0, 1.0, 0.0]),
        },
    )


def same_gradient(grads: Tensors, found: dict[str, Any], which: str) -> None:
    for name, theirs in found[which].items():
        ours = grads[name]
        near(ours[:8] if name == "classifier.weight" else ours[..., :8], theirs)
        assert float(ours.abs().sum()) == pytest.approx(found["sums"][which][name], rel=1e-5)


def test_fedlfs_losses_are_its_authors() -> None:
    """Scaled logits alone, as the main file trains, and with the second file's pull, of weight 1.

    Class 2 has no centre. Its node counts in the mean over nodes, with a distance of 0. Their logits have no
    bias in training, so the bias begins at 0 here and its gradient is not compared.
    """
    found, method, client, params = fedlf(centre_weight=0.0)
    own, objective = model_part(params), method._loss(client, params)
    assert isinstance(objective, Gradient)
    loss, grads = objective.of(own)
    assert loss == pytest.approx(found["loss"], rel=1e-5)
    same_gradient(grads, found, "scaled")
    near(method._centres(client, own)["centre"][:, :8], found["centres"])
    _, method, client, params = fedlf(centre_weight=1.0)
    pulled: Any = method._loss(client, params)
    loss, grads = by_autograd(pulled, sorted(own)).of(own)
    assert loss == pytest.approx(found["loss"] + found["pull"], rel=1e-5)
    same_gradient(grads, found, "pulled")


def test_fedlfs_centres_are_its_authors() -> None:
    """The first and the second update.

    A client without the class counts as zeros in their first, so that theirs is 2/3 of ours. A class that
    nobody has becomes 0 / 0 in their second and is not compared.
    """
    found = numbers("fedlf")["server"]
    old, known = torch.zeros(3, 3), torch.zeros(3, dtype=torch.bool)
    held = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 0, 0]]) > 0  # [client, class]
    for name, ratio in (("first", 2 / 3), ("second", 1.0)):
        sent = [torch.tensor(each) for each in found["sent"][name == "second"]]
        pairs = [(f, agreement(old, f, has, known)) for f, has in zip(sent, held, strict=True)]
        theirs = torch.tensor(found[name])[:2]
        near(class_mean(old, pairs)[:2] * torch.tensor([[1.0], [ratio]]), theirs)
        old, known = torch.cat([theirs, torch.zeros(1, 3)]), held.any(0)


def client_with(found: dict[str, Any], method: Any, rows: str, model: Backbone) -> Client[Any]:
    """A client all of whose nodes are training nodes. Its one edge is not used by an MLP."""
    labels = found["labels"]
    graph = {"x": found[rows], "edges": [[0], [1]], "y": labels, "train": list(range(len(labels)))}
    return make_client(method, client_data(graph), model, round=25, last_round=400)


def test_fedyoyos_losses_are_its_authors() -> None:
    """Prior, cross-entropy of both views, distillation where the weak view is right, gradient of the sum.

    Round 25 of a warm-up of 50, class 2 absent. The released loop mixes the prior at every batch; here it had
    one.
    """
    found, method = numbers("fedyoyo"), FedYoYo()
    model, weights = Backbone("mlp", hidden=5, dropout=0.0), tensors(found["weights"])
    weak, strong = (client_with(found, method, view, model) for view in ("weak", "strong"))
    shift = method._shift(weak, {"count": torch.tensor(found["total"])})
    assert shift is not None
    teacher, student = (model.predict(weights, view.prepared) + shift for view in (weak, strong))
    labels = weak.prepared.labels
    assert int((teacher.argmax(1) == labels).sum()) == found["right"]
    taught, _ = distilled(teacher, student, labels, method.temperature)
    assert taught == pytest.approx(found["distillation"], rel=1e-5)
    weight = method.distillation(25, 400)
    loss, grads = two_views(weak, strong.prepared, shift, weight, method.temperature).of(weights)
    assert loss == pytest.approx(found["cross-entropy"] + 0.75 * found["distillation"], rel=1e-5)
    for name, theirs in found["gradient"].items():
        near(grads[name], theirs)


def test_balanced_experts_losses_are_its_authors() -> None:
    """The balanced loss of all experts, and of the second in its turn, when it weighs as much as all.

    In a turn the other experts are frozen and say nothing. Also who is in which expert's group.
    """
    found, method = numbers("balanced_experts"), BalancedExperts(expert_phase=0.4)
    model, weights = Backbone("mlp", hidden=5, dropout=0.0), tensors(found["weights"])
    client = replace(client_with(found, method, "x", model), round=8, last_round=10)
    assert method.turn(client) == 1
    message = {**weights, "count": torch.tensor(found["total"], dtype=torch.float32)}
    for name, turn in (("all", None), ("second", 1)):
        loss, grads = method._loss(client, message, turn).of(weights)
        assert loss == pytest.approx(found[name]["loss"], rel=1e-5)
        assert grads.keys() == found[name]["gradient"].keys()
        for key, theirs in found[name]["gradient"].items():
            near(grads[key], theirs)
    held = {k: torch.tensor(each, dtype=torch.float32) for k, each in enumerate(found["held"])}
    order = by_frequency(torch.stack(list(held.values())).sum(0), held)
    assert [list(each) for each in groups(order, 3)] == found["groups"]
