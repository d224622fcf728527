"""What the coordinator is shown of a run: names and reasons that other houses wrote."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'federation'")
from fedepd.deploy.admin import describe
from hostile_names import PAYLOADS, cases, check_lines

pytestmark = pytest.mark.hostile


def training(**changed: Any) -> dict[str, Any]:
    now = {"state": "training", "round": 3, "rounds": 10, "seconds": 1.5, "loss": 0.5, "answered": ["a", "b"]}
    return {**now, "missing": [], "refused": [], "val": {"global": {"macro_f1": 0.5}}, **changed}


def test_an_honest_round() -> None:
    said = describe(training(missing=["north"], refused=["south: model has a NaN"]))
    start = "round 3/10, 1.50 s, 2 sites answered, loss 0.5000, global val macro-F1 50.00"
    assert said == f"{start}, unreachable: north, refused south: model has a NaN"


def test_a_round_under_noise_has_its_budget_and_no_score() -> None:
    said = describe(training(loss=None, val=None, spent="epsilon 3.20 of 8 spent in 3 sums"))
    assert said == "round 3/10, 1.50 s, 2 sites answered, epsilon 3.20 of 8 spent in 3 sums"


@pytest.mark.parametrize("text", cases(PAYLOADS))
@pytest.mark.parametrize("channel", ["missing", "refused", "val", "round", "state", "error", "spent"])
def test_remote_names_and_reasons_stay_on_their_line(channel: str, text: str) -> None:
    changed: dict[str, dict[str, Any]] = {
        "missing": {"missing": [text] * 1000},
        "refused": {"refused": [f"north: {text} is no field that was agreed; it is refused"]},
        "val": {"val": {text: {"macro_f1": 0.5}}},
        "round": {"round": text},
        "spent": {"spent": text},
        "state": {"state": text, "job": text},
        "error": {"state": "failed", "error": f"{text}; look at the log"},
    }
    said = describe(training(**changed[channel]))
    check_lines(said)
    assert "\n" not in said
    assert len(said) <= 4200
    if channel == "refused":
        assert said.endswith("is no field that was agreed; it is refused")
