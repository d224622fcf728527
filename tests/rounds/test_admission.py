"""Each way a reply can be wrong is refused by name; a right one passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd.rounds.admission import admit, admit_confusions, sizes_fault
from fedepd.types import Field, Reply, Sizes, same_fields

SIZES = Sizes(9, 5, torch.tensor([3, 2]), torch.tensor([1, 0]), torch.tensor([2, 1]))
"""Nine nodes: three and two train, one and none validate, two and one test."""
DECLARED = {0: SIZES, 1: SIZES}
FIELDS = {
    "weight": Field((2, 3)),
    "count": Field((2,), "count"),
    "rows": Field((-1, 3), "rows", of="count"),
    "sum": Field((2, 3), "sum", of="count"),
    "votes": Field((2,), "votes"),
    "present": Field((2,), "presence"),
    "say": Field((1,), "weight"),
}
GOOD = Reply(
    {
        "weight": torch.ones(2, 3),
        "count": torch.tensor([3.0, 0.0]),
        "rows": torch.ones(1, 3),
        "sum": torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]]),
        "votes": torch.tensor([5.0, 0.0]),
        "present": torch.tensor([1.0, 0.0]),
        "say": torch.tensor([0.5]),
    },
    num_nodes=9,
    num_train=5,
    round=7,
)


def refusal(reply: Reply, client: int = 0) -> tuple[str, str] | None:
    accepted, refused = admit({client: reply}, {0: None, 1: None}, FIELDS, 7, 100.0, DECLARED)
    assert len(accepted) + len(refused) == 1
    return (refused[0].field, refused[0].reason) if refused else None


def with_tensors(**changed: Any) -> Reply:
    return replace(GOOD, tensors={**GOOD.tensors, **changed})


def test_a_right_reply_passes() -> None:
    assert refusal(GOOD) is None


@pytest.mark.parametrize(
    ("reply", "field", "reason"),
    [
        (replace(GOOD, round=6), "round", "answers round 6 in round 7"),
        (replace(GOOD, num_nodes=10**9), "num_nodes", "is 1000000000, but the client declared 9"),
        (replace(GOOD, num_nodes=10), "num_nodes", "is 10, but the client declared 9"),
        (replace(GOOD, num_train=7), "num_train", "is 7, but the client declared 5"),
        (replace(GOOD, num_train=0), "num_train", "is 0, but the client declared 5"),
        (replace(GOOD, num_train=-1), "num_train", "is -1, but the client declared 5"),
        (
            replace(GOOD, tensors={n: v for n, v in GOOD.tensors.items() if n != "count"}),
            "count",
            "is missing",
        ),
        (with_tensors(**{"\x1b[2J": torch.ones(1)}), "?[2J", "is not expected"),
        (with_tensors(more=torch.ones(1)), "more", "is not expected"),
        (with_tensors(weight=torch.ones(3, 2)), "weight", "has shape"),
        (with_tensors(weight=torch.ones(6)), "weight", "has shape"),
        (with_tensors(weight=torch.ones(2, 3, dtype=torch.float64)), "weight", "not dense float32"),
        (with_tensors(weight=torch.eye(2, 3).to_sparse()), "weight", "not dense float32"),
        (with_tensors(weight=torch.full((2, 3), float("nan"))), "weight", "NaN or infinite"),
        (with_tensors(weight=torch.full((2, 3), float("inf"))), "weight", "NaN or infinite"),
        (with_tensors(weight=torch.full((2, 3), 50.0)), "weight", "has norm 122, more than 100"),
        (with_tensors(count=torch.tensor([3.0, -1.0])), "count", "negative or not whole"),
        (with_tensors(count=torch.tensor([1.5, 0.0])), "count", "negative or not whole"),
        (
            with_tensors(count=torch.tensor([3.0, 3.0])),
            "count",
            "counts 3 nodes of class 1, but the client declared 2",
        ),
        (with_tensors(count=torch.tensor([1e9, 0.0])), "count", "has norm 1e+09, more than 100"),
        (
            with_tensors(votes=torch.tensor([6.0, 0.0])),
            "votes",
            "gives 6 votes, but the client has 5 training nodes",
        ),
        (with_tensors(votes=torch.tensor([-1.0, 0.0])), "votes", "negative or not whole"),
        (with_tensors(votes=torch.tensor([0.5, 0.0])), "votes", "negative or not whole"),
        (with_tensors(present=torch.tensor([2.0, 0.0])), "present", "neither 0 nor 1"),
        (with_tensors(say=torch.tensor([-0.1])), "say", "is negative"),
        (with_tensors(sum=torch.ones(2, 3)), "sum", "has a row for a class of which count counts no node"),
        (
            with_tensors(count=torch.tensor([1.0, 3.0])),
            "count",
            "counts 3 nodes of class 1, but the client declared 2",
        ),
        (with_tensors(rows=torch.ones(2, 3)), "rows", "has 2 rows"),
    ],
)
@pytest.mark.hostile
def test_a_wrong_reply_is_refused_by_name(reply: Reply, field: str, reason: str) -> None:
    found = refusal(reply)
    assert found is not None
    assert found[0] == field
    assert reason in found[1]


def test_a_client_that_was_not_asked_is_refused() -> None:
    assert refusal(GOOD, client=9) == ("client", "is not in this round")


def test_a_client_that_declared_nothing_is_refused() -> None:
    _, refused = admit({0: GOOD}, {0: None}, FIELDS, 7, 100.0, {})
    assert [(r.field, r.reason.split(",")[0]) for r in refused] == [
        ("sizes", "were not declared before the first round")
    ]


def test_the_others_pass_in_ascending_order() -> None:
    accepted, refused = admit({1: GOOD, 0: GOOD, 5: GOOD}, {0: None, 1: None}, FIELDS, 7, 100.0, DECLARED)
    assert list(accepted) == [0, 1]
    assert [r.client for r in refused] == [5]


def test_same_fields_repeat_names_and_shapes() -> None:
    assert same_fields({"a": torch.zeros(2, 1)}) == {"a": Field((2, 1))}


# What a client declares


def test_sizes_that_fit_each_other_pass() -> None:
    assert sizes_fault(SIZES, 2) is None
    assert sizes_fault(replace(SIZES, train=torch.tensor([3, 0])), 2) is None  # an owner hides a small class


@pytest.mark.hostile
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_nodes": 10**9}, "num_nodes"),
        ({"num_nodes": 2**63}, "num_nodes"),
        ({"num_nodes": -1}, "num_nodes"),
        ({"num_train": 10}, "num_train"),
        ({"num_train": -1}, "num_train"),
        ({"num_train": 4}, "train"),
        ({"num_train": 6}, "test"),
        ({"train": torch.tensor([3, 3])}, "train"),
        ({"train": torch.tensor([3, -1])}, "train"),
        ({"train": torch.tensor([2**62, 2**62])}, "train"),
        ({"train": torch.tensor([3])}, "train"),
        ({"train": torch.tensor([3.0, 2.0])}, "train"),
        ({"val": torch.tensor([2, 0])}, "test"),
        ({"val": torch.tensor([2**62, 2**62])}, "val"),
        ({"test": torch.tensor([9, 9])}, "test"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(change: dict[str, Any], field: str) -> None:
    found = sizes_fault(replace(SIZES, **change), 2, most_nodes=1000)
    assert found is not None
    assert found[0] == field


# What a client says of its held-out nodes

RIGHT = {"global_val": torch.tensor([[0, 1], [0, 0]]), "global_test": torch.tensor([[2, 0], [1, 0]])}


def test_confusions_of_the_declared_nodes_pass() -> None:
    accepted, refused = admit_confusions({1: RIGHT, 0: RIGHT}, DECLARED)
    assert (list(accepted), refused) == ([0, 1], [])


@pytest.mark.hostile
@pytest.mark.parametrize(
    "matrix",
    [
        torch.diag(torch.tensor([10**9, 10**9])),
        torch.full((2, 2), 2**62),
        torch.tensor([[2**63 - 1, 3], [1, 0]]),
        torch.tensor([[3, -1], [1, 0]]),
        torch.tensor([[2, 1], [1, 0]]),
        torch.tensor([[1, 0], [1, 0]]),
        torch.tensor([[2, 0], [0, 0]]),
        torch.zeros(2, 2, dtype=torch.int64),
    ],
)
def test_confusions_of_other_nodes_are_refused(matrix: torch.Tensor) -> None:
    accepted, refused = admit_confusions({0: {**RIGHT, "global_test": matrix}, 1: RIGHT}, DECLARED)
    assert list(accepted) == [1]
    assert [(r.client, r.field) for r in refused] == [(0, "global_test")]


@pytest.mark.parametrize(("closed", "passes"), [([True, False], True), ([False, True], False), (None, False)])
def test_only_the_row_of_a_closed_class_may_be_left_out(closed: list[bool] | None, passes: bool) -> None:
    without = {name: matrix.clone() for name, matrix in RIGHT.items()}
    for matrix in without.values():
        matrix[0] = 0
    hidden = None if closed is None else torch.tensor(closed)
    assert (list(admit_confusions({0: without}, DECLARED, hidden)[0]) == [0]) is passes
    partly = {name: matrix.clamp(max=1) for name, matrix in RIGHT.items()}
    assert list(admit_confusions({0: partly}, DECLARED, torch.tensor([True, False]))[0]) == []


def test_confusions_of_a_client_that_declared_nothing_are_refused() -> None:
    assert [r.field for r in admit_confusions({0: RIGHT}, {})[1]] == ["sizes"]
