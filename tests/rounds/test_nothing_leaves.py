"""What a client sends is the same, bit for bit, whatever its nodes of a hidden class are, and without any.

There are 7 classes, and no other size of the model is a multiple of 7. So every number that belongs to a
class is found by the shape of its tensor, not by what a method declares. The nodes of the hidden class have
no edge to others: what they change in other nodes' rows is not the guard's matter. Nor is what they change in
the encoder, in other classes' numbers and in totals such as the loss: see docs/privacy.md.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from fedepd.methods import METHODS, make_method
from fedepd.methods.base import Method, Server
from fedepd.network.backbones import Backbone
from fedepd.network.training import Training
from fedepd.rounds.guard import OPEN, ROWS, Privacy
from fedepd.rounds.participant import Participant
from fedepd.types import ClientData, Field, Graph, Sizes, TaskInfo, Tensors
from toy import initial, make_server

CLASSES, FEATURES, HIDDEN, RARE = 7, 11, 16, 6
EACH, FEW = 10, 5
"""Nodes of every other class, of which 6 train, and of class 6, of which 3 train."""
MODEL, TRAINING, LAST = Backbone(hidden=HIDDEN), Training(epochs=2), 3
CASES = [
    (name, preset)
    for name, method in METHODS.items()
    if not method.merges_clients
    for preset in method.presets
]
SENDS_NO_CLASSES = ("isolated", "fedper", "fedrep")
"""The last two send encoders, which have no columns of classes."""
CLOSED = Privacy(guard=True, min_count=1), torch.tensor([1.0] * RARE + [0.0])
"""The class is closed, so that nobody sends anything about it."""
FEW_HERE = Privacy(guard=True, min_count=5), torch.ones(CLASSES)
"""The class is open, but the client has too few of its nodes to show them to a server of single replies."""
OFF = Privacy(), None


def client(rare: str) -> ClientData:
    """``rare``: "some" nodes of class 6, "others" in their place, or "none" that trains."""
    draws = torch.Generator().manual_seed(5)
    y = torch.cat([torch.arange(RARE).repeat_interleave(EACH), torch.full((FEW,), RARE)])
    n, common = len(y), RARE * EACH
    x = torch.nn.functional.one_hot(y, FEATURES) + 0.3 * torch.randn(n, FEATURES, generator=draws)
    edges = torch.cat(
        [torch.randint(common, (2, 150), generator=draws), torch.tensor([[60, 61], [61, 62]])], 1
    )
    role = torch.cat([torch.arange(EACH).repeat(RARE), torch.tensor([0, 1, 2, 6, 8])])
    train, val = role < 6, (role >= 6) & (role < 8)
    if rare == "others":
        x[common:] = 3 * torch.randn(FEW, FEATURES, generator=draws)
    if rare == "none":
        train[common:], val[common:] = False, False
    graph = Graph.make(x, edges, y, CLASSES, name="seven")
    test = ~train & ~val & ((y != RARE) | (rare != "none"))
    return ClientData(0, graph, train, val, test, torch.arange(n))


def participant(
    method: Method[Any], data: ClientData, privacy: Privacy, shows_test: bool = True
) -> Participant:
    info = TaskInfo(FEATURES, CLASSES, 3)
    return Participant(method, data, info, MODEL, TRAINING, 0, LAST, privacy, shows_test)


def server_of(data: ClientData) -> Server:
    return make_server([data] * 3, MODEL, TRAINING, rounds=LAST)


def replies(method: Method[Any], data: ClientData, privacy: Privacy, opened: Tensor | None) -> list[Tensors]:
    """Of the first round and of the last: some methods have stages."""
    message = method.message(initial(method, server_of(data)), 0)
    sent = message if opened is None else {**message, OPEN: opened}
    one = participant(method, data, privacy)
    return [one.step(number, sent).tensors for number in (1, LAST)]


def of_the_rare_class(tensors: Tensors) -> Tensors:
    """All numbers that belong to class 6, by name and axis.

    Of rows of the classes that are present, only their number says which these are.
    """
    out: Tensors = {}
    for name, value in tensors.items():
        compact = name in ("gradient.weight", "gradient.bias")
        for axis, size in enumerate(value.shape):
            if size == CLASSES and not (compact and axis == 0):
                out[f"{name} along {axis}"] = value.select(axis, RARE)
        if compact:
            out[f"rows of {name}"] = torch.tensor(value.shape[:1])
    return out


def differing(method: Method[Any], others: str, privacy: Privacy, opened: Tensor | None) -> list[str]:
    """The numbers of class 6 that are not the same at a client with "some" and one with ``others``."""
    pairs = (replies(method, client(rare), privacy, opened) for rare in ("some", others))
    out = []
    for number, (one, other) in enumerate(zip(*pairs, strict=True)):
        first, second = of_the_rare_class(one), of_the_rare_class(other)
        both = first.keys() & second.keys()
        out += sorted(first.keys() ^ second.keys())
        out += [f"{name}, reply {number}" for name in both if not torch.equal(first[name], second[name])]
    return out


@pytest.mark.parametrize("hidden", [CLOSED, FEW_HERE], ids=["closed", "few"])
@pytest.mark.parametrize("others", ["others", "none"])
@pytest.mark.parametrize(("name", "preset"), CASES)
def test_replies_do_not_depend_on_the_nodes_of_a_hidden_class(
    name: str, preset: str, others: str, hidden: tuple[Privacy, Tensor]
) -> None:
    assert differing(make_method(name, preset), others, *hidden) == []


@pytest.mark.parametrize(("name", "preset"), CASES)
def test_without_the_guard_they_do(name: str, preset: str) -> None:
    """Else the test above would say nothing."""
    assert bool(differing(make_method(name, preset), "none", *OFF)) == (name not in SENDS_NO_CLASSES)


@pytest.mark.parametrize("number", [1, LAST])
@pytest.mark.parametrize(("name", "preset"), CASES)
def test_every_axis_of_classes_is_declared(name: str, preset: str, number: int) -> None:
    """The rows of a gradient have such an axis too. They are of one class each, at the received head."""
    method, data = make_method(name, preset), client("some")
    server = replace(server_of(data), round=number)
    fields = method.reply_fields(server, method.message(initial(method, server), 0))
    for field, about in fields.items():
        assert not any(size % CLASSES == 0 and size != CLASSES for size in about.shape), field
        assert [axis for axis in class_sized(about) if axis not in declared_axes(about)] == [], field


def class_sized(field: Field) -> list[int]:
    return [axis for axis, size in enumerate(field.shape) if size == CLASSES]


def declared_axes(field: Field) -> list[int]:
    if field.kind == "rows":
        return list(range(len(field.shape)))
    return [0] if field.kind in ROWS else [] if field.classes is None else [field.classes]


def same_sizes(one: Sizes, other: Sizes) -> bool:
    return all(
        torch.equal(getattr(one, part), getattr(other, part)) for part in ("train", "val", "test", "holders")
    )


def test_a_site_with_few_nodes_declares_what_a_site_without_them_does() -> None:
    """The totals differ, and say so: docs/privacy.md."""
    method, (privacy, _) = make_method("fedavg"), FEW_HERE
    some, none = (participant(method, client(rare), privacy, False) for rare in ("some", "none"))
    assert same_sizes(some.sizes, none.sizes)
    assert some.sizes.train.tolist() == [6] * RARE + [0]
    assert (
        some.sizes.val.tolist() == some.sizes.test.tolist() == [0] * CLASSES
    )  # 2 of each class: fewer than 5
    assert some.sizes.num_train == none.sizes.num_train + 3
    unguarded = (participant(method, client(rare), Privacy(), False).sizes for rare in ("some", "none"))
    assert not same_sizes(*unguarded)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("name", ["fedavg", "fedepd", "creff", "lws", "fedproto", "fedgta"])
def test_matrices_of_a_site_say_nothing_about_a_closed_class(name: str, secure: bool) -> None:
    """Neither which nodes belong to it nor which were taken for it, and all others are still counted."""
    method, data = make_method(name), client("some")
    one = participant(method, data, Privacy(guard=True, min_count=2, secure=secure), shows_test=False)
    message = {**method.message(initial(method, server_of(data)), 0), OPEN: CLOSED[1]}
    for number in (1, 2):
        one.step(number, message)
    found = one.evaluate(LAST, message)
    assert found
    for matrix in found.values():
        assert not matrix[RARE].any()
        assert not matrix[:, RARE].any()
        assert matrix.sum(1).tolist() == [2] * RARE + [0]
