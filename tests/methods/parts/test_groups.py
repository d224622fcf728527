from __future__ import annotations

import math

import pytest
import torch

from fedepd.methods.parts.groups import (
    curriculum,
    distance,
    group_loss,
    head_classes,
    mixed,
    nearest_class,
    routed,
    similarity,
)
from fedepd.types import Tensors


@pytest.mark.parametrize(
    ("counts", "heads"),
    [
        ([50, 30, 20, 10, 10, 10, 5, 5, 5, 5], 6),
        ([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], 7),
        ([5, 3], 1),
        ([4, 4, 4], 0),
        ([3, 2, 1], 2),
    ],
)
def test_head_classes_by_hand(counts: list[int], heads: int) -> None:
    """1: position 7 has 5 nodes; after the ties 10 / 0, before them 6 / 4. 2: 8 / 2 = 4 or 7 / 3.

    3: 2 / 0 or 1 / 1. 4: 3 / 0 or 0 / 3, which is nearer than infinity. 5: 3 / 0 or 2 / 1.
    """
    found = head_classes(torch.tensor(counts, dtype=torch.float32))
    assert found.tolist() == [place < heads for place in range(len(counts))]
    backwards = head_classes(torch.tensor(counts[::-1], dtype=torch.float32))
    assert backwards.tolist() == found.tolist()[::-1]


def test_the_curriculum_goes_from_high_to_low() -> None:
    """cos 0, cos π/4, cos π/2."""
    assert [round(curriculum(step, 4), 4) for step in (0, 2, 4)] == [1.0, 0.7071, 0.0]


GROUPS = torch.tensor([True, True, False, False])


def layer(name: str, *bias: float) -> Tensors:
    return {f"{name}.weight": torch.zeros(1, len(bias)), f"{name}.bias": torch.tensor(bias)}


def test_the_loss_of_two_groups_by_hand() -> None:
    """Classes 0 and 1 are head. Two nodes of class 0 at biases (log 3, 0): log 4/3 each, and their mean.

    One of class 3 at (0, 0): log 2. What the other group's biases are does not matter.
    """
    labels, rows = torch.tensor([0, 0, 3]), torch.ones(3, 1)
    found = group_loss(layer("high", math.log(3), 0.0, 7.0, 7.0), "high", rows, labels, GROUPS)
    assert float(found) == pytest.approx(math.log(4 / 3) + math.log(2), abs=1e-6)
    none = group_loss(layer("high", 1.0, 0.0, 7.0, 7.0), "high", rows[:0], labels[:0], GROUPS)
    assert float(none) == 0.0


def test_a_student_that_is_its_teacher_is_at_no_distance() -> None:
    labels, rows = torch.tensor([0, 3]), torch.ones(2, 1)
    teacher, student = layer("low", 1.0, 0.0, 2.0, 5.0), layer("student", 1.0, 0.0, 2.0, 5.0)
    assert float(distance(teacher, "low", student, rows, labels, GROUPS)) == pytest.approx(0.0, abs=1e-7)


def test_the_distance_by_hand() -> None:
    """Teacher (¾, ¼), student (½, ½): ¾ log 1.5 + ¼ log ½ = .13081, over 2 classes .06541.

    The mean over one node of class 0 and one of class 1 is the same. The gradient is finite.
    """
    labels, rows = torch.tensor([0, 1]), torch.ones(2, 1)
    teacher, student = layer("low", math.log(3), 0.0, 9.0, 0.0), layer("student", 0.0, 0.0, 0.0, 3.0)
    student["student.bias"].requires_grad_()
    found = distance(teacher, "low", student, rows, labels, GROUPS)
    assert float(found.detach()) == pytest.approx(0.06541, abs=1e-5)
    (grad,) = torch.autograd.grad(found, student["student.bias"])
    torch.testing.assert_close(grad, torch.tensor([-0.125, 0.125, 0.0, 0.0]))  # (½ - ¾) / 2


def test_the_nearest_prototype_says_which_student_answers() -> None:
    """Prototypes (1, 0) of a head class and (0, 1) of a tail class. (.6, .8) is nearer to the second.

    (0, 0) is near to none, so it goes to the class with most nodes. A class without a prototype is far.
    """
    rows, means = torch.tensor([[0.6, 0.8], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    near = similarity(rows, means, torch.tensor([True, True]))
    assert nearest_class(near, torch.tensor([9.0, 2.0])).tolist() == [1, 0]
    assert nearest_class(near, torch.tensor([2.0, 9.0])).tolist() == [1, 1]
    alone = similarity(rows, means, torch.tensor([True, False]))
    assert nearest_class(alone, torch.tensor([2.0, 9.0])).tolist() == [0, 0]


def test_classes_of_the_other_group_lie_far_below() -> None:
    logits = torch.tensor([[1.0, -2.0, 5.0, 6.0], [1.0, -2.0, 5.0, 6.0]])
    found = routed(logits, torch.tensor([True, False]), GROUPS)
    assert found.tolist() == [[1.0, -2.0, -22.0, -22.0], [-15.0, -15.0, 5.0, 6.0]]


def test_both_students_weighed_by_similarity() -> None:
    """Nearest cosines .6 and .8 at temperature .1: e^6 : e^8, so the tail student has .880797.

    Within its group every class is as likely: .440399.
    """
    found = mixed(torch.zeros(1, 4), torch.tensor([[0.6, 0.1, 0.8, float("-inf")]]), GROUPS).exp()
    assert float(found.sum()) == pytest.approx(1.0, abs=1e-6)
    assert found[0, 2:].tolist() == pytest.approx([0.440399] * 2, abs=1e-5)
    one_group = mixed(torch.zeros(1, 2), torch.tensor([[0.6, 0.1]]), torch.tensor([False, False]))
    assert one_group.exp().tolist() == [[0.5, 0.5]]
