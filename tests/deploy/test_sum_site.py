"""What a site remembers, and what it reads of a server's message; whole sums are in test_sums.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")

from fedepd.deploy.limits import expected_message
from fedepd.deploy.sum_site import bound_to, context_of, following_sum, used_round, what_of
from fedepd.deploy.task import FederationTask
from fedepd.deploy.wire import PURPOSES, Sum
from fedepd.errors import BadMessage
from toy import CLASSES, FEATURES


def task(**settings: Any) -> FederationTask:
    return FederationTask("r", "fedepd", "default", settings, FEATURES, CLASSES, ("a", "b", "c"))


def test_the_last_sum_that_a_site_was_in() -> None:
    assert used_round({"used": np.array([0])}, Sum("step", 1)) == 0
    assert used_round({"used": np.array([4])}, Sum("evaluate", 4)) == 4


@pytest.mark.hostile
@pytest.mark.parametrize("used", [None, np.array([4]), np.array([-1]), np.array([1.0]), np.array([1, 2])])
def test_a_last_sum_that_cannot_be(used: Any) -> None:
    with pytest.raises(BadMessage, match="which sum this site was in before the step of round 4"):
        used_round({} if used is None else {"used": used}, Sum("step", 4))


def test_the_next_sum() -> None:
    assert following_sum({}) is None
    assert following_sum({"next": np.array([1, 7, 0])}) == Sum("step", 7)


@pytest.mark.hostile
@pytest.mark.parametrize("code", [[len(PURPOSES), 1, 0], [-1, 1, 0], [1, -1, 0], [1, 1], [1.0, 1.0, 0.0]])
def test_a_next_sum_that_is_none(code: list[Any]) -> None:
    with pytest.raises(BadMessage, match="no usable next sum"):
        following_sum({"next": np.array(code)})


def test_masks_are_bound_to_all_that_matters() -> None:
    """Another setting, purpose, message or cohort gives another context."""
    message = expected_message(task(), 0)
    what = what_of(task(), Sum("step", 1), message)
    context = context_of(task(), Sum("step", 1), [0, 1, 2], what)
    assert context.length == sum(size for _, size in context.fields)
    assert context.together == CLASSES + CLASSES * 64  # counts and sums of prototypes
    assert bound_to(task(), Sum("step", 1)) != bound_to(task(lr=0.02), Sum("step", 1))
    assert bound_to(task(), Sum("step", 1)) != bound_to(task(), Sum("evaluate", 1))
    other = {**message, "encoder.bias": message["encoder.bias"] + 1}
    assert what_of(task(), Sum("step", 1), other).message != what.message
