"""A check says its name, what is wrong and what to do, whatever was raised."""

from __future__ import annotations

import pytest
import torch

from fedepd.testing.checks import Check, CheckFailed, require, require_same, run_all


def test_a_check_that_holds_is_silent() -> None:
    Check("it adds up", lambda: require(1 + 1 == 2, "it does not"), "count again")()


def test_a_failure_has_name_fault_and_cure() -> None:
    check = Check("it adds up", lambda: require(1 + 1 == 3, "2 is not 3"), "count again")
    assert str(check) == "it adds up"
    with pytest.raises(CheckFailed, match=r"^it adds up: 2 is not 3; count again$"):
        check()


def test_any_other_error_is_a_failure_with_its_cause() -> None:
    with pytest.raises(
        CheckFailed, match=r"^it divides: ZeroDivisionError: division by zero; mind the 0$"
    ) as e:
        Check("it divides", lambda: 1 / 0, "mind the 0")()
    assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_the_first_failure_ends_all() -> None:
    done: list[str] = []
    checks = [
        Check("first", lambda: done.append("first"), ""),
        Check("second", lambda: require(False, "wrong"), ""),
        Check("third", lambda: done.append("third"), ""),
    ]
    with pytest.raises(CheckFailed, match="second: wrong"):
        run_all(checks)
    assert done == ["first"]


def test_tensors_are_compared_bit_for_bit() -> None:
    one = {"a": torch.tensor([1.0])}
    require_same(one, {"a": torch.tensor([1.0])})
    with pytest.raises(CheckFailed, match="a differs"):
        require_same(one, {"a": torch.tensor([1.0]).nextafter(torch.tensor([2.0]))})
    with pytest.raises(CheckFailed, match=r"\['b'\] occur in one run only"):
        require_same(one, {**one, "b": torch.zeros(1)})
