"""Each way a reply can be wrong is refused by name; a right one passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedepd.gate import Field, admit, counts_classes, same_fields
from fedepd.types import Reply

DECLARED = {0: torch.tensor([3, 2]), 1: torch.tensor([3, 2])}
FIELDS = {
    "weight": Field((2, 3)),
    "count": Field((2,), "count"),
    "rows": Field((-1, 3), rows_of="count"),
}
GOOD = Reply({"weight": torch.ones(2, 3), "count": torch.tensor([3.0, 0.0]), "rows": torch.ones(1, 3)}, num_nodes=6, num_train=5, round=7)


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
        (replace(GOOD, num_train=7), "num_train", "7 training nodes of 6 nodes"),
        (replace(GOOD, num_train=-1), "num_train", "-1 training nodes"),
        (replace(GOOD, tensors={"weight": torch.ones(2, 3), "rows": torch.ones(1, 3)}), "count", "is missing"),
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
        (with_tensors(count=torch.tensor([3.0, 3.0])), "count", "counts 6 nodes, but the client has 5 training nodes"),
        (with_tensors(count=torch.tensor([1.0, 3.0])), "count", "counts 3 nodes of class 1, but the client declared 2"),
        (with_tensors(rows=torch.ones(2, 3)), "rows", "has 2 rows"),
    ],
)
def test_a_wrong_reply_is_refused_by_name(reply: Reply, field: str, reason: str) -> None:
    found = refusal(reply)
    assert found is not None
    assert found[0] == field
    assert reason in found[1]


def test_a_client_that_was_not_asked_is_refused() -> None:
    assert refusal(GOOD, client=9) == ("client", "is not in this round")


def test_counts_of_a_client_that_declared_nothing_are_refused() -> None:
    _, refused = admit({0: GOOD}, {0: None}, FIELDS, 7, 100.0, {})
    assert [(r.field, r.reason) for r in refused] == [("count", "cannot be checked: the client has not declared its class sizes")]


def test_without_counts_nothing_need_be_declared() -> None:
    fields = {"weight": FIELDS["weight"]}
    assert not counts_classes(fields)
    assert counts_classes(FIELDS)
    assert admit({0: replace(GOOD, tensors={"weight": torch.ones(2, 3)})}, {0: None}, fields, 7, 100.0, {})[1] == []


def test_the_others_pass_in_ascending_order() -> None:
    accepted, refused = admit({1: GOOD, 0: GOOD, 5: GOOD}, {0: None, 1: None}, FIELDS, 7, 100.0, DECLARED)
    assert list(accepted) == [0, 1]
    assert [r.client for r in refused] == [5]


def test_same_fields_repeat_names_and_shapes() -> None:
    assert same_fields({"a": torch.zeros(2, 1)}) == {"a": Field((2, 1))}
