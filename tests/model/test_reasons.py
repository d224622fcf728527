"""What an explanation says, in JSON and in words."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from fedepd.files import clean
from fedepd.model.reasons import Case, Reason

CASE = Case(
    node="k1\x1b",
    label="mule",
    probability=0.8,
    log_odds=1.5,
    base_log_odds=0.0,
    reasons=(
        Reason("feature", "age", 1.0, 18.0, 45.12345),
        Reason("neighbour", "k2", 0.75, hops=1, by_edges=0.5, label="clean", probability=0.9),
        Reason("neighbour", "k3", -0.24, hops=2, label="clean", probability=0.6),
    ),
    remainder=-0.01,
    steps=32,
    without=(("age", "k2"), 0.3),
)


def test_json_adds_up_with_what_is_left_out() -> None:
    """1 + 0.75, the rest -0.24, and the remainder -0.01 make 1.5."""
    found = json.loads(json.dumps(clean(CASE.as_json(most=2))))
    assert [each["name"] for each in found["reasons"]] == ["age", "k2"]
    total = sum(each["contribution"] for each in found["reasons"])
    assert total + found["other_reasons"] + found["remainder"] == pytest.approx(1.5)
    assert found["base_probability"] == 0.5
    assert found["reasons"][0] == {
        "kind": "feature", "name": "age", "contribution": 1.0, "value": 18.0, "usual": 45.12345
    }  # fmt: skip


def test_json_has_values_of_zero_too() -> None:
    case = replace(CASE, reasons=(Reason("feature", "new_devices", 1.0, 0.0, 0.0),))
    assert case.as_json()["reasons"] == [
        {"kind": "feature", "name": "new_devices", "contribution": 1.0, "value": 0.0, "usual": 0.0}
    ]


def test_words_are_safe_to_show() -> None:
    lines = CASE.sentences(2)
    assert lines[0].startswith("k1?: mule with probability 0.800")
    assert lines[1:] == [
        "  +1.00  age = 18 (usual: 45.12)",
        "  +0.75  k2, neighbour, clean 0.90",
        "  without age, k2 it would be 0.300",
    ]
    assert CASE.reasons[2].words() == "k3, 2 steps away, clean 0.60"


def test_importances_are_called_so_and_have_no_sum() -> None:
    case = replace(CASE, by="gnnexplainer")
    found = case.as_json(most=2)
    assert found["by"] == "gnnexplainer"
    assert "do not add up" in found["note"]
    assert [each["importance"] for each in found["reasons"]] == [1.0, 0.75]
    assert not {"other_reasons", "remainder"} & found.keys()
    assert "contribution" not in found["reasons"][0]
    lines = case.sentences(1)
    assert "do not add up" in lines[1]
    assert lines[2] == "  1.00  age = 18 (usual: 45.12)"
