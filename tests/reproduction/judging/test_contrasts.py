"""Who a claim sets against whom: the rows, the bounds, and what is missing."""

from __future__ import annotations

import math

from fedepd.methods import METHODS
from fedepd.methods.fedepd.method import FedEPD
from fedepd.reproduction.judging.contrasts import (
    BASELINES,
    COMPARABLE,
    PARTS,
    Contrast,
    Missing,
    best,
    cheap,
    comparable,
    part_helps,
    tail_is_worse,
)

ROWS = {
    "fedepd": {
        "acc": [60.0, 62.0],
        "seconds": [2.0, 2.0],
        "head_acc": [90.0, 90.0],
        "tail_acc": [10.0, 20.0],
    },
    "fedavg": {"acc": [50.0, 51.0], "seconds": [1.0, 1.0]},
    "fedlc": {"acc": [math.nan, math.nan], "seconds": [1.0, 1.0]},
    "fedepd:without_consensus": {"acc": [59.0, 59.0]},
}


def test_baselines_and_parts_are_names_that_exist() -> None:
    assert set(BASELINES) <= METHODS.keys() - {"fedepd", "isolated", "centralised"}
    for setting, preset in PARTS.values():
        assert preset in FedEPD.presets
        assert hasattr(FedEPD(), setting)


def test_the_best_is_above_each_rival_and_what_is_missing_is_named() -> None:
    found, not_run, unknown = best("acc", ["fedavg", "lws", "fedlc"])(ROWS, "fedepd")
    assert found == Contrast([60.0, 62.0], [50.0, 51.0], ("fedepd", "fedavg"))
    assert isinstance(not_run, Missing)
    assert "lws" in not_run.reason
    assert not not_run.undefined
    assert isinstance(unknown, Missing)
    assert "fedlc" in unknown.reason
    assert unknown.undefined


def test_comparable_allows_a_point() -> None:
    (found,) = comparable("acc", ["fedavg"])(ROWS, "fedepd")
    assert isinstance(found, Contrast)
    assert (found.proof, found.refutal) == (-COMPARABLE, -COMPARABLE)


def test_a_part_is_refuted_only_where_it_costs() -> None:
    (found,) = part_helps("consensus", "acc")(ROWS, "fedepd")
    assert isinstance(found, Contrast)
    assert found.names == ("fedepd", "fedepd:without_consensus")
    assert (found.proof, found.refutal) == (0.0, 0.0)


def test_costs_are_compared_as_ratios() -> None:
    """Minus the logarithm: twice the seconds is log 2 below, and the bound of 1.25 is log 1.25 below."""
    (found,) = cheap("seconds", 1.25, ["fedavg"])(ROWS, "fedepd")
    assert isinstance(found, Contrast)
    assert found.ours[0] - found.theirs[0] == -math.log(2)
    assert found.proof == found.refutal == -math.log(1.25)
    assert found.unit == "times"


def test_head_against_tail_is_within_a_method() -> None:
    (found,) = tail_is_worse(ROWS, "fedepd")
    assert isinstance(found, Contrast)
    assert (found.ours, found.theirs) == ([90.0, 90.0], [10.0, 20.0])
    (missing,) = tail_is_worse(ROWS, "lws")
    assert isinstance(missing, Missing)
