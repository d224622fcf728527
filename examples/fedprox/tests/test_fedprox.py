"""Run with 'pytest examples/fedprox' once the package is installed."""

from __future__ import annotations

import pytest
from fedprox_example import FedProx

from fedepd.testing import Check, method_checks


@pytest.mark.parametrize("check", method_checks(FedProx), ids=str)
def test_fedprox_keeps_the_contract(check: Check) -> None:
    check()
