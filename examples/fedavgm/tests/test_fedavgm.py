"""Run with 'pytest examples/fedavgm' once the package is installed."""

from __future__ import annotations

import pytest
from fedavgm_example import FedAvgM

from fedepd.testing import Check, method_checks


@pytest.mark.parametrize("check", method_checks(FedAvgM), ids=str)
def test_fedavgm_keeps_the_contract(check: Check) -> None:
    check()
